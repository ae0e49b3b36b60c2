/* mlx5_test.c - the bytes of every mlx5 command and queue element against vectors that mlx5_golden.py made
 * without the encoders. */
#include "common/base/error.h"
#include "common/fabric/mlx5/mlx5_command.h"
#include "mlx5_golden.h"
#include "test/lib/unit.h"

/* Each golden array must be exactly as long as the command, and everything must be written. */
#define CHECK(out, golden)                                                                         \
    do {                                                                                           \
        assert_int_equal(sizeof(out), sizeof(golden));                                             \
        assert_memory_equal(out, golden, sizeof(golden));                                          \
    } while (0)
#define DIRTY(out) memset(out, 0xee, sizeof(out))

/* The numbers of mlx5_golden.py. */
static const struct mlx5_queue_layout queue = {.pd = 0x123456,
                                               .umem = 0x0a0b0c0d,
                                               .counter = {0x11223344, 0x8877665544332210},
                                               .cq = 0xabcdef,
                                               .log_elements = 6,
                                               .log_strides = 16,
                                               .log_stride_bytes = 6};
static const struct mlx5_queue_layout small_queue = {.pd = 1,
                                                     .umem = 2,
                                                     .counter = {2, 0x8000},
                                                     .cq = 3,
                                                     .log_elements = 15,
                                                     .log_strides = 12,
                                                     .log_stride_bytes = 7};

/* Encodes into an array of exactly the golden one's length, all of which must be written. */
#define GOLDEN(golden, encode)                                                                     \
    do {                                                                                           \
        uint8_t out[sizeof(golden)];                                                               \
        DIRTY(out);                                                                                \
        encode;                                                                                    \
        CHECK(out, golden);                                                                        \
    } while (0)

TEST(queues_are_their_golden_bytes)
{
    GOLDEN(golden_query, mlx5_encode_query(out));
    GOLDEN(golden_create_xrq, mlx5_encode_create_xrq(&queue, out));
    GOLDEN(golden_create_xrq_small, mlx5_encode_create_xrq(&small_queue, out));
    GOLDEN(golden_create_rmp, mlx5_encode_create_rmp(&queue, out));
}

TEST(queue_pairs_and_their_moves_are_their_golden_bytes)
{
    const struct mlx5_pair_layout pair = {.pd = 0x654321,
                                          .uar = 0x13579b,
                                          .cq = 0xfedcba,
                                          .queue = 0x0f1e2d,
                                          .sends = {0x55667788, 0x0102030405060708},
                                          .counter = {0x99aabbcc, 0x0807060504030200},
                                          .log_sends = 6};
    const struct mlx5_hop hop = {.mac = {0x02, 0x42, 0x0a, 0x0b, 0x0c, 0x0d}, .limit = 64};
    const struct ibv_qp_attr ethernet = {
        .ah_attr = {.port_num = 1,
                    .is_global = 1,
                    .grh = {.sgid_index = 3,
                            .dgid.raw = {[10] = 0xff, 0xff, 0x0a, 0x01, 0x01, 0x02}}},
        .dest_qp_num = 0x00a1b2,
        .rq_psn = 0xfffffe,
        .path_mtu = 3,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 4,
    };
    const struct ibv_qp_attr infiniband = {.ah_attr = {.port_num = 2, .dlid = 0xbeef},
                                           .dest_qp_num = 0xffffff,
                                           .rq_psn = 1,
                                           .path_mtu = 5,
                                           .max_dest_rd_atomic = 255,
                                           .min_rnr_timer = 31};
    const struct ibv_qp_attr sending = {
        .sq_psn = 0x765432, .timeout = 16, .retry_cnt = 7, .rnr_retry = 6};

    GOLDEN(golden_create_qp, mlx5_encode_create_qp(&pair, out));
    GOLDEN(golden_init, mlx5_encode_init(0x012345, 2, out));
    GOLDEN(golden_rtr_ethernet, mlx5_encode_rtr(0x012345, &ethernet, &hop, out));
    GOLDEN(golden_rtr_infiniband, mlx5_encode_rtr(0x012345, &infiniband, &hop, out));
    GOLDEN(golden_rts, mlx5_encode_rts(0xfedcba, &sending, out));
    GOLDEN(golden_error, mlx5_encode_error(0xabcdef, out));
}

TEST(an_element_is_linked_once_and_set_often)
{
    uint8_t out[MLX5_ELEMENT_BYTES];
    DIRTY(out);
    mlx5_element_link(out, 0x0101, 0x0200);
    CHECK(out, golden_element_linked);
    mlx5_element_set(out, 1, 2, 3);
    mlx5_element_set(out, UINT64_C(0x7f0123400000), 4 << 20, 0xcafe0123);
    CHECK(out, golden_element_set);
    DIRTY(out);
    mlx5_element_link(out, 0x01ff, 0x0200); /* the last one leads to the first */
    CHECK(out, golden_element_last);
}

TEST(the_doorbell_record_holds_16_bits_big_endian)
{
    const uint32_t word = mlx5_counter_word(0xfe01);
    assert_memory_equal(&word, golden_counter, sizeof golden_counter);
}

TEST(an_answers_number_and_refusal_are_read)
{
    uint32_t number = 77, syndrome = 88;
    assert_int_equal(
        mlx5_decode_number(golden_answer_number, sizeof golden_answer_number, &number, &syndrome),
        0);
    assert_int_equal(number, 0xa1b2c3);
    assert_int_equal(syndrome, 0);
    number = 77;
    assert_int_equal(
        mlx5_decode_number(golden_answer_refused, sizeof golden_answer_refused, &number, &syndrome),
        ROWAN_EUNSUPPORTED);
    assert_int_equal(number, 77);
    assert_int_equal(syndrome, 0x00bada11);
    assert_int_equal(mlx5_decode_status(golden_answer_refused, sizeof golden_answer_refused, NULL),
                     ROWAN_EUNSUPPORTED);
}

TEST(an_answer_that_is_too_short_is_refused)
{
    static uint8_t answer[MLX5_QUERY_HCA_CAP_OUT_BYTES];
    struct mlx5_capabilities can = {.log_list = 5};
    uint32_t number = 77;
    for (size_t bytes = 0; bytes < MLX5_OUT_BYTES; bytes++) {
        assert_int_equal(mlx5_decode_number(answer, bytes, &number, NULL), ROWAN_EFORMAT);
        assert_int_equal(mlx5_decode_status(answer, bytes, NULL), ROWAN_EFORMAT);
    }
    for (size_t bytes = 0; bytes < sizeof answer; bytes++)
        assert_int_equal(mlx5_decode_query(answer, bytes, &can), ROWAN_EFORMAT);
    assert_int_equal(mlx5_decode_query(answer, sizeof answer, &can), 0);
    assert_int_equal(can.log_list, 0);
    assert_int_equal(number, 77);
}

static struct mlx5_capabilities capabilities_of(const uint8_t *head, size_t bytes)
{
    static uint8_t answer[MLX5_QUERY_HCA_CAP_OUT_BYTES];
    struct mlx5_capabilities can;
    memset(&can, 0xee, sizeof can);
    memset(answer, 0, sizeof answer);
    memcpy(answer, head, bytes);
    assert_int_equal(mlx5_decode_query(answer, sizeof answer, &can), 0);
    return can;
}

TEST(the_capabilities_are_read_from_their_golden_bits)
{
    struct mlx5_capabilities can =
        capabilities_of(golden_capabilities_all, sizeof golden_capabilities_all);
    assert_true(can.has_striding && can.has_few_strides && can.has_tag_matching);
    assert_int_equal(can.log_list, 31);
    assert_int_equal(can.log_queues, 30);
    assert_int_equal(can.log_plain_queues, 29);

    can = capabilities_of(golden_capabilities_some, sizeof golden_capabilities_some);
    assert_true(can.has_striding && !can.has_few_strides && !can.has_tag_matching);
    assert_int_equal(can.log_plain_queues, 21);

    can = capabilities_of(golden_capabilities_none, sizeof golden_capabilities_none);
    assert_false(can.has_striding || can.has_few_strides || can.has_tag_matching);
    assert_int_equal(can.log_list + can.log_queues + can.log_plain_queues, 0);
}

TEST(a_refused_query_tells_no_capabilities)
{
    static uint8_t answer[MLX5_QUERY_HCA_CAP_OUT_BYTES];
    struct mlx5_capabilities can = {.log_list = 5};
    memset(answer, 0xff, sizeof answer);
    assert_int_equal(mlx5_decode_query(answer, sizeof answer, &can), ROWAN_EUNSUPPORTED);
    assert_int_equal(can.log_list, 5);
}

UNIT_MAIN(NULL, NULL)
