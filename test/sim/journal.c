/* The journal: a growing array of events, and a hash over every one of them. */
#include "test/sim/journal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"

enum { FIRST_ROOM = 4096 };

struct journal {
    const struct sim_clock *clock;
    FILE *live;
    struct journal_event *events;
    uint64_t count, room;
    uint64_t hash;
};

static const char *const KIND_WORDS[] = {
    [JOURNAL_FAULT] = "fault",     [JOURNAL_PHASE] = "phase",   [JOURNAL_CONFIG] = "config",
    [JOURNAL_CALL] = "call",       [JOURNAL_ANSWER] = "answer", [JOURNAL_STORED] = "stored",
    [JOURNAL_LANDED] = "landed",   [JOURNAL_TORN] = "torn",     [JOURNAL_LOST] = "lost",
    [JOURNAL_CLEANED] = "cleaned", [JOURNAL_LOG] = "log",       [JOURNAL_NETWORK] = "network"};

struct journal *journal_create(const struct sim_clock *clock, FILE *live)
{
    struct journal *journal = calloc(1, sizeof *journal);
    ASSERT(journal);
    journal->clock = clock;
    journal->live = live;
    return journal;
}

void journal_destroy(struct journal *journal)
{
    if (!journal)
        return;
    free(journal->events);
    free(journal);
}

void journal_clock(struct journal *journal, const struct sim_clock *clock)
{
    if (journal)
        journal->clock = clock;
}

static void print(const struct journal_event *event, FILE *out)
{
    fprintf(out, "%12.6f %-9s %-7s", (double)event->at_ns / 1e9, event->node,
            KIND_WORDS[event->kind]);
    if (event->key != JOURNAL_NO_KEY)
        fprintf(out, " key %u", event->key);
    if (event->shard != JOURNAL_NO_SHARD)
        fprintf(out, " shard %u", event->shard);
    if (event->version)
        fprintf(out, " version %u:%lu", (unsigned)(event->version >> 40),
                event->version & ((UINT64_C(1) << 40) - 1));
    fprintf(out, "%s%s\n", event->text[0] ? " " : "", event->text);
}

/* Field by field: the padding of a struct is nobody's. */
static void mix_event(struct journal *journal, const struct journal_event *event)
{
    const uint64_t words[] = {event->at_ns, (uint64_t)event->kind, event->key, event->shard,
                              event->version};
    journal_mix(journal, words, sizeof words);
    journal_mix(journal, event->node, strlen(event->node));
    journal_mix(journal, event->text, strlen(event->text));
}

void journal_add(struct journal *journal, const struct journal_event *event)
{
    if (!journal)
        return;
    if (journal->count == journal->room) {
        journal->room = journal->room ? 2 * journal->room : FIRST_ROOM;
        journal->events = realloc(journal->events, journal->room * sizeof *journal->events);
        ASSERT(journal->events);
    }
    struct journal_event *taken = &journal->events[journal->count++];
    *taken = *event;
    taken->at_ns = journal->clock ? journal->clock->now_ns : 0;
    mix_event(journal, taken);
    if (journal->live)
        print(taken, journal->live);
}

void journal_note(struct journal *journal, enum journal_kind kind, const char *node,
                  const char *format, ...)
{
    if (!journal)
        return;
    struct journal_event event = {.kind = kind, .key = JOURNAL_NO_KEY, .shard = JOURNAL_NO_SHARD};
    snprintf(event.node, sizeof event.node, "%s", node);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(event.text, sizeof event.text, format, arguments);
    va_end(arguments);
    journal_add(journal, &event);
}

void journal_mix(struct journal *journal, const void *data, size_t bytes)
{
    if (journal)
        journal->hash = XXH3_64bits_withSeed(data, bytes, journal->hash);
}

uint64_t journal_hash(const struct journal *journal)
{
    return journal->hash;
}

uint64_t journal_events(const struct journal *journal)
{
    return journal->count;
}

/* --- stories --- */

/* A line of a log belongs to a shard's story if it names it. */
static bool names_shard(const struct journal_event *event, uint32_t shard)
{
    char word[24];
    int bytes = snprintf(word, sizeof word, "shard=%u", shard);
    const char *at = strstr(event->text, word);
    return at && (at[bytes] == ' ' || at[bytes] == '\0');
}

enum part {
    NOT_IN_IT,
    AROUND, /* belongs to every story, or to the shard's */
    OWN,
};

static enum part part_of(const struct journal_event *event, uint32_t key, uint32_t shard)
{
    bool plain = key == JOURNAL_NO_KEY && shard == JOURNAL_NO_SHARD;
    switch (event->kind) {
    case JOURNAL_FAULT:
    case JOURNAL_PHASE:
    case JOURNAL_CONFIG:
        return plain ? OWN : AROUND; /* nothing else is in it */
    case JOURNAL_LOG:
        return shard != JOURNAL_NO_SHARD && names_shard(event, shard) ? AROUND : NOT_IN_IT;
    case JOURNAL_NETWORK:
        return NOT_IN_IT;
    default:
        if (key != JOURNAL_NO_KEY)
            return event->key == key ? OWN : NOT_IN_IT;
        return shard != JOURNAL_NO_SHARD && event->shard == shard ? OWN : NOT_IN_IT;
    }
}

void journal_tail(const struct journal *journal, uint32_t most, FILE *out)
{
    for (uint64_t i = journal->count > most ? journal->count - most : 0; i < journal->count; i++)
        print(&journal->events[i], out);
}

/* Events around that follow each other: so many are shown, the rest is counted. */
enum { AROUND_SHOWN = 4 };

/* Where the last `most` lines begin. */
static uint64_t first_told(const struct journal *journal, uint32_t key, uint32_t shard,
                           uint32_t most)
{
    uint64_t first = journal->count, lines = 0, around = 0;
    while (first > 0 && lines < most) {
        enum part part = part_of(&journal->events[--first], key, shard);
        around = part == AROUND ? around + 1 : part == OWN ? 0 : around;
        lines += part == OWN || (part == AROUND && around <= AROUND_SHOWN);
    }
    return first;
}

/* Events around from `at` on, up to the next own one; where that is. */
static uint64_t tell_around(const struct journal *journal, uint32_t key, uint32_t shard,
                            uint64_t at, FILE *out)
{
    uint64_t count = 0, end = at, shown = 0;
    enum part part;
    while (end < journal->count && (part = part_of(&journal->events[end], key, shard)) != OWN) {
        count += part == AROUND;
        end++;
    }
    for (; at < end; at++) {
        if (part_of(&journal->events[at], key, shard) != AROUND)
            continue;
        shown++;
        if (count <= AROUND_SHOWN || shown <= AROUND_SHOWN / 2 || shown > count - AROUND_SHOWN / 2)
            print(&journal->events[at], out);
        else if (shown == AROUND_SHOWN / 2 + 1)
            fprintf(out, "%12s %lu faults and the like\n", "...", count - AROUND_SHOWN);
    }
    return end;
}

void journal_tell(const struct journal *journal, uint32_t key, uint32_t shard, uint32_t most,
                  FILE *out)
{
    uint64_t at = first_told(journal, key, shard, most);
    while (at < journal->count) {
        if (part_of(&journal->events[at], key, shard) == OWN)
            print(&journal->events[at++], out);
        else
            at = tell_around(journal, key, shard, at, out);
    }
}
