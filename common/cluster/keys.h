/* keys.h - what servers prove themselves by, and what tickets of clients are made with: drawn anew when logins become required,
 * because whoever reached the open cluster may have those before, and by an admin's command. The secret of a configuration only
 * seeds checksums then, for ever.
 */
#ifndef CLUSTER_KEYS_H
#define CLUSTER_KEYS_H

#include <stdbool.h>
#include <stdint.h>

enum { CLUSTER_SECRET_BYTES = 16 };

struct cluster_config;

struct cluster_keys {
    bool drawn;    /* false: the secret is all of them; nothing else here counts */
    bool changing; /* former_proof counts as well: not everybody is known to have `proof` */
    uint8_t proof[CLUSTER_SECRET_BYTES], former_proof[CLUSTER_SECRET_BYTES];
    uint8_t tickets[CLUSTER_SECRET_BYTES], former_tickets[CLUSTER_SECRET_BYTES];
    uint32_t
        former_below;  /* tickets of client ids below it are made with former_tickets; 0: none */
    uint64_t rotation; /* the number of the last one that was asked for; 0: none was */
};

/* Random bytes for a rotation. */
struct cluster_drawn {
    uint8_t proof[CLUSTER_SECRET_BYTES], tickets[CLUSTER_SECRET_BYTES];
};

/* Of a configuration with its secret; CLUSTER_SECRET_BYTES, its own. cluster_former_proof: NULL: none counts. */
const uint8_t *cluster_proof(const struct cluster_config *config);
const uint8_t *cluster_former_proof(const struct cluster_config *config);
const uint8_t *cluster_ticket_key(const struct cluster_config *config, uint32_t client);

/* What hides which users there are (login.h). */
const uint8_t *cluster_cover(const struct cluster_config *config);

/* cluster_rotate: another proof. With `anew`, or where none was drawn yet, another key of tickets, too: those of the ids that are
 * reserved by now go on, by the former key, until the next rotation. Else that key stays. cluster_rotated: everybody has adopted
 * that. Of a copy that is not published yet. */
void cluster_rotate(struct cluster_config *config, const struct cluster_drawn *drawn, bool anew);
void cluster_rotated(struct cluster_config *config);

#endif
