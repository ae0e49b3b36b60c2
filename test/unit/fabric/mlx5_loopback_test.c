/* mlx5_loopback_test.c - the senders of the self-test on a device made of software. It has no multi-packet queue, so
 * their peers are ordinary queue pairs: what is tested is that packets leave as they were given, each with its
 * READ, that all is waited for, and no longer than was said. */
#define TEST_FIXTURE NULL, close_all

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/mlx5/mlx5_proof.h"
#include "common/fabric/verbs/verbs_pair.h"
#include "test/lib/soft_verbs.h"
#include "test/lib/unit.h"

enum { PACKETS = 200, SLOT = 1024, PEER_PSN = 0x70605 };

static struct verbs_device *device;
static struct verbs_buffer buffer; /* slots */
static struct ibv_srq *srq;
static struct ibv_cq *cq;
static struct ibv_qp *peers[MLX5_PROOF_SENDERS];
static struct mlx5_proof_sender *sender;

static void make_peer(unsigned which)
{
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 1, .max_send_sge = 1}};
    struct ibv_qp_attr attributes = {.path_mtu = IBV_MTU_1024,
                                     .dest_qp_num = sender->numbers[which],
                                     .rq_psn = sender->psn,
                                     .max_dest_rd_atomic = 16,
                                     .min_rnr_timer = 4};
    verbs_address(device, device->gid.raw, 0, &attributes.ah_attr);
    peers[which] = ibv_create_qp(device->pd, &init);
    assert_non_null(peers[which]);
    assert_int_equal(verbs_pair_init(peers[which], device->port, IBV_ACCESS_REMOTE_READ), 0);
    assert_int_equal(verbs_pair_connect(peers[which], &attributes), 0);
}

static void post_slots(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_sge piece = {.addr = (uintptr_t)buffer.data + (uint64_t)i * SLOT,
                                .length = SLOT,
                                .lkey = buffer.mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1}, *bad;
        assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
}

static void open_all(uint64_t limit_ns, uint32_t slots)
{
    const struct fabric_verbs_options options = {.receive = FABRIC_RECEIVE_SHARED};
    struct ibv_srq_init_attr init = {.attr = {.max_wr = PACKETS, .max_sge = 1}};
    const char *reason = NULL;
    log_set_level(LOG_ERROR);
    assert_int_equal(verbs_device_open("10.1.1.1", &options, &device), 0);
    assert_int_equal(verbs_buffer_open(device, PACKETS * SLOT, &buffer), 0);
    srq = ibv_create_srq(device->pd, &init);
    cq = ibv_create_cq(device->context, 2 * PACKETS, NULL, NULL, 0);
    assert_true(srq && cq);
    post_slots(slots);
    assert_int_equal(mlx5_loopback_open(device, limit_ns, &sender, &reason), 0);
    assert_int_not_equal(sender->numbers[0], sender->numbers[1]);
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++) {
        make_peer(which);
        assert_int_equal(sender->connect(sender, which, peers[which]->qp_num, PEER_PSN), 0);
    }
}

static int close_all(void **state)
{
    (void)state;
    mlx5_loopback_close(sender);
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++)
        assert_int_equal(ibv_destroy_qp(peers[which]), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    verbs_buffer_close(&buffer);
    verbs_device_close(device);
    assert_true(soft_verbs_is_empty());
    return 0;
}

static uint32_t size_of(uint32_t number)
{
    static const uint32_t sizes[] = {64, 128, 1024, 100};
    return sizes[number / MLX5_PROOF_SENDERS % 4];
}

/* What number i says is in its first word; all else is made of it. */
static void fill(uint8_t *packet, uint32_t number)
{
    memset(packet, (int)(number % 251), size_of(number));
    memcpy(packet, &number, sizeof number);
}

static int send_some(uint32_t count)
{
    uint8_t packet[SLOT];
    for (uint32_t i = 0; i < count; i++) {
        fill(packet, i);
        int error = sender->send(sender, i % MLX5_PROOF_SENDERS, packet, size_of(i));
        if (error)
            return error;
        memset(packet, 0xee, sizeof packet); /* it was copied */
    }
    return sender->wait(sender);
}

TEST(packets_of_both_arrive_whole_and_in_order_before_the_wait_ends)
{
    uint32_t next[MLX5_PROOF_SENDERS] = {0, 1};
    uint8_t packet[SLOT];
    open_all(60 * UINT64_C(1000000000), PACKETS);
    assert_int_equal(send_some(PACKETS), 0); /* many more than are in flight at a time */
    for (uint32_t slot = 0; slot < PACKETS; slot++) {
        const uint8_t *at = buffer.data + (size_t)slot * SLOT;
        uint32_t number;
        memcpy(&number, at, sizeof number);
        assert_int_equal(number, next[number % MLX5_PROOF_SENDERS]);
        next[number % MLX5_PROOF_SENDERS] += MLX5_PROOF_SENDERS;
        fill(packet, number);
        assert_memory_equal(at, packet, size_of(number));
    }
}

TEST(who_has_no_receive_is_not_waited_for_for_ever)
{
    open_all(1, PACKETS - 2);
    assert_int_equal(send_some(PACKETS), ROWAN_ETIMEDOUT);
}

TEST(a_queue_pair_that_fails_is_an_error)
{
    uint8_t packet[SLOT] = {0};
    open_all(60 * UINT64_C(1000000000), PACKETS);
    for (unsigned i = 0; i < 8; i++) /* each completes, send and READ */
        assert_int_equal(sender->send(sender, 1, packet, 64), 0);
    assert_true(soft_verbs_break_qp(peers[1]->qp_num));
    assert_int_equal(sender->wait(sender), ROWAN_EIO);
}

TEST(each_call_of_the_device_that_fails_leaves_nothing_behind)
{
    bool done = false;
    open_all(1, 0);
    for (uint32_t nth = 1; !done; nth++) {
        struct mlx5_proof_sender *second;
        const char *reason = NULL;
        soft_verbs_fail_call(nth, 12);
        int error = mlx5_loopback_open(device, 1, &second, &reason);
        soft_verbs_fail_call(0, 0);
        done = error == 0;
        if (done)
            mlx5_loopback_close(second);
        else
            assert_non_null(reason);
    }
}

UNIT_MAIN(NULL, NULL)
