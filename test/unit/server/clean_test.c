/* The clean role on PM images made by hand: what of a victim is copied, and when it is free. */
#include "clean_server.h"
#include "server/shard/apply.h"

enum {
    URGENT = 1000,
    POLLS = 300
}; /* a reserve that is more than there is; enough for all there is to do */

/* What is written so far is committed. Returns its number. */
static uint64_t end_segment(struct image *image, enum segment_state segment_state)
{
    store_transition(image->store, image->segment, SEGMENT_USED);
    if (segment_state == SEGMENT_COMMITTED)
        store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    return image->segment;
}

static void begin(struct image *image, uint64_t reserve)
{
    begin_server(image, reserve, false);
}

static void poll(void)
{
    uint64_t wake_ns = UINT64_MAX;
    for (unsigned i = 0; i < POLLS; i++)
        clean_poll(clean, now_ns, &wake_ns);
}

static enum segment_state state_of(const struct image *image, uint64_t segment)
{
    return store_meta(image->store, segment).state;
}

static bool is_free(const struct image *image, uint64_t segment)
{
    return state_of(image, segment) == SEGMENT_FREE &&
           store_segment_is_zero(image->store, segment, 0, STORE_SEGMENT_BYTES);
}

/* Whole entries of that version in the clean role's log. */
static uint32_t copies(const struct image *image, uint16_t shard, uint64_t version)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        const uint64_t start = store_segment_offset(image->store, i);
        struct entry_scan scan;
        struct entry_header header;
        uint32_t offset, bytes;
        enum entry_scan_result result;
        if (store_meta(image->store, i).owner != OWNER_CLEAN)
            continue;
        entry_scan_init(&scan, &image->common.format, pm_at(image->common.pm, start),
                        STORE_SEGMENT_BYTES, 0);
        while ((result = entry_scan_next(&scan, false, &header, &offset, &bytes)) != ENTRY_SCAN_END)
            count += result == ENTRY_SCAN_BLOCK && header.block == 0 && header.shard == shard &&
                     header.version == version &&
                     entry_verify(&image->common.format, pm_at(image->common.pm, start + offset),
                                  STORE_SEGMENT_BYTES - offset, NULL) == 0;
    }
    return count;
}

/* The index names a whole entry of the key with that version, in the clean role's log. */
static void assert_moved(const struct image *image, const struct shard_state *shard,
                         const char *key, uint64_t version)
{
    const uint64_t offset = find(shard, key);
    struct entry_header header;
    assert_true(offset != 0);
    assert_int_equal(entry_verify(&image->common.format, pm_at(image->common.pm, offset),
                                  STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES, &header),
                     0);
    assert_true(header.version == version);
    const uint64_t segment = store_segment_at(image->store, offset);
    assert_int_equal(store_meta(image->store, segment).owner, OWNER_CLEAN);
    assert_true(live_items(store_live(image->store), segment) > 0);
}

TEST(what_is_live_moves_and_the_segments_are_free_again)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(1), "a");
    write_put(image, LED, v(2), "b");
    const uint64_t first = end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(3), "b");
    write_entry(
        image, &(struct entry){.type = ENTRY_DELETE, .shard = BACKED, .version = v(1), .key = "d"});
    write_commit(image, LED, v(2), 0, 0);
    const uint64_t second = end_segment(image, SEGMENT_COMMITTED);
    begin(image, URGENT);
    poll();
    assert_moved(image, led, "a", v(1));
    assert_moved(image, led, "b", v(3));
    assert_moved(image, backed, "d", v(1));
    assert_int_equal(copies(image, LED, v(2)), 0);
    assert_true(is_free(image, first) && is_free(image, second));
    assert_true(clean_segments(clean) == 2);
    assert_true(copies(image, LED, v(1)) == 1 && copies(image, LED, v(3)) == 1);
}

/* Its segment was committed without it: no digest role could read it. */
TEST(what_is_above_the_settled_version_is_copied)
{
    for (unsigned i = 0; i < 2; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, BACKED, v(1 + i), "k");
        end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    atomic_store(&backed->dur_settled, version_make(FIRST, 0));
    poll();
    assert_moved(image, backed, "k", v(2));
    assert_int_equal(copies(image, BACKED, v(1)), 1);
}

/* A stopped sender has stored it when the segment was closed. */
TEST(what_is_not_committed_stays_where_it_is)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(2), "k");
    const uint64_t victim = end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(1), "other");
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, URGENT);
    atomic_store(&backed->dur_settled, v(1));
    atomic_store(&backed->commit, v(1));
    poll();
    assert_int_equal(state_of(image, victim), SEGMENT_COMMITTED);
    assert_int_equal(copies(image, BACKED, v(2)), 0);
    atomic_store(&backed->commit, v(2));
    now_ns += 2 * NS_PER_S;
    poll();
    assert_moved(image, backed, "k", v(2));
}

/* k's newer version is not committed: nothing is lost if it vanishes. */
static uint64_t write_superseded(struct image *image)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(1), "k");
    const uint64_t victim = end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(2), "other");
    end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(3), "k");
    end_segment(image, SEGMENT_USED);
    begin(image, URGENT);
    atomic_store(&led->commit, v(2));
    poll();
    assert_int_equal(state_of(image, victim), SEGMENT_COMMITTED);
    return victim;
}

TEST(an_entry_goes_when_its_superseder_is_committed)
{
    const uint64_t victim = write_superseded(image);
    atomic_store(&led->commit, v(3));
    poll();
    assert_true(is_free(image, victim));
    assert_int_equal(copies(image, LED, v(1)), 0);
}

TEST(an_entry_is_copied_when_its_superseder_is_not_committed_for_long)
{
    const uint64_t victim = write_superseded(image);
    now_ns += 2 * NS_PER_S;
    poll();
    assert_true(is_free(image, victim));
    assert_int_equal(copies(image, LED, v(1)), 1);
    assert_true(find(led, "k") != 0 &&
                store_meta(image->store, store_segment_at(image->store, find(led, "k"))).owner ==
                    OWNER_BACKUP_LOG);
}

/* A victim that waits for its turn to be scanned again, and one that is scanned and waits for a segment that the first keeps. */
TEST(victims_do_not_wait_for_each_other_when_space_is_short)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(1), "moves");
    end_segment(image, SEGMENT_COMMITTED);
    atomic_store(&image->common.kept, SEGMENTS);
    const uint64_t victim = write_superseded(image);
    assert_int_equal(copies(image, BACKED, v(1)), 0);
    atomic_store(&led->commit, version_make(EPOCH + 1, 0));
    poll();
    assert_true(is_free(image, victim));
    now_ns += 2 * NS_PER_S;
    poll();
    assert_moved(image, backed, "moves", v(1));
}

/* As after a resend. The index names the one that landed first, whose segment is of this run. */
static void land_twice(struct image *image, enum segment_state first_state, uint64_t victims[2])
{
    for (unsigned i = 0; i < 2; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, BACKED, v(1), "old");
        victims[i] = end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, 1);
    poll();
    begin_segment(image, OWNER_BACKUP_LOG);
    const uint64_t first = write_put(image, BACKED, v(2), "k");
    end_segment(image, first_state);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(2), "k");
    end_segment(image, SEGMENT_COMMITTED);
    struct entry_header header;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    entry_peek(pm_at(image->common.pm, first), &header);
    const struct apply_entry entry =
        apply_describe(image->common.pm, &image->common.format, &header, first, key);
    assert_int_equal(apply_entry(backed, &entry), 1);
    atomic_store(&image->common.reserve, URGENT);
    poll();
}

TEST(of_an_entry_that_landed_twice_one_is_copied_while_the_other_one_is_not_committed)
{
    uint64_t victims[2];
    land_twice(image, SEGMENT_USED, victims);
    assert_int_equal(copies(image, BACKED, v(2)), 1);
}

TEST(of_an_entry_that_landed_twice_one_is_copied_for_both_that_are_committed)
{
    uint64_t victims[2];
    land_twice(image, SEGMENT_COMMITTED, victims);
    assert_int_equal(copies(image, BACKED, v(2)), 1);
    assert_moved(image, backed, "k", v(2));
    assert_int_equal(copies(image, BACKED, v(1)),
                     1); /* of before this run: the start has made it durable */
}

/* An entry was superseded, its stub was written, and the crash came before the segment was free; twice. The other shard has
 * inherited the record, too, as the other child of a split has. */
TEST(of_an_operation_whose_stub_a_crash_left_more_than_once_one_of_each_shard_is_kept)
{
    struct entry stub = {
        .type = ENTRY_RECORD, .version = v(1), .key = "", .client = 7, .operation = 4};
    uint64_t victims[3];
    begin_segment(image, OWNER_BACKUP_LOG);
    write_entry(image, &(struct entry){
                           .shard = LED, .version = v(1), .key = "k", .client = 7, .operation = 4});
    write_entry(image, &(struct entry){.shard = LED, .version = v(2), .key = "k"});
    victims[0] = end_segment(image, SEGMENT_COMMITTED);
    for (unsigned i = 1; i < 3; i++) {
        begin_segment(image, OWNER_CLEAN);
        for (stub.shard = LED; stub.shard <= BACKED; stub.shard++)
            write_entry(image, &stub);
        victims[i] = end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    lets_the_backer_answer();
    for (unsigned i = 0; i < 20; i++, digest_tail_answer(&backer)) {
        poll();
        (void)worker_client_answer(&leader); /* it owns no shard yet: everything may be asked */
    }
    assert_true(is_free(image, victims[1]) && is_free(image, victims[2]));
    assert_moved(image, led, "k", v(2)); /* so the first one was gone through, too */
    assert_true(copies(image, LED, v(1)) == 1 && copies(image, BACKED, v(1)) == 1);
}

/* It may lead the shard after its next start. */
TEST(a_backup_leaves_a_stub_of_what_may_be_asked_again)
{
    for (uint32_t i = 1; i <= 3; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_entry(image,
                    &(struct entry){
                        .shard = BACKED, .version = v(i), .key = "k", .client = 7, .operation = i});
        end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    lets_the_backer_answer();
    acknowledged_told(&backer.acknowledged, 7, 2);
    for (unsigned i = 0; i < 20; i++, digest_tail_answer(&backer))
        poll();
    assert_int_equal(copies(image, BACKED, v(1)), 0);
    assert_int_equal(copies(image, BACKED, v(2)), 1);
}

TEST(what_no_replica_here_needs_goes)
{
    for (unsigned i = 0; i < 2; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, ELSEWHERE, v(1), "elsewhere");
        write_entry(image, &(struct entry){.shard = LED,
                                           .version = version_make(FIRST - 1, 1),
                                           .key = "before",
                                           .client = 7,
                                           .operation = 1});
        end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    led->first_allocation = store_allocations(image->store); /* it has filled since */
    poll();
    assert_true(clean_segments(clean) == 2 && store_segments_owned(image->store, OWNER_CLEAN) == 0);
}

TEST(what_a_child_copied_never_moves_to_a_segment_that_is_older_than_the_child)
{
    uint64_t offset;
    begin(image, URGENT);
    poll();
    assert_int_equal(log_reserve(&clean->log, ENTRY_ALIGN, &offset), 0);
    atomic_store(&backed->parent, LED);
    clean_read(clean, &(struct command_read){.shard = backed});
    assert_false(clean->log.open);
}

TEST(a_long_entry_moves_in_one_piece_and_pieces_go)
{
    const struct entry whole = {.shard = LED, .version = v(1), .key = "w", .value_bytes = 3000};
    const struct entry apart = {.shard = BACKED, .version = v(1), .key = "p", .value_bytes = 3000};
    begin_segment(image, OWNER_BACKUP_LOG);
    write_entry(image, &whole);
    for (uint32_t i = 0; i < header_of(image, &apart).blocks; i++) {
        write_block(image, &apart, i);
        if (i == 2)
            write_put(image, LED, v(2), "between");
    }
    const struct entry gap = {.shard = BACKED, .version = v(2), .key = "g", .value_bytes = 3000};
    for (uint32_t i = 0; i < header_of(image, &gap).blocks; i++) {
        write_block(image, &gap, i);
        image->suffix += i == 2 ? 64 : 0;
    }
    const uint64_t pieces = end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(3), "other");
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, URGENT); /* the start joins the pieces, in a digest log */
    const uint64_t joined = find(backed, "p");
    atomic_store(&backed->dur_settled,
                 v(1)); /* of the other entry here the pieces may be all there is */
    for (unsigned i = 0; i < 3; i++) {
        poll();
        assert_int_equal(state_of(image, pieces), SEGMENT_COMMITTED);
        now_ns += NS_PER_S;
    }
    atomic_store(&backed->dur_settled, v(2));
    poll();
    assert_int_equal(atomic_load(&image->common.error), 0);
    assert_moved(image, led, "w", v(1));
    assert_moved(image, led, "between", v(2));
    assert_true(find(backed, "p") == joined);
    assert_true(clean_segments(clean) == 2);
}

TEST(a_segment_in_which_something_live_is_damaged_stays)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    const uint64_t damaged = write_put(image, LED, v(1), "damaged");
    write_put(image, LED, v(2), "whole");
    const uint64_t victim = end_segment(image, SEGMENT_COMMITTED);
    for (unsigned i = 0; i < 3; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, LED, v(3 + i), (const char *[]){"x", "y", "z"}[i]);
        end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    image->heap->pm.base[damaged + ENTRY_HEADER_BYTES + 20] ^= 1;
    poll();
    assert_int_equal(state_of(image, victim), SEGMENT_COMMITTED);
    assert_true(find(led, "damaged") == damaged);
    assert_moved(image, led, "whole", v(2));
    assert_moved(image, led, "z", v(5));
    assert_true(clean_segments(clean) == 3);
}

TEST(no_segment_is_given_up_while_somebody_holds_an_offset)
{
    uint64_t victims[2];
    for (unsigned i = 0; i < 2; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, LED, v(1 + i), i ? "x" : "y");
        victims[i] = end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    struct reclaim_role reader;
    reclaim_join(&image->common.reclaim, &reader);
    (void)reclaim_enter(&image->common.reclaim, &reader);
    poll();
    assert_moved(image, led, "x", v(2));
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(state_of(image, victims[i]), SEGMENT_COMMITTED);
    reclaim_leave(&reader, RECLAIM_NOTHING);
    poll();
    assert_true(is_free(image, victims[0]) && is_free(image, victims[1]));
}

/* Else a start could find no table of the worker's clients (worker_commit.c, M4). */
TEST(the_newest_segments_of_a_worker_that_has_not_written_yet_stay)
{
    uint64_t segments[4];
    for (unsigned i = 0; i < 4; i++) {
        begin_segment(image, OWNER_WORKER);
        write_put(image, LED, v(1 + i), "k");
        segments[i] = end_segment(image, SEGMENT_COMMITTED);
    }
    begin(image, URGENT);
    poll();
    assert_true(is_free(image, segments[0]) && is_free(image, segments[1]));
    assert_int_equal(state_of(image, segments[2]), SEGMENT_COMMITTED);
    assert_int_equal(state_of(image, segments[3]), SEGMENT_COMMITTED);
    begin_segment(image, OWNER_WORKER);
    write_put(image, LED, v(5), "k");
    poll();
    assert_true(is_free(image, segments[2]) || is_free(image, segments[3]));
}

TEST(it_rests_while_there_is_space_and_takes_what_has_little_live)
{
    uint64_t little, much;
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint64_t i = 0; image->suffix + 40960 < STORE_SEGMENT_BYTES; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%lu", i);
        write_entry(image, &(struct entry){.shard = LED,
                                           .version = v(1 + i),
                                           .key = key,
                                           .value_bytes = sizeof image->value});
    }
    much = end_segment(image, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(900), "little");
    little = end_segment(image, SEGMENT_COMMITTED);
    begin(image, 1);
    poll();
    assert_int_equal(state_of(image, little), SEGMENT_COMMITTED);
    /* In steady need: SEGMENTS - 2 are free, the reserve and 18 % of all are to be. */
    atomic_store(&image->common.reserve, SEGMENTS - 5);
    poll();
    assert_moved(image, led, "little", v(900));
    assert_int_equal(state_of(image, much), SEGMENT_COMMITTED);
    assert_true(find(led, "key-0") == store_segment_offset(image->store, much));
}

/* Some passes for tombstones, with all that they clean; what the role has closed is committed. */
static void pass(const struct image *image)
{
    for (unsigned i = 0; i < 40; i++) {
        now_ns += NS_PER_S;
        poll();
        for (uint64_t j = 0; j < SEGMENTS; j++) {
            const struct segment_meta meta = store_meta(image->store, j);
            if (meta.owner == OWNER_CLEAN && meta.state == SEGMENT_USED)
                store_transition(image->store, j, SEGMENT_COMMITTED);
        }
    }
}

static void write_delete(struct image *image, uint64_t version, const char *key)
{
    write_entry(
        image, &(struct entry){.type = ENTRY_DELETE, .shard = LED, .version = version, .key = key});
}

TEST(a_tombstone_goes_once_every_replica_has_settled_it)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, v(1), "k");
    write_delete(image, v(2), "k");
    const uint64_t segment = end_segment(image, SEGMENT_COMMITTED);
    begin(image, 1);
    atomic_store(&led->everywhere, v(1));
    pass(image);
    assert_int_equal(state_of(image, segment), SEGMENT_COMMITTED);
    assert_true(find(led, "k") != 0);
    atomic_store(&led->everywhere, v(2));
    pass(image);
    assert_true(find(led, "k") == 0 && index_items(led->index) == 0);
    assert_int_equal(store_segments_free(image->store), SEGMENTS);
}

/* Of one in an open segment, or of which only a part of the key can be read. */
TEST(a_tombstone_stays_while_an_older_version_is_left)
{
    char key[LIMIT + 50] = {0};
    memset(key, 'l', sizeof key - 1);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_delete(image, v(3), "k");
    write_delete(image, v(4), key);
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, 1);
    atomic_store(&led->everywhere, v(4));
    begin_segment(image, OWNER_DIGEST);
    write_put(image, LED, v(1), "k");
    write_block(image, &(struct entry){.shard = LED, .version = v(2), .key = key}, 0);
    pass(image);
    assert_true(find(led, "k") != 0 && find(led, key) != 0);
    end_segment(image, SEGMENT_COMMITTED);
    pass(image);
    assert_true(index_items(led->index) == 0);
    assert_int_equal(store_segments_free(image->store), SEGMENTS);
}

/* Even where one that stays has the same bit. */
TEST(all_the_tombstones_of_full_segments_go_and_none_of_which_an_older_version_is_left)
{
    enum { ALL = 60000, STAY = ALL / 2 };
    char key[16];
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint32_t i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        write_delete(image, v(ALL + i), key);
    }
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, 1);
    atomic_store(&led->everywhere, v(2 * ALL));
    begin_segment(image, OWNER_DIGEST);
    for (uint32_t i = 0; i < STAY; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        write_put(image, LED, v(1 + i), key);
    }
    pass(image);
    assert_true(find(led, "key-59999") == 0 && find(led, "key-0") != 0);
    assert_int_equal(index_items(led->index), STAY);
}

/* Of a single segment cleaning gains nothing. */
TEST(a_tombstone_goes_where_nothing_else_gives_space)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_delete(image, v(1), "k");
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, URGENT);
    atomic_store(&led->everywhere, v(1));
    pass(image);
    assert_int_equal(index_items(led->index), 0);
    assert_int_equal(store_segments_free(image->store), SEGMENTS);
}

TEST(after_a_pass_the_role_rests_eight_times_as_long)
{
    const uint64_t step_ns = 10 * NS_PER_S;
    uint64_t wake_ns = UINT64_MAX, polls = 0;
    begin_segment(image, OWNER_BACKUP_LOG);
    write_delete(image, v(1), "k");
    end_segment(image, SEGMENT_COMMITTED);
    begin(image, 1);
    poll();
    now_ns += step_ns;
    for (; clean_poll(clean, now_ns, &wake_ns) == POLL_BUSY; polls++)
        now_ns += step_ns;
    /* The first poll of a pass and the last one do not read. */
    assert_true(polls > 10);
    assert_true(wake_ns == now_ns - step_ns + 8 * (polls - 2) * step_ns);
}

/* As a crash leaves it that comes when the role has taken the last segments: what it scans first needs a stub. */
TEST(without_a_free_segment_what_needs_no_copy_goes)
{
    uint64_t first = 0;
    for (uint64_t i = 0; store_segments_free(image->store) > 0; i++) {
        begin_segment(image, i < 2 ? OWNER_BACKUP_LOG : OWNER_CLEAN);
        write_entry(image, &(struct entry){.shard = i < 2 ? LED : ELSEWHERE,
                                           .version = v(1 + i),
                                           .key = "k",
                                           .client = 7,
                                           .operation = (uint32_t)(1 + i)});
        const uint64_t segment = end_segment(image, SEGMENT_COMMITTED);
        first = i ? first : segment;
    }
    begin(image, URGENT);
    for (unsigned i = 0; i < 20; i++, now_ns += NS_PER_S) {
        poll();
        (void)worker_client_answer(&leader);
    }
    assert_true(is_free(image, first));
    assert_int_equal(copies(image, LED, v(1)), 1);
}

/* What a pass for tombstones cleans meanwhile has not been chosen for the space that it gives. */
TEST(a_rest_is_not_made_longer_while_it_lasts)
{
    begin(image, URGENT);
    poll();
    const uint64_t until_ns = now_ns + NS_PER_S;
    clean->rest_ns = NS_PER_S;
    clean->rest_until_ns = until_ns;
    clean->emptied += CLEAN_VICTIMS;
    clean->log.segments += CLEAN_VICTIMS;
    poll();
    assert_true(clean->rest_until_ns == until_ns);
    now_ns = until_ns;
    poll();
    assert_true(clean->rest_until_ns == until_ns);
}

UNIT_MAIN(NULL, NULL)
