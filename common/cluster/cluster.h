/* cluster.h - a configuration: term, members, shards; its protobuf form; routing by slot.
 *
 * A configuration is immutable once published: roles on several threads share one by reference.
 */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/auth/users.h"
#include "common/cluster/keys.h"
#include "common/cluster/slot.h"

enum {
    CLUSTER_MAX_MEMBERS = 64,
    CLUSTER_MAX_SERVER = 16383, /* a server's number; two bytes on the wire, see README.md */
    CLUSTER_MAX_SHARDS = 16384,
    CLUSTER_MAX_REPLICAS = 7,
    CLUSTER_MAX_WORKERS = 64,
    CLUSTER_MAX_ADDRESS_BYTES = 255,
    CLUSTER_MAX_EPOCH = (1 << 24) - 1,
    CLUSTER_BLOCK_STRIDE = 64, /* bytes of entry blocks are a multiple of it */
    CLUSTER_MIN_LEASE_MS = 2,
    CLUSTER_MAX_LEASE_MS = 60000,
};

struct member {
    uint32_t server;      /* 1 to CLUSTER_MAX_SERVER; the operator's number for it */
    uint64_t incarnation; /* of the process; never 0, never given twice */
    uint32_t workers;     /* 1 to CLUSTER_MAX_WORKERS */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1]; /* of the process on the fabric; not empty, no
                                                    control characters */
    bool
        kept; /* it does not run, and is a member only for shards that wait for it; with leases only */
};

/* Every field as above. */
bool member_is_right(const struct member *member);

/* A text that ends within `capacity` bytes, is not empty and has no control characters. */
bool cluster_text_is_right(const char *text, size_t capacity);

/* A shard that is split (design, section 6) stays as a row behind the served ones, until its objects lie in its children: the
 * shards that have its slots now. */
enum shard_split {
    SPLIT_NONE,
    SPLIT_PARENT, /* nobody writes it; its children, which are not filling, have its replicas and worker */
    SPLIT_ENDED, /* no server holds it any more, once that is committed; then the row goes */
};

/* A contiguous range of slots and who holds it. All servers named here are members. If a full replica is a kept one, the
 * primary is, and nobody serves the shard; no kept one is filling. */
struct shard {
    enum shard_split split;
    uint16_t id;                    /* no two shards have the same */
    uint16_t first_slot, last_slot; /* inclusive */
    uint32_t epoch;                 /* 1 to CLUSTER_MAX_EPOCH */
    uint32_t primary;               /* server */
    uint32_t worker;                /* of the primary, that owns the shard */
    uint32_t backup_count;
    uint32_t backups[CLUSTER_MAX_REPLICAS - 1]; /* full ones */
    uint32_t filling_count;
    uint32_t
        filling[CLUSTER_MAX_REPLICAS -
                1]; /* receive writes, are no replicas yet; no more than fit beside the backups */
    uint32_t move_from,
        move_to; /* two of these servers: once the second is full, the first leaves; 0: none */
    bool waits;  /* in what clients get of a configuration that is mixed: it is kept */
    bool
        possibly_incomplete; /* acknowledged writes may be missing: at a cold start no replica was whole */
};

/* As in proto/control.proto. */
enum cluster_balance { BALANCE_ON, BALANCE_OFF, BALANCE_DRY_RUN, BALANCE_MODES };

/* As an operator writes it. */
const char *cluster_balance_name(enum cluster_balance balance);

struct cluster_config {
    uint64_t term;                        /* 0: no configuration */
    uint64_t cluster;                     /* id; never 0 */
    uint32_t block_limit;                 /* bytes; of entry blocks; a multiple of 64, never 0 */
    uint32_t replicas;                    /* wanted per shard, primary included; 1 to 7 */
    bool has_secret;                      /* false in what clients get */
    uint8_t secret[CLUSTER_SECRET_BYTES]; /* seeds checksums of entries */
    struct cluster_keys keys;             /* only with the secret */
    uint32_t next_client_id;              /* first id not yet reserved by a leader */
    uint64_t manager; /* incarnation of the CM that stored it; 0 exactly if `lease_ms` is */
    uint32_t
        lease_ms; /* CLUSTER_MIN_LEASE_MS to CLUSTER_MAX_LEASE_MS; 0: there are no leases, and a server that fails is
                          waited for */
    uint32_t wanted_count;                /* 0: those that the CM was started with may be members */
    uint32_t wanted[CLUSTER_MAX_MEMBERS]; /* servers that may, rising; another member is drained */
    enum cluster_balance balance;         /* do shards move by their load? */
    uint16_t next_shard;  /* the id at which the search for the next free one begins */
    uint32_t epoch_floor; /* the highest of rows that are gone */
    struct users
        *users; /* who may do what, one reference; NULL: nobody logs in. None in what clients get */
    /* A copy has all of the above. */
    uint32_t member_count, shard_count;
    struct member *members; /* by rising server */
    struct shard *shards;   /* first the served ones by rising first_slot: they cover every slot */
    uint32_t served_count;
    bool mixed;      /* of some shard a full replica is kept, and another one is not */
    uint16_t *by_id; /* positions in shards, by rising id */
    uint16_t shard_of_slot[SLOT_COUNT]; /* position in shards */
    _Atomic uint32_t references;
};

/* The first client id of a cluster. While it is the next one, no client has an id, so nothing was ever written: servers
 * refuse writes without one (server/worker/worker_write.c). Afterwards every member has formatted its PM
 * (cm/proposal.h). */
enum { CLUSTER_FIRST_CLIENT_ID = 1 };

static inline bool cluster_is_unwritten(const struct cluster_config *config)
{
    return config->next_client_id == CLUSTER_FIRST_CLIENT_ID;
}

/* cluster_create: an empty configuration with exactly these counts, one reference. NULL: no memory,
 * or a count above its limit. Fill it, then cluster_finish. */
struct cluster_config *cluster_create(uint32_t member_count, uint32_t shard_count);

/* cluster_finish: checks every rule stated above (ranges, order, cover, unknown servers, a server
 * twice in a shard) and fills shard_of_slot and by_id. ROWAN_EFORMAT if one is broken. */
int cluster_finish(struct cluster_config *config);

/* The same of one that was right before it was changed: it comes back. */
struct cluster_config *cluster_finished(struct cluster_config *config);

/* A second reference; and the end of one (NULL is fine). Any thread. */
struct cluster_config *cluster_hold(struct cluster_config *config);
void cluster_release(struct cluster_config *config);

/* A deep copy with one reference; NULL: no memory. */
struct cluster_config *cluster_copy(const struct cluster_config *config);

/* One with so many members and shards, not fewer than there are: those that are more stand last, all zeros, until the caller
 * has filled them in, has put all in order and calls cluster_finish. NULL, too: a count above its limit. */
struct cluster_config *cluster_copy_for(const struct cluster_config *config, uint32_t member_count,
                                        uint32_t shard_count);

/* The next two: NULL if there is none; log2 of the count in steps. */
const struct member *cluster_member(const struct cluster_config *config, uint32_t server);
const struct shard *cluster_shard(const struct cluster_config *config, uint32_t id);
/* Where a member stands. */
static inline uint32_t cluster_position(const struct cluster_config *config, uint32_t server)
{
    return (uint32_t)(cluster_member(config, server) - config->members);
}
static inline const struct shard *cluster_shard_of_slot(const struct cluster_config *config,
                                                        uint16_t slot)
{
    return &config->shards[config->shard_of_slot[slot]];
}

/* The shard that this one was split off from, as long as that is there; NULL: none is. */
const struct shard *cluster_parent(const struct cluster_config *config, const struct shard *shard);

/* False: it may be no member; if it is one, it is drained. */
bool cluster_wants(const struct cluster_config *config, uint32_t server);

/* True if nobody serves the shard until those of its servers that are kept are back, or not waited for any more. */
bool shard_is_kept(const struct cluster_config *config, const struct shard *shard);

/* True if `server` is a full backup of the shard; if it fills. */
bool shard_has_backup(const struct shard *shard, uint32_t server);
bool shard_has_filling(const struct shard *shard, uint32_t server);

/* True if it leads the shard or backs it. */
static inline bool shard_is_full_at(const struct shard *shard, uint32_t server)
{
    return shard->primary == server || shard_has_backup(shard, server);
}

/* True if it leads the shard, backs it, or fills. */
static inline bool shard_names(const struct shard *shard, uint32_t server)
{
    return shard_is_full_at(shard, server) || shard_has_filling(shard, server);
}

/* The full replicas of a shard, the primary first; how many. */
uint32_t shard_replicas(const struct shard *shard, uint32_t servers[CLUSTER_MAX_REPLICAS]);

/* A move ends when one of its servers is named no longer: for whoever changes who they are. */
void shard_mend_move(struct shard *shard);

/* The seed of entry checksums, from the secret. */
uint32_t cluster_seed(const struct cluster_config *config);

/* Protobuf. encode returns the bytes, or 0 if they exceed `capacity`; `with_secret` false leaves the
 * secret, the keys and the users out. It allocates nothing, and equal configurations give equal bytes. decode checks
 * everything (cluster_finish included). Errors: ROWAN_EFORMAT EINCOMPATIBLE ENOMEM. */
size_t cluster_encode(const struct cluster_config *config, bool with_secret, void *out,
                      size_t capacity);
size_t cluster_encoded_bytes(const struct cluster_config *config, bool with_secret);

/* The lowest that can express it, the secret, the keys and the users too. */
uint32_t cluster_format(const struct cluster_config *config);
int cluster_decode(const void *bytes, size_t count, struct cluster_config **out);

#endif
