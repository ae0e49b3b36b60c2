/* The owner of a shard closes segments and settles what lies in them, while the control role commits them. */
#define TEST_FIXTURE open_image, close_image

#include <pthread.h>

#include "image.h"
#include "server/control/control_state.h"

enum { HELD = 6, ROUNDS = 3000, LAG = 2 };

struct owner {
    struct image *image;
    struct shard_state *shard;
    uint64_t early; /* segments that were committed before what they hold was settled, durably */
    _Atomic bool over;
};

static uint64_t version_of(uint64_t round)
{
    return version_make(EPOCH, round);
}

/* Writes a version into each segment, and settles it while later ones are closed. Uses them again when they are committed. */
static void *owner_run(void *argument)
{
    struct owner *owner = argument;
    struct image *image = owner->image;
    struct shard_state *shard = owner->shard;
    uint64_t segments[HELD];
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t *held = &segments[round % HELD];
        if (round > HELD) {
            while (store_meta(image->store, *held).state != SEGMENT_COMMITTED)
                ;
            owner->early += atomic_load(&shard->dur_settled) < version_of(round - HELD);
            store_transition(image->store, *held, SEGMENT_DIRTY);
            pm_zero(image->common.pm, store_segment_offset(image->store, *held), LIMIT);
            store_transition(image->store, *held, SEGMENT_FREE);
        }
        begin_segment(image, OWNER_WORKER);
        *held = image->segment;
        write_put(image, LED, version_of(round), "k");
        shard_close(shard, version_of(round));
        store_transition(image->store, *held, SEGMENT_USED);
        if (round > LAG)
            atomic_store_explicit(&shard->commit, version_of(round - LAG), memory_order_release);
        shard_settle(shard, UINT64_MAX);
    }
    atomic_store(&owner->over, true);
    return NULL;
}

/* Each look is a while behind the last: so it also finds that the settled version stands still, and reads the segments (G7). */
TEST(no_segment_is_committed_before_what_lies_in_it_is_settled)
{
    static struct control control;
    static const struct server_options options;
    struct adopt_shard places[3] = {0};
    struct shard_state *shards[3] = {0};
    recover(image);
    struct owner owner = {.image = image, .shard = recover_take(image->recover, LED)};
    shards[0] = owner.shard;
    control = (struct control){.common = &image->common,
                               .options = &options,
                               .config = image->config,
                               .shards = shards,
                               .adoption = {.shards = places}};
    reclaim_init(&image->common.reclaim);
    assert_int_equal(clean_create(&image->common, 0, false, &control.clean), 0);
    assert_int_equal(control_commit_open(&control), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, owner_run, &owner), 0);
    while (!atomic_load(&owner.over)) {
        uint64_t wake_ns = UINT64_MAX;
        control.now_ns += 100 * NS_PER_MS;
        control_commit_poll(&control, &wake_ns);
    }
    pthread_join(thread, NULL);
    assert_int_equal(owner.early, 0);
    control_commit_close(&control);
    clean_destroy(control.clean);
    shard_state_destroy(owner.shard);
}

UNIT_MAIN(NULL, NULL)
