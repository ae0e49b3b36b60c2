/* verbs_mlx5_zone.h - the seam between verbs_mlx5.c and the device, for the test that plays the firmware. */
#ifndef FABRIC_VERBS_MLX5_ZONE_H
#define FABRIC_VERBS_MLX5_ZONE_H

#include "common/fabric/mlx5/mlx5_queue.h"
#include "common/fabric/verbs/verbs_zone.h"

/* What verbs_receive_multi_packet.open does when it has a channel, which must outlive the zone. Errors as
 * there. */
int verbs_mlx5_zone_open(struct verbs_zone *zone, struct mlx5_channel *channel,
                         const struct mlx5_numbers *numbers);

#endif
