/* verbs_mlx5_test.c - the landing zone on a multi-packet queue, with firmware and NIC played here: the
 * commands that come, what happens when each is refused, and packets written to where the queue's own bytes
 * point, as a NIC reads them. */
#define TEST_FIXTURE setup, NULL

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_mlx5.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"
#include "mlx5_firmware.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"

/* --- a zone without the rest of the backend --- */

static uint32_t broken[4];
static unsigned broken_count;
static uint64_t written_back[4];
static unsigned written_back_count;
static struct heap_pm *heap;
static struct pm_ops heap_ops; /* and one more */
static struct verbs_device device;
static struct verbs_endpoint endpoint;
static const struct region region = {.key = KEY};
static struct verbs_zone *zone;

static void count_stop(struct conn *conn)
{
    broken[broken_count++] = ((struct verbs_conn *)conn)->rc->qp_number;
}

static const struct conn_backend backend = {.stop = count_stop};

static void count_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    (void)pm;
    assert_int_equal(bytes, FABRIC_SEGMENT_BYTES);
    written_back[written_back_count++] = offset;
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    firmware_reset();
    broken_count = written_back_count = 0;
    device = (struct verbs_device){.port = 1, .is_ethernet = true};
    endpoint = (struct verbs_endpoint){.device = &device, .base.backend = &backend};
    return 0;
}

static void make_zone(uint32_t depth)
{
    heap = heap_pm_create((uint64_t)(depth + 1) * FABRIC_SEGMENT_BYTES);
    heap_ops = *heap->pm.ops;
    heap_ops.flush = count_flush;
    heap->pm.ops = &heap_ops;
    zone = calloc(1, sizeof *zone + depth * sizeof zone->base.segments[0]);
    assert_non_null(zone);
    zone->endpoint = &endpoint;
    zone->ops = &verbs_receive_multi_packet;
    zone->base.pm = &heap->pm;
    zone->base.region = &region;
    zone->base.depth = depth;
    zone->base.segments = (void *)(zone + 1);
    zone->now_ns = 1000000000;
    zone->wake_ns = UINT64_MAX;
}

static void drop_zone(void)
{
    free(zone);
    zone = NULL;
    heap_pm_destroy(heap);
}

static void open_zone(uint32_t depth, uint32_t elements)
{
    make_zone(depth);
    assert_int_equal(verbs_mlx5_zone_open(zone, &firmware.channel), 0);
    nic = (struct nic){.elements = elements};
}

static void close_zone(void)
{
    zone->ops->close(zone);
    assert_int_equal(firmware.objects + firmware.maps, 0);
    drop_zone();
}

/* Posts segment `number` of the PM. */
static void post_segment(uint32_t number)
{
    assert_true(zone->base.posted - zone->base.sealed < zone->base.depth);
    *zone_segment(&zone->base, zone->base.posted++) =
        (struct zone_segment){.offset = (uint64_t)number * FABRIC_SEGMENT_BYTES};
    zone->ops->post(zone);
}

/* As verbs_zone_poll. How many are sealed. */
static unsigned poll_zone(uint64_t now_ns)
{
    unsigned count = 0;
    zone->now_ns = now_ns;
    zone->wake_ns = UINT64_MAX;
    for (; zone->base.sealed < zone->base.posted && zone->ops->is_sealed(zone); count++)
        zone->base.sealed++;
    zone->ops->post(zone);
    return count;
}

static struct verbs_conn *attach(void)
{
    struct verbs_conn *conn = calloc(1, sizeof *conn);
    assert_non_null(conn);
    conn->endpoint = &endpoint;
    conn->rc = calloc(1, sizeof *conn->rc);
    assert_non_null(conn->rc);
    conn->rc->psn = 0x123456;
    return conn;
}

static void drop_conn(struct verbs_conn *conn)
{
    free(conn->rc);
    free(conn);
}

static const struct ibv_qp_attr to_peer = {
    .path_mtu = IBV_MTU_1024,
    .dest_qp_num = 0xabcdef,
    .rq_psn = 0xfedcba,
    .sq_psn = 0x123456,
    .max_dest_rd_atomic = 16,
    .min_rnr_timer = 4,
    .timeout = VERBS_RC_TIMEOUT,
    .retry_cnt = VERBS_RC_RETRIES,
    .rnr_retry = VERBS_RC_RNR_FOR_EVER,
    .ah_attr = {.is_global = 1,
                .port_num = 1,
                .grh = {.sgid_index = 3, .hop_limit = 64, .dgid.raw = {[15] = 9}}},
};

static void write_block(uint8_t block[64], uint8_t mark)
{
    memset(block, mark, 64);
    block[0] = 0;
    assert_true(verbs_mlx5_may_land(block));
}

/* --- commands --- */

static const struct call *nth_command(unsigned nth)
{
    for (unsigned i = 0; i < firmware.count; i++) {
        if (firmware.calls[i].kind == CALL_COMMAND && nth-- == 0)
            return &firmware.calls[i];
    }
    fail_msg("no such command");
    return NULL;
}

TEST(a_zone_of_many_segments_has_one_element_for_each)
{
    const struct mlx5_queue_layout layout = {.pd = PD,
                                             .umem = UMEM,
                                             .counter = {UMEM, 4096},
                                             .cq = CQ,
                                             .log_elements = 7, /* 64 and one that stays empty */
                                             .log_strides = 16,
                                             .log_stride_bytes = 6};
    uint8_t expected[MLX5_CREATE_XRQ_IN_BYTES];
    open_zone(64, 128);
    mlx5_encode_create_xrq(&layout, expected);
    assert_int_equal(firmware.calls[0].kind, CALL_MAP);
    assert_int_equal(firmware.count, 3);
    assert_int_equal(firmware.queues_watched, 1 << MLX5_WATCH_TAG_MATCHING);
    assert_int_equal(nth_command(0)->bytes, sizeof expected);
    assert_memory_equal(nth_command(0)->in, expected, sizeof expected);
    post_segment(5);
    assert_int_equal(nic_posted(), 1);
    assert_int_equal(big_endian(nic_element() + 16, 4), 4 << 20);
    assert_int_equal(big_endian(nic_element() + 24, 8),
                     (uintptr_t)heap->pm.base + 5 * (uint64_t)FABRIC_SEGMENT_BYTES);
    close_zone();
}

TEST(a_zone_of_few_segments_has_a_queue_of_more_than_32_elements_too)
{
    for (uint32_t depth = 2; depth <= 40; depth++) {
        setup(NULL);
        open_zone(depth, 64);
        assert_int_equal(big_endian(nth_command(0)->in + 0x90 + 0x20, 4) & 0x1f, 6); /* log_wq_sz */
        for (uint32_t i = 0; i < depth; i++)
            post_segment(i);
        assert_int_equal(nic_posted(), depth);
        close_zone();
    }
}

TEST(a_plain_queue_is_tried_when_tag_matching_is_refused)
{
    firmware.refused_opcode = MLX5_CMD_OP_CREATE_XRQ;
    open_zone(64, 128);
    assert_int_equal(nth_command(0)->opcode, MLX5_CMD_OP_CREATE_XRQ);
    assert_int_equal(nth_command(1)->opcode, MLX5_CMD_OP_CREATE_RMP);
    assert_int_equal(firmware.queues_watched, 1 << MLX5_WATCH_PLAIN);
    close_zone();
}

TEST(a_device_without_either_queue_is_told_so)
{
    struct mlx5_queue *queue;
    const char *reason = NULL;
    firmware.channel.numbers.capabilities.has_tag_matching = false;
    firmware.channel.numbers.capabilities.log_plain_queues = 0;
    assert_int_equal(mlx5_queue_open(&firmware.channel, 32, 4 << 20, 1, &queue, &reason),
                     ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(reason, "tag_matching"));
    assert_int_equal(firmware.maps, 0);
}

TEST(each_refusal_in_turn_leaves_nothing_behind)
{
    for (int in_answer = 0; in_answer < 2; in_answer++) {
        unsigned refused = 1;
        for (bool done = false; !done; refused++) {
            struct verbs_conn *conn = attach();
            setup(NULL);
            firmware.channel.numbers.capabilities.log_plain_queues = 0;
            firmware.refused_step = refused;
            firmware.refuses_in_answer = in_answer;
            make_zone(4);
            int error = verbs_mlx5_zone_open(zone, &firmware.channel);
            if (!error) {
                error = zone->ops->attach(zone, conn);
                if (!error) {
                    error = zone->ops->connect(conn, &to_peer);
                    done = !error;
                    assert_true(error == 0 || error == ROWAN_EIO || error == ROWAN_EUNREACHABLE);
                    zone->ops->detach(conn);
                }
                assert_int_equal(firmware.objects, 1);
                zone->ops->close(zone);
            }
            assert_int_equal(firmware.objects + firmware.maps, 0);
            drop_zone();
            drop_conn(conn);
        }
        /* map, queue; pair, watch, init; resolve, rtr, rts; error, which is destroyed all the same */
        assert_int_equal(refused - 1, 9);
        assert_int_equal(firmware.steps, 9);
    }
}

TEST(a_connection_is_made_and_ended_with_these_commands)
{
    static const struct {
        enum call_kind kind;
        uint16_t opcode;
    } expected[] = {
        {CALL_COMMAND, MLX5_CMD_OP_CREATE_QP},   {CALL_WATCH, FIRST_PAIR + 1},
        {CALL_COMMAND, MLX5_CMD_OP_RST2INIT_QP}, {CALL_RESOLVE, 0},
        {CALL_COMMAND, MLX5_CMD_OP_INIT2RTR_QP}, {CALL_COMMAND, MLX5_CMD_OP_RTR2RTS_QP},
        {CALL_COMMAND, MLX5_CMD_OP_2ERR_QP},     {CALL_DESTROY, 0},
    };
    const struct mlx5_pair_layout pair = {
        .pd = PD,
        .uar = UAR,
        .cq = CQ,
        .queue = QUEUE_NUMBER,
        .sends = {UMEM, 4096 + 5 * 4096}, /* 257 records: 5 pages */
        .counter = {UMEM, 4096 + 64},
        .log_sends = 6};
    const struct mlx5_hop hop = {.mac = {2, 1, 2, 3, 4, 5}, .limit = 61};
    uint8_t in[MLX5_MODIFY_QP_IN_BYTES];
    open_zone(64, 128);
    struct verbs_conn *conn = attach();
    assert_int_equal(zone->ops->attach(zone, conn), 0);
    assert_int_equal(conn->rc->qp_number, FIRST_PAIR + 1);
    assert_null(conn->rc->qp);
    assert_int_equal(zone->ops->connect(conn, &to_peer), 0);
    zone->ops->detach(conn);
    assert_int_equal(firmware.count, 3 + sizeof expected / sizeof expected[0]);
    for (unsigned i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(firmware.calls[3 + i].kind, expected[i].kind);
        assert_int_equal(firmware.calls[3 + i].opcode, expected[i].opcode);
    }
    mlx5_encode_create_qp(&pair, in);
    assert_memory_equal(nth_command(1)->in, in, sizeof in);
    mlx5_encode_init(FIRST_PAIR + 1, 1, in);
    assert_memory_equal(nth_command(2)->in, in, sizeof in);
    mlx5_encode_rtr(FIRST_PAIR + 1, &to_peer, &hop, in);
    assert_memory_equal(nth_command(3)->in, in, sizeof in);
    mlx5_encode_rts(FIRST_PAIR + 1, &to_peer, in);
    assert_memory_equal(nth_command(4)->in, in, sizeof in);
    mlx5_encode_error(FIRST_PAIR + 1, in);
    assert_memory_equal(nth_command(5)->in, in, MLX5_QP_2ERR_IN_BYTES);
    close_zone();
    drop_conn(conn);
}

TEST(as_many_senders_as_a_zone_takes_have_memory_of_their_own)
{
    struct mlx5_pair *pairs[3], *more;
    struct mlx5_queue *queue;
    const char *reason;
    assert_int_equal(mlx5_queue_open(&firmware.channel, 33, 4 << 20, 3, &queue, &reason), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mlx5_pair_open(queue, 1, &pairs[i]), 0);
    assert_int_equal(mlx5_pair_open(queue, 1, &more), ROWAN_ETOOMANY);
    for (unsigned i = 1; i <= 3; i++) {
        const uint8_t *in = nth_command(1 + (i - 1) * 2)->in;
        assert_int_equal(big_endian(in + 0x100, 8), 4096 * (1 + i));      /* send queue */
        assert_int_equal(big_endian(in + 0x18 + 0xa0, 8), 4096 + 64 * i); /* doorbell record */
        assert_true(big_endian(in + 0x100, 8) + 4096 <= firmware.memory_bytes);
    }
    mlx5_pair_close(pairs[1]);
    assert_int_equal(mlx5_pair_open(queue, 1, &more), 0); /* its place is free again */
    mlx5_pair_close(more);
    mlx5_pair_close(pairs[0]);
    mlx5_pair_close(pairs[2]);
    mlx5_queue_close(queue);
    assert_int_equal(firmware.objects + firmware.maps, 0);
}

/* --- segments --- */

TEST(blocks_land_one_behind_the_other_in_the_order_of_the_posts)
{
    uint8_t block[64];
    open_zone(3, 64);
    post_segment(2);
    post_segment(0);
    const uint32_t in_a_segment = FABRIC_SEGMENT_BYTES / 64;
    for (uint32_t i = 0; i < in_a_segment + 10; i++) {
        write_block(block, (uint8_t)(i % 251 + 1));
        assert_true(nic_receive(block, 64));
    }
    for (uint32_t i = 0; i < in_a_segment + 10; i++) {
        uint64_t at = i < in_a_segment ? 2 * (uint64_t)FABRIC_SEGMENT_BYTES + i * 64
                                       : (uint64_t)(i - in_a_segment) * 64;
        assert_int_equal(heap->pm.base[at + 1], i % 251 + 1);
    }
    assert_int_equal(heap->pm.base[10 * 64 + 1], 0);
    close_zone();
}

TEST(a_dry_zone_refuses_packets_and_takes_them_when_a_segment_comes)
{
    uint8_t block[64];
    open_zone(64, 128);
    write_block(block, 7);
    assert_false(nic_receive(block, 64));
    post_segment(3);
    assert_true(nic_receive(block, 64));
    nic_fill_element();
    assert_false(nic_receive(block, 64));
    post_segment(1);
    assert_true(nic_receive(block, 64));
    assert_int_equal(heap->pm.base[1 * (uint64_t)FABRIC_SEGMENT_BYTES + 1], 7);
    close_zone();
}

TEST(a_segment_is_sealed_when_the_next_one_has_begun_and_no_sender_tries_any_more)
{
    const uint64_t now = 5000000000;
    uint8_t block[64];
    open_zone(64, 128);
    zone->member_count = 1;
    post_segment(0);
    post_segment(1);
    write_block(block, 9);
    assert_true(nic_receive(block, 64));
    assert_int_equal(poll_zone(now), 0);
    assert_int_equal(poll_zone(now + 100 * VERBS_RC_SEGMENTS_GIVES_UP_NS), 0); /* still open */
    nic_fill_element();
    assert_int_equal(poll_zone(now + 200 * VERBS_RC_SEGMENTS_GIVES_UP_NS),
                     0); /* full, nobody knows */
    assert_true(nic_receive(block, 64));
    const uint64_t closed = now + 300 * VERBS_RC_SEGMENTS_GIVES_UP_NS;
    assert_int_equal(poll_zone(closed), 0);
    assert_int_equal(poll_zone(closed + VERBS_RC_SEGMENTS_GIVES_UP_NS), 0);
    assert_true(zone->wake_ns <= closed + VERBS_RC_SEGMENTS_GIVES_UP_NS + 1);
    zone->writes_back = true;
    assert_int_equal(poll_zone(closed + VERBS_RC_SEGMENTS_GIVES_UP_NS + 1), 1);
    assert_int_equal(poll_zone(closed + 1000 * VERBS_RC_SEGMENTS_GIVES_UP_NS),
                     0); /* the second is open */
    assert_true(written_back_count > 0 && written_back[0] == 0);
    close_zone();
}

TEST(the_quiet_times_of_segments_run_together)
{
    uint8_t block[64];
    uint64_t now = 5000000000;
    open_zone(64, 128);
    for (uint32_t i = 0; i < 10; i++)
        post_segment(i);
    write_block(block, 9);
    for (int i = 0; i < 6;
         i++) { /* six are closed, the first two at once, the others a microsecond apart */
        assert_true(nic_receive(block, 64));
        nic_fill_element();
        if (i > 1)
            assert_int_equal(poll_zone(now += 1000), 0);
    }
    assert_true(nic_receive(block, 64));
    assert_int_equal(poll_zone(now += 1000), 0);
    assert_int_equal(poll_zone(now - 3000 + VERBS_RC_SEGMENTS_GIVES_UP_NS), 2);
    assert_int_equal(poll_zone(now + 1 + VERBS_RC_SEGMENTS_GIVES_UP_NS), 4);
    close_zone();
}

TEST(segments_go_round_the_ring_and_the_counter_for_ever)
{
    uint8_t block[64], nothing[64] = {0};
    uint64_t now = 5000000000;
    open_zone(2, 64);
    post_segment(0);
    post_segment(1);
    for (uint32_t round = 0; round < 70000; round++) { /* the counter has 16 bits */
        uint8_t *segment = heap->pm.base + round % 2 * (uint64_t)FABRIC_SEGMENT_BYTES;
        uint8_t *other = heap->pm.base + (round + 1) % 2 * (uint64_t)FABRIC_SEGMENT_BYTES;
        write_block(block, (uint8_t)(round % 200 + 1));
        assert_true(nic_receive(block, 64));
        assert_memory_equal(segment, block, 64);
        nic_fill_element();
        assert_int_equal(poll_zone(now), 0);
        if (round == 0)
            continue;
        /* The one before is closed since this one began. */
        now += VERBS_RC_SEGMENTS_GIVES_UP_NS + 1;
        assert_int_equal(poll_zone(now), 1);
        memcpy(other, nothing, 64);
        post_segment((round + 1) % 2);
    }
    close_zone();
}

/* --- faults --- */

TEST(what_fails_breaks_its_connections_and_a_queue_that_failed_takes_no_more)
{
    struct verbs_conn *conns[4];
    open_zone(64, 128);
    zone->member_count = 3;
    for (uint32_t i = 0; i < 4; i++) {
        conns[i] = attach();
        conns[i]->base.base.endpoint = &endpoint.base.base;
        conn_list_add(&conns[i]->base, LIST_ALL);
        conns[i]->rc->qp_number = 0x900 + i;
        conns[i]->rc->zone = i == 3 ? NULL : zone;
    }
    firmware.failures[firmware.failure_count++] = 0x901;
    firmware.failures[firmware.failure_count++] = 0x977; /* closed since */
    poll_zone(7000000000);
    assert_int_equal(broken_count, 1);
    assert_int_equal(broken[0], 0x901);
    firmware.failures[firmware.failure_count++] = MLX5_QUEUE_FAILED;
    poll_zone(8000000000);
    assert_int_equal(broken_count, 3);
    assert_int_equal(broken[1] + broken[2], 0x900 + 0x902);
    assert_int_equal(zone->ops->attach(zone, conns[0]), ROWAN_EUNSUPPORTED);
    close_zone();
    for (uint32_t i = 0; i < 4; i++)
        drop_conn(conns[i]);
}

TEST(a_zone_with_senders_is_looked_at_though_nobody_wakes_it)
{
    open_zone(64, 128);
    post_segment(0);
    poll_zone(7000000000);
    assert_int_equal(zone->wake_ns, UINT64_MAX); /* nobody can send */
    zone->member_count = 1;
    poll_zone(7001000000);
    assert_true(zone->wake_ns <= 7001000000 + 5000000);
    close_zone();
}

TEST(memory_that_syncs_behind_is_told_of_the_open_segment)
{
    open_zone(64, 128);
    post_segment(0);
    poll_zone(7000000000);
    assert_int_equal(written_back_count, 0);
    zone->writes_back = true;
    poll_zone(8000000000);
    assert_int_equal(written_back_count, 1);
    assert_int_equal(written_back[0], 0);
    close_zone();
}

TEST(another_device_than_an_mlx5_is_told_so)
{
    /* libmlx5 asks the device behind the context for its driver; a device of nobody's is none of its. */
    static struct {
        struct ibv_device device;
        uint8_t rest[4096];
    } nobody;
    struct ibv_context context = {.device = &nobody.device};
    struct verbs_device device_of_nobody = {.context = &context};
    const char *reason = NULL;
    assert_int_equal(verbs_mlx5_probe(&device_of_nobody, &reason), ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(reason, "no mlx5 device"));
    assert_null(verbs_mlx5_open(&nobody.device));
}

UNIT_MAIN(NULL, NULL)
