/* random_test.c - managers that share one store, under events in an order that a seed decides:
 * lost, unknown and failed stores, leadership that comes and goes and is held by two at once,
 * restarts of servers and managers. world.c checks each message; then all goes well for a while,
 * and everybody must get what was asked for. ROWAN_SEED=N runs one seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 4, CLIENTS = 8, CONNECTIONS = SERVERS + CLIENTS, STEPS = 2000, SEEDS = 60 };

struct run {
    struct random random;
    struct world_store store;
    struct world *managers[WORLD_MANAGERS];
    uint64_t incarnations[SERVERS + 1]; /* of the server's process now */
    bool leads[WORLD_MANAGERS];
};

static bool chance(struct run *run, uint64_t percent)
{
    return random_below(&run->random, 100) < percent;
}

static struct world *new_manager(struct run *run)
{
    struct cm_state_options options = world_options(SERVERS, 3, 0);
    return world_create(&run->store, &options);
}

static void answer(struct run *run, struct world *world)
{
    if (world->reading) {
        bool known = cm_state_knows(world->state);
        world_answer_read(world, known && chance(run, 10) ? ROWAN_EIO : ROWAN_OK);
    } else if (world->storing) {
        static const enum world_outcome outcomes[] = {WORLD_OK, WORLD_OK, WORLD_UNKNOWN_WON,
                                                      WORLD_UNKNOWN_LOST, WORLD_ERROR};
        world_answer_store(world, outcomes[random_below(&run->random, 5)]);
    }
}

static void lead(struct run *run, uint32_t manager, bool leads)
{
    if (run->leads[manager] == leads)
        return;
    run->leads[manager] = leads;
    world_lead(run->managers[manager], leads);
}

static void restart_manager(struct run *run, uint32_t manager)
{
    world_destroy(run->managers[manager]);
    run->managers[manager] = new_manager(run);
    run->leads[manager] = false;
}

/* Its connections to all managers end with the process. */
static void restart_server(struct run *run, uint32_t server)
{
    run->incarnations[server]++;
    for (uint32_t i = 0; i < WORLD_MANAGERS; i++) {
        if (run->managers[i]->connections[server].open)
            world_close(run->managers[i], server);
    }
}

/* Connections 1 to SERVERS are servers, the others clients. */
static void ask(struct run *run, struct world *world, uint32_t connection)
{
    uint32_t tag = 1 + (uint32_t)random_below(&run->random, 1000);
    if (!world->connections[connection].open) {
        world_open(world, connection);
    } else if (chance(run, 5)) {
        world_close(world, connection);
        if (connection <= SERVERS && chance(run, 10))
            restart_server(run, connection);
    } else if (connection <= SERVERS && chance(run, 60)) {
        struct cm_join join = world_join_of(connection);
        join.incarnation = run->incarnations[connection];
        world_join(world, connection, tag, &join);
    } else if (chance(run, 30)) {
        world_get(world, connection, tag, random_below(&run->random, 4));
    } else {
        world_new_id(world, connection, tag);
    }
}

static void one_step(struct run *run)
{
    uint32_t manager = (uint32_t)random_below(&run->random, WORLD_MANAGERS);
    struct world *world = run->managers[manager];
    uint64_t dice = random_below(&run->random, 1000);
    if (dice < 2)
        restart_manager(run, manager);
    else if (dice < 20)
        lead(run, manager, chance(run, 50));
    else if (dice < 40)
        world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    else if (dice < 300)
        answer(run, world);
    else if (!cm_state_knows(world->state))
        answer(run, world);
    else
        ask(run, world, 1 + (uint32_t)random_below(&run->random, CONNECTIONS));
    world_forget(run->managers[manager]);
}

/* All goes well: one leader, every server of its last process present, everybody asks. */
static void check_liveness(struct run *run)
{
    for (uint32_t i = 1; i < WORLD_MANAGERS; i++)
        lead(run, i, false);
    struct world *world = run->managers[0];
    world_settle(world);
    lead(run, 0, true);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED}); /* the watch tells at last */
    world_settle(world);
    for (uint32_t c = 1; c <= CONNECTIONS; c++) {
        if (world->connections[c].open)
            world_close(world, c);
        world_open(world, c);
        if (c <= SERVERS) {
            struct cm_join join = world_join_of(c);
            join.incarnation = run->incarnations[c];
            world_join(world, c, 5, &join);
        }
    }
    world_settle(world);
    for (uint32_t c = SERVERS + 1; c <= CONNECTIONS; c++) {
        world_get(world, c, 6, 0);
        world_new_id(world, c, 7);
    }
    world_settle(world);

    assert_false(world->stopped);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_non_null(config);
    assert_int_equal(config->term, run->store.history[run->store.version]->term);
    for (uint32_t c = SERVERS + 1; c <= CONNECTIONS; c++) {
        assert_false(world->connections[c].wants_id);
        assert_int_equal(world->connections[c].told_term, config->term);
    }
    for (uint32_t c = 1; c <= SERVERS; c++) {
        if (cluster_member(config, c)->incarnation == run->incarnations[c])
            assert_int_equal(world->connections[c].told_term, config->term);
    }
}

static void run_seed(uint64_t seed, uint64_t *terms, uint64_t *ids)
{
    static struct run run;
    memset(&run, 0, sizeof run);
    print_message("# seed %llu\n", (unsigned long long)seed);
    random_init(&run.random, seed);
    world_store_init(&run.store);
    for (uint32_t c = 1; c <= SERVERS; c++)
        run.incarnations[c] = 1000 + c;
    for (uint32_t i = 0; i < WORLD_MANAGERS; i++)
        run.managers[i] = new_manager(&run);
    for (int i = 0; i < STEPS; i++)
        one_step(&run);
    check_liveness(&run);
    *terms += run.store.version;
    *ids += run.store.ids_given;
    for (uint32_t i = 0; i < WORLD_MANAGERS; i++)
        world_destroy(run.managers[i]);
    world_store_fini(&run.store);
}

static void no_order_of_events_breaks_a_promise(void **state)
{
    (void)state;
    uint64_t terms = 0, ids = 0;
    const char *one = getenv("ROWAN_SEED");
    if (one) {
        run_seed(strtoull(one, NULL, 10), &terms, &ids);
        return;
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_seed(seed, &terms, &ids);
    print_message("# %llu configurations stored, %llu ids given\n", (unsigned long long)terms,
                  (unsigned long long)ids);
    assert_true(terms > SEEDS * 5 && ids > SEEDS * 100); /* the seeds did reach something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_events_breaks_a_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
