/* verbs_mlx5.h - can this device receive whole segments (FABRIC_RECEIVE_MULTI_PACKET)? For whoever chooses
 * the way to receive. common/fabric/mlx5/README.md tells how it works, and that no hardware has run it yet. */
#ifndef FABRIC_VERBS_MLX5_H
#define FABRIC_VERBS_MLX5_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* verbs_mlx5_open: opens an mlx5 device so that it takes the firmware's own commands (DevX), which is
 * decided when a device is opened; NULL: it is no mlx5 device, or the kernel grants no DevX. Everything else
 * of verbs works with such a context as with any. Closed with ibv_close_device. */
struct ibv_context *verbs_mlx5_open(struct ibv_device *device);

/* verbs_mlx5_probe: asks the device what it can, then sends packets to itself into a queue of whole segments and
 * looks where they lie (mlx5_proof.h); some milliseconds, three seconds at most. `device`: what verbs_choose.c
 * fills, and pd. 0; or ROWAN_EUNSUPPORTED and in *reason a sentence that says what is missing (static). What the
 * firmware said goes to the log (events mlx5_probe, mlx5_self_test). */
struct verbs_device;
int verbs_mlx5_probe(struct verbs_device *device, const char **reason);

/* May these bytes begin a block that lands in such a zone? The device takes the first 16 bytes of a message
 * for the header of tag matching: the first byte is the operation, 0 for "no tag"; with any other it would
 * look for a tag, or start a transfer of its own. And the receiver learns from a word that is not 0 that
 * something lies there. Blocks of entries are so (common/entry/entry.h). A sender knows from the hello whether
 * its peer receives so (verbs_rc_hello.zone), and refuses other blocks on such connections. */
static inline bool verbs_mlx5_may_land(const void *block)
{
    uint64_t word;
    memcpy(&word, block, sizeof word);
    return (word & 0xff) == 0 && word != 0;
}

#endif
