/* How a server ends when it cannot go on. */
#include "server/common.h"

#include <stdio.h>

#include "common/base/error.h"
#include "common/base/log.h"

void server_fail(struct server_common *common, int error, const char *why)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&common->error, &none, error))
        return;
    snprintf(common->why, sizeof common->why, "%s: %s", why, error_sentence(error));
    log_event(LOG_ERROR, "server_failed", "server=%u error=%s why=\"%s\"", common->server,
              error_name(error), common->why);
    if (common->failed)
        common->failed(common->failed_context);
}

void server_end(struct server_common *common)
{
    if (atomic_exchange(&common->ended, true))
        return;
    if (common->failed)
        common->failed(common->failed_context);
}
