/* The configuration that a server adopted is in its PM before it serves, later ones follow, and a manager that asks gets
 * it. */
#define TEST_FIXTURE start, stage_teardown

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "server/store/store_layout.h"
#include "stage.h"
#include "test/lib/unit.h"

static struct stage *stage; /* of the case */
static uint64_t done_upto;  /* fences of higher numbers are not done */

static int fence_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    return ticket.number <= done_upto;
}

static int start(void **state)
{
    stage = stage_new(state);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->pm_ops.fence_done = fence_done;
    done_upto = UINT64_MAX;
    return 0;
}

/* 0: there is none. It is that of the stage, with the secret. */
static uint64_t stored_term(void)
{
    struct store_config stored;
    struct cluster_config *config;
    if (store_config_read(&stage->heap->pm, &stored))
        return 0;
    assert_int_equal(cluster_decode(stored.bytes, stored.byte_count, &config), 0);
    assert_true(config->term == stored.term && config->cluster == stage->config->cluster);
    assert_true(config->has_secret &&
                memcmp(config->secret, stage->config->secret, sizeof config->secret) == 0);
    cluster_release(config);
    return stored.term;
}

static void assert_copies(uint64_t term)
{
    const struct store_geometry at = store_geometry(store_segments_in(stage->heap->pm.bytes));
    struct config_head head;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(config_read(&stage->heap->pm, at.configs[i], &head), CONFIG_COPY_WHOLE);
        assert_true(head.term == term);
    }
}

static void configure(uint64_t term)
{
    stage->config->term = term;
    stage_adopt(stage);
}

/* What the last Join said since the last look. */
struct report {
    uint32_t count;
    uint64_t term, brought; /* 0: it brought none */
};

static struct report last_report(void)
{
    const struct puppet_sent *sent;
    struct report report = {.count = 0};
    stage->now_ns += NS_PER_S / 2; /* a manager that is silent for a whole one is left */
    stage_run(stage);
    while ((sent = puppet_take(stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN) {
            const ProtobufCBinaryData *stored = &message->join->stored;
            struct cluster_config *config = NULL;
            if (stored->len)
                assert_int_equal(cluster_decode(stored->data, stored->len, &config), 0);
            report = (struct report){.count = report.count + 1,
                                     .term = message->join->stored_term,
                                     .brought = config ? config->term : 0};
            assert_true(!config || config->has_secret);
            cluster_release(config);
        }
        control_free(message);
    }
    return report;
}

static void ask(bool bring)
{
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;
    is.bring = bring;
    stage_cm_tells(stage, stage_join_tag(stage),
                   &CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
}

TEST(a_server_serves_when_both_copies_are_stored)
{
    for (uint32_t starts = 0; starts < 2; starts++) {
        if (starts)
            stage_restart(stage);
        done_upto = atomic_load(&stage->heap->fences);
        stage_configure(stage, stage->config);
        for (unsigned i = 0; i < 20 && !stage->fabric->zone_is_open; i++, done_upto++)
            stage_run(stage);
        assert_true(stage->fabric->zone_is_open);
        assert_copies(stage->config->term);
        done_upto = UINT64_MAX;
        stage_run(stage);
    }
}

TEST(later_ones_are_stored_beside_the_work_and_the_newest_of_many_counts)
{
    stage_begin(stage);
    done_upto = atomic_load(&stage->heap->fences);
    for (uint64_t term = 2; term <= 9; term++)
        configure(term); /* of which the first is under way all the time */
    assert_true(stored_term() == 2);
    done_upto = UINT64_MAX;
    stage_run(stage);
    assert_copies(9);
    assert_int_equal(server_error(stage->server), 0);
}

/* A coordination service that was put back. */
TEST(an_older_one_is_served_and_does_not_replace_the_stored_one)
{
    stage_begin(stage);
    configure(50);
    stage_end(stage);
    stage->config->term = 7;
    assert_int_equal(stage_try(stage, STAGE_BLOCK_LIMIT), 0);
    stage_begin(stage);
    assert_true(stage->fabric->zone_is_open);
    assert_copies(50);
    configure(50);
    configure(51);
    assert_copies(51);
}

TEST(a_server_that_waits_tells_the_term_that_it_stored_and_brings_it_when_it_is_asked)
{
    ask(true);
    assert_true(last_report().brought == 0); /* it has none */
    stage_begin(stage);
    configure(5);
    (void)last_report();
    assert_true(last_report().count == 0); /* it serves */
    stage_restart(stage);
    struct report report = last_report();
    assert_true(report.count > 0 && report.term == 5 && report.brought == 0);
    ask(true);
    report = last_report();
    assert_true(report.count > 0 && report.term == 5 && report.brought == 5);
    ask(false);
    report = last_report();
    assert_true(report.count > 0 && report.term == 5 && report.brought == 0);
}

TEST(a_server_of_which_both_copies_are_damaged_says_that_it_stored_none)
{
    stage_begin(stage);
    const struct store_geometry at = store_geometry(store_segments_in(stage->heap->pm.bytes));
    for (unsigned i = 0; i < 2; i++)
        stage->heap->pm.base[at.configs[i] + CONFIG_HEAD_BYTES] ^= 1;
    stage_restart(stage);
    ask(true);
    const struct report report = last_report();
    assert_true(report.count > 0 && report.term == 0 && report.brought == 0);
    stage_begin(stage);
    assert_copies(stage->config->term);
}

TEST(a_sync_that_fails_ends_the_server)
{
    stage_begin(stage);
    stage_fail_fences(stage);
    configure(2);
    assert_int_equal(server_error(stage->server), ROWAN_EIO);
}

UNIT_MAIN(NULL, NULL)
