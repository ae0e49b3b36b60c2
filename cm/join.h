/* join.h - a server's report for duty. */
#ifndef CM_JOIN_H
#define CM_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/cluster/damage.h"

enum { CM_MAX_WORD_BYTES = 15 /* of the name of a fabric or durability */ };

/* Strings end with a NUL; all else is unchecked before join_is_right. */
struct cm_join {
    uint32_t server;
    uint64_t incarnation;
    uint32_t workers;
    uint32_t block_limit; /* bytes */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1];
    char fabric[CM_MAX_WORD_BYTES + 1];
    char durability[CM_MAX_WORD_BYTES + 1];
    uint64_t data_cluster;    /* the cluster whose data its PM holds; 0: it holds none */
    bool possibly_incomplete; /* that data may lack acknowledged writes */
    bool torn;                /* something of it is torn, above what is settled */
    struct damage damage;     /* of that data; `all` is not used: then it is possibly incomplete */
    bool named;               /* a configuration has named this very process before */
    uint64_t known_term;      /* of the newest that has; 0: none */
    uint64_t known_manager;   /* which that names; 0: it does not say */
    bool formatted;           /* it serves: its PM is formatted, durably */
    uint64_t registration_epoch; /* the last that it was told before it sent this; 0: none */
    uint64_t stored_term;        /* of the configuration that its PM keeps; 0: none that is whole */
    uint32_t format;             /* the highest of configurations that it reads */
    /* It has adopted a configuration, and has had no grant for so long since it knows of the manager that this names; or else
     * no manager that leads has answered it. */
    uint64_t without_ms;
    bool nobody_leads; /* whom it asked last at each address refused it at once, or does not lead */
};

/* Every number in range, no text empty or with control characters. */
bool join_is_right(const struct cm_join *join);

/* The member of a configuration that this report describes. */
struct member join_member(const struct cm_join *join);

/* It has acted on a later configuration of the same cluster, or on another one of the same term: one of the two went back. */
bool join_knows_better(const struct cm_join *join, const struct cluster_config *config);

/* What a server brings of a shard of the configuration, or of the next one. While nothing was ever written all data is whole.
 * Torn is as good as whole once the other replicas have been waited for: reconciliation finds what there is. */
enum join_quality { JOIN_EMPTY, JOIN_INCOMPLETE, JOIN_TORN, JOIN_WHOLE };
enum join_quality join_quality(const struct cm_join *join, const struct cluster_config *config,
                               uint16_t shard);

#endif
