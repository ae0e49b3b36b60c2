/* sim_registry.c - the service's side: the value, sessions, who leads, who watches.
 *
 *  1. What a session is shown never goes back. It may be one change behind what is stored, for as long as a
 *     letter may travel: its replica lags. A new session has seen what was stored when it was made, a
 *     leader what was stored when it became one, because these are changes too and replicas take all in order.
 *  2. Nothing that a session asked takes effect after its end.
 *  3. The candidate that stands longest leads, and no other before its session ended.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_coord_state.h"

/* --- letters --- */

uint64_t sim_registry_now_ns(const struct sim_registry *registry)
{
    return registry->options.clock ? registry->options.clock->now_ns : 0;
}

uint64_t sim_registry_delay(struct sim_registry *registry)
{
    uint64_t max_ns = registry->options.max_delay_ns;
    return max_ns ? random_below(&registry->random, max_ns + 1) : 0;
}

struct sim_letter *sim_letter_create(struct sim_coord *coord, enum sim_letter_kind kind)
{
    struct sim_letter *letter = calloc(1, sizeof *letter);
    ASSERT(letter);
    letter->kind = kind;
    letter->session = coord->session;
    letter->connection = coord->connection;
    return letter;
}

void sim_letter_destroy(struct sim_letter *letter)
{
    if (!letter)
        return;
    free(letter->value);
    free(letter);
}

void sim_letter_file(struct sim_letter **list, struct sim_letter *letter)
{
    while (*list && (*list)->due_ns <= letter->due_ns)
        list = &(*list)->next;
    letter->next = *list;
    *list = letter;
}

void sim_registry_post(struct sim_registry *registry, struct sim_letter *letter)
{
    letter->session->holders++;
    sim_letter_file(&registry->letters, letter);
}

/* To the owner, if it can hear it: its connection is the one that it asked on. */
static void reply(struct sim_registry *registry, struct sim_session *session, uint64_t at_ns,
                  struct sim_letter *letter)
{
    struct sim_coord *owner = session->owner;
    if (!owner || owner->partitioned || owner->connection != letter->connection) {
        registry->counts.lost_effects +=
            owner && letter->kind == SIM_LETTER_STORED && !letter->error;
        sim_letter_destroy(letter);
        return;
    }
    uint64_t due_ns = at_ns + sim_registry_delay(registry);
    owner->inbox_ns = due_ns > owner->inbox_ns ? due_ns : owner->inbox_ns;
    letter->due_ns = owner->inbox_ns;
    sim_letter_file(&owner->inbox, letter);
}

static struct sim_letter *reply_create(const struct sim_session *session, uint32_t connection,
                                       enum sim_letter_kind kind)
{
    struct sim_letter *letter = calloc(1, sizeof *letter);
    ASSERT(letter);
    letter->kind = kind;
    letter->connection = connection;
    letter->version = session->floor;
    return letter;
}

/* --- sessions and the leader --- */

struct sim_session *sim_session_create(struct sim_coord *owner, uint64_t now_ns)
{
    struct sim_registry *registry = owner->registry;
    struct sim_session *session = calloc(1, sizeof *session);
    ASSERT(session);
    session->holders = 1;
    session->owner = owner;
    session->heard_ns = now_ns;
    if (registry->options.session_ns)
        session->linger_ns = random_below(&registry->random, registry->options.session_ns / 4 + 1);
    struct sim_session **link = &registry->sessions;
    while (*link)
        link = &(*link)->next;
    *link = session;
    return session;
}

static void drop_session(struct sim_session *session)
{
    if (session->ended && session->holders == 0)
        free(session);
}

void sim_session_release(struct sim_session *session)
{
    ASSERT(session->holders > 0);
    session->holders--;
    drop_session(session);
}

static void tell_leader(struct sim_registry *registry, struct sim_session *session, uint64_t at_ns)
{
    if (session->owner)
        reply(registry, session, at_ns,
              reply_create(session, session->owner->connection, SIM_LETTER_LEADS));
}

/* Invariant 3. */
static void find_leader(struct sim_registry *registry, uint64_t at_ns)
{
    struct sim_session *leader = NULL;
    for (struct sim_session *at = registry->sessions; at; at = at->next) {
        if (at->candidate && (!leader || at->candidate < leader->candidate))
            leader = at;
    }
    if (leader == registry->leader)
        return;
    registry->leader = leader;
    if (!leader)
        return;
    leader->floor = registry->value.version;
    tell_leader(registry, leader, at_ns);
}

void sim_session_end(struct sim_registry *registry, struct sim_session *session, uint64_t now_ns)
{
    if (session->ended)
        return;
    struct sim_session **link = &registry->sessions;
    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    session->ended = true;
    session->watched = false;
    session->candidate = 0;
    registry->counts.expired += session->owner != NULL;
    find_leader(registry, now_ns);
    drop_session(session);
}

/* --- requests --- */

/* Invariant 1. */
static void do_read(struct sim_registry *registry, const struct sim_letter *letter)
{
    struct sim_session *session = letter->session;
    const struct sim_value *value = &registry->value;
    uint64_t max_ns = registry->options.max_delay_ns;
    if (max_ns && registry->last.version >= session->floor && value->version > 0 &&
        letter->due_ns - registry->changed_ns <= max_ns && random_below(&registry->random, 2) == 0)
        value = &registry->last;
    session->floor = value->version;
    struct sim_letter *answer = reply_create(session, letter->connection, SIM_LETTER_VALUE);
    answer->value = malloc(value->bytes + 1);
    ASSERT(answer->value);
    if (value->bytes > 0)
        memcpy(answer->value, value->data, value->bytes);
    answer->bytes = value->bytes;
    reply(registry, session, letter->due_ns, answer);
}

static void fire(struct sim_registry *registry, struct sim_session *session, uint64_t at_ns)
{
    session->watched = false;
    session->floor = registry->value.version;
    reply(registry, session, at_ns,
          reply_create(session, session->watch_connection, SIM_LETTER_CHANGED));
}

static void write_value(struct sim_registry *registry, struct sim_letter *letter)
{
    free(registry->last.data);
    registry->last = registry->value;
    registry->value.data = letter->value;
    registry->value.bytes = letter->bytes;
    registry->value.version++;
    registry->changed_ns = letter->due_ns;
    registry->counts.writes++;
    letter->value = NULL;
    for (struct sim_session *at = registry->sessions; at; at = at->next) {
        if (at->watched)
            fire(registry, at, letter->due_ns);
    }
}

void sim_registry_store(struct sim_registry *registry, void *value, size_t bytes)
{
    write_value(registry, &(struct sim_letter){.value = value,
                                               .bytes = bytes,
                                               .due_ns = sim_registry_now_ns(registry)});
}

static void do_cas(struct sim_registry *registry, struct sim_letter *letter)
{
    struct sim_session *session = letter->session;
    int error = letter->version == registry->value.version ? 0 : ROWAN_EVERSION;
    if (!error)
        write_value(registry, letter);
    if (letter->unheard) { /* nor is what came of it known to the next read */
        registry->counts.lost_effects += !error;
        return;
    }
    session->floor = registry->value.version;
    struct sim_letter *answer = reply_create(session, letter->connection, SIM_LETTER_STORED);
    answer->error = error;
    reply(registry, session, letter->due_ns, answer);
}

static void do_watch(struct sim_registry *registry, const struct sim_letter *letter)
{
    struct sim_session *session = letter->session;
    session->watched = true;
    session->watch_connection = letter->connection;
    if (letter->version != registry->value.version)
        fire(registry, session, letter->due_ns);
}

static void do_elect(struct sim_registry *registry, const struct sim_letter *letter)
{
    struct sim_session *session = letter->session;
    if (session->candidate == 0) {
        session->candidate = ++registry->candidates;
        find_leader(registry, letter->due_ns);
    } else if (registry->leader == session) { /* asked again: the answer may have been lost */
        tell_leader(registry, session, letter->due_ns);
    }
}

static void lose_letter(struct sim_registry *registry, const struct sim_letter *letter)
{
    registry->counts.lost_writes +=
        letter->kind == SIM_LETTER_CAS && letter->session->owner && !letter->unheard;
}

static void carry_out(struct sim_registry *registry, struct sim_letter *letter)
{
    struct sim_session *session = letter->session;
    if (session->ended) { /* invariant 2 */
        lose_letter(registry, letter);
        return;
    }
    if (!session->established) {
        session->established = true;
        session->floor = registry->value.version;
    }
    switch (letter->kind) {
    case SIM_LETTER_READ:
        do_read(registry, letter);
        break;
    case SIM_LETTER_CAS:
        do_cas(registry, letter);
        break;
    case SIM_LETTER_WATCH:
        do_watch(registry, letter);
        break;
    case SIM_LETTER_ELECT:
        do_elect(registry, letter);
        break;
    case SIM_LETTER_CLOSE:
        sim_session_end(registry, session, letter->due_ns);
        break;
    default:
        ASSERT(false && "a letter to the owner came to the service");
    }
}

/* --- time --- */

static uint64_t end_ns(const struct sim_registry *registry, const struct sim_session *session)
{
    uint64_t session_ns = registry->options.session_ns;
    return session_ns ? session->heard_ns + session_ns + session->linger_ns : WAKE_NEVER;
}

static struct sim_session *first_to_end(const struct sim_registry *registry)
{
    struct sim_session *first = NULL;
    for (struct sim_session *at = registry->sessions; at; at = at->next) {
        if (!first || end_ns(registry, at) < end_ns(registry, first))
            first = at;
    }
    return first;
}

void sim_registry_advance(struct sim_registry *registry, uint64_t now_ns)
{
    for (;;) {
        struct sim_session *session = first_to_end(registry);
        uint64_t session_ns = session ? end_ns(registry, session) : WAKE_NEVER;
        struct sim_letter *letter = registry->letters;
        if (letter && letter->due_ns <= now_ns && letter->due_ns <= session_ns) {
            registry->letters = letter->next;
            carry_out(registry, letter);
            sim_session_release(letter->session);
            sim_letter_destroy(letter);
        } else if (session_ns <= now_ns) {
            sim_session_end(registry, session, session_ns);
        } else {
            return;
        }
    }
}

void sim_registry_cut(struct sim_registry *registry, const struct sim_session *session)
{
    if (random_below(&registry->random, 2) == 0)
        return;
    for (struct sim_letter **link = &registry->letters; *link;) {
        struct sim_letter *letter = *link;
        if (letter->session != session) {
            link = &letter->next;
            continue;
        }
        *link = letter->next;
        lose_letter(registry, letter);
        sim_session_release(letter->session);
        sim_letter_destroy(letter);
    }
}

/* Not what is due already: who is polled does that. */
static void consider(uint64_t *next_ns, uint64_t now_ns, uint64_t at_ns)
{
    if (at_ns > now_ns && at_ns < *next_ns)
        *next_ns = at_ns;
}

uint64_t sim_registry_next_ns(const struct sim_registry *registry)
{
    uint64_t now_ns = sim_registry_now_ns(registry), next_ns = WAKE_NEVER;
    uint64_t beat_ns = registry->options.session_ns / 3;
    if (registry->letters)
        consider(&next_ns, now_ns, registry->letters->due_ns);
    for (const struct sim_session *at = registry->sessions; at; at = at->next) {
        consider(&next_ns, now_ns, end_ns(registry, at));
        if (beat_ns && at->owner && !at->owner->partitioned)
            consider(&next_ns, now_ns, at->heard_ns + beat_ns);
    }
    for (const struct sim_coord *at = registry->handles; at; at = at->next) {
        if (at->inbox)
            consider(&next_ns, now_ns, at->inbox->due_ns);
        consider(&next_ns, now_ns, at->expiry_ns);
        if (at->cas_lost)
            consider(&next_ns, now_ns, at->cas_unknown_ns);
    }
    return next_ns;
}

/* --- the registry --- */

struct sim_registry *sim_registry_create(const struct sim_registry_options *options)
{
    struct sim_registry *registry = calloc(1, sizeof *registry);
    ASSERT(registry);
    if (options)
        registry->options = *options;
    ASSERT(registry->options.clock ||
           (registry->options.max_delay_ns == 0 && registry->options.session_ns == 0));
    random_init(&registry->random, registry->options.seed);
    return registry;
}

void sim_registry_destroy(struct sim_registry *registry)
{
    if (!registry)
        return;
    ASSERT(!registry->handles);
    while (registry->letters) {
        struct sim_letter *letter = registry->letters;
        registry->letters = letter->next;
        sim_session_release(letter->session);
        sim_letter_destroy(letter);
    }
    while (registry->sessions)
        sim_session_end(registry, registry->sessions, 0);
    free(registry->value.data);
    free(registry->last.data);
    free(registry);
}

void sim_registry_lose_replies(struct sim_registry *registry, uint32_t lost_reply)
{
    registry->options.lost_reply = lost_reply;
}

uint64_t sim_registry_value(const struct sim_registry *registry, const void **value, size_t *bytes)
{
    *value = registry->value.data;
    *bytes = registry->value.bytes;
    return registry->value.version;
}

struct sim_registry_counts sim_registry_counts(const struct sim_registry *registry)
{
    return registry->counts;
}
