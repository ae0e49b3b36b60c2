/* settings.h - the options of rowan-ycsb, and what they mean for a run. */
#ifndef YCSB_SETTINGS_H
#define YCSB_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/config.h"
#include "tools/rowan-ycsb/runner.h"

struct settings {
    const char *cm, *dir, *user, *secret_file, *workload, *profile, *seconds, *warm_up, *share,
        *hot_fraction, *hot_operations, *acked, *hdr_log;
    uint64_t records, operations, threads, connections, rate, depth, distribution, order,
        hot_moves_ms, seed, timeout_ms, spin_us;
    bool json;
};

extern const struct config_spec settings_spec;

/* Fills `out` but for `cm`, `profile`, the file descriptor, the log and the inserts. Returns EXIT_DONE, or
 * EXIT_USAGE after a sentence. */
int settings_apply(const struct settings *settings, struct run_options *out);

#endif
