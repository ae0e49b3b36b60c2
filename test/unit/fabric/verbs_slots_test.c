/* verbs_slots_test.c - landing zones of slots: where what landed lies, when segments are sealed, and that no
 * failure holds one open. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/lib/verbs_half.h"

enum {
    SEGMENT = FABRIC_SEGMENT_BYTES,
    SLOTS = SEGMENT / HALF_SLOT,
    PM_BYTES = 32 << 20,
    BYTES = 192,
};

static struct half half;

static void open_half(unsigned count)
{
    half_open(&half, count, PM_BYTES);
}

static int close_half(void **state)
{
    (void)state;
    half_close(&half);
    soft_verbs_faults(NULL);
    soft_verbs_configure(NULL);
    return 0;
}

static void connect_to_zone(unsigned from, struct verbs_conn **active, struct verbs_conn **passive)
{
    assert_int_equal(half_connect(&half, from, 0, active, passive), 0);
    assert_true((*active)->base.has_zone);
}

/* Sends blocks number `first` to `end` - 1, polling where there is no room. */
static void send_blocks(unsigned from, struct verbs_conn *conn, uint32_t first, uint32_t end)
{
    while (first < end) {
        if (half_send(&half, from, conn, first, BYTES) == 0)
            first++;
        else
            half_poll(&half);
    }
}

static void send_and_wait(unsigned from, struct verbs_conn *conn, uint32_t first, uint32_t end)
{
    const uint32_t landed = half_events(&half.nodes[from], FABRIC_LANDED);

    send_blocks(from, conn, first, end);
    half_wait(&half, from, FABRIC_LANDED, landed + end - first);
}

static uint32_t walk(uint32_t segments, unsigned node)
{
    uint32_t counts[HALF_NODES];

    half_walk(&half, segments, counts);
    return counts[node];
}

/* --- landing --- */

/* What waits for slots when its connection ends never lands. */
static void nothing_of_a_closed_connection_lands(void **state)
{
    struct verbs_conn *active, *passive;

    (void)state;
    open_half(2);
    half_zone(&half, 2, 0);
    connect_to_zone(1, &active, &passive);
    send_blocks(1, active, 0, 10);
    half_poll_times(&half, 100);
    half_end(passive);
    assert_int_equal(verbs_zone_post(half.nodes[0].zone, 0, 0), 0);
    half_poll_times(&half, 100);
    assert_int_equal(walk(1, 1), 0);
    assert_int_equal(half_events(&half.nodes[1], FABRIC_LANDED), 0);
    assert_int_equal(verbs_rowan_add(&active->base, pm_at(half.nodes[1].pm, 0), 64), ROWAN_ECLOSED);
}

/* A block that is too long for a slot: this zone's owner has smaller ones than it says. */
static void a_receive_that_fails_leaves_a_hole(void **state)
{
    struct verbs_conn *liar, *passive, *active, *other;
    uint64_t long_block[2 * HALF_SLOT / 8];

    (void)state;
    open_half(3);
    half_zone(&half, 2, 2);
    half.nodes[0].fabric.base.caps.block_limit = 2 * HALF_SLOT;
    half.nodes[1].fabric.base.caps.block_limit = 2 * HALF_SLOT;
    connect_to_zone(1, &liar, &passive);
    connect_to_zone(2, &active, &other);
    memset(long_block, 0, sizeof long_block);
    long_block[0] = 1 << 8; /* what verbs takes for a block; nothing of it may be found */
    pm_store(half.nodes[1].pm, 0, long_block, sizeof long_block);
    assert_int_equal(verbs_rowan_add(&liar->base, pm_at(half.nodes[1].pm, 0), 2 * HALF_SLOT), 0);
    pm_zero(half.nodes[1].pm, 0, sizeof long_block);
    assert_int_equal(verbs_rowan_post(&liar->base, 1), 0);
    for (uint32_t i = 0; half.nodes[0].broken == 0 || half.nodes[1].broken == 0; i++) {
        assert_true(i < 100000);
        half_poll(&half);
    }
    assert_int_equal(half_events(&half.nodes[1], FABRIC_LANDED), 0);
    send_and_wait(2, active, 0, SLOTS);
    half_wait(&half, 0, FABRIC_SEALED, 1);
    assert_int_equal(walk(1, 2), SLOTS - 1); /* its place is taken */
    assert_int_equal(walk(2, 2), SLOTS);
}

/* --- completions that are swept away --- */

/* Lands `count` blocks of which the owner polls no completion, and lets the device sweep those away. */
static void lose_completions(struct verbs_conn *active, struct verbs_conn *passive, uint32_t count)
{
    const uint32_t landed = half_events(&half.nodes[1], FABRIC_LANDED);

    half.nodes[0].is_stopped = true;
    send_blocks(1, active, 0, count);
    half_wait(&half, 1, FABRIC_LANDED, landed + count);
    half_end(passive);
    half.nodes[0].is_stopped = false;
    half_poll(&half);
    assert_int_equal(walk(2, 1), count);
}

static void open_sweeping_zone(unsigned count, uint32_t depth)
{
    const struct soft_config config = {
        .seed = 1,
        .purges_completions = true,
        .devices = {{.name = "soft1", .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}}}};

    soft_verbs_configure(&config);
    open_half(count);
    half_zone(&half, depth, depth);
}

static void open_sweeping(unsigned count)
{
    open_sweeping_zone(count, 4);
}

static void lost_slots_are_given_up_when_all_queue_pairs_of_then_are_gone(void **state)
{
    struct verbs_conn *lost, *lost_passive, *old, *old_passive, *active, *passive;

    (void)state;
    open_sweeping(3);
    connect_to_zone(1, &lost, &lost_passive);
    connect_to_zone(2, &old, &old_passive);
    lose_completions(lost, lost_passive, 100);
    send_and_wait(2, old, 0, 2 * SLOTS); /* the next segment is full, too */
    half_poll_times(&half, 1000);
    assert_int_equal(half_events(&half.nodes[0], FABRIC_SEALED), 0); /* one of them lives */
    half_end(old);
    connect_to_zone(2, &active, &passive); /* is no obstacle */
    half_wait(&half, 0, FABRIC_SEALED, 2);
    assert_int_equal(walk(1, 1), 100); /* what had landed is there */
    assert_int_equal(walk(4, 2), 2 * SLOTS);
}

static void lost_slots_are_given_up_when_no_sender_can_be_trying_any_more(void **state)
{
    struct verbs_conn *lost, *lost_passive, *active, *passive;

    (void)state;
    open_sweeping(3);
    connect_to_zone(1, &lost, &lost_passive);
    connect_to_zone(2, &active, &passive);
    lose_completions(lost, lost_passive, 100);
    send_and_wait(2, active, 0, 2 * SLOTS);
    half_poll(&half);
    half.now_ns += VERBS_RC_GIVES_UP_NS;
    half_poll_times(&half, 10);
    assert_int_equal(half_events(&half.nodes[0], FABRIC_SEALED), 0);
    assert_true(verbs_zone_wait_ns(half.nodes[0].endpoint.zone) <= NS_PER_S);
    half.now_ns += verbs_zone_wait_ns(half.nodes[0].endpoint.zone);
    half_poll(&half);
    assert_int_equal(half_events(&half.nodes[0], FABRIC_SEALED), 2);
}

/* A zone of two segments, of which each has lost slots: none of them ever completes. */
static void lost_slots_in_every_segment_are_given_up(void **state)
{
    struct verbs_conn *lost, *lost_passive, *old, *old_passive, *active, *passive;

    (void)state;
    open_sweeping_zone(3, 2);
    connect_to_zone(1, &lost, &lost_passive);
    connect_to_zone(2, &old, &old_passive);
    send_and_wait(2, old, 0, SLOTS - 50);
    lose_completions(lost, lost_passive, 100); /* 50 of the first, 50 of the second */
    send_and_wait(2, old, SLOTS - 50, SLOTS);
    half_end(old);
    connect_to_zone(2, &active, &passive);
    half_wait(&half, 0, FABRIC_SEALED, 1);
    assert_int_equal(verbs_zone_post(half.nodes[0].zone, 2 * SEGMENT, 2), 0);
    send_and_wait(2, active, 0, SLOTS);
    half_end(active);
    half_wait(&half, 0, FABRIC_SEALED, 2);
}

/* All slots that the device had are lost, at once. */
static void a_queue_of_lost_slots_takes_new_ones(void **state)
{
    struct verbs_conn *lost, *lost_passive, *active, *passive;

    (void)state;
    open_sweeping(3);
    connect_to_zone(1, &lost, &lost_passive);
    connect_to_zone(2, &active, &passive);
    send_and_wait(2, active, 0, 1); /* a completion came a moment ago */
    lose_completions(lost, lost_passive, SLOTS - 1);
    assert_int_equal(walk(2, 2), 1);
    send_and_wait(2, active, 1, 2 * SLOTS);
    half_end(active);
    half_wait(&half, 0, FABRIC_SEALED, 2);
    assert_int_equal(walk(4, 2), 2 * SLOTS);
}

static int (*post_slots)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static uint32_t refused;

static int post_and_count(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    const int error = post_slots(srq, wr, bad);

    refused += error == ENOMEM;
    return error;
}

/* Each queue pair that goes has the device asked how much it takes, and no more. */
static void a_full_queue_is_asked_once_for_each_queue_pair_that_is_gone(void **state)
{
    struct verbs_conn *lost, *lost_passive, *active, *passive;
    struct ibv_context_ops *ops;

    (void)state;
    open_sweeping(3);
    ops = &half.nodes[0].fabric.device->context->ops;
    post_slots = ops->post_srq_recv;
    ops->post_srq_recv = post_and_count;
    refused = 0;
    connect_to_zone(1, &lost, &lost_passive);
    connect_to_zone(2, &active, &passive);
    lose_completions(lost, lost_passive, 100);
    half_poll_times(&half, 100);
    assert_int_equal(refused, 1);
    send_and_wait(2, active, 0, 2 * SLOTS);
    half_end(active);
    half_wait(&half, 0, FABRIC_SEALED, 2); /* the lost slots were given up */
    half_poll_times(&half, 1000);
    assert_in_range(refused, 2, 4);
}

/* --- limits and failures of calls --- */

static void a_full_completion_queue_refuses_whoever_comes(void **state)
{
    struct verbs_conn *active, *passive;

    (void)state;
    open_half(2);
    half.nodes[0].endpoint.cq_room = 36;
    half_zone(&half, 2, 2);
    assert_int_equal(half.nodes[0].endpoint.cq_room, 36); /* landings have their own queue */
    for (unsigned i = 0; i < 36 / 3; i++)                 /* of two queue pairs */
        connect_to_zone(1, &active, &passive);
    assert_int_equal(half_connect(&half, 1, 0, &active, &passive), ROWAN_ETOOMANY);
    half.nodes[0].endpoint.cq_room = HALF_CQ - 36;
}

/* Each call of the device in turn fails: zone and connection answer an error and leave nothing behind. */
static void a_device_that_refuses_leaves_nothing_behind(void **state)
{
    uint32_t calls = 1;

    (void)state;
    for (uint32_t nth = 1; nth <= calls; nth++) {
        struct verbs_conn *active, *passive;
        struct fabric_grant grant;
        int error;

        open_half(2);
        soft_verbs_fail_call(nth, nth % 2 ? ENOMEM : EINVAL);
        error =
            verbs_zone_open(&half.nodes[0].endpoint.base, half.nodes[0].pm, 2, &half.nodes[0].zone);
        if (!error)
            error = half_connect(&half, 1, 0, &active, &passive);
        if (!error)
            error = verbs_grant(&passive->base, 0, 4096, 0, &grant);
        calls = soft_verbs_calls();
        soft_verbs_fail_call(0, 0);
        assert_int_equal(error != 0, nth <= calls);
        if (nth == 1)
            calls = 2; /* how many there are is known when none fails */
        else if (error)
            calls = nth + 1;
        half_close(&half);
    }
    assert_true(calls > 8);
    open_half(1);
}

#define CASE(function) cmocka_unit_test_teardown(function, close_half)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(nothing_of_a_closed_connection_lands),
        CASE(a_receive_that_fails_leaves_a_hole),
        CASE(lost_slots_are_given_up_when_all_queue_pairs_of_then_are_gone),
        CASE(lost_slots_are_given_up_when_no_sender_can_be_trying_any_more),
        CASE(a_queue_of_lost_slots_takes_new_ones),
        CASE(lost_slots_in_every_segment_are_given_up),
        CASE(a_full_queue_is_asked_once_for_each_queue_pair_that_is_gone),
        CASE(a_full_completion_queue_refuses_whoever_comes),
        CASE(a_device_that_refuses_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("verbs_slots", cases, NULL, NULL);
}
