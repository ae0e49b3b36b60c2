/* C4, when a segment is given up: what a right cleaner does passes, and each step that is left out is found. */
#define TEST_FIXTURE checks_stage_set_up, checks_stage_tear_down

#include "checks_stage.h"
#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "test/lib/unit.h"

/* What a cleaner leaves out; 0: nothing. */
enum omission {
    LAST_COPY = 1,  /* one entry is not copied */
    COPY_FENCE = 2, /* the copies are not durable */
    SWAP = 4,       /* one index item leads to the old copy */
    DIRTY_FENCE = 8,
    ZEROS = 16,
    ZERO_FENCE = 32,
};

static struct store *store_of(uint32_t server)
{
    return checks_control(stage.checks, server)->common->store;
}

/* The entry that begins there; NULL: none does. */
static const struct checks_entry *entry_at(uint64_t offset)
{
    return checks_entry_at(stage.checks, 0, offset);
}

static struct index *index_of(const struct checks_entry *entry)
{
    return checks_shard(checks_control(stage.checks, 0), entry->header.shard)->index;
}

static uint64_t item_of(const struct checks_entry *entry)
{
    const struct checks_key *key = &stage.checks->keys[entry->key];
    return index_find(index_of(entry), key->hash, key->bytes, key->count);
}

/* Some of what lies in it is live. */
static uint64_t find_victim(void)
{
    for (uint64_t i = 0; i < store_segments(store_of(0)); i++) {
        const uint64_t first = store_segment_offset(store_of(0), i);
        if (store_meta(store_of(0), i).state != SEGMENT_COMMITTED)
            continue;
        for (uint64_t at = first; at < first + STORE_SEGMENT_BYTES; at += ENTRY_ALIGN) {
            const struct checks_entry *entry = entry_at(at);
            if (entry && item_of(entry) == at)
                return i;
        }
    }
    fail_msg("no committed segment holds a live entry");
    return 0;
}

static uint32_t bytes_of(const struct checks_entry *entry)
{
    return entry_bytes(&stage.checks->format, entry->header.key_bytes, entry->header.value_bytes);
}

/* The index names a newer one, which may not vanish any more. */
static bool is_dead(const struct checks_entry *entry, uint64_t at)
{
    const uint64_t item = item_of(entry);
    const struct shard_state *shard =
        checks_shard(checks_control(stage.checks, 0), entry->header.shard);
    return item != at && entry_at(item)->header.version <= atomic_load(&shard->settled);
}

/* All that is not dead, or all; returns how many live ones there were. */
static uint32_t copy_entries(uint64_t victim, uint64_t target, unsigned omitted, bool dead)
{
    struct pm *pm = &stage.cluster->servers[0].pm->pm;
    uint64_t to = store_segment_offset(store_of(0), target), last = 0, last_copy = 0;
    const uint64_t first = store_segment_offset(store_of(0), victim);
    uint32_t live = 0;
    for (uint64_t at = first; at < first + STORE_SEGMENT_BYTES; at += ENTRY_ALIGN) {
        const struct checks_entry *entry = entry_at(at);
        if (!entry || (!dead && is_dead(entry, at)))
            continue;
        if (item_of(entry) != at) {
            pm_store(pm, to, pm_at(pm, at), bytes_of(entry));
            to += bytes_of(entry);
            continue;
        }
        if (!(omitted & LAST_COPY) || live > 0)
            pm_store(pm, to, pm_at(pm, at), bytes_of(entry));
        assert_int_equal(index_swap(index_of(entry), stage.checks->keys[entry->key].hash, at, to),
                         1);
        last = at;
        last_copy = to;
        to += bytes_of(entry);
        live++;
    }
    assert_true(live > 0);
    if (omitted & SWAP) {
        const struct checks_entry *entry = entry_at(last);
        assert_int_equal(
            index_swap(index_of(entry), stage.checks->keys[entry->key].hash, last_copy, last), 1);
    }
    return live;
}

static void clean(unsigned omitted, bool dead)
{
    struct pm *pm = &stage.cluster->servers[0].pm->pm;
    uint64_t victim = find_victim(), target;
    assert_int_equal(store_allocate(store_of(0), OWNER_CLEAN, 0, &target), 0);
    copy_entries(victim, target, omitted, dead);
    if (!(omitted & COPY_FENCE))
        checks_stage_fence(&stage);
    store_transition(store_of(0), victim, SEGMENT_DIRTY);
    if (!(omitted & DIRTY_FENCE))
        checks_stage_fence(&stage);
    if (!(omitted & ZEROS))
        pm_zero(pm, store_segment_offset(store_of(0), victim), STORE_SEGMENT_BYTES);
    if (!(omitted & ZERO_FENCE))
        checks_stage_fence(&stage);
    store_transition(store_of(0), victim, SEGMENT_FREE);
}

/* With all that the run has written, older entries among it. */
static void expect_found(unsigned omitted, const char *why)
{
    clean(omitted, true);
    checks_stage_expect(&stage, "C4");
    assert_non_null(strstr(stage.failure.why, why));
}

TEST(a_segment_of_which_everything_was_copied_may_go)
{
    const uint64_t before = checks_counts(stage.checks).cleaned;
    clean(0, true);
    checks_stage_rounds(&stage, 20000);
    checks_stage_expect(&stage, NULL);
    assert_true(checks_counts(stage.checks).cleaned > before);
}

/* What is not copied is superseded by what is settled: the row says so, as the segment is committed. */
TEST(a_segment_of_which_what_is_live_was_copied_may_go)
{
    clean(0, false);
    checks_stage_rounds(&stage, 20000);
    checks_stage_expect(&stage, NULL);
}

TEST(only_what_is_void_may_be_zeroed_in_a_segment_in_use)
{
    struct pm *pm = &stage.cluster->servers[0].pm->pm;
    const uint64_t victim = find_victim();
    const uint64_t end = store_segment_offset(store_of(0), victim) + STORE_SEGMENT_BYTES;
    assert_int_equal(store_void_add(store_of(0), victim, STORE_SEGMENT_BYTES - 64, 64), 0);
    pm_zero(pm, end - 64, 64);
    checks_stage_expect(&stage, NULL);
    pm_zero(pm, end - 128, 128);
    checks_stage_expect(&stage, "C4");
    assert_non_null(strstr(stage.failure.why, "zeros over a segment in use"));
}

TEST(an_entry_that_was_not_copied_is_found)
{
    expect_found(LAST_COPY, "no other copy there");
}

TEST(copies_that_are_not_durable_are_found)
{
    expect_found(COPY_FENCE, "no other copy there");
}

TEST(an_index_item_that_leads_into_the_segment_is_found)
{
    expect_found(SWAP, "has an item");
}

TEST(zeros_before_a_crash_would_zero_are_found)
{
    expect_found(DIRTY_FENCE, "a crash would give back");
}

TEST(a_free_segment_that_is_not_zeros_is_found)
{
    expect_found(ZEROS, "find bytes");
}

TEST(a_free_segment_whose_zeros_are_not_durable_is_found)
{
    expect_found(ZERO_FENCE, "find bytes");
}

/* Nobody knows after a crash that what was dropped is dead and not missing. */
TEST(an_entry_above_the_durable_settled_version_is_found)
{
    struct store *store = store_of(0);
    const struct cluster_config *config = stage.checks->config;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct replica_row row = store_replica(store, config->shards[i].id);
        row.settled = version_make(1, 0);
        store_replica_set(store, config->shards[i].id, &row);
    }
    while (store_replica_sync(store) == 0)
        checks_stage_fence(&stage);
    clean(0, false);
    checks_stage_expect(&stage, "C4");
    assert_non_null(strstr(stage.failure.why, "after a crash"));
}

/* An operation is not done again because its entry was cleaned. */
TEST(a_client_that_is_served_twice_is_found_when_its_first_entry_was_cleaned)
{
    const struct checks_entry *cleaned = NULL;
    clean(0, false);
    for (uint32_t i = 1; i < stage.checks->entry_count && !cleaned; i++) {
        const struct checks_entry *entry = &stage.checks->entries[i];
        if (entry->done && entry->header.client_id)
            cleaned = entry;
    }
    assert_non_null(cleaned);
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    entry.header.client_id = cleaned->header.client_id;
    entry.header.operation = cleaned->header.operation;
    for (uint32_t i = 0; i < stage.cluster->options.servers; i++) /* no copy is left */
        stage.checks->entries[cleaned - stage.checks->entries].count[i] = 0;
    checks_stage_expect(&stage, NULL);
    checks_stage_store_whole(&stage, 2, &entry);
    checks_stage_expect(&stage, "once");
}

UNIT_MAIN(NULL, NULL)
