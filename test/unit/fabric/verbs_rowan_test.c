/* verbs_rowan_test.c - the sender's side over verbs (calls of the device, bounds), and what a peer may say in its
 * hello. */
#define TEST_FIXTURE setup, close_landing

#include "common/fabric/verbs/verbs_zone.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_landing.h"

static struct verbs_conn *near; /* SENDER's end */

static int setup(void **state)
{
    (void)state;
    open_landing(2, 2, false);
    near = (struct verbs_conn *)conn;
    return 0;
}

static uint32_t count_of(unsigned side, enum fabric_event_kind kind)
{
    return side_count(&world.sides[side], kind);
}

/* --- calls of the device --- */

static int (*device_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*device_post_srq)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static uint32_t send_calls, sends, reads, signalled, receive_calls;

static int count_sends(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (qp->qp_type != IBV_QPT_RC)
        return device_post_send(qp, wr, bad);
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
    struct ibv_context_ops *sender = &endpoint_of(SENDER)->device->context->ops;
    struct ibv_context_ops *owner = &endpoint_of(OWNER)->device->context->ops;

    device_post_send = sender->post_send;
    sender->post_send = count_sends;
    device_post_srq = owner->post_srq_recv;
    owner->post_srq_recv = count_receives;
    send_calls = sends = reads = signalled = receive_calls = 0;
}

TEST(a_flush_is_one_call_with_one_fence)
{
    enum { ROUNDS = 64, PER_ROUND = 16 };

    count_calls();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < PER_ROUND; i++) {
            const uint32_t number = round * PER_ROUND + i;

            assert_int_equal(world_add_block(&world, SENDER, conn, number * SLOT, number, BLOCK),
                             0);
            assert_int_equal(fabric_rowan_post(conn, number), 0);
        }
        world_wait(&world, SENDER, FABRIC_LANDED, (round + 1) * PER_ROUND);
    }
    assert_int_equal(send_calls, ROUNDS);
    assert_int_equal(sends, ROUNDS * PER_ROUND);
    assert_int_equal(reads, ROUNDS);
    assert_int_equal(signalled, ROUNDS);
    /* Slots are posted again by 64 and more. */
    assert_true(receive_calls > 0 && receive_calls <= ROUNDS * PER_ROUND / 64);
}

/* One more connection, to a zone of which its owner says that it receives whole segments. */
static struct verbs_conn *connect_strict(void)
{
    struct verbs_zone *zone = endpoint_of(OWNER)->zone;
    struct verbs_receive_ops segments = *zone->ops;
    const struct verbs_receive_ops *slots = zone->ops;
    struct fabric_conn *strict, *other;

    segments.whole_segments = true;
    zone->ops = &segments;
    world_connect(&world, SENDER, OWNER, 0, &strict, &other);
    zone->ops = slots;
    return (struct verbs_conn *)strict;
}

TEST(a_block_that_a_tag_matching_queue_would_misread_is_refused_there_and_only_there)
{
    static const struct {
        uint64_t word;
        int error;
    } rows[] = {
        {0, ROWAN_EINVALID}, /* nobody would see that it is there */
        {1 << 8 | 1, ROWAN_EINVALID},
        {1 << 8, 0},
    };
    struct verbs_conn *strict = connect_strict();
    struct pm *pm = world.sides[SENDER].pm;

    assert_true(strict->theirs.rc.zone == VERBS_ZONE_OF_SEGMENTS &&
                near->theirs.rc.zone == VERBS_ZONE_OF_SLOTS);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pm_store(pm, 0, &rows[i].word, 8);
        assert_int_equal(fabric_rowan_add(&strict->base.base, pm_at(pm, 0), 64), rows[i].error);
        assert_int_equal(fabric_rowan_add(conn, pm_at(pm, 0), 64), 0);
    }
}

static uint8_t timeout_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes = {0};
    struct ibv_qp_init_attr init;

    assert_int_equal(ibv_query_qp(qp, &attributes, IBV_QP_TIMEOUT, &init), 0);
    return attributes.timeout;
}

TEST(a_sender_tries_as_long_as_the_owner_of_the_zone_asks)
{
    const struct verbs_conn *strict = connect_strict();

    assert_int_equal(timeout_of(near->rc->qp), VERBS_RC_TIMEOUT);
    assert_int_equal(timeout_of(strict->rc->qp), VERBS_RC_SEGMENTS_TIMEOUT);
}

static int setup_without_segments(void **state)
{
    (void)state;
    open_landing(2, 0, false);
    return 0;
}

/* While the owner's zone has no segments and fences do not come back, what is posted shares the next one. */
TEST_WITH(a_slow_peer_makes_fences_cover_more, setup_without_segments, close_landing)
{
    uint32_t batches = 0;

    count_calls();
    for (uint32_t sent = 0; sent < VERBS_BLOCKS; sent++) {
        assert_int_equal(world_add_block(&world, SENDER, conn, 0, 0, 64), 0);
        if (sent % 8 == 7) {
            assert_int_equal(fabric_rowan_post(conn, batches++), 0);
            world_poll(&world);
        }
    }
    world_poll_times(&world, 1000);
    assert_true(reads <= VERBS_RC_READS);
    assert_int_equal(count_of(SENDER, FABRIC_LANDED), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            fabric_zone_post(world.sides[OWNER].zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i), 0);
    world_wait(&world, SENDER, FABRIC_LANDED, batches);
    assert_int_equal(sends, VERBS_BLOCKS);
    assert_true(reads < batches / 4);
}

/* --- what a peer may say --- */

static void open_anew(struct verbs_conn *of)
{
    verbs_rc_close(of);
    assert_int_equal(verbs_rc_open(of, &(struct verbs_rc_hello){0}), 0);
}

TEST(a_zone_that_none_of_our_blocks_fit_into_or_that_is_none_is_refused)
{
    struct verbs_rc_hello *theirs = &near->theirs.rc;
    const struct verbs_rc_hello good = *theirs;

    open_anew(near);
    theirs->zone = VERBS_NO_ZONE;
    assert_int_equal(verbs_rc_connect(near), ROWAN_EFORMAT);
    *theirs = good;
    theirs->block_limit /= 2;
    assert_int_equal(verbs_rc_connect(near), ROWAN_EUNSUPPORTED);
    assert_false(conn->has_zone);
    *theirs = (struct verbs_rc_hello){0}; /* it has no zone for us */
    assert_int_equal(verbs_rc_connect(near), 0);
    assert_false(conn->has_zone);
    assert_null(near->rc);
}

/* Else it could take a slot with its first packet and fill it when the segment serves another use. */
TEST(packets_shorter_than_a_block_are_refused)
{
    struct verbs_conn *far = (struct verbs_conn *)passive;

    open_anew(far);
    far->theirs.mtu = SLOT / 2;
    assert_int_equal(verbs_rc_connect(far), ROWAN_EUNSUPPORTED);
    far->theirs.mtu = SLOT;
    assert_int_equal(verbs_rc_connect(far), 0);
}

UNIT_MAIN(NULL, NULL)
