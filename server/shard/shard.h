/* shard.h - what a server holds of one shard, as primary or as backup. */
#ifndef SERVER_SHARD_H
#define SERVER_SHARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "server/index/index.h"
#include "server/shard/completed.h"
#include "server/shard/incoming.h"
#include "server/shard/prefix.h"
#include "server/shard/records.h"
#include "server/shard/suffix.h"
#include "server/shard/suffix_below.h"
#include "server/shard/work.h"
#include "server/store/live.h"
#include "server/store/store.h"

struct write_op;
struct shard_state;
struct split;

#define SHARD_NO_ID       UINT16_MAX
#define SHARD_NONE_LANDED UINT64_MAX

/* Lists of shards, and of writes (list.h). */
struct shard_link {
    struct shard_state *next, *prev;
};

struct shard_list {
    struct shard_state *first, *last;
};

struct write_list {
    struct write_op *first, *last;
};

/* Made by the control role, then handed to its owner: a worker where this server leads the shard, a
 * digest role where it backs it. All but the atomic fields belong to the owner from then on. */
struct shard_state {
    uint16_t id;
    /* What is not in the index may be in that of this shard, which its owner holds as well (split.h). SHARD_NO_ID: it is not.
     * The control role's. */
    _Atomic uint16_t parent;
    bool frozen;             /* it is split, and served no more */
    uint32_t digest;         /* backup: the digest role that has it. The control role's */
    struct split *splitting; /* then; NULL: nothing was copied yet */
    _Atomic bool primary; /* whoever has the shard between two owners writes it; read by anybody */
    uint32_t worker;      /* primary: that leads it. The control role's */
    _Atomic uint32_t epoch; /* likewise the owner */
    uint32_t
        first_epoch; /* of the replica row: entries of lower ones are dead, but for those in segments that this server
                             allocated after `first_allocation`; 0: in none (design, section 5) */
    uint64_t first_allocation;
    _Atomic bool
        filling; /* backup: not full yet, so what it lacks of epochs before its first says nothing */
    struct work work;
    struct index *index;
    const struct live *live; /* told of each change of the index */

    /* Read by anybody. Primary: the resolved prefix, i.e. every version up to it is on all replicas
     * (version order is completion order, see worker_write.c). Backup: the highest digested. */
    _Atomic uint64_t version;
    _Atomic uint64_t commit;      /* the highest commit version known; primary: as `version`, but by
                                   the epoch's first (epoch, 0) at least */
    _Atomic uint64_t settled;     /* as in the replica row (store.h); only ever rises */
    _Atomic uint64_t dur_settled; /* what a start after a crash would find in the row: what may be
                                   * cleaned. The control role's */
    _Atomic uint64_t
        everywhere; /* up to it every replica has settled in this epoch, durably, as far as
                                   * was told; 0: nothing was. The worker's, at a backup the control role's */
    _Atomic uint64_t
        closed; /* the highest version of which a block may lie in a segment that its owner has closed: a
                              * full one of a log, or one that digest has left. Published before anybody can see the
                              * segment closed. At first all of earlier epochs. */
    _Atomic uint64_t
        landed; /* primary: the highest version that landed here before it was promoted; 0: none */
    _Atomic uint64_t
        exposed; /* the uncommitted suffix may name versions above this one in segments that are COMMITTED, until the
                              * shard is reconciled; UINT64_MAX: none (clean_copy.c, K9). Lowered by shard_expose */
    _Atomic bool
        damaged; /* something of this replica could not be read here in this run (shard_found_damage) */
    _Atomic bool recovering; /* primary: log reconciliation is not done, nothing is served */
    _Atomic uint64_t lost;   /* primary: committed versions that its reconciliation found nowhere */
    _Atomic bool missing;    /* backup: a committed version never arrived (prefix.h) */
    struct prefix prefix;    /* backup; and both while PM is scanned at a start */
    uint32_t begin_epoch;    /* the first that was adopted for this state */
    bool
        followed; /* the prefix tells what was received: since it entered its epoch this replica has applied all of it in
                    * this run. After a start it is lifted over holes by commit versions */
    struct suffix suffix;       /* backup; and at a primary from the start until it is reconciled */
    struct completed completed; /* backup: what has left the suffix */
    struct suffix_below below;  /* what of lower versions another replica may lack */
    struct records records;     /* primary: completed operations whose answer may be asked again */
    _Atomic bool possibly_incomplete; /* each replica may lack anything, and reconciliation leaves
                                         nothing out; until one has ended. The control role's */

    /* Primary only. */
    bool begun; /* it was served in `epoch`: but for writes in flight, all is on every replica */
    uint32_t next_epoch; /* that begins once its configuration is committed; 0: none */
    bool ending;         /* it is committed: the present epoch hands out no more versions */
    bool deposed;        /* the worker is about to give it back (worker_depose.h) */
    uint64_t
        cut; /* then: bits, by position of the peer: a newer connection has ended what was sent there */
    uint64_t
        stored; /* likewise: the last batch in which something of it may have been stored here */
    uint64_t
        landed_in; /* what landed here before it was promoted may lie in segments of the backup log up to this number:
                          * nothing is settled before they are left; 0: they are. A backup's, too, that was deposed */
    uint64_t counter;      /* of the last version handed out */
    uint32_t full_count;   /* of the backups: they come first, those that fill behind them */
    uint32_t filled;       /* bits: of those that fill, by place, which have all */
    uint32_t backup_count; /* all that get every write */
    uint32_t backups[CLUSTER_MAX_REPLICAS - 1]; /* positions in the worker's peers */
    uint64_t told[CLUSTER_MAX_REPLICAS - 1]; /* settled versions of these, of this epoch; 0: none */
    struct write_list in_flight;             /* by rising version */
    struct shard_link active_link; /* in the worker's list of those with writes in flight */
    bool reconcile_listed;         /* in the worker's list of those to be reconciled */
    struct shard_link reconcile_link;
    bool commit_listed; /* in the worker's list of those whose commit version is to be spread */
    bool commit_again;  /* also if it has not changed: a backup may not have been told */
    struct shard_link commit_link;
    uint64_t waits_version, waits_since_ns,
        waits_seen_ns; /* writes were told to wait, and none of a version above that was taken */
    bool waits_told;

    /* Backup only. */
    struct shard_link owned_link;     /* in the digest role's list */
    struct shard_link releasing_link; /* likewise, of those that it is to return */
    uint64_t release_ticket;
    uint64_t met; /* the highest version of which a block lies here that may not be applied yet */
    uint64_t open_landed; /* the lowest version that arrived first in the segment that is scanned;
                            or SHARD_NONE_LANDED */

    /* Backup only: a long entry that comes by message. */
    struct incoming incoming;
    uint64_t half; /* 1 + the segment that is kept for a part of it (digest_store.c, E7); 0: none */

    /* Backup only: what is asked for while `missing`. */
    struct shard_link missing_link;
    uint64_t sought; /* missing versions up to it may be asked for: they are not in our segments */
    uint64_t asked_first, asked_last; /* versions, of the last question */
    uint64_t ask_ns, ask_after_ns;    /* when again, and how long after that */
};

/* `description` is the shard's row in the configuration; `server` is this one. Errors:
 * ROWAN_ENOMEM. */
int shard_state_create(const struct pm *pm, const struct entry_format *format,
                       const struct shard *description, uint32_t server, struct shard_state **out);
void shard_state_destroy(struct shard_state *shard);

/* shard_fill: the new state is of a replica that begins to fill in its epoch, with nothing. All in front of (epoch, 0) is
 * another's to bring, so it counts as settled: nothing of it is missed, and what comes is applied. */
void shard_fill(struct shard_state *shard, uint64_t first_allocation);

/* Does what lies in that segment belong to this replica, if it has that version? Not what it, or another, had before: of
 * that, bytes may be left (design, H15). */
static inline bool shard_counts(const struct shard_state *shard, uint64_t version,
                                const struct store *store, uint64_t segment)
{
    if (version_epoch(version) >= shard->first_epoch)
        return true;
    const struct segment_meta meta = store_meta(store, segment);
    return shard->first_allocation && meta.owner != OWNER_BACKUP_LOG &&
           meta.allocation > shard->first_allocation;
}

/* Up to where this replica lacks nothing, for a log reconciliation; its suffix is sorted. */
static inline uint64_t shard_contiguous(const struct shard_state *shard)
{
    return shard->followed ? shard->prefix.upto : shard->suffix.contiguous;
}

/* shard_expose: the owner is about to look for versions above this one, for the suffix: the clean role leaves them where they
 * are, whoever owns the shard meanwhile, until shard_cover says that it is reconciled. `exposures` counts that for the clean
 * role, which may be about to give up a segment. */
void shard_expose(struct shard_state *shard, uint64_t version, _Atomic uint64_t *exposures);
static inline void shard_cover(struct shard_state *shard)
{
    atomic_store_explicit(&shard->exposed, UINT64_MAX, memory_order_release);
}

/* shard_found_damage: an entry of it cannot be read. `damages` counts the shards of which that was found, for the control role,
 * which tells the manager (design, section 6, Damage). Any thread. */
void shard_found_damage(struct shard_state *shard, _Atomic uint64_t *damages);

/* shard_close: the owner is about to close a segment in which versions up to this one may lie. */
void shard_close(struct shard_state *shard, uint64_t version);

/* shard_settle: raises `settled`, where every version up to `contiguous` is part of this replica, durably if it is
 * committed. The owner's, whenever one of contiguous prefix, commit version and `closed` has risen. */
void shard_settle(struct shard_state *shard, uint64_t contiguous);

#endif
