/* sim_coord.c - the owner's side: a handle, its connection, the sessions it has one after another.
 *
 *  1. A read, a watch and a candidacy are asked again after a lost connection or session. A
 *     compare-and-set never is: it is answered ROWAN_EUNKNOWN.
 *  2. The owner hears nothing of a session's end before it hears of the service. Then it is told that it does
 *     not lead, and stands again in a session of its own.
 *  3. Callbacks run last, when the handle is as it will be: they may ask again.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_coord_state.h"

/* --- asking --- */

static int ask(struct sim_request *request, void *context)
{
    if (request->asked)
        return ROWAN_EAGAIN;
    *request = (struct sim_request){.asked = true, .context = context};
    return 0;
}

static int sim_read(struct coord *head, coord_read_done *done, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    int error = ask(&coord->read, context);
    if (!error)
        coord->read_done = done;
    return error;
}

static int sim_cas(struct coord *head, uint64_t expected_version, const void *value, size_t bytes,
                   coord_cas_done *done, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    if (bytes > COORD_MAX_VALUE_BYTES)
        return ROWAN_EINVALID;
    int error = ask(&coord->cas, context);
    if (error)
        return error;
    coord->cas_done = done;
    struct sim_letter *letter = sim_letter_create(coord, SIM_LETTER_CAS);
    letter->version = expected_version;
    letter->value = malloc(bytes + 1);
    ASSERT(letter->value);
    if (bytes > 0)
        memcpy(letter->value, value, bytes);
    letter->bytes = bytes;
    coord->cas_letter = letter;
    return 0;
}

static int sim_watch(struct coord *head, coord_changed *changed, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    int error = ask(&coord->watch, context);
    if (!error)
        coord->changed = changed;
    return error;
}

static int sim_elect(struct coord *head, coord_leader *leader, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    int error = ask(&coord->elect, context);
    if (!error)
        coord->leader = leader;
    return error;
}

/* --- sending --- */

static void send_letter(struct sim_coord *coord, struct sim_letter *letter)
{
    struct sim_registry *registry = coord->registry;
    uint64_t due_ns = sim_registry_now_ns(registry) + sim_registry_delay(registry);
    coord->sent_ns = due_ns > coord->sent_ns ? due_ns : coord->sent_ns;
    letter->due_ns = coord->sent_ns;
    sim_registry_post(registry, letter);
}

static void send_request(struct sim_coord *coord, struct sim_request *request,
                         enum sim_letter_kind kind)
{
    struct sim_letter *letter = sim_letter_create(coord, kind);
    letter->version = coord->known_version;
    request->sent = true;
    send_letter(coord, letter);
}

static void answer_unknown_at(struct sim_coord *coord, uint64_t at_ns)
{
    coord->cas_lost = true;
    coord->cas_unknown_ns = at_ns;
}

/* A reply is lost when the connection breaks, and the request may still be on its way then: it takes effect
 * before or after the owner is told, and what is asked after it may overtake it. */
static void lose_cas(struct sim_coord *coord, struct sim_letter *letter, uint64_t now_ns)
{
    struct sim_registry *registry = coord->registry;
    uint64_t there_ns = sim_registry_delay(registry), back_ns = sim_registry_delay(registry);
    answer_unknown_at(coord, now_ns + there_ns + back_ns);
    if (random_below(&registry->random, 2) == 0) {
        registry->counts.lost_writes++;
        sim_letter_destroy(letter);
        return;
    }
    letter->unheard = true;
    letter->due_ns = now_ns + sim_registry_delay(registry);
    sim_registry_post(registry, letter);
}

static void send_cas(struct sim_coord *coord, uint64_t now_ns)
{
    struct sim_registry *registry = coord->registry;
    struct sim_letter *letter = coord->cas_letter;
    coord->cas_letter = NULL;
    coord->cas.sent = true;
    letter->session = coord->session;
    letter->connection = coord->connection;
    uint32_t odds = registry->options.lost_reply;
    if (odds && random_below(&registry->random, odds) == 0)
        lose_cas(coord, letter, now_ns);
    else
        send_letter(coord, letter);
}

/* --- answers --- */

static void answer_value(struct sim_coord *coord, const struct sim_letter *letter)
{
    coord->read.asked = false;
    coord->known_version = letter->version;
    coord->read_done(coord->read.context, 0, letter->value, letter->bytes, letter->version);
}

static void answer_cas(struct sim_coord *coord, int error, uint64_t version)
{
    coord->cas.asked = false;
    coord->cas_lost = false;
    if (!error)
        coord->known_version = version;
    coord->cas_done(coord->cas.context, error, error ? 0 : version);
}

/* Without delays it does not fire for what the owner knows: it is set again. */
static bool answer_changed(struct sim_coord *coord, const struct sim_letter *letter)
{
    if (letter->version == coord->known_version && !coord->registry->options.max_delay_ns) {
        coord->watch.sent = false;
        return false;
    }
    coord->watch.asked = false;
    coord->changed(coord->watch.context);
    return true;
}

static bool answer_leads(struct sim_coord *coord)
{
    if (coord->leads)
        return false;
    coord->leads = true;
    coord->leader(coord->elect.context, true);
    return true;
}

static bool answer(struct sim_coord *coord, const struct sim_letter *letter)
{
    switch (letter->kind) {
    case SIM_LETTER_VALUE:
        answer_value(coord, letter);
        return true;
    case SIM_LETTER_STORED:
        answer_cas(coord, letter->error, letter->version);
        return true;
    case SIM_LETTER_CHANGED:
        return answer_changed(coord, letter);
    case SIM_LETTER_LEADS:
        return answer_leads(coord);
    default:
        ASSERT(false && "a letter to the service came to an owner");
        return false;
    }
}

/* What has arrived. True if the owner was told something. */
static bool deliver(struct sim_coord *coord, uint64_t now_ns)
{
    bool told = false;
    sim_registry_advance(coord->registry, now_ns);
    while (coord->inbox && coord->inbox->due_ns <= now_ns) {
        struct sim_letter *letter = coord->inbox;
        coord->inbox = letter->next;
        told |= answer(coord, letter);
        sim_letter_destroy(letter);
    }
    return told;
}

/* --- connections and sessions --- */

/* What is on its way to the owner is lost, and what it asked will be asked again. */
static void lose_connection(struct sim_coord *coord)
{
    coord->connection++;
    coord->read.sent = coord->watch.sent = coord->elect.sent = false;
    while (coord->inbox) {
        struct sim_letter *letter = coord->inbox;
        coord->inbox = letter->next;
        coord->registry->counts.lost_effects += letter->kind == SIM_LETTER_STORED && !letter->error;
        sim_letter_destroy(letter);
    }
}

/* Invariant 2. */
static void hear_of_end(struct sim_coord *coord, uint64_t now_ns)
{
    coord->expiry_ns = 0;
    lose_connection(coord);
    coord->session->owner = NULL;
    sim_session_release(coord->session);
    coord->session = sim_session_create(coord, now_ns);
    bool led = coord->leads;
    coord->leads = false;
    if (coord->cas.asked && coord->cas.sent)
        answer_cas(coord, ROWAN_EUNKNOWN, 0);
    if (led)
        coord->leader(coord->elect.context, false);
}

/* As long as it is polled and connected, each hears of the other. */
static bool keep_session(struct sim_coord *coord, uint64_t now_ns)
{
    sim_registry_advance(coord->registry, now_ns);
    if (!coord->session->ended) {
        coord->session->heard_ns = now_ns;
        return false;
    }
    if (coord->expiry_ns == 0)
        coord->expiry_ns = now_ns + sim_registry_delay(coord->registry);
    if (coord->expiry_ns > now_ns)
        return false;
    hear_of_end(coord, now_ns);
    return true;
}

/* How long an owner waits on a connection that says nothing. */
static uint64_t patience(const struct sim_registry *registry)
{
    uint64_t session_ns = registry->options.session_ns;
    return session_ns ? session_ns / 3 * 2 : 4 * registry->options.max_delay_ns;
}

static void give_cas_up(struct sim_coord *coord, uint64_t now_ns)
{
    if (!coord->cas.asked || coord->cas.sent)
        return;
    coord->cas.sent = true;
    answer_unknown_at(coord, now_ns + patience(coord->registry));
    coord->registry->counts.lost_writes++;
    sim_letter_destroy(coord->cas_letter);
    coord->cas_letter = NULL;
}

void sim_coord_partition(struct coord *head, bool partitioned)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    struct sim_registry *registry = coord->registry;
    uint64_t now_ns = sim_registry_now_ns(registry);
    if (partitioned == coord->partitioned)
        return;
    sim_registry_advance(registry, now_ns);
    coord->partitioned = partitioned;
    coord->expiry_ns = 0;
    bool cas_waits = coord->cas.asked && coord->cas.sent;
    if (partitioned) {
        lose_connection(coord);
        sim_registry_cut(registry, coord->session);
        if (cas_waits && !coord->cas_lost)
            answer_unknown_at(coord, now_ns + patience(registry));
    } else if (cas_waits) {
        answer_unknown_at(coord, now_ns + sim_registry_delay(registry));
    }
}

void sim_coord_expire(struct coord *head)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    uint64_t now_ns = sim_registry_now_ns(coord->registry);
    sim_registry_advance(coord->registry, now_ns);
    sim_session_end(coord->registry, coord->session, now_ns);
}

/* --- the poller --- */

static bool send_asked(struct sim_coord *coord, uint64_t now_ns)
{
    static const enum sim_letter_kind kinds[] = {SIM_LETTER_ELECT, SIM_LETTER_READ, SIM_LETTER_CAS,
                                                 SIM_LETTER_WATCH};
    struct sim_request *requests[] = {&coord->elect, &coord->read, &coord->cas, &coord->watch};
    bool busy = false;
    for (int i = 0; i < 4; i++) {
        if (!requests[i]->asked || requests[i]->sent)
            continue;
        if (kinds[i] == SIM_LETTER_CAS)
            send_cas(coord, now_ns);
        else
            send_request(coord, requests[i], kinds[i]);
        busy = true;
        deliver(coord, now_ns);
    }
    return busy;
}

static bool asks(const struct sim_request *request)
{
    return request->asked && !request->sent;
}

bool sim_coord_has_work(const struct coord *head)
{
    const struct sim_coord *coord = (const struct sim_coord *)head;
    const struct sim_registry *registry = coord->registry;
    const uint64_t now_ns = sim_registry_now_ns(registry);
    const uint64_t beat_ns = registry->options.session_ns / 3;
    sim_registry_advance(coord->registry, now_ns);
    if (coord->cas_lost && coord->cas_unknown_ns <= now_ns)
        return true;
    if (coord->partitioned)
        return asks(&coord->cas);
    const bool ended = coord->session->ended; /* what comes until it hears of that, it hears */
    return (ended && coord->expiry_ns <= now_ns) ||
           (!ended && beat_ns && coord->session->heard_ns + beat_ns <= now_ns) ||
           (coord->inbox && coord->inbox->due_ns <= now_ns) || asks(&coord->read) ||
           asks(&coord->cas) || asks(&coord->watch) || asks(&coord->elect);
}

static enum poll_result sim_poll(struct coord *head, uint64_t process_ns, uint64_t *wake_ns)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    uint64_t now_ns = sim_registry_now_ns(coord->registry);
    bool busy = false;
    (void)process_ns; /* the service lives by the registry's clock */
    (void)wake_ns;    /* sim_registry_next_ns */
    if (coord->partitioned) {
        give_cas_up(coord, now_ns);
    } else {
        busy = keep_session(coord, now_ns);
        busy |= deliver(coord, now_ns);
        busy |= send_asked(coord, now_ns);
    }
    if (coord->cas_lost && coord->cas_unknown_ns <= now_ns) {
        answer_cas(coord, ROWAN_EUNKNOWN, 0);
        busy = true;
    }
    return busy ? POLL_BUSY : POLL_IDLE;
}

/* What was sent stays on its way. */
static void sim_close(struct coord *head)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    struct sim_registry *registry = coord->registry;
    struct sim_coord **link = &registry->handles;
    while (*link != coord)
        link = &(*link)->next;
    *link = coord->next;
    coord->session->owner = NULL;
    if (registry->options.session_ns == 0) {
        send_letter(coord, sim_letter_create(coord, SIM_LETTER_CLOSE));
        sim_registry_advance(registry, sim_registry_now_ns(registry));
    }
    while (coord->inbox) {
        struct sim_letter *letter = coord->inbox;
        coord->inbox = letter->next;
        sim_letter_destroy(letter);
    }
    sim_session_release(coord->session);
    sim_letter_destroy(coord->cas_letter);
    free(coord);
}

static const struct coord_ops SIM_COORD_OPS = {
    .close = sim_close,
    .read = sim_read,
    .cas = sim_cas,
    .watch = sim_watch,
    .elect = sim_elect,
    .poll = sim_poll,
};

struct coord *sim_coord_open(struct sim_registry *registry)
{
    struct sim_coord *coord = calloc(1, sizeof *coord);
    ASSERT(coord);
    coord->head.ops = &SIM_COORD_OPS;
    coord->registry = registry;
    coord->session = sim_session_create(coord, sim_registry_now_ns(registry));
    struct sim_coord **link = &registry->handles;
    while (*link)
        link = &(*link)->next;
    *link = coord;
    return &coord->head;
}
