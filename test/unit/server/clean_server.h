/* clean_server.h - one life of a server with a clean role, on a PM image that was made by hand (image.h). */
#ifndef TEST_UNIT_SERVER_CLEAN_SERVER_H
#define TEST_UNIT_SERVER_CLEAN_SERVER_H

#define TEST_FIXTURE setup, teardown

#include "image.h"
#include "server/clean/clean_state.h"
#include "server/digest/digest_state.h"
#include "server/store/live.h"
#include "server/worker/worker_client.h"
#include "server/worker/worker_state.h"

static struct clean *clean;
static struct worker leader; /* that the role asks about records */
static struct digest backer;
static struct shard_state *led, *backed;
static uint64_t now_ns;

static int setup(void **state)
{
    now_ns = NS_PER_S;
    clean = NULL;
    led = backed = NULL;
    assert_int_equal(inbox_init(&leader.role.questions, 8), 0);
    assert_int_equal(inbox_init(&backer.role.questions, 8), 0);
    return open_image(state);
}

static void end_server(void)
{
    clean_destroy(clean);
    shard_state_destroy(led);
    shard_state_destroy(backed);
    clean = NULL;
    led = backed = NULL;
}

static int teardown(void **state)
{
    end_server();
    inbox_fini(&leader.role.questions);
    inbox_fini(&backer.role.questions);
    return close_image(state);
}

static void take_shards(struct image *image)
{
    led = recover_take(image->recover, LED);
    backed = recover_take(image->recover, BACKED);
}

/* The next server, which has started on the image, all of it committed. */
static void begin_server(struct image *image, uint64_t reserve, bool checkpoints)
{
    end_server();
    recover(image);
    take_shards(image);
    reclaim_init(&image->common.reclaim);
    assert_int_equal(clean_create(&image->common, 75, checkpoints, &clean), 0);
    struct shard_state *const shards[] = {led, backed};
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&shards[i]->commit, v(1000));
        atomic_store(&shards[i]->dur_settled, v(1000));
        shard_cover(shards[i]);
        assert_int_equal(
            command_push(&clean_role(clean)->inbox,
                         &(struct command){.kind = COMMAND_READ,
                                           .read = {.shard = shards[i],
                                                    .questions = i ? &backer.role.questions
                                                                   : &leader.role.questions}}),
            0);
    }
    atomic_store(&image->common.reserve, reserve);
}

/* The digest role has all shards that this server backs. */
static inline void lets_the_backer_answer(void)
{
    backer.shards[BACKED] = backed;
    backer.owned = (struct shard_list){backed, backed};
    backer.has_all = true;
}

#endif
