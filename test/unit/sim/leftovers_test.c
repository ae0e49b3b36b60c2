/* When all is quiet nothing may be left over: each thing that somebody keeps for ever is found. */
#define TEST_FIXTURE checks_stage_set_up, checks_stage_tear_down

#include "checks_stage.h"
#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"
#include "test/sim/sim_fabric_state.h"
#include "test/sim/sim_fault.h"

TEST(what_is_left_over_is_found)
{
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, NULL);
    struct worker *worker = checks_stage_worker(&stage, 2);
    worker->in_flight.parts += 64;
    checks_leftovers(stage.checks);
    worker->in_flight.parts -= 64;
    checks_stage_expect(&stage, "leftovers");
}

TEST_WITH(a_message_that_nobody_releases_is_found, NULL, NULL)
{
    struct sim_item item = {.at_ns = 0};
    checks_stage_open(&stage, 25, NULL);
    checks_stage_run(&stage, 0);
    struct sim_conn *conn = (struct sim_conn *)checks_stage_worker(&stage, 2)->clients.first->conn;
    LIST_APPEND(&conn->unreleased, &item, link);
    checks_leftovers(stage.checks);
    LIST_REMOVE(&conn->unreleased, &item, link);
    checks_stage_expect(&stage, "leftovers");
    assert_non_null(strstr(stage.failure.why, "released, the first by sim:server-2"));
    checks_stage_close(&stage);
}

static void find_left_over(enum mutant mutant, unsigned faults, const char *why)
{
    bool found = false;
    for (uint64_t seed = 26; !found && seed < 46; seed++) {
        checks_stage_open(&stage, seed, NULL);
        sim_fault_mutant(mutant);
        checks_stage_run(&stage, faults);
        checks_stage_expect(&stage, NULL);
        checks_leftovers(stage.checks);
        sim_fault_mutant(MUTANT_COUNT);
        found = stage.failure.kind != FAILURE_NONE;
        if (found && !strstr(stage.failure.why, why))
            fail_msg("%s", stage.failure.why);
        checks_stage_close(&stage);
    }
    assert_true(found);
}

TEST_WITH(records_that_are_kept_for_ever_are_found, NULL, NULL)
{
    find_left_over(MUTANT_RECORDS_KEPT, 0, "completion records");
}

TEST_WITH(a_client_that_is_forgotten_while_it_is_connected_is_found, NULL, NULL)
{
    find_left_over(MUTANT_CLIENT_LEFT, CHECKS_STAGE_FAULTS, "is connected, and not known");
}

TEST(a_client_that_has_ended_is_forgotten)
{
    struct worker *worker = checks_stage_worker(&stage, 2);
    uint32_t id = sim_client_id(&stage.cluster->clients[0]);
    uint64_t ended_ns = stage.cluster->clock.now_ns;
    assert_true(clients_knows(&worker->known, id));
    sim_cluster_kill_client(stage.cluster, 0);
    sim_cluster_run_for(stage.cluster, NS_PER_S);
    assert_true(clients_knows(&worker->known, id));
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, NULL);
    assert_false(clients_knows(&worker->known, id));
    assert_true(stage.cluster->clock.now_ns - ended_ns >= CLIENTS_KEEP_NS);
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        const struct shard_state *shard = worker->shards[worker->config->shards[i].id];
        assert_true(!shard || records_clients(&shard->records) < stage.cluster->options.clients);
    }
}

TEST(a_segment_that_nobody_gives_back_is_found)
{
    uint64_t segment;
    struct control *control = server_poller(stage.cluster->servers[1].server, 0).role;
    assert_int_equal(store_allocate(control->common->store, OWNER_BACKUP_LOG, 0, &segment), 0);
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, "leftovers");
    stage.failure = (struct failure){.kind = FAILURE_NONE};
    store_transition(control->common->store, segment, SEGMENT_USED);
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, "leftovers");
}

UNIT_MAIN(NULL, NULL)
