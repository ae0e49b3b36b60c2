/* settings.h - the options of rowan-ycsb, and what they mean for a run. */
#ifndef YCSB_SETTINGS_H
#define YCSB_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/rowan.h"
#include "tools/admin.h"
#include "tools/rowan-ycsb/runner.h"

struct settings {
    struct admin_access access;
    const char *workload, *profile, *seconds, *warm_up, *share, *hot_fraction, *hot_operations,
        *acked, *hdr_log;
    uint64_t records, operations, threads, connections, rate, depth, distribution, order,
        hot_moves_ms, seed, timeout_ms, spin_us;
    bool json;
};

extern const struct config_spec settings_spec;

/* Fills `out` but for `session`, `profile`, the file descriptor, the log and the inserts. Returns EXIT_DONE, or
 * EXIT_USAGE after a sentence. settings_session: how to open one, after admin_find. */
int settings_apply(const struct settings *settings, struct run_options *out);
void settings_session(const struct settings *settings, struct rowan_options *out);

#endif
