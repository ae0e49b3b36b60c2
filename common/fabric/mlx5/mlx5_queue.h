/* mlx5_queue.h - a multi-packet shared receive queue on mlx5, and the queue pairs that receive into it.
 *
 * An element of the queue is a large piece of memory: the device puts one packet behind the other into it,
 * each at the next stride, whichever queue pair it came for, and goes on to the next element when a packet
 * does not fit any more. Nobody is told: completions go to a ring that nobody reads.
 *
 * What the device is asked for goes through struct mlx5_channel, so that a test can play the firmware.
 */
#ifndef FABRIC_MLX5_QUEUE_H
#define FABRIC_MLX5_QUEUE_H

#include "common/fabric/mlx5/mlx5_command.h"

enum mlx5_watched { MLX5_WATCH_PAIR, MLX5_WATCH_TAG_MATCHING, MLX5_WATCH_PLAIN };

#define MLX5_QUEUE_FAILED UINT64_MAX /* the cookie of a queue; those of pairs are their numbers */

/* What exists before the queue. */
struct mlx5_numbers {
    uint32_t pd, cq, uar;
    struct mlx5_capabilities capabilities;
};

/* The way to the device. `object` is the channel's own handle of what was created. */
struct mlx5_channel {
    struct mlx5_numbers numbers;

    /* Runs a command: with object NULL a general one, with *object NULL one that creates, and sets it, else
     * one that changes *object. 0, or ROWAN_EUNSUPPORTED with the firmware's answer in `out`, if it gave one. */
    int (*execute)(struct mlx5_channel *channel, void **object, const void *in, size_t in_bytes,
                   void *out, size_t out_bytes);
    void (*destroy)(struct mlx5_channel *channel, void *object);

    /* Lets the device read `memory`, a whole number of pages, under *number. Errors: ROWAN_ENOMEM. */
    int (*map)(struct mlx5_channel *channel, void *memory, size_t bytes, uint32_t *number,
               void **handle);
    void (*unmap)(struct mlx5_channel *channel, void *handle);

    /* When the object fails, failure() gives `cookie` once. False: there is nothing. */
    int (*watch)(struct mlx5_channel *channel, void *object, enum mlx5_watched what,
                 uint64_t cookie);
    bool (*failure)(struct mlx5_channel *channel, uint64_t *cookie);

    void (*close)(struct mlx5_channel *channel); /* all objects are destroyed */

    /* Errors: ROWAN_EUNREACHABLE. */
    int (*resolve)(struct mlx5_channel *channel, const struct ibv_ah_attr *to,
                   struct mlx5_hop *hop);
};

/* mlx5_devx_open: one on a real device (mlx5_devx.c), with the numbers. `context` is open with DevX (verbs_mlx5_open). Errors:
 * ROWAN_ENOMEM EUNSUPPORTED; *reason is then a static sentence. */
int mlx5_devx_open(struct ibv_context *context, struct ibv_pd *pd, struct mlx5_channel **out,
                   const char **reason);

enum mlx5_queue_kind {
    MLX5_TAG_MATCHING, /* XRQ: reads the first 16 bytes of a message (verbs_mlx5.c) */
    MLX5_PLAIN,        /* RMP; that a pair under RC may use one with strides is unproven */
};

enum {
    MLX5_MIN_ELEMENTS = 64, /* over 32, as UCX and the paper's authors have it */
    MLX5_MAX_ELEMENTS = 1 << 15,
    MLX5_STRIDE_BYTES = 64,
    MLX5_MIN_ELEMENT_BYTES = 512 * MLX5_STRIDE_BYTES, /* what every device takes */
    MLX5_MAX_ELEMENT_BYTES = 65536 * MLX5_STRIDE_BYTES,
};

struct mlx5_queue;
struct mlx5_pair;

/* mlx5_queue_open: a queue for at least `elements` (fewer than MLX5_MAX_ELEMENTS) of `element_bytes`, a
 * power of two, and up to `pairs` queue pairs. Takes the first kind that the capabilities name and the
 * device creates. Errors: ROWAN_ENOMEM EUNSUPPORTED; *reason is then a static sentence. */
int mlx5_queue_open(struct mlx5_channel *channel, uint32_t elements, uint32_t element_bytes,
                    uint32_t pairs, struct mlx5_queue **out, const char **reason);

/* All pairs are closed. NULL is fine. */
void mlx5_queue_close(struct mlx5_queue *queue);

enum mlx5_queue_kind mlx5_queue_kind(const struct mlx5_queue *queue);

/* Puts an element behind those posted before; the device has it after the next mlx5_queue_ring. */
void mlx5_queue_post(struct mlx5_queue *queue, uint64_t address, uint32_t key);
void mlx5_queue_ring(struct mlx5_queue *queue);

/* The device is done with the oldest element. */
void mlx5_queue_return(struct mlx5_queue *queue);

/* mlx5_pair_open: a queue pair in INIT that receives into the queue; its number is the cookie of its
 * failures. Errors: ROWAN_ETOOMANY ENOMEM EUNSUPPORTED. */
int mlx5_pair_open(struct mlx5_queue *queue, uint8_t port, struct mlx5_pair **out);
uint32_t mlx5_pair_number(const struct mlx5_pair *pair);

/* To RTR and RTS. Errors: ROWAN_EIO EUNREACHABLE; the pair is then good for nothing but to be closed. */
int mlx5_pair_connect(struct mlx5_pair *pair, const struct ibv_qp_attr *to);

/* When it returns, nothing lands over this pair. NULL is fine. */
void mlx5_pair_close(struct mlx5_pair *pair);

#endif
