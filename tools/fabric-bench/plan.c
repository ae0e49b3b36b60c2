/* plan.c - lists, and the limits of the fabric (fabric.h) and of the receiver. */
#include "tools/fabric-bench/plan.h"

#include <string.h>

#include "common/base/config.h"
#include "common/base/error.h"
#include "tools/fabric-bench/receiver.h"

enum { NUMBER_BYTES = 24 };

int plan_list(const char *text, uint64_t most, struct plan_list *out)
{
    struct plan_list list = {0};

    for (;;) {
        const size_t bytes = strcspn(text, ",");
        char number[NUMBER_BYTES];
        uint64_t value;

        if (bytes == 0 || bytes >= sizeof number || list.count == PLAN_MAX_LIST)
            return ROWAN_EINVALID;
        memcpy(number, text, bytes);
        number[bytes] = 0;
        if (config_parse_u64(number, &value) || value == 0 || value > most)
            return ROWAN_EINVALID;
        list.values[list.count++] = value;
        if (!text[bytes])
            break;
        text += bytes + 1;
    }
    *out = list;
    return 0;
}

static const char *refuse_rowan(const struct crew_options *run, const struct fabric_caps *caps)
{
    if (run->bytes % FABRIC_STRIDE != 0)
        return "blocks have a multiple of 64 bytes";
    if (run->bytes > caps->block_limit)
        return "a block has at most the fabric's block limit of bytes";
    if (run->senders > FABRIC_MAX_ZONE_SENDERS)
        return "a landing zone has at most 256 senders";
    if (run->batch > caps->max_batch_blocks)
        return "--batch is more than a connection of this fabric takes";
    return NULL;
}

static const char *refuse_write(const struct crew_options *run, const struct fabric *fabric)
{
    const struct bench_lane lane = {.bytes = run->bytes};

    if (!fabric->ops->write || !fabric->ops->grant)
        return "this fabric cannot do bulk writes";
    if (run->bytes % FABRIC_STRIDE != 0 || run->bytes > FABRIC_MAX_WRITE_BYTES)
        return "bulk writes have a multiple of 64 bytes, at most 4M";
    if (run->senders > FABRIC_MAX_GRANTS)
        return "an endpoint gives at most 64 grants, one for each sender";
    if (lane_grant_bytes(&lane) * run->senders > RECEIVER_WRITE_BYTES)
        return "the receiver grants 64M at most: fewer senders or bytes";
    return NULL;
}

const char *plan_refusal(const struct crew_options *run, const struct fabric *fabric)
{
    if (run->mode == MODE_ROWAN)
        return refuse_rowan(run, &fabric->caps);
    if (run->mode == MODE_WRITE)
        return refuse_write(run, fabric);
    if (run->bytes > FABRIC_MAX_MESSAGE_BYTES)
        return "a message has at most 1052672 bytes";
    if ((uint64_t)run->senders * run->depth > RECEIVER_MAX_ECHOES)
        return "at most 65536 messages may be outstanding: fewer senders or a smaller --depth";
    return NULL;
}
