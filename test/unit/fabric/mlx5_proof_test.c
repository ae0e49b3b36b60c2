/* mlx5_proof_test.c - the self-test of a multi-packet queue, with firmware, NIC and senders played here: a NIC that
 * does what way (a) needs passes, each that does something else is refused with a sentence. */
#define TEST_FIXTURE setup, teardown

#include "common/base/log.h"
#include "common/fabric/mlx5/mlx5_proof.h"
#include "mlx5_firmware.h"
#include "test/lib/unit.h"

enum { RING = 64, ELEMENT = MLX5_MAX_ELEMENT_BYTES, SENDER_NUMBER = 0x40, SENDER_PSN = 0x777 };

enum fault {
    RIGHT,
    PACKS_WITHOUT_STRIDES,
    LOSES_A_PACKET,
    LOSES_A_PACKET_AND_KEEPS_ITS_PLACE,
    LOSES_THE_LAST_PACKET,
    PUTS_SMALL_ONES_INTO_COMPLETIONS,
    ANSWERS_NO_READ,
    PUTS_THE_SECOND_SENDER_ELSEWHERE,
    SWAPS_TWO_PACKETS,
    TURNS_BACK_TO_THE_ELEMENT_IT_LEFT,
    LEAVES_AN_ELEMENT_TOO_EARLY,
    WRITES_ACROSS_THE_END,
    TAKES_AN_ELEMENT_FOR_EACH_PACKET,
    WRITES_THE_SAME_PLACE_TWICE,
    FLIPS_A_BIT,
    WRITES_BEHIND_A_PACKET,
    WRITES_BEHIND_THE_LAST_PACKET,
    STOPS_AFTER_128_COMPLETIONS,
};

static struct player {
    struct mlx5_proof_sender base;
    enum fault fault;
    uint32_t sent, waits;
    uint32_t left_at; /* where the first element was left */
    bool is_stuck;
    uint32_t connected[MLX5_PROOF_SENDERS];
    uint8_t held[4096]; /* the packet that comes late */
    uint32_t held_bytes;
    bool refuses_to_connect;
} player;

static uint8_t *memory;

/* --- the senders, and what is wrong with the NIC --- */

static int play_connect(struct mlx5_proof_sender *base, unsigned which, uint32_t number,
                        uint32_t psn)
{
    assert_ptr_equal(base, &player.base);
    assert_true(psn > 0 && psn < 1 << 24);
    player.connected[which] = number;
    return player.refuses_to_connect ? ROWAN_EIO : 0;
}

static void flip(uint32_t at_from_end)
{
    memory[(size_t)nic.element * ELEMENT + nic.at - at_from_end] ^= 0x40;
}

static bool takes_in(unsigned which, const void *packet, uint32_t bytes)
{
    const uint32_t nth = ++player.sent;
    switch (player.fault) {
    case LOSES_A_PACKET:
        return nth == 5 || nic_receive(packet, bytes);
    case LOSES_A_PACKET_AND_KEEPS_ITS_PLACE:
        if (nth == 5)
            nic.at += 128;
        return nth == 5 || nic_receive(packet, bytes);
    case PUTS_SMALL_ONES_INTO_COMPLETIONS:
        return bytes <= 64 || nic_receive(packet, bytes);
    case PUTS_THE_SECOND_SENDER_ELSEWHERE:
        if (which == 1) {
            memcpy(memory + ELEMENT + (size_t)(nth % 512) * 4096, packet, bytes);
            return true;
        }
        return nic_receive(packet, bytes);
    case SWAPS_TWO_PACKETS: /* the fill's are of one sender */
        if (nth == 20) {
            memcpy(player.held, packet, bytes);
            player.held_bytes = bytes;
            return true;
        }
        return nic_receive(packet, bytes) &&
               (nth != 21 || nic_receive(player.held, player.held_bytes));
    case TURNS_BACK_TO_THE_ELEMENT_IT_LEFT:
        if (nic.element == 0)
            player.left_at = nic.at;
        if (nic.element == 1 && bytes == 64) {
            memcpy(memory + player.left_at, packet, bytes);
            return true;
        }
        return nic_receive(packet, bytes);
    case LEAVES_AN_ELEMENT_TOO_EARLY:
        if (nic.element == 0 && nic.at > ELEMENT - 2 * 4096)
            nic_fill_element();
        return nic_receive(packet, bytes);
    case WRITES_ACROSS_THE_END:
        if (nic.element == 0 && nic.at < ELEMENT && nic.at + bytes > ELEMENT) {
            memcpy(memory + nic.at, packet, bytes);
            nic_next_element();
            nic.at = 4096;
            return true;
        }
        return nic_receive(packet, bytes);
    case TAKES_AN_ELEMENT_FOR_EACH_PACKET:
        if (nic_posted() > 1 && nic.at > 0)
            nic_fill_element();
        return nic_receive(packet, bytes);
    case WRITES_THE_SAME_PLACE_TWICE:
        if (nth == 6)
            nic.at -= 64;
        return nic_receive(packet, bytes);
    default:
        return nic_receive(packet, bytes);
    }
}

static int play_send(struct mlx5_proof_sender *base, unsigned which, const void *packet,
                     uint32_t bytes)
{
    assert_ptr_equal(base, &player.base);
    assert_true(player.connected[which] >= FIRST_PAIR);
    assert_true(nic.elements == RING);
    if (!takes_in(which, packet, bytes))
        player.is_stuck = true; /* receiver not ready, for ever */
    if (player.fault == FLIPS_A_BIT && player.sent == 300)
        flip(20);
    if (player.fault == WRITES_BEHIND_A_PACKET && player.sent == 5) /* 100 B in two strides */
        flip(10);
    if (player.fault == STOPS_AFTER_128_COMPLETIONS && player.sent > 128)
        player.is_stuck = true;
    return 0;
}

static int play_wait(struct mlx5_proof_sender *base)
{
    assert_ptr_equal(base, &player.base);
    player.waits++;
    return player.is_stuck || player.fault == ANSWERS_NO_READ ? ROWAN_ETIMEDOUT : 0;
}

/* --- running it --- */

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    firmware_reset();
    nic = (struct nic){.elements = RING};
    memory = calloc(1, MLX5_PROOF_BYTES);
    assert_non_null(memory);
    player = (struct player){
        .base = {.numbers = {SENDER_NUMBER, SENDER_NUMBER + 1},
                 .psn = SENDER_PSN,
                 .connect = play_connect,
                 .send = play_send,
                 .wait = play_wait},
    };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(memory);
    assert_int_equal(firmware.objects + firmware.maps, 0);
    return 0;
}

static struct ibv_qp_attr peer_of(uint8_t mtu)
{
    return (struct ibv_qp_attr){
        .ah_attr = {.port_num = 2, .is_global = 1, .grh.dgid.raw = {[15] = 9}},
        .path_mtu = mtu,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 4};
}

static int run(uint32_t mtu_bytes, const char **reason)
{
    const struct mlx5_proof proof = {
        .channel = &firmware.channel,
        .sender = &player.base,
        .peer = peer_of((uint8_t)(1 + __builtin_ctz(mtu_bytes / 256))),
        .mtu_bytes = mtu_bytes,
        .memory = memory,
        .key = KEY,
    };
    return mlx5_proof_run(&proof, reason);
}

static void is_refused_with(enum fault fault, const char *words)
{
    for (uint32_t mtu = 256; mtu <= 4096; mtu *= 4) {
        const char *reason = NULL;
        teardown(NULL);
        setup(NULL);
        player.fault = fault;
        nic.is_packed = fault == PACKS_WITHOUT_STRIDES;
        if (fault == WRITES_BEHIND_THE_LAST_PACKET)
            memory[MLX5_PROOF_BYTES - 1] = 1;
        assert_int_equal(run(mtu, &reason), ROWAN_EUNSUPPORTED);
        assert_non_null(reason);
        if (!strstr(reason, words))
            fail_msg("fault %d, MTU %u: \"%s\" has not \"%s\"", (int)fault, mtu, reason, words);
    }
}

/* --- the cases --- */

TEST(a_nic_that_does_what_is_needed_passes)
{
    for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
        for (int plain = 0; plain < 2; plain++) {
            const char *reason = NULL;
            teardown(NULL);
            setup(NULL);
            firmware.refused_opcode = plain ? MLX5_CMD_OP_CREATE_XRQ : 0;
            assert_int_equal(run(mtu, &reason), 0);
            assert_null(reason);
            assert_int_equal(nic.element, 1);
            assert_int_equal(player.connected[0], FIRST_PAIR + 1);
            assert_int_equal(player.connected[1], FIRST_PAIR + 2);
            assert_true(player.sent > (uint32_t)ELEMENT / mtu - 8 && player.waits == 3);
        }
    }
}

TEST(the_pairs_are_told_of_the_senders)
{
    const char *reason = NULL;
    const struct mlx5_hop hop = {.mac = {2, 1, 2, 3, 4, 5}, .limit = 61};
    struct ibv_qp_attr peer = peer_of(3);
    uint8_t in[MLX5_MODIFY_QP_IN_BYTES];
    unsigned found = 0;
    assert_int_equal(run(1024, &reason), 0);
    peer.dest_qp_num = SENDER_NUMBER + 1;
    peer.rq_psn = SENDER_PSN;
    mlx5_encode_rtr(FIRST_PAIR + 2, &peer, &hop, in);
    for (unsigned i = 0; i < firmware.count; i++)
        found += memcmp(firmware.calls[i].in, in, sizeof in) == 0;
    assert_int_equal(found, 1);
}

TEST(a_nic_that_does_something_else_is_refused_with_a_sentence)
{
    static const struct {
        enum fault fault;
        const char *words;
    } rows[] = {
        {PACKS_WITHOUT_STRIDES, "behind a packet, in its last stride"},
        {LOSES_A_PACKET, "some of them lost"},
        {LOSES_A_PACKET_AND_KEEPS_ITS_PLACE, "an empty stride"},
        {PUTS_SMALL_ONES_INTO_COMPLETIONS, "some of them lost"},
        {ANSWERS_NO_READ, "not answered in time"},
        {STOPS_AFTER_128_COMPLETIONS, "not answered in time"},
        {PUTS_THE_SECOND_SENDER_ELSEWHERE, "the self-test found"},
        {SWAPS_TWO_PACKETS, "another order"},
        {TURNS_BACK_TO_THE_ELEMENT_IT_LEFT, "the self-test found"},
        {LEAVES_AN_ELEMENT_TOO_EARLY, "into which a packet fits"},
        {WRITES_ACROSS_THE_END, "across the end"},
        {TAKES_AN_ELEMENT_FOR_EACH_PACKET, "the self-test"},
        {WRITES_THE_SAME_PLACE_TWICE, "the self-test found"},
        {FLIPS_A_BIT, "not those that were sent"},
        {WRITES_BEHIND_A_PACKET, "that nobody sent"},
        {WRITES_BEHIND_THE_LAST_PACKET, "behind the last packet"},
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        is_refused_with(rows[i].fault, rows[i].words);
}

TEST(a_sender_that_cannot_connect_is_told_so)
{
    const char *reason = NULL;
    player.refuses_to_connect = true;
    assert_int_equal(run(1024, &reason), ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(reason, "cannot be connected"));
}

TEST(each_refusal_of_the_firmware_in_turn_leaves_nothing_behind)
{
    unsigned refused = 0, passed = 0;
    for (unsigned step = 1; !passed; step++) {
        const char *reason = NULL;
        teardown(NULL);
        setup(NULL);
        firmware.refused_step = step;
        firmware.refuses_in_answer = step % 2;
        int error = run(1024, &reason);
        /* A plain queue takes the place of the other kind; that the pair to be closed does not move to
         * "error" is told in the log, and it is destroyed. */
        if (error) {
            assert_non_null(reason);
            refused++;
        }
        passed = firmware.steps < step;
    }
    /* map; create, watch, init, resolve, rtr, rts of each pair */
    assert_int_equal(refused, 13);
}

UNIT_MAIN(NULL, NULL)
