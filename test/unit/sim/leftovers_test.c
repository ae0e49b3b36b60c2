/* When all is quiet nothing may be left over: each thing that somebody keeps for ever is found. */
#define TEST_FIXTURE checks_stage_set_up, checks_stage_tear_down

#include "checks_stage.h"
#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"

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
