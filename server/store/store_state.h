/* store_state.h - an open store, shared by store.c (segments) and store_replica.c (replicas). */
#ifndef SERVER_STORE_STATE_H
#define SERVER_STORE_STATE_H

#include <stdatomic.h>

#include "server/store/live.h"
#include "server/store/store_layout.h"

struct store_replicas;
struct store_voids;

struct store {
    struct pm *pm;
    uint64_t segments;
    struct store_geometry at;
    struct store_replicas *replicas; /* freed by store_close */
    struct store_voids *voids;       /* likewise */
    struct live live;
    _Atomic uint64_t segments_owned[OWNER_KINDS];
    _Atomic uint64_t segments_with[SEGMENT_STATES]; /* for reports; FREE is store-2's */
    _Atomic uint64_t allocated[OWNER_KINDS];        /* likewise; NONE: all */
    _Atomic uint64_t allocation;                    /* the next number, store-3 */
    _Atomic uint64_t hint;                          /* where the next search begins */
    _Atomic uint64_t metas[];
};

/* Reads the table, and starts the fence that T1 asks for. Errors: ROWAN_ENOMEM. */
int store_replicas_open(struct store *store);

/* Zeroes what is void by the rows of the table, and starts a fence. Errors: ROWAN_ENOMEM. */
int store_voids_open(struct store *store);

#endif
