/* mlx5_proof.h - does a device do what way (a) needs of it? No manual says, so it is tried before it is trusted:
 * packets of known bytes from several senders into a queue of whole segments, looped back on one port, and then
 * a look at where they lie.
 *
 * The sender is an interface, so that a test can play the NIC.
 */
#ifndef FABRIC_MLX5_PROOF_H
#define FABRIC_MLX5_PROOF_H

#include "common/fabric/mlx5/mlx5_queue.h"

enum {
    MLX5_PROOF_SENDERS = 2,
    MLX5_PROOF_REGIONS = 3,   /* elements in memory: two to be filled, one that nothing may reach */
    MLX5_PROOF_ELEMENTS = 40, /* more than 32, as a zone of usual size has */
    MLX5_PROOF_BYTES = MLX5_PROOF_REGIONS * MLX5_MAX_ELEMENT_BYTES,
};

struct mlx5_proof_sender {
    /* Of the senders' queue pairs: their numbers and the first packet's. */
    uint32_t numbers[MLX5_PROOF_SENDERS];
    uint32_t psn;

    /* Sender `which` sends to queue pair `number`, whose first packet back is `psn`. Errors: ROWAN_EIO. */
    int (*connect)(struct mlx5_proof_sender *sender, unsigned which, uint32_t number, uint32_t psn);

    /* Sends a copy of the packet and behind it a READ of one byte, as the backend does. May wait for earlier
     * ones. Errors: ROWAN_EIO ETIMEDOUT. */
    int (*send)(struct mlx5_proof_sender *sender, unsigned which, const void *packet,
                uint32_t bytes);

    /* Waits, but not for ever, until all READs have come back. Errors: ROWAN_EIO ETIMEDOUT. */
    int (*wait)(struct mlx5_proof_sender *sender);
};

/* On a real device: ordinary reliable queue pairs, looped back on its own port (mlx5_loopback.c). open: after `limit_ns`
 * nothing is waited for any more. Errors: ROWAN_ENOMEM EUNSUPPORTED, and in *reason a static sentence. close: NULL is
 * fine. */
struct verbs_device;
int mlx5_loopback_open(struct verbs_device *device, uint64_t limit_ns,
                       struct mlx5_proof_sender **out, const char **reason);
void mlx5_loopback_close(struct mlx5_proof_sender *sender);

struct mlx5_proof {
    struct mlx5_channel *channel;
    struct mlx5_proof_sender *sender;
    struct ibv_qp_attr peer; /* a sender, as its receiving pair sees it, but for what differs */
    uint32_t mtu_bytes;      /* 256 to 4096 */
    uint8_t *memory; /* MLX5_PROOF_BYTES of zeros; the device may write there until this returns */
    uint32_t key;
};

/* 0; or ROWAN_EUNSUPPORTED ENOMEM, and in *reason a static sentence. What was made is taken back either way. */
int mlx5_proof_run(const struct mlx5_proof *proof, const char **reason);

#endif
