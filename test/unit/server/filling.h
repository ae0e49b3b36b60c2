/* filling.h - a stage with leases of which server 2, which the test plays, fills. */
#ifndef TEST_UNIT_SERVER_FILLING_H
#define TEST_UNIT_SERVER_FILLING_H

#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { LED = 0 };

/* The configuration with leases in which server 2 alone has STAGE_BACKED, and server 1 alone the others. */
static inline void open_with_leases(struct stage *stage)
{
    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->config->manager = 9;
    stage->config->lease_ms = CLUSTER_MAX_LEASE_MS;
    for (uint32_t i = 0; i < stage->config->shard_count; i++)
        stage->config->shards[i].backup_count = 0;
    assert_int_equal(cluster_finish(stage->config), 0);
    stage_begin(stage);
    stage_grant(stage);
    stage_commit(stage, stage->config->term);
}

static inline int open_stage(void **state)
{
    open_with_leases(stage_new(state));
    return 0;
}

enum change { FILLS, FULL };

/* The next configuration: of that shard the other server fills, or is full; adopted and committed, and to be reconciled. */
static inline void configure(struct stage *stage, uint32_t shard, enum change to)
{
    struct cluster_config *config = cluster_copy(stage->config);
    struct shard *row = &config->shards[shard];

    assert_non_null(config);
    config->term++;
    row->epoch++;
    row->filling_count = to == FILLS;
    row->backup_count = to == FULL;
    row->filling[0] = row->backups[0] = shard == STAGE_BACKED ? 1 : 2;
    assert_int_equal(cluster_finish(config), 0);
    cluster_release(stage->config);
    stage->config = config;
    stage_configure_for(stage, config, 0);
    stage_pass(stage, 10 * NS_PER_MS);
    if (!stage->peer) {
        stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
        if (stage->peer)
            puppet_connected(stage->peer, true);
    }
    stage_commit(stage, stage->config->term);
    assert_false(stage->peer &&
                 stage_confirm(stage, 0)); /* nothing is copied before the epoch is reconciled */
}

static inline void change(struct stage *stage, uint32_t shard, enum change to)
{
    configure(stage, shard, to);
    if (stage->peer) {
        const uint32_t suffixes = stage_answer_suffixes(stage, 0);
        assert_true(suffixes > 0 || shard == STAGE_BACKED); /* it may have what nobody else got */
    }
}

/* Does the server tell the CM that server 2 has all of the shard? */
static inline bool tells_filled(struct stage *stage, uint32_t shard, uint32_t epoch)
{
    const Rowan__ControlMessage *message;
    bool told = false;

    while ((message = stage_message(stage, stage_cm(stage), NULL))) {
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FILLED)
            told |= message->filled->shard == shard && message->filled->epoch == epoch &&
                    message->filled->server == 2;
    }
    return told;
}

static inline const struct worker *worker_of(struct stage *stage)
{
    const struct control *control = server_poller(stage->server, 0).role;
    return control->workers[0];
}

static inline const struct worker_counts *counts_of(struct stage *stage)
{
    return worker_counts(worker_of(stage));
}

static inline uint64_t left_to_fill(struct stage *stage)
{
    return counter_get(&counts_of(stage)->fill_left);
}

#endif
