/* recover_places.h - in which order a start scans the segments of a store. */
#ifndef SERVER_RECOVER_PLACES_H
#define SERVER_RECOVER_PLACES_H

#include "server/store/store.h"

struct recover_place {
    uint64_t order;
    uint64_t segment;
    bool has_copies;    /* of a digest or clean log; and a checkpoint's, which comes before these */
    bool of_checkpoint; /* (store/checkpoint.h) */
};

/* The segments of checkpoints, or all others that may hold entries: first digest logs, then what a cleaner wrote, then the
 * rest, each in the order of allocation. The caller frees *out. Errors: ROWAN_ENOMEM. */
int recover_places(const struct store *store, bool of_checkpoints, struct recover_place **out,
                   uint64_t *count);

#endif
