/* A walk over the whole index, some buckets at a time. */
#include "server/shard/suffix_below.h"

#include "common/base/error.h"

enum { BELOW_BUCKETS_PER_STEP = 64 };

struct below_walk {
    struct suffix_below *below;
    const struct pm *pm;
    uint64_t upto;
};

static void visit_item(void *context, uint64_t offset)
{
    const struct below_walk *walk = context;
    struct suffix_below *below = walk->below;
    const uint64_t version = entry_version(pm_at(walk->pm, offset));
    if (version > below->after && version <= walk->upto && !below->error)
        below->error = suffix_add(&below->found, version, offset);
}

static void begin(struct suffix_below *below, uint64_t after)
{
    suffix_clear(&below->found);
    *below = (struct suffix_below){.after = after};
}

int suffix_below_step(struct suffix_below *below, struct suffix *suffix, const struct index *index,
                      const struct pm *pm, uint64_t after)
{
    if (after >= suffix->above)
        return 1;
    if (below->cursor == 0 || below->after != after)
        begin(below, after);
    struct below_walk walk = {.below = below, .pm = pm, .upto = suffix->above};
    const bool more = index_walk(index, &below->cursor, BELOW_BUCKETS_PER_STEP, visit_item, &walk);
    if (more && !below->error)
        return 0;
    int error = below->error;
    if (!error) {
        suffix->above = after;
        error = suffix_merge(suffix, &below->found);
        suffix->above = error ? walk.upto : after;
    }
    begin(below, 0);
    return error ? error : 1;
}
