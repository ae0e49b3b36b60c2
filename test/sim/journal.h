/* journal.h - what happened in a run: one line an event, for the trace, for the story of a failure, and for the
 * hash that shows that two runs were the same.
 *
 * Every part of the simulator tells it what it decides, in the order in which it happens. All events of a run
 * are kept, so a story can be told from the beginning.
 */
#ifndef SIM_JOURNAL_H
#define SIM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "test/sim/sim_clock.h"

enum journal_kind {
    JOURNAL_FAULT,   /* a fault was injected or ended; it belongs to every story */
    JOURNAL_PHASE,   /* the run goes on to another phase; likewise */
    JOURNAL_CONFIG,  /* a configuration was stored, adopted; likewise */
    JOURNAL_CALL,    /* a client asked: `key` */
    JOURNAL_ANSWER,  /* and was told: `key`, `version` if it is known */
    JOURNAL_STORED,  /* a block was stored in a server's own log: `key`, `shard`, `version` */
    JOURNAL_LANDED,  /* a block landed in a server's backup log; likewise */
    JOURNAL_TORN,    /* a part of one did */
    JOURNAL_LOST,    /* a power loss took it, or a part of it */
    JOURNAL_CLEANED, /* a server has given up its last copy */
    JOURNAL_LOG,     /* a line of a role's log; in a story if it names the shard */
    JOURNAL_NETWORK, /* a connection was made or ended; only in traces */
};

enum { JOURNAL_NO_KEY = UINT32_MAX, JOURNAL_NO_SHARD = UINT32_MAX };

struct journal_event {
    uint64_t at_ns;
    enum journal_kind kind;
    char node[16]; /* "server-1", "cm", "client-2", "" */
    uint32_t key;  /* of the workload; JOURNAL_NO_KEY */
    uint32_t shard;
    uint64_t version;
    char text[96];
};

struct journal;

/* `live`: every event is printed there as it comes (--trace); NULL: none is. `clock` NULL: all is at time 0 until
 * there is one, which outlives the last event. Aborts without memory. */
struct journal *journal_create(const struct sim_clock *clock, FILE *live);
void journal_destroy(struct journal *journal);

/* The clock from now on. NULL journal: nothing. */
void journal_clock(struct journal *journal, const struct sim_clock *clock);

/* Copies `event`, and sets its time. NULL journal: nothing. */
void journal_add(struct journal *journal, const struct journal_event *event);

/* An event of no key. */
void journal_note(struct journal *journal, enum journal_kind kind, const char *node,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Words that are too many for events, and must be the same in equal runs: into the hash only. */
void journal_mix(struct journal *journal, const void *data, size_t bytes);

uint64_t journal_hash(const struct journal *journal);
uint64_t journal_events(const struct journal *journal);

/* The last events of all kinds. */
void journal_tail(const struct journal *journal, uint32_t most, FILE *out);

/* The story of a key (JOURNAL_NO_KEY: of no key) in a shard (or none): its events, and between them those that
 * belong to every story, of which long rows are shortened; about `most` lines, the last ones. */
void journal_tell(const struct journal *journal, uint32_t key, uint32_t shard, uint32_t most,
                  FILE *out);

#endif
