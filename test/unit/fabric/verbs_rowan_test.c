/* verbs_rowan_test.c - the sender's side over verbs (calls of the device, bounds), bulk writes and their keys,
 * and what a peer may say in its hello. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/lib/verbs_half.h"

enum {
    SEGMENT = FABRIC_SEGMENT_BYTES,
    PM_BYTES = 32 << 20,
    GRANTED = 8 << 20, /* offset of what is granted: behind the segments that are posted */
};

static struct half half;
static struct verbs_conn *active, *passive;

static int open_pair(void **state)
{
    (void)state;
    half_open(&half, 2, PM_BYTES);
    half_zone(&half, 2, 2);
    assert_int_equal(half_connect(&half, 1, 0, &active, &passive), 0);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    half_close(&half);
    soft_verbs_faults(NULL);
    return 0;
}

static void fill(struct pm *pm, uint64_t offset, uint64_t bytes, uint8_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        pm->base[offset + i] = (uint8_t)(seed + i * 7 + i / 251);
}

static bool is_zero(const struct pm *pm, uint64_t offset, uint64_t bytes)
{
    return pm->base[offset] == 0 &&
           memcmp(pm->base + offset, pm->base + offset + 1, bytes - 1) == 0;
}

static int write_some(const struct fabric_grant *grant, uint64_t at, uint64_t from, uint32_t bytes,
                      uint64_t context)
{
    return verbs_write(&active->base, grant, at, pm_at(half.nodes[1].pm, from), bytes, context);
}

static struct fabric_grant grant_some(uint64_t offset, uint64_t bytes, uint64_t context)
{
    struct fabric_grant grant;

    assert_int_equal(verbs_grant(&passive->base, offset, bytes, context, &grant), 0);
    return grant;
}

static void wait_broken(unsigned node)
{
    for (uint32_t i = 0; half.nodes[node].broken == 0; i++) {
        assert_true(i < 1000000);
        half_poll(&half);
    }
}

/* --- calls of the device --- */

static int (*device_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*device_post_srq)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static uint32_t send_calls, sends, reads, signalled, receive_calls;

static int count_sends(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    send_calls++;
    for (const struct ibv_send_wr *each = wr; each; each = each->next) {
        sends += each->opcode == IBV_WR_SEND;
        reads += each->opcode == IBV_WR_RDMA_READ;
        signalled += (each->send_flags & IBV_SEND_SIGNALED) != 0;
        assert_true(each->next || each->opcode == IBV_WR_RDMA_READ); /* the fence is the last */
    }
    return device_post_send(qp, wr, bad);
}

static int count_receives(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    receive_calls++;
    return device_post_srq(srq, wr, bad);
}

static void count_calls(void)
{
    struct ibv_context *sender = half.nodes[1].endpoint.device->context;
    struct ibv_context *owner = half.nodes[0].endpoint.device->context;

    device_post_send = sender->ops.post_send;
    sender->ops.post_send = count_sends;
    device_post_srq = owner->ops.post_srq_recv;
    owner->ops.post_srq_recv = count_receives;
    send_calls = sends = reads = signalled = receive_calls = 0;
}

static void a_flush_is_one_call_with_one_fence(void **state)
{
    enum { ROUNDS = 64, PER_ROUND = 16 };

    (void)state;
    count_calls();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < PER_ROUND; i++)
            assert_int_equal(half_send(&half, 1, active, round * PER_ROUND + i, 128), 0);
        half_wait(&half, 1, FABRIC_LANDED, (round + 1) * PER_ROUND);
    }
    assert_int_equal(send_calls, ROUNDS);
    assert_int_equal(sends, ROUNDS * PER_ROUND);
    assert_int_equal(reads, ROUNDS);
    assert_int_equal(signalled, ROUNDS);
    /* Slots are posted again by 64 and more. */
    assert_true(receive_calls > 0 && receive_calls <= ROUNDS * PER_ROUND / 64);
}

/* The owner of the zone says in its hello how it receives. */
static void
a_block_that_a_tag_matching_queue_would_misread_is_refused_there_and_only_there(void **state)
{
    struct verbs_receive_ops segments = *half.nodes[0].endpoint.zone->ops;
    struct verbs_conn *strict, *other;
    struct pm *pm = half.nodes[1].pm;

    (void)state;
    segments.whole_segments = true;
    half.nodes[0].endpoint.zone->ops = &segments;
    assert_int_equal(half_connect(&half, 1, 0, &strict, &other), 0);
    assert_true(strict->theirs.rc.whole_segments && !active->theirs.rc.whole_segments);

    pm_store(pm, 0, &(const uint64_t){0}, 8); /* nobody would see that it is there */
    assert_int_equal(verbs_rowan_add(&strict->base, pm_at(pm, 0), 64), ROWAN_EINVALID);
    assert_int_equal(verbs_rowan_add(&active->base, pm_at(pm, 0), 64), 0);
    pm_store(pm, 0, &(const uint64_t){1 << 8 | 1}, 8);
    assert_int_equal(verbs_rowan_add(&strict->base, pm_at(pm, 0), 64), ROWAN_EINVALID);
    assert_int_equal(verbs_rowan_add(&active->base, pm_at(pm, 0), 64), 0);
    pm_store(pm, 0, &(const uint64_t){1 << 8}, 8);
    assert_int_equal(verbs_rowan_add(&strict->base, pm_at(pm, 0), 64), 0);
    half_end(strict);
    half_poll(&half);
    half.nodes[0].endpoint.zone->ops = &verbs_receive_shared;
}

static uint8_t timeout_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes = {0};
    struct ibv_qp_init_attr init;

    assert_int_equal(ibv_query_qp(qp, &attributes, IBV_QP_TIMEOUT, &init), 0);
    return attributes.timeout;
}

static void a_sender_tries_as_long_as_the_owner_of_the_zone_asks(void **state)
{
    struct verbs_receive_ops segments = *half.nodes[0].endpoint.zone->ops;
    struct verbs_conn *strict, *other;

    (void)state;
    segments.whole_segments = true;
    half.nodes[0].endpoint.zone->ops = &segments;
    assert_int_equal(half_connect(&half, 1, 0, &strict, &other), 0);
    assert_int_equal(timeout_of(active->rc->qp), VERBS_RC_TIMEOUT);
    assert_int_equal(timeout_of(strict->rc->qp), VERBS_RC_SEGMENTS_TIMEOUT);
    assert_int_equal(timeout_of(strict->rc->write_qp), VERBS_RC_TIMEOUT); /* lands in no segment */
    half_end(strict);
    half_poll(&half);
    half.nodes[0].endpoint.zone->ops = &verbs_receive_shared;
}

/* While the owner's zone is dry and fences do not come back, what is posted shares the next one. */
static void a_slow_peer_makes_fences_cover_more(void **state)
{
    struct fabric_zone *zone = half.nodes[0].zone;
    uint32_t sent = 0, batches = 0;

    (void)state;
    half_end(active);
    half_poll(&half);
    verbs_zone_close(zone);
    half_zone(&half, 2, 0);
    assert_int_equal(half_connect(&half, 1, 0, &active, &passive), 0);
    count_calls();
    pm_store(half.nodes[1].pm, 0, &(const uint64_t){1 << 8}, 8); /* what verbs takes for a block */
    while (verbs_rowan_room(&active->base) > 0) {
        assert_int_equal(verbs_rowan_add(&active->base, pm_at(half.nodes[1].pm, 0), 64), 0);
        if (++sent % 8 == 0) {
            assert_int_equal(verbs_rowan_post(&active->base, batches++), 0);
            half_poll(&half);
        }
    }
    assert_int_equal(sent, VERBS_BLOCKS);
    assert_int_equal(verbs_rowan_add(&active->base, pm_at(half.nodes[1].pm, 0), 64), ROWAN_EAGAIN);
    assert_true(reads <= VERBS_RC_READS);
    half_poll_times(&half, 1000);
    assert_true(reads <= VERBS_RC_READS);
    assert_int_equal(half_events(&half.nodes[1], FABRIC_LANDED), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(verbs_zone_post(half.nodes[0].zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i),
                         0);
    half_wait(&half, 1, FABRIC_LANDED, batches);
    for (uint32_t i = 0; i < batches; i++)
        assert_int_equal(half_event(&half.nodes[1], FABRIC_LANDED, i)->context, i);
    assert_int_equal(sends, sent);
    assert_true(reads < batches / 4);
    assert_int_equal(verbs_rowan_room(&active->base), VERBS_BLOCKS);
    assert_int_equal(half.nodes[0].broken, 1);
}

/* --- bulk writes --- */

static void a_write_outside_of_its_grant_ends_the_connection_before_it_leaves(void **state)
{
    static const uint64_t places[] = {SEGMENT - 64, SEGMENT + 64, UINT64_MAX - 63, 0, 0};

    for (uint32_t i = 0; i < 5; i++) {
        struct fabric_grant grant = grant_some(GRANTED, SEGMENT, 0);

        if (i == 3)
            grant.words[0] += UINT64_C(1) << 32;
        if (i == 4)
            grant.words[1] = UINT64_MAX - 64;
        count_calls();
        assert_int_equal(write_some(&grant, places[i], 0, 128, 0), 0);
        assert_int_equal(active->state, VCONN_BREAKING);
        half_poll_times(&half, 10);
        assert_int_equal(send_calls, 0);
        half_forget(active, passive);
        half.nodes[1].endpoint.device->context->ops.post_send = device_post_send;
        half.nodes[0].endpoint.device->context->ops.post_srq_recv = device_post_srq;
        assert_int_equal(half_connect(&half, 1, 0, &active, &passive), 0);
    }
    (void)state;
}

/* A peer that writes beyond what it was granted (its own check is taken away) meets the device's. */
static void a_write_beyond_the_grant_harms_nobody_and_ends_the_connection(void **state)
{
    struct fabric_grant grant = grant_some(GRANTED, 4096, 9);

    (void)state;
    fill(half.nodes[1].pm, 0, 4096, 1);
    grant.words[2] = SEGMENT;
    assert_int_equal(write_some(&grant, 4096, 0, 64, 1), 0);
    wait_broken(1);
    wait_broken(0);
    half_poll_times(&half, 10);
    assert_true(is_zero(half.nodes[0].pm, GRANTED, SEGMENT));
    assert_int_equal(half_events(&half.nodes[1], FABRIC_WRITTEN), 0);
    assert_int_equal(half_events(&half.nodes[0], FABRIC_REVOKED), 1);
}

static void nothing_is_written_under_a_key_that_was_taken_back(void **state)
{
    enum { ROUNDS = 30 };
    const struct soft_faults faults = {.rc_delay_polls = 6};
    struct pm *to = half.nodes[0].pm;

    (void)state;
    fill(half.nodes[1].pm, 0, SEGMENT, 1);
    soft_verbs_faults(&faults);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const struct fabric_grant grant = grant_some(GRANTED, SEGMENT, round);

        half.nodes[0].event_count = half.nodes[1].event_count = 0;
        half.nodes[0].broken = half.nodes[1].broken = 0;
        assert_int_equal(write_some(&grant, 0, 0, SEGMENT, 1), 0);
        half_poll_times(&half, 1 + round * 3); /* somewhere on its way */
        verbs_revoke(&passive->base, &grant);
        half_wait(&half, 0, FABRIC_REVOKED, 1);
        memset(to->base + GRANTED, 0, SEGMENT); /* it serves something else now */
        if (half_events(&half.nodes[1], FABRIC_WRITTEN) == 0) {
            wait_broken(1);
            wait_broken(0);
        }
        half_poll_times(&half, 300);
        assert_true(is_zero(to, GRANTED, SEGMENT));
        assert_int_equal(half_events(&half.nodes[0], FABRIC_REVOKED), 1);
        if (active->state == VCONN_OPEN)
            half_end(active);
        half_poll_times(&half, 2);
        half_forget(active, passive);
        assert_int_equal(half_connect(&half, 1, 0, &active, &passive), 0);
    }
}

/* --- what a peer may say --- */

static void a_hello_of_nonsense_is_refused(void **state)
{
    struct verbs_conn *conn, *other;
    struct verbs_rc_hello *theirs;

    (void)state;
    assert_int_equal(half_connect(&half, 1, 0, &conn, &other), 0);
    verbs_rc_close(conn);
    assert_int_equal(verbs_rc_open(conn, &(struct verbs_rc_hello){0}), 0);
    theirs = &conn->theirs.rc;
    for (unsigned i = 0; i < 7; i++) {
        const struct verbs_rc_hello good = *theirs;

        theirs->qp_number = i == 0 ? 1 << 24 : good.qp_number;
        theirs->psn = i == 1 ? 1 << 24 : good.psn;
        theirs->reads = i == 2 ? 0 : good.reads;
        theirs->has_zone = i != 3;
        theirs->block_limit = i == 4 ? good.block_limit / 2 : good.block_limit;
        theirs->timeout = i == 5 ? 0 : i == 6 ? 19 : good.timeout;
        assert_int_equal(verbs_rc_connect(conn), i == 4 ? ROWAN_EUNSUPPORTED : ROWAN_EFORMAT);
        assert_false(conn->base.has_zone);
        *theirs = good;
    }
    theirs->reads = 256;
    assert_int_equal(verbs_rc_connect(conn), ROWAN_EFORMAT);
    *theirs = (struct verbs_rc_hello){0}; /* it has no zone for us */
    assert_int_equal(verbs_rc_connect(conn), 0);
    assert_false(conn->base.has_zone);
    assert_null(conn->rc);
}

/* Else it could take a slot with its first packet and fill it when the segment serves another use. */
static void packets_shorter_than_a_block_are_refused(void **state)
{
    struct verbs_conn *conn, *other;

    (void)state;
    assert_int_equal(half_connect(&half, 1, 0, &conn, &other), 0);
    verbs_rc_close(other);
    assert_int_equal(verbs_rc_open(other, &(struct verbs_rc_hello){0}), 0);
    other->theirs.mtu = HALF_SLOT / 2;
    assert_int_equal(verbs_rc_connect(other), ROWAN_EUNSUPPORTED);
    other->theirs.mtu = HALF_SLOT;
    assert_int_equal(verbs_rc_connect(other), 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_flush_is_one_call_with_one_fence),
        CASE(a_block_that_a_tag_matching_queue_would_misread_is_refused_there_and_only_there),
        CASE(a_sender_tries_as_long_as_the_owner_of_the_zone_asks),
        CASE(a_slow_peer_makes_fences_cover_more),
        CASE(a_write_outside_of_its_grant_ends_the_connection_before_it_leaves),
        CASE(a_write_beyond_the_grant_harms_nobody_and_ends_the_connection),
        CASE(nothing_is_written_under_a_key_that_was_taken_back),
        CASE(a_hello_of_nonsense_is_refused),
        CASE(packets_shorter_than_a_block_are_refused),
    };

    return cmocka_run_group_tests_name("verbs_rowan", cases, NULL, NULL);
}
