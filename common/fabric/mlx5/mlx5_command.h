/* mlx5_command.h - the commands that make and move the objects of a multi-packet receive queue, and the
 * elements of that queue, as bytes. Nothing here talks to a device: bytes go in, bytes come out.
 *
 * An encoder fills the whole of `out`, whose length the caller's array type fixes. A decoder takes the
 * length that came back and trusts nothing: ROWAN_EFORMAT for an answer that is too short, ROWAN_EUNSUPPORTED
 * for a status other than 0 (the device refused; the syndrome is the vendor's reason), outputs untouched.
 */
#ifndef FABRIC_MLX5_COMMAND_H
#define FABRIC_MLX5_COMMAND_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/fabric/mlx5/mlx5_layout.h"

/* --- what the device can --- */

struct mlx5_capabilities {
    bool has_striding;        /* multi-packet elements on InfiniBand queues (ib_striding_wq) */
    bool has_few_strides;     /* fewer than 512 strides an element; not needed here, for the log */
    bool has_tag_matching;    /* the queue that takes such elements under RC */
    uint8_t log_list;         /* of tags, the most */
    uint8_t log_queues;       /* tag-matching queues, the most */
    uint8_t log_plain_queues; /* the alternative (RMP) */
};

void mlx5_encode_query(uint8_t out[static MLX5_QUERY_HCA_CAP_IN_BYTES]);
int mlx5_decode_query(const void *answer, size_t bytes, struct mlx5_capabilities *out);

/* --- the queue --- */

/* Memory that the device reads: registered (umem) by number, and a place in it. */
struct mlx5_place {
    uint32_t umem;
    uint64_t at; /* bytes */
};

struct mlx5_queue_layout {
    uint32_t pd;
    uint32_t umem;             /* of the elements, from its beginning */
    struct mlx5_place counter; /* the doorbell record, 8 B-aligned */
    uint32_t cq;               /* tag-matching queues have one of their own */
    uint8_t log_elements;      /* 6 to 15 */
    uint8_t log_strides;       /* of an element, 9 to 16 */
    uint8_t log_stride_bytes;  /* 6 to 13 */
};

void mlx5_encode_create_xrq(const struct mlx5_queue_layout *queue,
                            uint8_t out[static MLX5_CREATE_XRQ_IN_BYTES]);
void mlx5_encode_create_rmp(const struct mlx5_queue_layout *queue,
                            uint8_t out[static MLX5_CREATE_RMP_IN_BYTES]);

/* --- the queue pairs that receive into it --- */

/* A pair that never sends still has a send queue: one without is the firmware's own kind under tag
 * matching (rendezvous). */
struct mlx5_pair_layout {
    uint32_t pd, uar, cq;
    uint32_t queue;            /* number of the XRQ or RMP */
    struct mlx5_place sends;   /* the send queue, never posted to; a page */
    struct mlx5_place counter; /* doorbell record */
    uint8_t log_sends;         /* units of 64 B, 0 to 15 */
};

/* What an address (ibv_ah_attr) leaves open on Ethernet: the MAC address of the peer or the next hop. */
struct mlx5_hop {
    uint8_t mac[6];
    uint8_t limit;
};

void mlx5_encode_create_qp(const struct mlx5_pair_layout *pair,
                           uint8_t out[static MLX5_CREATE_QP_IN_BYTES]);
void mlx5_encode_init(uint32_t qp, uint8_t port, uint8_t out[static MLX5_MODIFY_QP_IN_BYTES]);

/* With the attributes of the move (verbs_pair.h). An address is global on Ethernet and nowhere else; else `hop` is not
 * read. */
void mlx5_encode_rtr(uint32_t qp, const struct ibv_qp_attr *to, const struct mlx5_hop *hop,
                     uint8_t out[static MLX5_MODIFY_QP_IN_BYTES]);
void mlx5_encode_rts(uint32_t qp, const struct ibv_qp_attr *to,
                     uint8_t out[static MLX5_MODIFY_QP_IN_BYTES]);
void mlx5_encode_error(uint32_t qp, uint8_t out[static MLX5_QP_2ERR_IN_BYTES]);

/* --- answers --- */

/* 0, or what the head of the comment says; the vendor's reason goes to *syndrome (NULL: not wanted). */
int mlx5_decode_status(const void *answer, size_t bytes, uint32_t *syndrome);

/* The number of a created XRQ, RMP or QP: they all lie at the same place. */
int mlx5_decode_number(const void *answer, size_t bytes, uint32_t *number, uint32_t *syndrome);

/* --- elements and the doorbell record --- */

/* Links element `index` of a ring of `count`: it is followed by the next one. Once, before the queue is made. */
void mlx5_element_link(uint8_t *element, uint32_t index, uint32_t count);

/* Points it at memory. The device must not own it. */
void mlx5_element_set(uint8_t *element, uint64_t address, uint32_t bytes, uint32_t key);

/* The doorbell record's word that says how many elements were ever posted, modulo 2^16. */
static inline uint32_t mlx5_counter_word(uint16_t posted)
{
    return __builtin_bswap32(posted);
}

#endif
