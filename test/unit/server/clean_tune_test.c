/* What changes for the clean role while it runs: its threshold, and what is to stay in its place. */
#include "clean_server.h"

enum { POLLS = 300 };

static void poll(void)
{
    uint64_t wake_ns = UINT64_MAX;
    for (unsigned i = 0; i < POLLS; i++)
        clean_poll(clean, now_ns, &wake_ns);
}

/* A committed segment of which two fifths are live. */
static uint64_t fill(struct image *image, uint64_t first)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint64_t i = first; image->suffix < STORE_SEGMENT_BYTES * 2 / 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%lu", i);
        write_entry(image, &(struct entry){.shard = LED,
                                           .version = v(1 + i),
                                           .key = key,
                                           .value_bytes = sizeof image->value});
    }
    store_transition(image->store, image->segment, SEGMENT_USED);
    store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    return image->segment;
}

static uint64_t segment_of(const struct image *image, const char *key)
{
    return store_segment_at(image->store, find(led, key));
}

TEST(another_threshold_holds_from_the_next_look_on)
{
    const uint64_t first = fill(image, 0), second = fill(image, 1000);
    begin_server(image, SEGMENTS - 5, false); /* so few are free that it cleans */
    clean_tune(clean, 30, false);
    poll();
    assert_int_equal(segment_of(image, "key-0"), first);
    assert_int_equal(segment_of(image, "key-1000"), second);
    clean_tune(clean, CLEAN_LIVE_PERCENT, false);
    poll();
    assert_int_not_equal(segment_of(image, "key-0"), first);
}

static uint64_t commit_put(struct image *image, uint16_t shard, uint64_t version, const char *key)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, LED, version + 10u * shard, "beside");
    write_put(image, shard, version, key);
    store_transition(image->store, image->segment, SEGMENT_USED);
    store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    return image->segment;
}

/* It is said before the victim is scanned: then nothing of it is copied, or that would give no space; or when its entry was
 * copied. */
TEST(what_a_suffix_may_name_stays_until_the_shard_is_reconciled)
{
    for (unsigned late = 0; late < 2; late++) {
        const char *key = late ? "later" : "k";
        commit_put(image, LED, v(1 + late), "other");
        const uint64_t victim = commit_put(image, BACKED, v(1 + late), key);
        uint64_t wake_ns = UINT64_MAX;

        begin_server(image, 12, false); /* above it, or the log is closed for one victim */
        while (late && store_segment_at(image->store, find(backed, key)) == victim)
            clean_poll(clean, now_ns, &wake_ns);
        shard_expose(backed, v(late), &image->common.exposures);
        poll();
        assert_int_equal(store_meta(image->store, victim).state, SEGMENT_COMMITTED);
        assert_true(late || store_segment_at(image->store, find(backed, key)) == victim);
        assert_true(late || segment_of(image, "beside") == victim);
        const uint64_t begun = clean->victims_begun;
        now_ns += 2 * NS_PER_S;
        poll();
        assert_int_equal(clean->victims_begun, begun);
        shard_cover(backed);
        now_ns += 2 * NS_PER_S;
        poll();
        assert_int_not_equal(store_segment_at(image->store, find(backed, key)), victim);
        assert_int_equal(store_meta(image->store, victim).state, SEGMENT_FREE);
    }
}

TEST(what_is_damaged_in_a_victim_is_told_and_it_is_one_again_when_nothing_leads_there)
{
    const uint64_t victim = commit_put(image, LED, v(1), "k");
    begin_server(image, 12, false);
    const uint64_t damaged = find(led, "k");
    image->heap->pm.base[damaged + ENTRY_HEADER_BYTES + 2] ^= 1;
    for (unsigned i = 0; i < 2; i++) { /* it is tried once more */
        assert_false(atomic_load(&led->damaged));
        poll();
        now_ns += 2 * NS_PER_S;
    }
    assert_true(atomic_load(&led->damaged));
    assert_int_equal(atomic_load(&image->common.damages), 1);
    const uint64_t begun = clean->victims_begun;
    poll();
    assert_int_equal(clean->victims_begun, begun);
    assert_int_equal(index_remove(led->index, index_hash("k", 1), damaged), 1);
    live_removed(store_live(image->store), damaged); /* it is written anew, or its replica left */
    atomic_store(&image->common.reserve, SEGMENTS);  /* it does not wait for more copies */
    poll();
    assert_int_equal(store_meta(image->store, victim).state, SEGMENT_FREE);
}

UNIT_MAIN(NULL, NULL)
