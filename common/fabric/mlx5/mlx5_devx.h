/* mlx5_devx.h - a struct mlx5_channel on a real device, by the DevX calls of libmlx5, with what a queue needs
 * besides: the numbers of the protection domain, of a completion ring nobody reads, and of a doorbell page. */
#ifndef FABRIC_MLX5_DEVX_H
#define FABRIC_MLX5_DEVX_H

#include "common/fabric/mlx5/mlx5_queue.h"

/* `context` is open with DevX (verbs_mlx5_open). Errors: ROWAN_ENOMEM EUNSUPPORTED; *reason is then a static
 * sentence. */
int mlx5_devx_open(struct ibv_context *context, struct ibv_pd *pd, struct mlx5_channel **out,
                   const char **reason);

#endif
