/* --check: what it counts in a store that is whole, and that it finds each kind of damage at its place. */
#define TEST_FIXTURE setup, teardown

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/cluster/cluster.h"
#include "server/check/check.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"
#include "test/unit/server/format.h"

enum { SEGMENTS = 6, LIMIT = 1024, SHARD = 9, LONG_BYTES = 3000, MAP_OFFSET = 8192 };
#define PM_BYTES ((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES)

/* What setup makes of the segments. */
enum { USING, USED, COMMITTED, DIRTY, WAS_FREE, NEVER_USED };

static const struct store_identity IDENTITY = {
    .cluster = 0xabcdef, .server = 7, .format = {.seed = 1234, .block_limit = LIMIT}};
static struct heap_pm *heap;
static struct store_geometry at;
static struct check_report *report;
static uint8_t value[LONG_BYTES];

static uint64_t write_entry(uint64_t offset, enum entry_type type, uint32_t value_bytes)
{
    struct entry_header header = {.type = type,
                                  .shard = SHARD,
                                  .version = version_make(2, 1),
                                  .key_bytes = type == ENTRY_PUT || type == ENTRY_DELETE ? 3 : 0,
                                  .value_bytes = value_bytes,
                                  .client_id = 1,
                                  .operation = 1};
    header.blocks = (uint16_t)entry_blocks(&IDENTITY.format, header.key_bytes, value_bytes);
    for (; header.block < header.blocks; header.block++) {
        uint8_t block[LIMIT];
        uint32_t bytes = entry_encode_block(&IDENTITY.format, &header, "key", value, block);
        pm_store(&heap->pm, offset, block, bytes);
        offset += bytes;
    }
    return offset;
}

static uint64_t segment_at(uint64_t segment)
{
    return at.segments + segment * STORE_SEGMENT_BYTES;
}

static void store_bytes(uint64_t term, const void *bytes, size_t count)
{
    const struct store_config stored = {
        .term = term, .bytes = bytes, .byte_count = (uint32_t)count};
    struct store_config_write write;
    assert_int_equal(store_config_start(&heap->pm, &stored, &write), 0);
    assert_int_equal(store_config_poll(&write), 1);
    assert_int_equal(store_config_poll(&write), 1);
}

/* Server 7 alone has one shard. */
static void store_configuration(uint64_t term)
{
    uint8_t encoded[256];
    struct cluster_config *config = cluster_create(1, 1);
    config->term = term;
    config->cluster = IDENTITY.cluster;
    config->block_limit = LIMIT;
    config->replicas = 1;
    config->has_secret = true;
    memcpy(config->secret, "not to be printed", sizeof config->secret);
    config->members[0] =
        (struct member){.server = 7, .incarnation = 77, .workers = 1, .address = "shm:/a"};
    config->shards[0] = (struct shard){
        .id = SHARD, .last_slot = SLOT_COUNT - 1, .epoch = 2, .primary = IDENTITY.server};
    assert_int_equal(cluster_finish(config), 0);
    store_bytes(term, encoded, cluster_encode(config, true, encoded, sizeof encoded));
    cluster_release(config);
}

static int setup(void **state)
{
    (void)state;
    struct store *store;
    struct store_run run = {.incarnation = 77, .durability = PM_FENCE};
    uint64_t segment;
    memset(value, 0x5a, sizeof value);
    heap = heap_pm_create(PM_BYTES);
    heap->pm.offset = MAP_OFFSET;
    at = store_geometry(SEGMENTS);
    assert_int_equal(store_format(&heap->pm, &IDENTITY), 0);
    assert_int_equal(store_open(&heap->pm, &IDENTITY, &store), 0);
    for (unsigned i = USING; i <= WAS_FREE; i++)
        assert_int_equal(store_allocate(store, OWNER_CLEAN, 0, &segment), 0);
    store_transition(store, USED, SEGMENT_USED);
    store_transition(store, COMMITTED, SEGMENT_COMMITTED);
    store_transition(store, DIRTY, SEGMENT_DIRTY);
    store_transition(store, WAS_FREE, SEGMENT_DIRTY);
    store_transition(store, WAS_FREE, SEGMENT_FREE);
    heap->pm.base[segment_at(DIRTY)] = 1; /* nobody needs it */
    for (unsigned i = USING; i <= COMMITTED; i++) {
        uint64_t offset = write_entry(segment_at(i) + 64, ENTRY_PUT, 5); /* behind a hole */
        offset = write_entry(offset, ENTRY_DELETE, 0);
        write_entry(offset, ENTRY_PUT, LONG_BYTES);
    }
    write_entry(segment_at(USED + 1) - 64, ENTRY_COMMIT_VERSIONS, 16);
    write_entry(segment_at(COMMITTED + 1) - 64, ENTRY_RECORD, 0);
    store_replica_set(store, SHARD,
                      &(struct replica_row){
                          .state = REPLICA_FULL, .first_epoch = 2, .settled = version_make(2, 1)});
    assert_int_equal(store_replica_sync(store), 1);
    assert_int_equal(store_run_write(&heap->pm, &run), 0);
    store_configuration(41);
    store_close(store);
    report = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(report);
    heap_pm_destroy(heap);
    return 0;
}

static void check(void)
{
    free(report);
    report = NULL;
    uint64_t stores = atomic_load(&heap->stores);
    assert_int_equal(check_pm(&heap->pm, &report), 0);
    assert_true(atomic_load(&heap->stores) == stores);
}

TEST(a_whole_store_is_counted_and_nothing_is_found)
{
    check();
    assert_true(check_found(report) == 0 && report->place_count == 0);
    static const uint64_t states[] = {2, 1, 1, 1, 1}, owners[] = {3, 0, 0, 0, 0, 3};
    assert_memory_equal(report->states, states, sizeof states);
    assert_memory_equal(report->owners, owners, sizeof owners);
    static const uint64_t blocks[] = {0, 3 * (1 + 4), 3, 1, 0, 0, 1};
    assert_memory_equal(report->blocks, blocks, sizeof blocks);
    assert_true(report->entries == 3 * 3 + 2);
    assert_true(report->block_bytes == 3 * (64 + 64 + 3 * LIMIT + 64) + 2 * 64);
    assert_true(report->has_run && report->run.incarnation == 77);
    assert_true(report->row_count == 1 && report->rows[0].shard == SHARD &&
                report->rows[0].row.settled == version_make(2, 1));
    char *text = check_text(report);
    assert_non_null(text);
    assert_non_null(strstr(text, "server 7 of cluster 0000000000abcdef"));
    assert_non_null(strstr(text, "shard 9: full, since epoch 2, settled 2.1"));
    assert_non_null(strstr(text, "puts 15, deletes 3, commit_versions 1, pads 0, records 1"));
    assert_non_null(strstr(text, "nothing is damaged\n"));
    assert_non_null(strstr(text, "configuration, copy 0: whole, term 41, 1 members, 1 shards\n"));
    assert_non_null(strstr(text, "configuration, copy 1: whole, term 41, 1 members, 1 shards\n"));
    assert_null(strstr(text, "not to be"));
    free(text);
}

TEST(an_older_copy_of_the_configuration_is_no_damage_and_one_that_says_nothing_is)
{
    heap->crash_after = atomic_load(&heap->stores) + 2; /* the first copy's */
    store_configuration(42);
    heap->crash_after = UINT64_MAX;
    check();
    assert_true(check_found(report) == 0);
    assert_true(report->configs[0].term == 41 && report->configs[1].term == 42);
    store_bytes(43, "no configuration", 16);
    check();
    assert_true(report->found[CHECK_CONFIG] == 2 && check_found(report) == 2);
    json_t *object = check_json(report);
    const char *said;
    json_int_t damaged;
    assert_int_equal(json_unpack(object, "{s:[{s:s}],s:{s:I}}", "configurations", "state", &said,
                                 "damage", "configuration_copies", &damaged),
                     0);
    assert_string_equal(said, "damaged");
    assert_true(damaged == 2);
    json_decref(object);
}

/* Field 9 is the format; the last one that stands there counts. */
TEST(a_configuration_of_a_later_format_is_no_damage_and_said_to_be_one)
{
    static const uint8_t later[] = {0x48, VERSION_CONFIGURATION_HIGHEST + 1};
    store_bytes(42, later, sizeof later);
    check();
    assert_true(check_found(report) == 0);
    char *text = check_text(report);
    assert_non_null(strstr(
        text,
        "configuration, copy 1: of another version, in a format that this one does not read"));
    free(text);
}

/* A bit of `offset` is flipped, of both offsets if there are two: that, and only that, is found. */
static const struct damage {
    enum check_kind kind;
    uint64_t number;
    uint64_t places[2]; /* offset in a part */
    int parts[2];
} damages[] = {
    {CHECK_SUPERBLOCK, 0, {30}, {'0'}},
    {CHECK_SUPERBLOCK, 1, {30}, {'1'}},
    {CHECK_CONFIG, 0, {8}, {'c'}},
    {CHECK_CONFIG, 1, {CONFIG_HEAD_BYTES + 30}, {'d'}},
    {CHECK_RUN, 1, {RUN_OFFSET + RUN_STRIDE + 8}, {'1'}},
    {CHECK_WORD, USED, {USED * META_BYTES + 2}, {'m'}},
    {CHECK_WORD, COMMITTED, {COMMITTED * META_BYTES + 7}, {'n'}},
    {CHECK_SEGMENT, USED, {USED * META_BYTES + 2, USED *META_BYTES + 3}, {'m', 'n'}},
    {CHECK_SEGMENT, WAS_FREE, {WAS_FREE * META_BYTES + 5}, {'n'}},
    {CHECK_SEGMENT, NEVER_USED, {NEVER_USED * META_BYTES}, {'m'}},
    {CHECK_ROW, SHARD, {SHARD * ROW_BYTES + 24}, {'r'}},
    {CHECK_ROW, SHARD, {SHARD * ROW_BYTES + 63}, {'s'}},
    {CHECK_REPLICA, SHARD, {SHARD * ROW_BYTES, SHARD *ROW_BYTES + 9}, {'r', 's'}},
    {CHECK_VOID, 5, {5 * VOID_BYTES + 1}, {'v'}},
    {CHECK_VOID, STORE_VOIDS - 1, {VOID_TABLE_BYTES - 1}, {'w'}},
    {CHECK_BLOCK, COMMITTED, {STORE_SEGMENT_BYTES * COMMITTED + 64 + 33}, {'S'}},
    {CHECK_TORN, USED, {STORE_SEGMENT_BYTES * USED + 192 + LIMIT + 500}, {'S'}},
    {CHECK_TORN, USED, {STORE_SEGMENT_BYTES * (USED + 1) - 1}, {'S'}},
    {CHECK_TORN, USING, {STORE_SEGMENT_BYTES * USING + 3 * 1000 * 1000}, {'S'}},
    {CHECK_STALE, NEVER_USED, {STORE_SEGMENT_BYTES * NEVER_USED + 5}, {'S'}},
};

static uint8_t *place_of(const struct damage *damage, unsigned i)
{
    const uint64_t parts[256] = {
        ['1'] = HEAD_SECOND_OFFSET, ['m'] = at.metas[0],    ['n'] = at.metas[1],
        ['r'] = at.replicas[0],     ['s'] = at.replicas[1], ['S'] = at.segments,
        ['c'] = at.configs[0],      ['d'] = at.configs[1],  ['v'] = at.voids[0],
        ['w'] = at.voids[1]};
    return heap->pm.base + parts[damage->parts[i]] + damage->places[i];
}

TEST(each_kind_of_damage_is_found_where_it_is_and_nothing_else)
{
    for (unsigned i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *damage = &damages[i];
        for (unsigned k = 0; k < 2 && damage->parts[k]; k++)
            *place_of(damage, k) ^= 4;
        check();
        assert_true(check_found(report) == 1 && report->found[damage->kind] == 1);
        const struct check_place *place = &report->places[0];
        uint64_t flipped = (uint64_t)(place_of(damage, 0) - heap->pm.base) + MAP_OFFSET;
        assert_int_equal(place->kind, damage->kind);
        assert_true(place->number == damage->number);
        assert_in_range(flipped, place->offset, place->offset + place->bytes - 1);
        const bool whole = damage->kind == CHECK_STALE || damage->kind == CHECK_CONFIG;
        assert_true(place->bytes <= (whole ? STORE_SEGMENT_BYTES : LIMIT));
        for (unsigned k = 0; k < 2 && damage->parts[k]; k++)
            *place_of(damage, k) ^= 4;
    }
    check();
    assert_true(check_found(report) == 0);
}

TEST(a_segment_of_which_nothing_is_known_is_read_as_a_used_one)
{
    uint64_t blocks[ENTRY_TYPES];
    check();
    memcpy(blocks, report->blocks, sizeof blocks);
    for (unsigned i = 0; i < 2; i++)
        heap->pm.base[at.metas[i] + COMMITTED * META_BYTES] ^= 1;
    heap->pm.base[segment_at(COMMITTED) + 64 + 33] ^= 1;
    check();
    blocks[ENTRY_PUT]--;
    assert_memory_equal(report->blocks, blocks, sizeof blocks);
    assert_true(report->owners[OWNER_UNKNOWN] == 1 && report->found[CHECK_TORN] == 1);
}

TEST(the_first_hundred_places_are_told_and_the_number_of_all)
{
    for (unsigned i = 0; i < 150; i++)
        heap->pm.base[segment_at(USING) + 100000 + 128 * i] = 1;
    check();
    assert_true(report->found[CHECK_TORN] == 150 && check_found(report) == 150);
    assert_int_equal(report->place_count, CHECK_MOST_PLACES);
    char *text = check_text(report);
    assert_non_null(strstr(text, "150 places in other segments are torn or damaged"));
    assert_non_null(strstr(text, "  and 50 more\n"));
    assert_null(strstr(text, "nothing is damaged"));
    free(text);
}

TEST(the_json_says_the_same)
{
    heap->pm.base[segment_at(COMMITTED) + 64 + 33] ^= 1;
    check();
    json_t *object = check_json(report);
    assert_non_null(object);
    json_int_t puts, damaged, offset, settled;
    assert_int_equal(json_unpack(object, "{s:{s:I},s:{s:I},s:[{s:I}],s:[{s:I}]}", "blocks", "puts",
                                 &puts, "damage", "blocks", &damaged, "places", "offset", &offset,
                                 "replicas", "settled", &settled),
                     0);
    assert_true(puts == 14 && damaged == 1 && settled == (json_int_t)version_make(2, 1));
    assert_true((uint64_t)offset == MAP_OFFSET + segment_at(COMMITTED) + 64);
    json_decref(object);
}

/* Neither what is whole there nor what is torn is of interest: nobody reads it. */
TEST(void_ranges_are_named_and_not_looked_at)
{
    struct store *store;
    assert_int_equal(store_open(&heap->pm, &IDENTITY, &store), 0);
    assert_int_equal(store_void_add(store, USED, 64, 64), 0); /* the first put */
    assert_int_equal(store_void_add(store, USING, 1 << 20, 128), 0);
    assert_int_equal(store_void_add(store, DIRTY, 0, 64), 0); /* says nothing */
    store_close(store);
    heap->pm.base[segment_at(USING) + (1 << 20) + 127] = 1;
    check();
    assert_int_equal(check_found(report), 0);
    assert_int_equal(report->void_count, 2);
    assert_int_equal(report->blocks[ENTRY_PUT], 3 * (1 + 4) - 1);
    char *text = check_text(report);
    assert_non_null(strstr(text, "void: segment 1, 64 bytes at 64 of the segment\n"));
    free(text);
    json_t *object = check_json(report);
    json_int_t segment, from;
    assert_int_equal(
        json_unpack(object, "{s:[{},{s:I,s:I}]}", "void", "segment", &segment, "from", &from), 0);
    assert_true(segment == USING && from == 1 << 20);
    json_decref(object);
    heap->pm.base[segment_at(USING) + (1 << 20) + 128] = 1;
    check();
    assert_true(check_found(report) == 1 && report->found[CHECK_TORN] == 1);
}

TEST(what_cannot_be_read_is_an_error)
{
    struct check_report *none = NULL;
    for (unsigned i = 0; i < 2; i++)
        heap->pm.base[(i ? HEAD_SECOND_OFFSET : 0) + 30] ^= 1;
    assert_int_equal(check_pm(&heap->pm, &none), ROWAN_EDAMAGED);
    memset(heap->pm.base, 0, PM_BYTES);
    assert_int_equal(check_pm(&heap->pm, &none), ROWAN_ENOTFOUND);
    /* A block limit with which nothing could be read. */
    const struct store_identity other = {.cluster = 1, .server = 1, .format = {.block_limit = 100}};
    assert_int_equal(store_format(&heap->pm, &other), 0);
    assert_int_equal(check_pm(&heap->pm, &none), ROWAN_EFORMAT);
    assert_null(none);
}

UNIT_MAIN(NULL, NULL)
