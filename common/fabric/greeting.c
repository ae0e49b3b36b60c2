/* greeting.c - identity and layouts in greetings; see greeting.h. */
#include "common/fabric/greeting.h"

#include "common/base/error.h"
#include "common/base/log.h"

int greeting_choose(const char *what, struct greeting_layouts ours, struct greeting_layouts theirs,
                    uint32_t *out)
{
    const uint32_t highest = ours.highest < theirs.highest ? ours.highest : theirs.highest;

    if (theirs.lowest > theirs.highest || highest < ours.lowest || highest < theirs.lowest) {
        log_event(
            LOG_WARN, "layout_refused",
            "what=%s reason=\"this process speaks the layouts %u to %u and its peer %u to %u, "
            "which have none in common: upgrade the older one\"",
            what, ours.lowest, ours.highest, theirs.lowest, theirs.highest);
        return ROWAN_EINCOMPATIBLE;
    }
    *out = highest;
    return 0;
}

int greeting_unpack(const struct fabric_endpoint *endpoint, const struct fabric_identity *wire,
                    struct fabric_identity *out)
{
    if (wire->kind > FABRIC_CM)
        return ROWAN_EFORMAT;
    *out = *wire;
    return fabric_layout(endpoint, out) ? 0 : ROWAN_EINCOMPATIBLE;
}

int greeting_refusal(int32_t error)
{
    return error < 0 && error >= -1000 ? error : ROWAN_EFORMAT;
}
