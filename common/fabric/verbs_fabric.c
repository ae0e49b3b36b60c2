/* verbs_fabric.c - fabric and endpoints of the verbs backend: open, close, sleep. */
#include "common/base/error.h"
#include "common/fabric/verbs.h"

int fabric_open_verbs(const char *address, const struct fabric_verbs_options *options,
                      struct fabric **out)
{
    (void)address;
    (void)options;
    (void)out;
    return ROWAN_EUNSUPPORTED;
}
