/* settings.h - the settings of rowan-cm, and the sentence for each mistake that a range check of one
 * value cannot find. */
#ifndef CM_SETTINGS_H
#define CM_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include "cm/state.h"
#include "common/base/config.h"
#include "common/fabric/verbs/verbs_settings.h"

#define CM_RECOVER_MEANS                                                                           \
    "the newest that any server has stored is taken, so changes that no server had adopted are "   \
    "lost, every server of the cluster must come to be asked, and no other manager may still run"

enum cm_coord { CM_COORD_FILE, CM_COORD_ZOOKEEPER };

struct cm_settings {
    const char *address;
    const char *cluster_key;   /* a file's name, or empty */
    const char *coord_dir;     /* with "file"; else empty, and so is the other one */
    const char *zookeeper;     /* "HOST:PORT,.../PATH" */
    const char *zookeeper_key; /* a file's name, or empty */
    const char *servers;       /* "1,2,3" */
    uint64_t coord;            /* enum cm_coord */
    uint64_t session_ms;
    uint64_t replicas;
    uint64_t shards;
    uint64_t max_shards;
    uint64_t balance_above;
    uint64_t start_wait, goodbye_wait; /* seconds */
    uint64_t lease_ms;
    bool recover;
    uint64_t spin_us;
    uint64_t log_level;          /* enum log_level */
    uint64_t log_bytes;          /* of a file and its predecessor; 0: any number */
    const char *metrics;         /* METRICS_KEY */
    struct verbs_settings verbs; /* those of a landing zone are 0: the CM has none */
};

/* For config_parse into a struct cm_settings. */
extern const struct config_spec cm_settings_spec;

/* cm_settings_apply: fills all of `out` but cluster and secret. The list may be in any order. A mistake is a sentence, perhaps in
 * `why`, and `out` is unchanged; NULL: there is none. */
const char *cm_settings_apply(const struct cm_settings *settings, struct cm_state_options *out,
                              char *why, size_t why_bytes);

#endif
