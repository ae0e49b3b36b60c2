/* soft_verbs_test.c - what a program sees of devices made of software. */
#define TEST_FIXTURE pair_setup, NULL

#include "test/lib/unit.h"
#include "test/unit/fabric/soft_pair.h"

TEST(reads_and_writes_reach_what_the_key_grants_and_nothing_else)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    memset(ends[0].memory, 'w', 5000);
    memset(ends[1].memory + 8192, 'r', 2000);
    assert_int_equal(post(&ends[0], 1, IBV_WR_RDMA_WRITE, 0, 0, 5000, &ends[1], 100), 0);
    assert_int_equal(
        post(&ends[0], 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 8192, 2000, &ends[1], 8192), 0);
    expect(&ends[0], 2, IBV_WC_SUCCESS);
    assert_memory_equal(ends[0].memory, ends[1].memory + 100, 5000);
    assert_memory_equal(ends[0].memory + 8192, ends[1].memory + 8192, 2000);
    assert_int_equal(post(&ends[0], 3, IBV_WR_RDMA_WRITE, 0, 0, 2, &ends[1], MEMORY_BYTES - 1), 0);
    expect(&ends[0], 3, IBV_WC_REM_ACCESS_ERR);
    pair_close(ends);
}

TEST(a_sender_waits_for_a_receive_as_long_as_it_said)
{
    struct plan plan = rc_plan;
    struct end ends[2];

    pair_open(ends, &plan);
    assert_int_equal(send_signalled(&ends[0], 1, 0, 8), 0);
    expect_nothing(&ends[0]);
    assert_int_equal(post_receive(&ends[1], 2, 0, 8), 0);
    expect(&ends[1], 2, IBV_WC_SUCCESS);
    expect(&ends[0], 1, IBV_WC_SUCCESS);
    pair_close(ends);

    plan.rnr_retry = 3;
    pair_open(ends, &plan);
    assert_int_equal(send_signalled(&ends[0], 1, 0, 8), 0);
    expect(&ends[0], 1, IBV_WC_RNR_RETRY_EXC_ERR);
    pair_close(ends);
}

TEST(a_slot_is_free_when_its_completion_was_polled)
{
    struct end ends[2];
    struct ibv_wc wc;
    struct ibv_cq *cq;
    void *context;

    pair_open(ends, &srq_plan);
    for (uint64_t i = 0; i < DEPTH; i++)
        assert_int_equal(post_receive(&ends[1], i, 0, 64), 0);
    assert_int_equal(post_receive(&ends[1], DEPTH, 0, 64), ENOMEM);
    for (uint64_t i = 0; i < DEPTH; i++)
        assert_int_equal(
            post(&ends[0], i, IBV_WR_SEND, i == DEPTH - 1 ? IBV_SEND_SIGNALED : 0, 0, 64, NULL, 0),
            0);
    assert_int_equal(send_signalled(&ends[0], DEPTH, 0, 64), ENOMEM);
    assert_int_equal(ibv_req_notify_cq(ends[1].cq, 0), 0); /* all have arrived */
    assert_int_equal(post_receive(&ends[1], DEPTH, 0, 64), ENOMEM);
    for (uint64_t i = 0; i < DEPTH; i++)
        assert_int_equal(next_wc(&ends[1]).wr_id, i);
    assert_int_equal(send_signalled(&ends[0], DEPTH, 0, 64), ENOMEM);
    expect(&ends[0], DEPTH - 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_poll_cq(ends[0].cq, 1, &wc), 0);
    assert_int_equal(post_receive(&ends[1], DEPTH, 0, 64), 0);
    for (uint64_t i = 0; i < DEPTH; i++)
        assert_int_equal(send_signalled(&ends[0], DEPTH, 0, 64), 0);
    expect(&ends[1], DEPTH, IBV_WC_SUCCESS);
    assert_int_equal(ibv_get_cq_event(ends[1].channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    pair_close(ends);
}

TEST(only_inline_bytes_are_read_when_they_are_posted)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    assert_int_equal(post_receive(&ends[1], 1, 0, 64), 0);
    assert_int_equal(post_receive(&ends[1], 2, 64, 64), 0);
    memset(ends[0].memory, 'a', 64);
    assert_int_equal(post(&ends[0], 1, IBV_WR_SEND, IBV_SEND_INLINE, 0, 64, NULL, 0), 0);
    assert_int_equal(send_signalled(&ends[0], 2, 0, 64), 0);
    memset(ends[0].memory, 'b', 64);
    expect(&ends[1], 1, IBV_WC_SUCCESS);
    expect(&ends[1], 2, IBV_WC_SUCCESS);
    assert_int_equal(ends[1].memory[63], 'a');
    assert_int_equal(ends[1].memory[64], 'b');
    pair_close(ends);
}

TEST(arming_moves_what_waits)
{
    struct end ends[2];
    struct ibv_cq *cq;
    void *context;

    pair_open(ends, &rc_plan);
    soft_verbs_faults(&(struct soft_faults){.rc_delay_polls = 1000000});
    assert_int_equal(post_receive(&ends[1], 1, 0, 8192), 0);
    assert_int_equal(ibv_req_notify_cq(ends[1].cq, 0), 0);
    assert_int_equal(send_signalled(&ends[0], 1, 0, 8192), 0);
    assert_int_equal(ibv_req_notify_cq(ends[0].cq, 0), 0);
    assert_int_equal(ibv_get_cq_event(ends[1].channel, &cq, &context), 0);
    assert_int_equal(ibv_get_cq_event(ends[0].channel, &cq, &context), 0);
    ibv_ack_cq_events(ends[0].cq, 1);
    ibv_ack_cq_events(ends[1].cq, 1);
    soft_verbs_faults(NULL);
    pair_close(ends);
}

static int send_datagram(struct end *end, const struct end *peer, const struct plan *plan,
                         uint32_t key, uint64_t id)
{
    struct ibv_ah_attr path = path_to(peer, plan);
    struct ibv_ah *ah = ibv_create_ah(end->pd, &path);
    struct ibv_sge sge = piece(end, 0, 8);
    struct ibv_send_wr wr = {.wr_id = id,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    int error;

    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = peer->qp->qp_num;
    wr.wr.ud.remote_qkey = key;
    error = ibv_post_send(end->qp, &wr, &bad);
    ibv_destroy_ah(ah);
    return error;
}

TEST(a_datagram_that_nobody_may_have_is_dropped)
{
    struct soft_stats stats;
    struct end ends[2], elsewhere;

    pair_open(ends, &ud_plan);
    elsewhere = ends[1];
    elsewhere.gid.raw[15]++;
    assert_int_equal(send_datagram(&ends[0], &ends[1], &ud_plan, QKEY, 1), 0); /* no receive */
    expect(&ends[0], 1, IBV_WC_SUCCESS);
    expect_nothing(&ends[1]);
    assert_int_equal(post_receive(&ends[1], 1, 0, 2048), 0);
    assert_int_equal(send_datagram(&ends[0], &ends[1], &ud_plan, QKEY + 1, 2), 0);
    assert_int_equal(send_datagram(&ends[0], &elsewhere, &ud_plan, QKEY, 3), 0);
    expect(&ends[0], 2, IBV_WC_SUCCESS);
    expect(&ends[0], 3, IBV_WC_SUCCESS);
    expect_nothing(&ends[1]);
    soft_verbs_stats(&stats);
    assert_int_equal(stats.ud_unreceived, 1);
    assert_int_equal(stats.ud_packets, 0);
    assert_int_equal(send_datagram(&ends[0], &ends[1], &ud_plan, QKEY, 4), 0);
    expect(&ends[1], 1, IBV_WC_SUCCESS);
    pair_close(ends);
}

TEST(datagrams_are_lost_and_doubled_as_often_as_asked)
{
    struct soft_stats stats;
    struct end ends[2];
    struct ibv_wc wc;
    uint32_t came = 0;

    pair_open(ends, &ud_plan);
    soft_verbs_faults(
        &(struct soft_faults){.drop = 200, .duplicate = 100, .reorder = 100, .delay_polls = 8});
    for (uint64_t i = 0; i < 2000; i++) {
        post_receive(&ends[1], i, 0, 2048);
        assert_int_equal(send_datagram(&ends[0], &ends[1], &ud_plan, QKEY, i), 0);
        expect(&ends[0], i, IBV_WC_SUCCESS);
        while (ibv_poll_cq(ends[1].cq, 1, &wc) == 1) {
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            post_receive(&ends[1], i, 0, 2048);
            came++;
        }
    }
    soft_verbs_faults(NULL);
    soft_verbs_stats(&stats);
    assert_in_range(stats.ud_lost, 200, 600);
    assert_in_range(stats.ud_packets + stats.ud_unreceived, 1600, 2000);
    assert_in_range(came, 1400, 2000);
    pair_close(ends);
}

static void acknowledge_twice(void)
{
    struct ibv_srq_attr limit = {.srq_limit = 2};
    struct ibv_async_event event;
    struct end ends[2];

    pair_open(ends, &srq_plan);
    post_receive(&ends[1], 0, 0, 64);
    ibv_modify_srq(ends[1].srq, &limit, IBV_SRQ_LIMIT);
    send_signalled(&ends[0], 0, 0, 64);
    next_wc(&ends[1]);
    ibv_get_async_event(ends[1].context, &event);
    ibv_ack_async_event(&event);
    ibv_ack_async_event(&event);
}

TEST(an_event_is_acknowledged_once)
{
    assert_true(is_mistake(acknowledge_twice));
}

UNIT_MAIN(NULL, NULL)
