/* mlx5_loopback.h - the senders of mlx5_proof.h on a real device: ordinary reliable queue pairs, looped back on the
 * device's own port. */
#ifndef FABRIC_MLX5_LOOPBACK_H
#define FABRIC_MLX5_LOOPBACK_H

#include "common/fabric/mlx5/mlx5_proof.h"
#include "common/fabric/verbs/verbs_device.h"

/* After `limit_ns` nothing is waited for any more. Errors: ROWAN_ENOMEM EUNSUPPORTED, and in *reason a static
 * sentence. */
int mlx5_loopback_open(struct verbs_device *device, uint64_t limit_ns,
                       struct mlx5_proof_sender **out, const char **reason);

/* NULL is fine. */
void mlx5_loopback_close(struct mlx5_proof_sender *sender);

#endif
