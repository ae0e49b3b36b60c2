/* The order of segments at a start: R2 and R3 of recover.c. */
#include "server/shard/recover_places.h"

#include <stdlib.h>

#include "common/base/error.h"

enum { PLACE_CLASS_SHIFT = 62 }; /* above any allocation number */

static uint64_t class_of(enum segment_owner owner)
{
    return owner == OWNER_DIGEST ? 0 : owner == OWNER_CLEAN ? 1 : 2;
}

static int compare(const void *a, const void *b)
{
    const struct recover_place *left = a, *right = b;
    return left->order != right->order ? (left->order < right->order ? -1 : 1) : 0;
}

int recover_places(const struct store *store, bool of_checkpoints, struct recover_place **out,
                   uint64_t *count)
{
    const uint64_t segments = store_segments(store);
    struct recover_place *places = calloc(segments, sizeof *places);
    if (!places)
        return ROWAN_ENOMEM;
    *count = 0;
    for (uint64_t i = 0; i < segments; i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (meta.state == SEGMENT_FREE || meta.state == SEGMENT_DIRTY ||
            (meta.owner == OWNER_CHECKPOINT) != of_checkpoints)
            continue;
        places[(*count)++] = (struct recover_place){
            .order = class_of(meta.owner) << PLACE_CLASS_SHIFT | meta.allocation,
            .segment = i,
            .has_copies = of_checkpoints || class_of(meta.owner) < 2,
            .of_checkpoint = of_checkpoints};
    }
    qsort(places, *count, sizeof *places, compare);
    *out = places;
    return 0;
}
