/* verbs_settings.c - from the words of a person to the options of a verbs fabric. */
#include "common/fabric/verbs/verbs_settings.h"

#include <string.h>

#include "common/fabric/verbs/verbs_check.h"

static bool is_auto(const char *text)
{
    return strcmp(text, "auto") == 0;
}

static bool is_receive(const char *text, enum fabric_receive *out)
{
    *out = FABRIC_RECEIVE_AUTO;
    while (*out < FABRIC_RECEIVE_SHARED && strcmp(text, verbs_receive_name(*out)) != 0)
        ++*out;
    return strcmp(text, verbs_receive_name(*out)) == 0;
}

const char *verbs_settings_apply(const struct verbs_settings *settings,
                                 struct fabric_verbs_options *out)
{
    struct fabric_verbs_options options = {.slot_bytes = (uint32_t)settings->slot_bytes};

    if (settings->receive && strcmp(settings->receive, "connection") == 0) /* of former versions */
        return "verbs-receive connection is gone, for every RDMA NIC has shared receive queues: "
               "leave verbs-receive out, or say auto";
    if (settings->receive && !is_receive(settings->receive, &options.receive))
        return "verbs-receive must be auto, multi-packet or shared";
    if (options.slot_bytes & (options.slot_bytes - 1))
        return "verbs-slot-bytes must be a power of two (256, 512, ...)";
    if (!is_auto(settings->device))
        options.device = settings->device;
    if (!is_auto(settings->gid_index)) {
        uint64_t index;
        if (config_parse_u64(settings->gid_index, &index) || index > VERBS_MOST_GID_INDEX)
            return "verbs-gid-index must be auto or a number from 0 to 255";
        options.gid_index_plus_1 = (uint32_t)index + 1;
    }
    *out = options;
    return NULL;
}
