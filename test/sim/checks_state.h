/* checks_state.h - the inside of the checkers, shared by checks.c (what is looked at after every round), checks_stored.c
 * (what lies in every PM), checks_clean.c (segments that are used again), checks_commit.c (commit versions),
 * checks_loss.c (what power losses may take), checks_look.c (C2, C3, C6), checks_suffix.c (uncommitted suffixes),
 * checks_log.c (what the logs say) and checks_leftovers.c.
 */
#ifndef SIM_CHECKS_STATE_H
#define SIM_CHECKS_STATE_H

#include "common/entry/entry.h"
#include "test/sim/checks.h"
#include "test/sim/journal.h"
#include "test/sim/linear_loss.h"

struct control;
struct shard_state;

enum {
    CHECKS_BUCKETS = 1 << 14,
    CHECKS_SUSPECTS = 16,
    CHECKS_NONE = 0, /* no entry, no copy: positions begin at 1 */
};

enum checks_kind {
    CHECKS_FREE,  /* no copy */
    CHECKS_PART,  /* bytes are missing yet, or for ever */
    CHECKS_BLOCK, /* of an entry */
    CHECKS_OTHER, /* a pad, or commit versions */
};

/* A block, or a part of one, at a place of a PM. */
struct checks_copy {
    enum checks_kind kind;
    uint32_t entry;
    uint32_t next; /* of the entry; or in the list of free ones */
    uint32_t server;
    uint64_t offset;
    uint32_t bytes; /* of the whole block; as far as a PART tells */
    uint32_t have;  /* stored so far */
    uint16_t block;
    bool
        late; /* some of it was stored when its segment was closed: its sender's claim was void by then */
};

/* A put or a delete, by shard and version. It stays when all copies of it have gone (C9). */
struct checks_entry {
    struct entry_header header; /* of its first block that was seen */
    uint32_t key;               /* of the workload; JOURNAL_NO_KEY: unknown */
    uint64_t key_name;          /* checks_name; 0: its first block was not seen yet */
    bool everywhere;            /* was seen held by all full replicas */
    bool done;                  /* was cleaned somewhere, so it took effect (but for losses) */
    uint32_t
        cleaned; /* a bit each: that server gave up its last copy, and has a newer entry of the key for it */
    bool unsettled;      /* in the list of its shard */
    uint64_t stored_ns;  /* when it was first seen */
    uint32_t first_hash; /* of its blocks' contents, in checks->hashes; a 0 there: not seen yet */
    uint32_t copies;     /* the first of the list */
    uint32_t count[SIM_MAX_SERVERS];       /* of its blocks' copies there */
    uint32_t next_version, next_operation; /* in the buckets */
    uint32_t next_unsettled;               /* of the shard */
    uint32_t next_of_key;                  /* the one of its key that was seen before it */
};

/* What is known of a key of the workload. */
struct checks_key {
    char bytes[LOAD_KEY_BYTES];
    uint32_t count; /* of these */
    uint64_t hash;  /* index_hash */
    uint64_t name;  /* checks_name */
    uint16_t slot;
    uint64_t settled;                /* acknowledged, or shown by a primary: every replica has it */
    uint64_t shown[SIM_MAX_SERVERS]; /* by the index of that server, in this boot of it */
    uint64_t newest[SIM_MAX_SERVERS]; /* of those that were stored there */
    uint32_t last_entry;              /* of it that was seen; the others by next_of_key */
    uint32_t next;                    /* in the buckets; 1 + key */
};

/* What is watched of one server. */
struct checks_server {
    struct checks *checks;
    uint32_t number; /* from 0 */
    struct sim_pm *pm;
    uint64_t segment_offset; /* 0: there is no superblock yet */
    uint64_t segments;
    uint32_t *copy_at; /* by stride behind segment_offset: the copy that takes it */
    uint64_t strides;
    bool *reused;         /* by segment: it held entries, and is not free yet */
    uint64_t incarnation; /* of the process that was last looked at */
    uint64_t term;        /* that it was last seen to act on */
    uint64_t lost_before; /* how often the site BLOCK_LOST had fired there before this process */
};

/* An older entry of the key came to that server behind a newer one: will its index stand it? */
struct checks_suspect {
    uint32_t key, server;
    uint64_t until_round;
};

/* What a shard's replicas may lack (checks_loss.c). */
struct checks_doubt {
    uint32_t servers; /* a bit each: something was lost there since the shard was last served */
    uint32_t epoch;   /* in force when the last of them lost something */
    bool lost;        /* and a configuration came that no replica brought everything to */
};

struct checks_loss {
    uint16_t first_slot, last_slot; /* of the shard at that time */
    struct linear_loss loss;
};

static inline bool checks_loss_concerns(const struct checks_loss *loss, uint16_t slot)
{
    return slot >= loss->first_slot && slot <= loss->last_slot;
}

struct checks {
    struct sim_cluster *cluster;
    struct load *load;
    struct failure *failure;
    struct journal *journal;
    struct checks_counts counts;
    uint64_t rounds, looks;
    struct checks_suspect suspects[CHECKS_SUSPECTS]; /* a ring */
    uint32_t suspect_next;

    struct checks_server servers[SIM_MAX_SERVERS];
    uint64_t client_terms[SIM_MAX_CLIENTS], cm_term, rival_term, third_term;

    struct checks_entry *entries;
    uint32_t entry_count, entry_room;
    struct checks_copy *copies;
    uint32_t copy_count, copy_room, copy_free;
    uint64_t *hashes;
    uint32_t hash_count, hash_room;
    uint32_t by_version[CHECKS_BUCKETS], by_operation[CHECKS_BUCKETS];
    uint32_t unsettled[UINT16_MAX + 1]; /* by shard: entries that no commit version has covered */
    struct checks_doubt doubts[UINT16_MAX + 1]; /* by shard */
    uint32_t parents[UINT16_MAX + 1];  /* by shard: 1 + the one that it was split off from */
    bool gone[UINT16_MAX + 1];         /* by shard: it was split, and its children have all */
    uint32_t led_from[UINT16_MAX + 1]; /* by shard: the epoch since which its primary is the same */
    uint32_t incomplete[UINT16_MAX + 1]; /* by shard: the last epoch that was called so */
    bool lost_unfenced;                  /* a power loss took something, and nothing is fenced */
    bool flips;                          /* bits of a PM flip in this run (flips.h) */
    struct checks_loss *losses;
    uint32_t loss_count, loss_room;
    uint8_t *marks; /* for counting an entry's blocks */
    uint32_t mark_room;

    struct checks_key *keys;
    uint32_t key_count;
    uint32_t by_key[CHECKS_BUCKETS];

    /* By server and shard: of the replica that it has, or had when its process ended; 0: it had none. */
    uint32_t first_epochs[SIM_MAX_SERVERS][UINT16_MAX + 1];
    /* Of the same replica: the last epoch in which it filled. What was written in that was sent to it, too. */
    uint32_t copied_epochs[SIM_MAX_SERVERS][UINT16_MAX + 1];

    uint64_t
        without_ns[SIM_MAX_SERVERS]; /* when the server was last without a grant for two leases */
    uint64_t leased_ns;              /* when any server last had a lease, or none ran */
    uint64_t registry_version;
    struct cluster_config *old;    /* stored last, while one that had come back is */
    struct cluster_config *config; /* the last that was stored; NULL: none */
    struct entry_format format;    /* its */
    uint64_t *terms;               /* that were stored, rising */
    uint32_t term_count, term_room;

    uint32_t client_ids[SIM_MAX_CLIENTS + 1]; /* of each session now, the rival's guest the last */
    uint32_t *given;                          /* client ids, to anybody, ever */
    uint32_t given_count, given_room;
};

/* Keeps the failure if it is the first. */
void checks_fail(struct checks *checks, const char *checker, uint32_t key, uint32_t shard,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Something became of the entry in that PM. */
void checks_tell(struct checks_server *server, enum journal_kind kind,
                 const struct checks_entry *entry, const char *text);

/* An array that grows; the room is doubled. Aborts without memory. */
void *checks_grow(void *old, uint32_t *room, size_t item_bytes);

/* --- checks_stored.c --- */

void checks_stored_open(struct checks *checks);
void checks_stored_close(struct checks *checks);

/* --- checks_once.c --- */

/* The server has begun to store that entry. */
void checks_once(struct checks *checks, struct checks_server *server,
                 const struct checks_entry *entry);

/* Which key it is, of a key of `bytes` bytes that begins so: a first block need not hold all of it. */
uint64_t checks_name(const void *key, uint32_t bytes);

/* A place in one of the tables. */
uint32_t checks_bucket(uint64_t a, uint64_t b);

/* A segment's meta in PM, in the first copy of the table. */
struct segment_meta checks_segment_meta(const struct checks_server *server, uint64_t segment);

/* The entry, or NULL. */
struct checks_entry *checks_entry(struct checks *checks, uint16_t shard, uint64_t version);

/* Is all of it in the PM of that server (from 0)? Where the durability is PM_FENCE: durable. */
bool checks_is_whole(struct checks *checks, const struct checks_entry *entry, uint32_t server);

/* Was it, durable or not, before that segment became DIRTY? */
bool checks_was_whole(struct checks *checks, const struct checks_entry *entry, uint32_t server,
                      uint64_t segment);

/* On any replica of its shard, durable or not. */
bool checks_is_anywhere(struct checks *checks, const struct checks_entry *entry);

/* Is the entry that begins at this place of a PM there from its first to its last block? Its entry, or NULL. */
struct checks_entry *checks_entry_at(struct checks *checks, uint32_t server, uint64_t offset);

/* Something is wrong at that place of a PM (C4). */
void checks_fail_at(struct checks_server *server, uint64_t offset, const char *what);

bool checks_is_zero(const uint8_t *bytes, size_t count);

/* --- checks_clean.c --- */

/* A word of the segment table's first copy was stored, and the second copy is what it was before. */
void checks_clean_meta(struct checks_server *server, uint64_t segment);

/* Of an entry that is not on all replicas: does one of those miss it? Not where a bit flipped in it when the others had a
 * newer one already. */
bool checks_is_missed(struct checks *checks, const struct checks_entry *entry);

/* Has that server a newer entry of its key, which is everywhere? */
bool checks_is_superseded(struct checks *checks, const struct checks_entry *entry, uint32_t server);

/* Does C5 hold for that tombstone at that server? Once it does, it goes on. */
bool checks_may_go(struct checks_server *server, const struct checks_entry *tombstone);

/* Zeros were stored into a segment. */
void checks_clean_zeros(struct checks_server *server, uint64_t offset, size_t bytes);

/* Does a copy of the void table name all of these bytes of the segment? */
bool checks_is_void(const struct checks_server *server, uint64_t segment, uint64_t from,
                    size_t bytes);

/* --- checks_loss.c --- */

/* A full replica of the shard is on that server (from 0). Shards that nobody knows are everywhere. */
bool checks_is_replica(const struct checks *checks, uint16_t shard, uint32_t server);

/* Is it there, or was it until a newer entry of its key took its place? Or was a newer one copied in its stead? */
bool checks_is_held(struct checks *checks, const struct checks_entry *entry, uint32_t server);

/* Is the entry whole on every full replica of its shard? */
bool checks_is_everywhere(struct checks *checks, struct checks_entry *entry);

/* The host of that server lost power, and something of its PM. */
void checks_loss_at(struct checks *checks, uint32_t server);

/* Until a shard is served in a later epoch, that server may lack something of it: power took it, or a bit flipped. */
void checks_doubt_at(struct checks *checks, uint32_t server);

/* `next` was stored, and checks->config is the one before it. */
void checks_loss_config(struct checks *checks, const struct cluster_config *next);

/* Somebody serves the shard in this epoch. */
void checks_loss_served(struct checks *checks, uint16_t shard, uint32_t epoch);

/* Some replica may lack entries of this epoch of the shard, or that server does. */
bool checks_in_doubt(const struct checks *checks, uint16_t shard, uint32_t epoch);
bool checks_lost_at(const struct checks *checks, uint16_t shard, uint32_t server);

/* --- checks_split.c --- */

/* `next` was stored, and checks->config is the one before it. */
void checks_split_config(struct checks *checks, const struct cluster_config *next);

/* Is it that one, or was it split off from it, or from what was? */
bool checks_is_of(const struct checks *checks, uint16_t shard, uint16_t ancestor);

/* As checks_entry, of the shard or of what it was split off from. */
struct checks_entry *checks_entry_of(struct checks *checks, uint16_t shard, uint64_t version);

/* --- checks_commit.c --- */

/* An entry was seen for the first time, or has lost a copy: commit versions have to cover it again. */
void checks_commit_note(struct checks *checks, uint32_t number);

/* A worker stored commit versions in its log: the block, whose value has so many bytes. */
void checks_commit_stored(struct checks *checks, const uint8_t *block, uint32_t value_bytes);

/* --- checks_suffix.c --- */

/* The index of that server names the entry. */
void checks_suffix_indexed(struct checks *checks, const struct shard_state *shard, uint32_t server,
                           const struct checks_entry *entry);

/* One shard of each server in turn. */
void checks_suffix_look(struct checks *checks, uint64_t turn);

/* --- checks_look.c --- */

void checks_look(struct checks *checks);

/* All of the entry is in the PM of that server. */
void checks_look_stored(struct checks *checks, const struct checks_entry *entry, uint32_t server);

/* The first block of the entry was stored there: `made` is that copy. */
void checks_look_copied(struct checks *checks, const struct checks_entry *entry, uint32_t server,
                        uint32_t made);

/* The control role of a server; NULL: it is down. */
struct control *checks_control(const struct checks *checks, uint32_t server);

/* What a server holds of a shard, once it has taken in what its PM holds; else NULL. */
struct shard_state *checks_shard(const struct control *control, uint16_t shard);

/* --- checks_log.c --- */

void checks_log_open(struct checks *checks);
void checks_log_close(struct checks *checks);

/* A digest role of that server's process has taken a whole block for a damaged one. */
bool checks_lost_block(const struct checks_server *server);

/* A start from a checkpoint does not see what the site BLOCK_LOST has hidden from a digest role, and what lies in a segment
 * that was committed nevertheless; a scan does. What is settled in its PM it is not. */
bool checks_has_hidden(const struct checks_server *server);
bool checks_may_be_hidden(const struct checks_server *server, uint16_t shard, uint64_t version);

/* And may it be this entry? Then its segment is committed without it (server/clean/clean_copy.c, K6). */
bool checks_may_be_lost(const struct checks_server *server, const struct entry_header *header);

#endif
