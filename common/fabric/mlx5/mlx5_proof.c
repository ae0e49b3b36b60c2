/* mlx5_proof.c - see mlx5_proof.h. The plan, with elements of the size that a zone has:
 *
 *   1. each sender sends packets of several sizes; one size is no multiple of the stride
 *   2. the first sends packets of the MTU until none fits into the first element
 *   3. each sends one of the MTU, which must begin the next element, and one of 64 B, which would fit into what
 *      was left and must not go there (verbs_mlx5.c Z2)
 *
 * Then memory is walked as a digest role does: a packet at each next stride, each sender's in order, zeros in all
 * that no packet covers. A packet begins with a byte of 0 and a word that is not 0 (verbs_mlx5.c Z4); its other
 * bytes are anything. The fill brings thousands of completions to a ring of 128 that nobody reads.
 */
#include "common/fabric/mlx5/mlx5_proof.h"

#include <string.h>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/base/log.h"

enum {
    STRIDE = MLX5_STRIDE_BYTES,
    ELEMENT = MLX5_MAX_ELEMENT_BYTES,
    MIXED = 4, /* packets of each sender in step 1 */
    LAST = 2,  /* in step 3 */
    MTU = 0,   /* stands for it in the table */
    MAX_MTU = 4096,
    RECEIVER_PSN = 0x5a5a5a,
    RETRIES = 7,
    ACK_TIMEOUT = 12,
};

static const uint16_t mixed[MLX5_PROOF_SENDERS][MIXED] = {{64, 128, 100, MTU}, {128, MTU, 64, 100}};
static const uint16_t last[LAST] = {MTU, 64};

struct plan {
    const struct mlx5_proof *proof;
    uint32_t fill; /* packets of step 2 */
    uint32_t counts[MLX5_PROOF_SENDERS];
};

static uint32_t strides(uint32_t bytes)
{
    return (bytes + STRIDE - 1) / STRIDE * STRIDE;
}

static uint32_t actual(const struct plan *plan, uint16_t bytes)
{
    return bytes == MTU ? plan->proof->mtu_bytes : bytes;
}

static struct plan make_plan(const struct mlx5_proof *proof)
{
    struct plan plan = {.proof = proof};
    uint32_t used = 0;
    for (unsigned i = 0; i < MLX5_PROOF_SENDERS * MIXED; i++)
        used += strides(actual(&plan, mixed[i / MIXED][i % MIXED]));
    /* What is left is no multiple of the MTU: two of them are used, and 448 B more. */
    plan.fill = (ELEMENT - used) / proof->mtu_bytes;
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++)
        plan.counts[which] = MIXED + (which == 0 ? plan.fill : 0) + LAST;
    return plan;
}

/* Of packet `number` of that sender. */
static uint32_t size_of(const struct plan *plan, unsigned which, uint32_t number)
{
    if (number < MIXED)
        return actual(plan, mixed[which][number]);
    uint32_t from_end = plan->counts[which] - number;
    return from_end > LAST ? plan->proof->mtu_bytes : actual(plan, last[LAST - from_end]);
}

/* --- packets --- */

struct head {
    uint8_t zero, which_plus_1;
    uint16_t bytes;
    uint32_t number;
};

static void write_packet(const struct plan *plan, unsigned which, uint32_t number,
                         uint8_t out[MAX_MTU])
{
    struct head head = {.which_plus_1 = (uint8_t)(which + 1),
                        .bytes = (uint16_t)size_of(plan, which, number),
                        .number = number};
    for (uint32_t i = 0; i < head.bytes; i++)
        out[i] = (uint8_t)(which * 89 + number * 7 + i * 31 + 1);
    memcpy(out, &head, sizeof head);
}

static int send_some(const struct plan *plan, unsigned which, uint32_t *next, uint32_t count)
{
    struct mlx5_proof_sender *sender = plan->proof->sender;
    uint8_t packet[MAX_MTU];
    int error = 0;
    for (uint32_t i = 0; !error && i < count; i++, (*next)++) {
        write_packet(plan, which, *next, packet);
        error = sender->send(sender, which, packet, size_of(plan, which, *next));
    }
    return error;
}

static int send_all(const struct plan *plan)
{
    struct mlx5_proof_sender *sender = plan->proof->sender;
    uint32_t next[MLX5_PROOF_SENDERS] = {0};
    int error = 0;
    for (uint32_t i = 0; !error && i < MLX5_PROOF_SENDERS * MIXED; i++) /* in turn */
        error = send_some(plan, i % MLX5_PROOF_SENDERS, &next[i % MLX5_PROOF_SENDERS], 1);
    if (!error)
        error = sender->wait(sender); /* of the others' none may come later than the fill */
    if (!error)
        error = send_some(plan, 0, &next[0], plan->fill);
    if (!error)
        error = sender->wait(sender);
    for (unsigned which = 0; !error && which < MLX5_PROOF_SENDERS; which++)
        error = send_some(plan, which, &next[which], LAST);
    return error ? error : sender->wait(sender);
}

/* --- what lies in memory --- */

/* The packet at `at`, of which `left` bytes may be read; its size, or 0 and why it is none that may lie here. */
static uint32_t check_packet(const struct plan *plan, const uint8_t *at, uint32_t left,
                             uint32_t next[MLX5_PROOF_SENDERS], const char **reason)
{
    uint8_t packet[MAX_MTU];
    struct head head;
    memcpy(&head, at, sizeof head);
    unsigned which = head.which_plus_1 - 1u;
    *reason =
        "the self-test found other bytes than a packet at the next 64 B (does the device pack "
        "without strides?)";
    if (head.zero || which >= MLX5_PROOF_SENDERS || head.number >= plan->counts[which])
        return 0;
    *reason =
        "the self-test found a sender's packets in another order than they were sent, or some of "
        "them lost";
    if (head.number != next[which])
        return 0;
    uint32_t bytes = size_of(plan, which, head.number);
    *reason = "the self-test found a packet across the end of an element";
    if (bytes > left)
        return 0;
    *reason = "the self-test found a packet whose bytes are not those that were sent";
    write_packet(plan, which, head.number, packet);
    if (memcmp(at, packet, bytes) != 0)
        return 0;
    *reason = "the self-test found bytes behind a packet, in its last stride, that nobody sent";
    if (!bytes_are_zero(at + bytes, strides(bytes) - bytes))
        return 0;
    next[which]++;
    return bytes;
}

/* NULL: all is where it must be. */
static const char *find_fault(const struct plan *plan)
{
    const uint8_t *memory = plan->proof->memory;
    uint32_t next[MLX5_PROOF_SENDERS] = {0}, element = 0, at = 0, left = 0;
    const char *reason;
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++)
        left += plan->counts[which];
    for (; left > 0; left--) {
        const uint8_t *place = memory + (size_t)element * ELEMENT + at;
        uint32_t skipped = 0;
        if (at == ELEMENT || bytes_are_zero(place, sizeof(struct head))) {
            if (!bytes_are_zero(place, ELEMENT - at))
                return "the self-test found an empty stride between packets";
            if (element > 0 || bytes_are_zero(memory + ELEMENT, sizeof(struct head)))
                return "the self-test found a packet nowhere that the device had acknowledged";
            skipped = ELEMENT - at;
            place = memory + ELEMENT;
            element++;
            at = 0;
        }
        uint32_t bytes = check_packet(plan, place, ELEMENT - at, next, &reason);
        if (bytes == 0)
            return reason;
        if (bytes <= skipped)
            return "the self-test found that the device left an element into which a packet fits";
        at += strides(bytes);
    }
    if (element == 0)
        return "the self-test found that the device did not go on to the next element";
    return bytes_are_zero(memory + ELEMENT + at, (size_t)(MLX5_PROOF_REGIONS - 1) * ELEMENT - at)
               ? NULL
               : "the self-test found bytes behind the last packet that nobody sent";
}

/* --- the run --- */

static int connect_pair(const struct mlx5_proof *proof, unsigned which, struct mlx5_pair *pair)
{
    struct ibv_qp_attr peer = proof->peer;
    peer.dest_qp_num = proof->sender->numbers[which];
    peer.rq_psn = proof->sender->psn;
    peer.sq_psn = RECEIVER_PSN;
    peer.timeout = ACK_TIMEOUT;
    peer.retry_cnt = peer.rnr_retry = RETRIES;
    int error = mlx5_pair_connect(pair, &peer);
    return error
               ? error
               : proof->sender->connect(proof->sender, which, mlx5_pair_number(pair), RECEIVER_PSN);
}

static void post_elements(const struct mlx5_proof *proof, struct mlx5_queue *queue)
{
    for (unsigned i = 0; i < MLX5_PROOF_ELEMENTS; i++) {
        unsigned region = i < MLX5_PROOF_REGIONS ? i : MLX5_PROOF_REGIONS - 1;
        mlx5_queue_post(queue, (uintptr_t)proof->memory + (uint64_t)region * ELEMENT, proof->key);
    }
    mlx5_queue_ring(queue);
}

static int run_on(const struct mlx5_proof *proof, struct mlx5_queue *queue,
                  struct mlx5_pair *pairs[MLX5_PROOF_SENDERS], const char **reason)
{
    struct plan plan = make_plan(proof);
    int error = 0;
    post_elements(proof, queue);
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++) {
        *reason = "the firmware refused a queue pair on the multi-packet queue (CREATE_QP, "
                  "RST2INIT_QP)";
        error = mlx5_pair_open(queue, proof->peer.ah_attr.port_num, &pairs[which]);
        if (error)
            return error;
        error = connect_pair(proof, which, pairs[which]);
        *reason = error == ROWAN_EUNREACHABLE
                      ? "the port's own address cannot be resolved for the self-test"
                      : "a queue pair on the multi-packet queue cannot be connected (INIT2RTR_QP, "
                        "RTR2RTS_QP)";
        if (error)
            return ROWAN_EUNSUPPORTED;
    }
    error = send_all(&plan);
    *reason = error == ROWAN_ETIMEDOUT
                  ? "the self-test's packets into the multi-packet queue were not answered in time"
                  : "the self-test's packets into the multi-packet queue failed";
    if (!error)
        *reason = find_fault(&plan);
    return *reason ? ROWAN_EUNSUPPORTED : 0;
}

int mlx5_proof_run(const struct mlx5_proof *proof, const char **reason)
{
    struct mlx5_pair *pairs[MLX5_PROOF_SENDERS] = {NULL};
    struct mlx5_queue *queue;
    const char *why;
    int error = mlx5_queue_open(proof->channel, MLX5_PROOF_ELEMENTS, ELEMENT, MLX5_PROOF_SENDERS,
                                &queue, &why);
    if (!error) {
        error = run_on(proof, queue, pairs, &why);
        log_event(LOG_INFO, "mlx5_self_test", "queue=%s senders=%u mtu=%u result=\"%s\"",
                  mlx5_queue_kind(queue) == MLX5_PLAIN ? "plain" : "tag_matching",
                  (unsigned)MLX5_PROOF_SENDERS, proof->mtu_bytes, error ? why : "passed");
        for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++)
            mlx5_pair_close(pairs[which]);
        mlx5_queue_close(queue);
    }
    if (error)
        *reason = why;
    return error;
}
