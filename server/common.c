/* How a server ends when it cannot go on. */
#include "server/common.h"

#include "common/base/error.h"
#include "common/base/log.h"

void server_fail(struct server_common *common, int error, const char *why)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&common->error, &none, error))
        return;
    log_event(LOG_ERROR, "server_failed", "server=%u error=%s why=\"%s: %s\"", common->server,
              error_name(error), why, error_sentence(error));
    if (common->failed)
        common->failed(common->failed_context);
}
