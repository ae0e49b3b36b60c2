/* cluster.c - rowan-dlwa --dir: what the servers' models say, server by server. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/dlwa/dlwa.h"

_Static_assert((int)DLWA_MAX_ROWS >= (int)CLUSTER_MAX_MEMBERS, "a row for each server");

struct cluster {
    const struct dlwa_settings *settings;
    struct admin *admin;
};

static void fill_row(const struct dlwa_settings *settings, const struct admin_call *call,
                     struct dlwa_row *row)
{
    const Rowan__ServerStatus *status = call->error ? NULL : call->reply->server_status;

    row->off = !status || status->wear_mode == 0;
    if (row->off) {
        row->note = status ? "wear-model is off" : error_sentence(call->error);
        return;
    }
    row->note = status->wear_mode == 1 ? NULL : "as with a log per sender";
    row->origin = status->incarnation;
    row->counts[DLWA_REQUEST_BYTES] = status->wear_request_bytes;
    row->counts[DLWA_MEDIA_BYTES] = status->wear_media_bytes;
    row->counts[DLWA_CLEAN_REQUEST_BYTES] = status->wear_clean_request_bytes;
    row->counts[DLWA_CLEAN_MEDIA_BYTES] = status->wear_clean_media_bytes;
    row->counts[DLWA_TABLE_REQUEST_BYTES] = status->wear_table_request_bytes;
    row->counts[DLWA_TABLE_MEDIA_BYTES] = status->wear_table_media_bytes;
    row->counts[DLWA_LOST] = status->wear_lost;
    row->seconds = (double)status->uptime_seconds;
    row->dimms = (uint32_t)settings->dimms;
}

static int look(void *source, struct dlwa_sample *out)
{
    struct cluster *cluster = source;
    struct admin_status status;
    const int error =
        admin_status_get(cluster->admin, cluster->settings->timeout_ms * NS_PER_MS, &status);

    if (error)
        return tool_failed(cluster->settings->access.managers, error);
    *out = (struct dlwa_sample){
        .unit = "server", .comes_and_goes = true, .count = status.config->member_count};
    for (uint32_t i = 0; i < out->count; i++) {
        snprintf(out->rows[i].name, sizeof out->rows[i].name, "%u",
                 status.config->members[i].server);
        fill_row(cluster->settings, &status.calls[i], &out->rows[i]);
    }
    admin_status_free(&status);
    return EXIT_DONE;
}

int dlwa_cluster(struct dlwa_settings *settings)
{
    char managers[MANAGERS_LIST_BYTES];
    struct cluster cluster = {.settings = settings};
    int code = admin_find(&settings->access, managers);

    if (code)
        return code;
    const int error =
        admin_open(&settings->access, settings->timeout_ms * NS_PER_MS, &cluster.admin, NULL);
    if (error)
        return tool_failed(managers, error);
    code = report_run(settings, look, &cluster);
    admin_close(cluster.admin);
    return code;
}
