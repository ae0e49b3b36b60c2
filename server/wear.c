/* wear.c - from records of the tap to writes of the model; see wear.h. */
#include "server/wear.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/pm/pm_tap.h"
#include "common/pm/wear.h"

enum {
    /* A request costs 15 to 75 ns, and leases are renewed on the same thread. */
    REQUESTS_PER_POLL = 1 << 13,
    REQUESTS_PER_REPORT = 1 << 20, /* what is behind these waits for the next polls */
};

#define LOOK_EVERY_NS                                                                              \
    (20 * NS_PER_MS) /* nothing wakes the reader: that is how far it may be behind */

/* Behind every map: a sender's log has 2^36 requests to itself. */
#define LOG_FIRST(sender) (UINT64_C(1) << 63 | (uint64_t)(sender) << 36)

struct server_wear {
    const struct server_common *common;
    enum server_wear_mode mode;
    struct wear model;
    uint64_t log_ends[PM_TAP_SENDERS]; /* of the senders' logs, in requests */
};

int server_wear_create(const struct server_common *common, enum server_wear_mode mode,
                       struct server_wear **out)
{
    struct server_wear *wear = calloc(1, sizeof *wear);

    if (!wear)
        return ROWAN_ENOMEM;
    wear->common = common;
    wear->mode = mode;
    wear_init(&wear->model, WEAR_DIMMS, common->server);
    *out = wear;
    return 0;
}

void server_wear_destroy(struct server_wear *wear)
{
    free(wear);
}

static enum wear_cause cause_of(const struct server_wear *wear, const struct pm_record *record)
{
    const struct store *store = wear->common->store;
    const uint64_t offset = record->first * PM_TAP_REQUEST_BYTES;
    const uint64_t begin = store ? store_segment_offset(store, 0) : UINT64_MAX;

    if (offset < begin || offset - begin >= store_segments(store) * STORE_SEGMENT_BYTES)
        return WEAR_TABLES;
    if (record->zero)
        return WEAR_CLEANING;
    switch (store_meta(store, store_segment_at(store, offset)).owner) {
    case OWNER_CLEAN:
        return WEAR_CLEANING;
    case OWNER_CHECKPOINT:
        return WEAR_TABLES;
    default:
        return WEAR_DATA;
    }
}

/* Until `most` requests are in the model. How many there were. */
static uint64_t apply(struct server_wear *wear, uint64_t most)
{
    struct pm_record record;
    uint64_t count = 0;

    while (count < most && pm_tap_read(wear->common->pm, &record)) {
        uint64_t first = record.first;

        if (wear->mode == WEAR_LOG_PER_SENDER && record.sender != 0) {
            first = LOG_FIRST(record.sender) + wear->log_ends[record.sender];
            wear->log_ends[record.sender] += record.count;
        }
        wear_write(&wear->model, first, record.count, cause_of(wear, &record));
        count += record.count;
    }
    return count;
}

enum poll_result server_wear_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    wake_at(wake_ns, now_ns + LOOK_EVERY_NS);
    return apply(role, REQUESTS_PER_POLL) > 0 ? POLL_BUSY : POLL_IDLE;
}

void server_wear_report(struct server_wear *wear, Rowan__ServerStatus *status)
{
    if (!wear)
        return;
    apply(wear, REQUESTS_PER_REPORT);
    const struct wear_count total = wear_total(&wear->model);
    const struct wear_count *counts = wear->model.counts;
    status->wear_mode = wear->mode;
    status->wear_request_bytes = total.request_bytes;
    status->wear_media_bytes = total.media_bytes;
    status->wear_clean_request_bytes = counts[WEAR_CLEANING].request_bytes;
    status->wear_clean_media_bytes = counts[WEAR_CLEANING].media_bytes;
    status->wear_table_request_bytes = counts[WEAR_TABLES].request_bytes;
    status->wear_table_media_bytes = counts[WEAR_TABLES].media_bytes;
    status->wear_lost = pm_tap_lost(wear->common->pm);
}
