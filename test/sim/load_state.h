/* load_state.h - what load.c and load_answer.c share. */
#ifndef SIM_LOAD_STATE_H
#define SIM_LOAD_STATE_H

#include "test/sim/load.h"

enum {
    LOAD_SHORT_BYTES = 200, /* most values, and rooms too small, are no longer */
    LOAD_POISON = 0x5a,     /* of a room that may be too small */
};

struct load_slot {
    struct load *load;
    struct load_slot *next; /* free ones */
    uint8_t *buffer;        /* max_value_bytes */
    uint32_t client, key;
    enum history_kind kind;
    uint32_t room_bytes;  /* get */
    uint32_t value_bytes; /* put, put_if */
    uint64_t expected;    /* put_if */
    bool last;            /* of load_read_all, load_write_some and the like */
    bool called;          /* and not answered yet */
    uint64_t called_ns;   /* by the client's clock */
    uint64_t timeout_ns;
    size_t number; /* in the history */
};

struct load_client {
    struct load_slot *free;
    uint32_t outstanding;
    uint64_t due_ns;    /* the next operation */
    uint32_t ended;     /* sessions of it that were given up */
    uint32_t shards;    /* of load_write_shards: the first so many are still to be written to */
    uint64_t *seen;     /* of each key: the version seen last; 0: none */
    uint32_t again_key; /* a get that found its room too small is asked again; or NO_KEY */
    char name[24];
};

struct load {
    struct sim_cluster *cluster;
    struct load_options options;
    struct history *history;
    struct failure *failure;
    struct random random;
    load_acknowledged *acknowledged;
    void *acknowledged_context;
    load_seen *seen;
    void *seen_context;
    uint64_t posted, numbers; /* operations; values */
    uint64_t rejected;        /* of those posted */
    uint64_t *highest;        /* version of each key that anybody was told */
    uint32_t reads;           /* of load_read_all, still to be posted: the last so many keys */
    uint32_t writes;          /* of load_write_some, likewise */
    uint32_t changes;         /* of load_write_all, likewise */
    bool deletes;             /* of load_delete_all instead */
    uint64_t timeout_ns;      /* that sessions are to have */
    bool stopped;
    uint32_t clients;
    struct load_client client[SIM_MAX_CLIENTS];
    struct load_slot *slots;
    uint8_t *buffers;
};

/* The shard as the client knows it; NULL: it knows no configuration. */
const struct shard *load_shard(const struct load *load, uint32_t client, uint32_t key);

/* What every event of the operation says. */
struct journal_event load_event(const struct load_slot *slot, enum journal_kind kind);

static inline uint64_t load_client_now_ns(const struct load *load, uint32_t client)
{
    return sim_process_now_ns(&load->cluster->clients[client].process, load->cluster->clock.now_ns);
}

static inline uint32_t load_at_most(uint64_t value, uint32_t limit)
{
    return value < limit ? (uint32_t)value : limit;
}

static inline void load_give_slot(struct load_slot *slot)
{
    struct load_client *client = &slot->load->client[slot->client];
    slot->called = false;
    slot->next = client->free;
    client->free = slot;
    client->outstanding--;
}

/* The session of the operation is gone, and nobody will be told how it ended. load_answer.c. */
void load_give_up(struct load_slot *slot);

/* The callback of every operation; its context is the slot. load_answer.c. */
void load_on_completion(const struct rowan_completion *completion);

#endif
