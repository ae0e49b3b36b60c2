/* shut_out.c - who is shut out of a landing zone, and the SHUT_OUT events; see shut_out.h. */
#include "common/fabric/shut_out.h"

static bool waits(const struct fabric_shut_out *out)
{
    return out->state == SHUT_OUT_ENDING || out->state == SHUT_OUT_FENCING;
}

/* The server's place, else the first that is not used; NULL: all others are. */
static struct fabric_shut_out *find(struct fabric_zone *zone, uint32_t server)
{
    struct fabric_shut_out *unused = NULL;

    for (uint32_t i = FABRIC_MAX_SHUT_OUT; i-- > 0;) {
        struct fabric_shut_out *out = &zone->shut_outs[i];

        if (out->state == SHUT_OUT_UNUSED)
            unused = out;
        else if (out->server == server)
            return out;
    }
    return unused;
}

bool shut_out_forbids(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer)
{
    for (uint32_t i = 0; endpoint->shut_outs && i < FABRIC_MAX_SHUT_OUT; i++) {
        if (shut_out_is_of(&endpoint->shut_outs->shut_outs[i], peer))
            return true;
    }
    return false;
}

struct fabric_shut_out *shut_out_begin(struct fabric_endpoint *endpoint, struct fabric_zone *zone,
                                       uint32_t server, uint64_t incarnation, uint64_t context)
{
    struct fabric_shut_out *out = find(zone, server);

    if (!out)
        return NULL;
    if (!waits(out))
        zone->shut_out_waiting++;
    if (out->state != SHUT_OUT_UNUSED && incarnation < out->incarnation)
        incarnation = out->incarnation;
    *out = (struct fabric_shut_out){
        .state = SHUT_OUT_ENDING, .server = server, .incarnation = incarnation, .context = context};
    endpoint->shut_outs = zone;
    return out;
}

void fabric_readmit(struct fabric_zone *zone, uint32_t server)
{
    struct fabric_shut_out *out = find(zone, server);

    if (!out)
        return;
    zone->shut_out_waiting -= waits(out); /* an unused one does not */
    out->state = SHUT_OUT_UNUSED;
}

unsigned shut_out_events(struct fabric_zone *zone, struct pm *pm, uint64_t sealed,
                         struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < FABRIC_MAX_SHUT_OUT && count < max; i++) {
        struct fabric_shut_out *out = &zone->shut_outs[i];
        int done;

        if (out->state == SHUT_OUT_ENDING && sealed >= out->sealed) {
            out->state = SHUT_OUT_FENCING;
            out->ticket = pm_fence_start(pm);
        }
        if (out->state != SHUT_OUT_FENCING)
            continue;
        done = pm_fence_done(pm, out->ticket);
        if (done == 0)
            continue;
        events[count++] = (struct fabric_event){
            .kind = FABRIC_SHUT_OUT, .error = done < 0 ? done : 0, .context = out->context};
        out->state = SHUT_OUT_TOLD;
        zone->shut_out_waiting--;
    }
    return count;
}
