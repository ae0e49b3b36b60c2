/* mlx5_queue.c - see mlx5_queue.h.
 *
 * One registered piece of memory holds what the device reads of us:
 *
 *   elements (32 B each)   doorbell records: the queue's, each pair's (64 B apart)   send queues, a page each
 *
 *  I1  posted - returned < elements: one slot of the ring stays empty. The link of the last posted element
 *      then points at one that the device does not own, and which is filled before it may go there.
 *  I2  An element's bytes are written before the count that hands it over.
 *  I3  What was made is taken back in reverse: pairs, queue, memory. The kernel refuses to destroy a queue
 *      that pairs are on.
 */
#include "common/fabric/mlx5/mlx5_queue.h"

#include <assert.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"

enum {
    PAGE_BYTES = 4096,
    RECORD_BYTES = 64, /* a doorbell record has 8; a cache line for each */
    LOG_SENDS = 6,     /* 64 units of 64 B: a page */
};
static_assert((64 << LOG_SENDS) == PAGE_BYTES, "a send queue is a page");

struct mlx5_pair {
    struct mlx5_queue *queue;
    void *object;
    uint32_t number;
    bool is_used;
};

struct mlx5_queue {
    struct mlx5_channel *channel;
    enum mlx5_queue_kind kind;
    void *object;
    uint32_t number;

    uint8_t *memory;
    size_t memory_bytes;
    uint32_t umem;
    void *umem_handle;
    size_t records_at, sends_at;

    uint32_t elements, element_bytes;
    uint64_t posted, returned;

    uint32_t pair_places;
    struct mlx5_pair pairs[];
};

static uint8_t log2_of(uint32_t power)
{
    ASSERT(power && (power & (power - 1)) == 0);
    return (uint8_t)__builtin_ctz(power);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* --- making the queue --- */

static int map_memory(struct mlx5_queue *queue)
{
    queue->records_at = whole_pages((size_t)queue->elements * MLX5_ELEMENT_BYTES);
    queue->sends_at =
        queue->records_at + whole_pages((size_t)(1 + queue->pair_places) * RECORD_BYTES);
    queue->memory_bytes = queue->sends_at + (size_t)queue->pair_places * PAGE_BYTES;
    queue->memory = aligned_alloc(PAGE_BYTES, queue->memory_bytes);
    if (!queue->memory)
        return ROWAN_ENOMEM;
    memset(queue->memory, 0, queue->memory_bytes);
    for (uint32_t i = 0; i < queue->elements; i++)
        mlx5_element_link(queue->memory + (size_t)i * MLX5_ELEMENT_BYTES, i, queue->elements);
    int error = queue->channel->map(queue->channel, queue->memory, queue->memory_bytes,
                                    &queue->umem, &queue->umem_handle);
    if (error)
        free(queue->memory);
    return error;
}

/* Runs a command that creates an object, and takes its number from the answer. */
static int create_object(struct mlx5_queue *queue, const void *in, size_t in_bytes, void **object,
                         uint32_t *number, uint32_t *syndrome)
{
    struct mlx5_channel *channel = queue->channel;
    uint8_t out[MLX5_OUT_BYTES] = {0};
    int error = channel->execute(channel, object, in, in_bytes, out, sizeof out);
    int answer = mlx5_decode_number(out, sizeof out, number, syndrome);
    if (error || !answer)
        return error;
    channel->destroy(channel, *object);
    return answer;
}

static int create(struct mlx5_queue *queue, enum mlx5_queue_kind kind)
{
    struct mlx5_queue_layout layout = {
        .pd = queue->channel->numbers.pd,
        .umem = queue->umem,
        .counter = {queue->umem, queue->records_at},
        .cq = queue->channel->numbers.cq,
        .log_elements = log2_of(queue->elements),
        .log_strides = log2_of(queue->element_bytes / MLX5_STRIDE_BYTES),
        .log_stride_bytes = log2_of(MLX5_STRIDE_BYTES),
    };
    uint8_t xrq[MLX5_CREATE_XRQ_IN_BYTES], rmp[MLX5_CREATE_RMP_IN_BYTES];
    const uint8_t *in = kind == MLX5_PLAIN ? rmp : xrq;
    size_t in_bytes = kind == MLX5_PLAIN ? sizeof rmp : sizeof xrq;
    if (kind == MLX5_PLAIN)
        mlx5_encode_create_rmp(&layout, rmp);
    else
        mlx5_encode_create_xrq(&layout, xrq);

    void *object = NULL;
    uint32_t syndrome = 0;
    int error = create_object(queue, in, in_bytes, &object, &queue->number, &syndrome);
    if (error) {
        log_event(LOG_INFO, "mlx5_queue_refused", "kind=%s syndrome=0x%x",
                  kind == MLX5_PLAIN ? "plain" : "tag_matching", syndrome);
        return error;
    }
    queue->object = object;
    queue->kind = kind;
    /* What befalls the queue is told of the queue, not of its pairs. An older kernel that does not know these
     * events refuses, which the channel logs: then a queue that fails shows only at the senders. */
    (void)queue->channel->watch(queue->channel, object,
                                kind == MLX5_PLAIN ? MLX5_WATCH_PLAIN : MLX5_WATCH_TAG_MATCHING,
                                MLX5_QUEUE_FAILED);
    return 0;
}

static int create_first_that_works(struct mlx5_queue *queue, const char **reason)
{
    const struct mlx5_capabilities *can = &queue->channel->numbers.capabilities;
    *reason = "the device has neither tag-matching queues nor plain ones for multi-packet elements "
              "(tag_matching, log_max_rmp)";
    int error = ROWAN_EUNSUPPORTED;
    if (can->has_tag_matching && can->log_list) {
        *reason = "the firmware refused to create the tag-matching queue (CREATE_XRQ)";
        error = create(queue, MLX5_TAG_MATCHING);
    }
    if (error && can->log_plain_queues) {
        if (can->has_tag_matching && can->log_list)
            *reason = "the firmware refused to create the queue, with tag matching and without "
                      "(CREATE_XRQ, CREATE_RMP)";
        else
            *reason = "the firmware refused to create the queue (CREATE_RMP)";
        error = create(queue, MLX5_PLAIN);
    }
    return error;
}

int mlx5_queue_open(struct mlx5_channel *channel, uint32_t elements, uint32_t element_bytes,
                    uint32_t pairs, struct mlx5_queue **out, const char **reason)
{
    ASSERT(elements < MLX5_MAX_ELEMENTS && element_bytes >= MLX5_MIN_ELEMENT_BYTES &&
           element_bytes <= MLX5_MAX_ELEMENT_BYTES);
    *reason = "out of memory";
    struct mlx5_queue *queue = calloc(1, sizeof *queue + pairs * sizeof queue->pairs[0]);
    if (!queue)
        return ROWAN_ENOMEM;
    queue->channel = channel;
    queue->pair_places = pairs;
    queue->element_bytes = element_bytes;
    queue->elements = MLX5_MIN_ELEMENTS;
    while (queue->elements <= elements) /* I1: one more than may be posted */
        queue->elements *= 2;

    *reason = "the queue's memory could not be registered (DevX umem): is locked memory limited "
              "(ulimit -l)?";
    int error = map_memory(queue);
    if (error)
        goto no_memory;
    error = create_first_that_works(queue, reason);
    if (error)
        goto no_queue;
    *out = queue;
    return 0;

no_queue:
    channel->unmap(channel, queue->umem_handle);
    free(queue->memory);
no_memory:
    free(queue);
    return error;
}

void mlx5_queue_close(struct mlx5_queue *queue)
{
    if (!queue)
        return;
    for (uint32_t i = 0; i < queue->pair_places; i++)
        ASSERT(!queue->pairs[i].is_used); /* I3 */
    queue->channel->destroy(queue->channel, queue->object);
    queue->channel->unmap(queue->channel, queue->umem_handle);
    free(queue->memory);
    free(queue);
}

enum mlx5_queue_kind mlx5_queue_kind(const struct mlx5_queue *queue)
{
    return queue->kind;
}

/* --- elements --- */

void mlx5_queue_post(struct mlx5_queue *queue, uint64_t address, uint32_t key)
{
    ASSERT(queue->posted - queue->returned < queue->elements - 1); /* I1 */
    size_t index = queue->posted % queue->elements;
    mlx5_element_set(queue->memory + index * MLX5_ELEMENT_BYTES, address, queue->element_bytes,
                     key);
    queue->posted++;
}

void mlx5_queue_ring(struct mlx5_queue *queue)
{
    volatile uint32_t *record = (void *)(queue->memory + queue->records_at);
    _mm_sfence(); /* I2 */
    *record = mlx5_counter_word((uint16_t)queue->posted);
}

void mlx5_queue_return(struct mlx5_queue *queue)
{
    ASSERT(queue->returned < queue->posted);
    queue->returned++;
}

/* --- queue pairs --- */

static struct mlx5_pair *unused_pair(struct mlx5_queue *queue)
{
    for (uint32_t i = 0; i < queue->pair_places; i++) {
        if (!queue->pairs[i].is_used)
            return &queue->pairs[i];
    }
    return NULL;
}

/* Runs a command that changes the pair. */
static int change(struct mlx5_pair *pair, const char *what, const void *in, size_t in_bytes)
{
    struct mlx5_channel *channel = pair->queue->channel;
    uint8_t out[MLX5_OUT_BYTES] = {0};
    uint32_t syndrome = 0;
    int error = channel->execute(channel, &pair->object, in, in_bytes, out, sizeof out);
    int answer = mlx5_decode_status(out, sizeof out, &syndrome);
    if (!error)
        error = answer;
    if (error)
        log_event(LOG_WARN, "mlx5_pair_refused", "command=%s qp=0x%x syndrome=0x%x", what,
                  pair->number, syndrome);
    return error;
}

static int create_pair(struct mlx5_pair *pair, size_t index)
{
    struct mlx5_queue *queue = pair->queue;
    struct mlx5_pair_layout layout = {
        .pd = queue->channel->numbers.pd,
        .uar = queue->channel->numbers.uar,
        .cq = queue->channel->numbers.cq,
        .queue = queue->number,
        .sends = {queue->umem, queue->sends_at + index * PAGE_BYTES},
        .counter = {queue->umem, queue->records_at + (1 + index) * RECORD_BYTES},
        .log_sends = LOG_SENDS,
    };
    uint8_t in[MLX5_CREATE_QP_IN_BYTES];
    mlx5_encode_create_qp(&layout, in);
    void *object = NULL;
    uint32_t syndrome = 0;
    int error = create_object(queue, in, sizeof in, &object, &pair->number, &syndrome);
    if (error)
        log_event(LOG_WARN, "mlx5_pair_refused", "command=create syndrome=0x%x", syndrome);
    else
        pair->object = object;
    return error;
}

int mlx5_pair_open(struct mlx5_queue *queue, uint8_t port, struct mlx5_pair **out)
{
    struct mlx5_pair *pair = unused_pair(queue);
    if (!pair)
        return ROWAN_ETOOMANY;
    *pair = (struct mlx5_pair){.queue = queue};
    int error = create_pair(pair, (size_t)(pair - queue->pairs));
    if (error)
        return error;
    error = queue->channel->watch(queue->channel, pair->object, MLX5_WATCH_PAIR, pair->number);
    if (error)
        goto refused;
    uint8_t init[MLX5_MODIFY_QP_IN_BYTES];
    mlx5_encode_init(pair->number, port, init);
    error = change(pair, "init", init, sizeof init);
    if (error)
        goto refused;
    pair->is_used = true;
    *out = pair;
    return 0;

refused:
    queue->channel->destroy(queue->channel, pair->object);
    return error;
}

uint32_t mlx5_pair_number(const struct mlx5_pair *pair)
{
    return pair->number;
}

int mlx5_pair_connect(struct mlx5_pair *pair, const struct ibv_qp_attr *to)
{
    struct mlx5_channel *channel = pair->queue->channel;
    uint8_t in[MLX5_MODIFY_QP_IN_BYTES];
    struct mlx5_hop hop = {0};
    if (to->ah_attr.is_global && channel->resolve(channel, &to->ah_attr, &hop))
        return ROWAN_EUNREACHABLE;
    mlx5_encode_rtr(pair->number, to, &hop, in);
    if (change(pair, "rtr", in, sizeof in))
        return ROWAN_EIO;
    mlx5_encode_rts(pair->number, to, in);
    return change(pair, "rts", in, sizeof in) ? ROWAN_EIO : 0;
}

void mlx5_pair_close(struct mlx5_pair *pair)
{
    if (!pair)
        return;
    /* In error it takes no packets, also if the kernel should be slow to destroy it. */
    uint8_t in[MLX5_QP_2ERR_IN_BYTES];
    mlx5_encode_error(pair->number, in);
    change(pair, "error", in, sizeof in);
    pair->queue->channel->destroy(pair->queue->channel, pair->object);
    pair->is_used = false;
}
