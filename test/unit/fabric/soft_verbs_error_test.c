/* soft_verbs_error_test.c - what goes wrong with devices made of software, and how. */
#define TEST_FIXTURE pair_setup, NULL

#include "test/lib/unit.h"
#include "test/unit/fabric/soft_pair.h"

static enum ibv_qp_state state_of(struct end *end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

static void to_error(struct end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

static enum ibv_event_type next_event(struct end *end)
{
    struct ibv_async_event event;

    assert_int_equal(ibv_get_async_event(end->context, &event), 0);
    ibv_ack_async_event(&event);
    return event.event_type;
}

TEST(a_message_too_long_for_the_receive_ends_both_queue_pairs)
{
    struct end ends[2];

    pair_open(ends, &srq_plan);
    assert_int_equal(post_receive(&ends[1], 1, 0, 1500), 0);
    assert_int_equal(post_receive(&ends[1], 2, 0, 1500), 0);
    assert_int_equal(send_signalled(&ends[0], 3, 0, 1501), 0);
    assert_int_equal(send_signalled(&ends[0], 4, 0, 10), 0);
    expect(&ends[1], 1, IBV_WC_LOC_LEN_ERR);
    expect_nothing(&ends[1]);
    expect(&ends[0], 3, IBV_WC_REM_INV_REQ_ERR);
    expect(&ends[0], 4, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(state_of(&ends[0]), IBV_QPS_ERR);
    assert_int_equal(state_of(&ends[1]), IBV_QPS_ERR);
    assert_int_equal(next_event(&ends[1]), IBV_EVENT_QP_REQ_ERR);
    assert_int_equal(next_event(&ends[1]), IBV_EVENT_QP_LAST_WQE_REACHED);
    pair_close(ends);
}

TEST(what_was_posted_is_flushed_by_an_error)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    assert_int_equal(post_receive(&ends[0], 1, 0, 64), 0);
    assert_int_equal(post(&ends[0], 2, IBV_WR_SEND, 0, 0, 64, NULL, 0), 0);
    assert_int_equal(send_signalled(&ends[0], 3, 0, 64), 0);
    to_error(&ends[0]);
    expect(&ends[0], 2, IBV_WC_WR_FLUSH_ERR);
    expect(&ends[0], 3, IBV_WC_WR_FLUSH_ERR);
    expect(&ends[0], 1, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(post_receive(&ends[0], 4, 0, 64), 0);
    expect(&ends[0], 4, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(post(&ends[0], 5, IBV_WR_SEND, 0, 0, 64, NULL, 0), 0);
    expect(&ends[0], 5, IBV_WC_WR_FLUSH_ERR);
    pair_close(ends);
}

TEST(a_half_received_message_is_flushed_and_keeps_its_receive)
{
    const struct soft_config config = {.seed = 1, .packets_per_poll = 1};
    struct end ends[2];
    struct ibv_wc wc;

    soft_verbs_configure(&config);
    pair_open(ends, &srq_plan);
    memset(ends[0].memory, 'h', 4096);
    assert_int_equal(post_receive(&ends[1], 1, 0, 4096), 0);
    assert_int_equal(post_receive(&ends[1], 2, 0, 4096), 0);
    assert_int_equal(send_signalled(&ends[0], 3, 0, 4096), 0);
    assert_int_equal(ibv_poll_cq(ends[1].cq, 1, &wc), 0);
    assert_int_equal(ibv_poll_cq(ends[1].cq, 1, &wc), 0);
    assert_int_equal(ends[1].memory[2047], 'h');
    assert_int_equal(ends[1].memory[2048], 0);
    assert_true(soft_verbs_break_qp(ends[1].qp->qp_num));
    expect(&ends[1], 1, IBV_WC_WR_FLUSH_ERR);
    expect_nothing(&ends[1]);
    assert_int_equal(next_event(&ends[1]), IBV_EVENT_QP_FATAL);
    expect(&ends[0], 3, IBV_WC_RETRY_EXC_ERR);
    pair_close(ends);
}

TEST(a_peer_that_is_gone_is_noticed)
{
    struct plan wrong_psn = rc_plan;
    struct end ends[2];

    pair_open(ends, &rc_plan);
    assert_int_equal(ibv_destroy_qp(ends[1].qp), 0);
    ends[1].qp = NULL;
    assert_int_equal(send_signalled(&ends[0], 1, 0, 64), 0);
    expect(&ends[0], 1, IBV_WC_RETRY_EXC_ERR);
    pair_close(ends);

    wrong_psn.receive_psn = 1;
    pair_open(ends, &wrong_psn);
    assert_int_equal(post_receive(&ends[1], 2, 0, 64), 0);
    assert_int_equal(send_signalled(&ends[0], 1, 0, 64), 0);
    expect(&ends[0], 1, IBV_WC_RETRY_EXC_ERR);
    pair_close(ends);
}

TEST(an_executed_request_may_still_fail)
{
    struct soft_faults faults = {.rc_delay_polls = 1000};
    uint32_t landed = 0, failed = 0;
    struct end ends[2];
    struct ibv_wc wc;

    for (int i = 0; i < 100; i++) {
        pair_open(ends, &rc_plan);
        soft_verbs_faults(&faults);
        assert_int_equal(post_receive(&ends[1], 1, 0, 64), 0);
        assert_int_equal(send_signalled(&ends[0], 2, 0, 64), 0);
        while (ibv_poll_cq(ends[1].cq, 1, &wc) == 0)
            ;
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_true(soft_verbs_break_qp(ends[1].qp->qp_num));
        wc = next_wc(&ends[0]);
        *(wc.status == IBV_WC_SUCCESS ? &landed : &failed) += 1;
        soft_verbs_faults(NULL);
        pair_close(ends);
    }
    assert_true(landed > 10);
    assert_true(failed > 10);
}

TEST(states_want_their_attributes)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct end end, peer;

    end_open(&end, &rc_plan);
    end_open(&peer, &rc_plan);
    assert_int_equal(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
                     EINVAL);
    to_init(&end, &rc_plan);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_4096,
                                .dest_qp_num = peer.qp->qp_num,
                                .ah_attr = path_to(&peer, &rc_plan)};
    {
        const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

        assert_int_equal(ibv_modify_qp(end.qp, &attr, mask), EINVAL); /* the port has 1024 */
        attr.path_mtu = IBV_MTU_1024;
        attr.ah_attr.is_global = 0;
        assert_int_equal(ibv_modify_qp(end.qp, &attr, mask), EINVAL);
        attr.ah_attr.is_global = 1;
        attr.rq_psn = 1 << 24;
        assert_int_equal(ibv_modify_qp(end.qp, &attr, mask), EINVAL);
        attr.rq_psn = 0;
        assert_int_equal(ibv_modify_qp(end.qp, &attr, mask), 0);
    }
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
    end_close(&end);
    end_close(&peer);
}

static void post_in_init(void)
{
    struct end end;

    end_open(&end, &rc_plan);
    to_init(&end, &rc_plan);
    send_signalled(&end, 1, 0, 8);
}

static void send_unregistered(void)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    send_signalled(&ends[0], 1, MEMORY_BYTES - 4, 8);
}

static void send_with_the_remote_key(void)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    ends[0].mr->lkey = ends[0].mr->rkey;
    send_signalled(&ends[0], 1, 0, 8);
}

static void deregister_under_a_send(void)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    post_receive(&ends[1], 1, 0, 64);
    send_signalled(&ends[0], 1, 0, 8);
    ibv_dereg_mr(ends[0].mr);
    next_wc(&ends[1]);
}

static void overflow_a_completion_queue(void)
{
    struct plan plan = rc_plan;
    struct end ends[2];

    plan.completions = 1;
    pair_open(ends, &plan);
    send_signalled(&ends[0], 1, 0, 8);
    send_signalled(&ends[0], 1, 0, 8);
    to_error(&ends[0]);
}

static void close_with_children(void)
{
    struct end end;

    end_open(&end, &rc_plan);
    ibv_close_device(end.context);
}

static void a_datagram_over_the_mtu(void)
{
    struct end ends[2];
    struct ibv_ah_attr path;
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.num_sge = 1, .opcode = IBV_WR_SEND, .sg_list = &sge}, *bad;

    pair_open(ends, &ud_plan);
    path = path_to(&ends[1], &ud_plan);
    sge = piece(&ends[0], 0, 1025);
    wr.wr.ud.ah = ibv_create_ah(ends[0].pd, &path);
    ibv_post_send(ends[0].qp, &wr, &bad);
}

TEST(mistakes_of_the_program_end_it)
{
    assert_true(is_mistake(post_in_init));
    assert_true(is_mistake(send_unregistered));
    assert_true(is_mistake(send_with_the_remote_key));
    assert_true(is_mistake(deregister_under_a_send));
    assert_true(is_mistake(overflow_a_completion_queue));
    assert_true(is_mistake(close_with_children));
    assert_true(is_mistake(a_datagram_over_the_mtu));
}

TEST(devices_tell_what_happens_to_them)
{
    struct end ends[2];

    pair_open(ends, &rc_plan);
    soft_verbs_device_event("soft1", IBV_EVENT_PORT_ERR);
    assert_int_equal(next_event(&ends[0]), IBV_EVENT_PORT_ERR);
    assert_int_equal(post_receive(&ends[1], 1, 0, 64), 0);
    assert_int_equal(send_signalled(&ends[0], 2, 0, 64), 0);
    expect(&ends[0], 2, IBV_WC_RETRY_EXC_ERR);
    soft_verbs_device_event("soft1", IBV_EVENT_PORT_ACTIVE);
    assert_int_equal(next_event(&ends[0]), IBV_EVENT_PORT_ACTIVE);
    soft_verbs_device_event("soft1", IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(next_event(&ends[0]), IBV_EVENT_DEVICE_FATAL);
    expect(&ends[1], 1, IBV_WC_WR_FLUSH_ERR);
    pair_close(ends);
}

UNIT_MAIN(NULL, NULL)
