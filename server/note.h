/* note.h - what the control role and the other roles of a server tell each other.
 *
 * Each role has two inboxes: one the control role pushes into, one the control role pops. A note is
 * allocated by the sender and freed by the receiver; there are few of them, none on the data path.
 */
#ifndef SERVER_NOTE_H
#define SERVER_NOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/entry/entry.h"
#include "common/fabric/fabric.h"
#include "common/reactor/inbox.h"
#include "server/shard/shard.h"
#include "server/shard/tail_job.h"
#include "server/store/store.h"

/* A segment of the backup log, from posting to the end of its digestion. Shared by the control role
 * and all digest roles; the control role frees it when all have left it and it is quiet. */
struct blog_segment {
    uint64_t segment;                  /* of the store */
    uint64_t offset;                   /* in the map */
    _Atomic bool sealed;               /* nothing lands in it any more */
    _Atomic uint32_t digested;         /* how many digest roles have left it */
    struct blog_segment *_Atomic next; /* the one posted after it */

    /* The control role's. */
    bool quiet;   /* nobody can store into it any more */
    bool settled; /* given back, or found to hold something */
    struct blog_segment *next_leaving;
};

struct link;

/* The digest (design, invariant C8) of one shard, while its owner walks the index. */
struct digest_job {
    uint16_t shard;
    /* control's */
    struct link *link; /* of the asker; NULL when it has gone */
    uint32_t tag;
    /* the owner's, then control's again */
    struct shard_state *state; /* NULL: the shard is not here */
    uint64_t cursor;
    uint64_t digest;
    uint64_t objects;
    uint64_t version;
    uint64_t damaged;
    uint64_t damaged_offset;
    bool busy;
    bool missing; /* committed versions never arrived here, and are being fetched: busy, too */
    bool done;
    struct digest_job *next;
};

enum note_kind {
    NOTE_CONFIG,  /* `config`, with a reference that the receiver releases */
    NOTE_SHARD,   /* the receiver owns `shard` from now on */
    NOTE_SEGMENT, /* to digest roles: `segment` is the next of the backup log */
    NOTE_DIGEST,  /* please walk `job`; and, back to control: done */
    NOTE_TAIL,    /* please answer `tail`; and, back to control: done */
    NOTE_FETCH,   /* from digest roles: `fetch` never arrived, please ask for it */
};

/* Versions of a shard, both inclusive. */
struct note_fetch {
    uint16_t shard;
    uint64_t first, last;
};

struct note {
    enum note_kind kind;
    union {
        struct cluster_config *config;
        struct shard_state *shard;
        struct blog_segment *segment;
        struct digest_job *job;
        struct tail_job *tail;
        struct note_fetch fetch;
    };
};

enum { NOTE_CAPACITY = 32768 }; /* more than all shards and posted segments of a server together */

/* note_push: allocates and pushes. Errors: ROWAN_ENOMEM, ROWAN_EAGAIN (full). */
int note_push(struct inbox *inbox, const struct note *note);

/* note_pop: false when there is none. */
bool note_pop(struct inbox *inbox, struct note *note);

/* note_drain: frees what is left in an inbox, at the end. */
void note_drain(struct inbox *inbox);

/* The walks a shard owner has to do, one after another. digest_jobs_add starts `job` on `state`
 * (NULL: the shard is not here); digest_jobs_poll visits a bounded number of index buckets and
 * sends finished jobs back; true if it did something. */
struct digest_jobs {
    struct digest_job *first, *last;
};
void digest_jobs_add(struct digest_jobs *jobs, struct digest_job *job, struct shard_state *state);
bool digest_jobs_poll(struct digest_jobs *jobs, struct inbox *outbox, const struct pm *pm,
                      const struct entry_format *format);
void digest_jobs_drop(struct digest_jobs *jobs);

#endif
