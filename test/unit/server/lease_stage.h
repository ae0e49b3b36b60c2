/* lease_stage.h - a server with leases on a stage, and what it and its manager say of them. Include once. */
#ifndef TEST_UNIT_SERVER_LEASE_STAGE_H
#define TEST_UNIT_SERVER_LEASE_STAGE_H

#define TEST_FIXTURE begin, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/cluster/control.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { MANAGER = 9 };

#define LEASE_NS (800 * NS_PER_MS)
#define HERE_NS  (650 * NS_PER_MS) /* of it: control_lease.c, J1 */
#define RENEW_NS (200 * NS_PER_MS)

static inline int begin(void **state)
{
    struct stage *stage = stage_new(state);

    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->config->manager = MANAGER;
    stage->config->lease_ms = (uint32_t)(LEASE_NS / NS_PER_MS);
    stage_begin(stage);
    stage_commit(stage, stage->config->term);
    stage->fabric->taken = stage->fabric->sent_count;
    return 0;
}

struct renewal {
    uint32_t tag;
    uint64_t term, manager, manager_ns;
    uint32_t incomplete; /* a server; 0: none */
    bool leaves;
};

/* The last that the server sent since `from`; returns how many it sent. */
static inline uint32_t renewals(const struct stage *stage, uint32_t from, struct renewal *last)
{
    uint32_t count = 0;

    for (uint32_t i = from; i < stage->fabric->sent_count; i++) {
        const struct puppet_sent *sent = &stage->fabric->sent[i];
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != stage_cm(stage))
            continue;
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_RENEW) {
            assert_true(message->renew->n_incomplete <= 1);
            *last =
                (struct renewal){tag,
                                 message->renew->term,
                                 message->renew->manager,
                                 message->renew->manager_ns,
                                 message->renew->n_incomplete ? message->renew->incomplete[0] : 0,
                                 message->renew->leaves};
            count++;
        }
        control_free(message);
    }
    return count;
}

static inline struct renewal last_renewal(const struct stage *stage)
{
    struct renewal last;

    assert_true(renewals(stage, 0, &last) > 0);
    return last;
}

/* The server waits until its next renewal is due, and sends it. */
static inline struct renewal next_renewal(struct stage *stage)
{
    const uint32_t from = stage->fabric->sent_count;
    struct renewal next;

    while (renewals(stage, from, &next) == 0) {
        assert_true(stage->wake_ns > stage->now_ns && stage->wake_ns != WAKE_NEVER);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    return next;
}

static inline void answer(struct stage *stage, uint32_t tag, uint64_t manager, uint64_t manager_ns,
                          bool granted)
{
    Rowan__LeaseIs is = ROWAN__LEASE_IS__INIT;

    is.manager = manager;
    is.manager_ns = manager_ns;
    is.granted = granted;
    stage_tell(stage_cm(stage), tag, &CONTROL_MESSAGE(LEASE_IS, lease_is, &is));
    stage_run(stage);
}

/* Until HERE_NS behind now. */
static inline void grant(struct stage *stage)
{
    const struct renewal renewal = next_renewal(stage);

    answer(stage, renewal.tag, MANAGER, 1, true);
}

#endif
