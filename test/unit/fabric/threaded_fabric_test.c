/* threaded_fabric_test.c - endpoints on threads of their own: several that send blocks and messages
 * to one that polls, at full speed, and reactors that sleep and must be woken.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/fabric/shm/shm.h"
#include "common/reactor/reactor.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"
#include "test/unit/fabric/fabric_host.h"

enum { SENDERS = 3, SEGMENT = FABRIC_SEGMENT_BYTES, SEGMENTS = 6, PM_BYTES = 32 << 20 };
enum { BLOCKS = 34000, MESSAGES = 20000, BLOCK_PLACES = 8192 };

static struct fabric_host host;
static struct world world;
static _Atomic uint32_t senders_left;
static _Atomic uint64_t received; /* messages, by the owner */

/* Ten times slower than the world's: on a busy host a thread may not run for a second, and what the fabrics do
 * about peers that stop in the middle of a block is not tested here. */
static uint64_t slow_since_ns;

static uint64_t now(void)
{
    return slow_since_ns + (clock_now_ns(clock_system()) - slow_since_ns) / 10;
}

/* When a thread that makes no progress any more gives up. */
struct patience {
    uint64_t progress, end_ns;
};

static bool is_over(struct patience *patience, uint64_t progress)
{
    const uint64_t now_ns = clock_now_ns(clock_system());

    if (patience->end_ns == 0 || progress != patience->progress)
        *patience = (struct patience){progress, now_ns + WAIT_DEADLINE_NS};
    return now_ns >= patience->end_ns;
}

static void open_host(enum host_kind kind, enum pm_durability durability)
{
    if (kind == OVER_VERBS)
        host_init_verbs(&host, FABRIC_RECEIVE_SHARED, 0);
    else
        host_init(&host, kind);
    host.durability = durability;
}

/* --- full speed --- */

struct sender {
    pthread_t thread;
    uint32_t index;
    struct fabric_conn *conn;
    uint32_t blocks, messages; /* handed over */
    uint32_t landed;
    bool failed;
};

static void add_blocks(struct sender *sender, struct random *random)
{
    const uint32_t limit = world.sides[sender->index].caps.block_limit / 64;
    uint32_t blocks = 1 + (uint32_t)random_below(random, 24);

    if (sender->blocks == BLOCKS || fabric_rowan_room(sender->conn) < blocks)
        return;
    for (; blocks > 0 && sender->blocks < BLOCKS; blocks--) {
        const uint64_t at = (uint64_t)(sender->blocks % BLOCK_PLACES) * (PM_BYTES / BLOCK_PLACES);

        sender->failed |=
            world_add_block(&world, sender->index, sender->conn, at, sender->blocks++,
                            64 * (1 + (uint32_t)random_below(random, limit < 20 ? limit : 20))) !=
            0;
    }
    sender->failed |= fabric_rowan_post(sender->conn, sender->blocks) != 0;
}

static void send_messages(struct sender *sender, struct random *random)
{
    static _Thread_local uint8_t data[SHM_RING_BYTES + 100000];

    for (unsigned i = 0; i < 4 && sender->messages < MESSAGES; i++) {
        const bool last = sender->messages + 1 == MESSAGES; /* does not fit into the ring at once */
        const bool large = last || random_below(random, 500) == 0;
        const uint32_t bytes =
            last ? sizeof data : 8 + (uint32_t)random_below(random, large ? 190000 : 300);
        const struct fabric_iov iov = {.data = data, .bytes = bytes};

        pattern_fill(data, bytes, sender->messages);
        if (fabric_send(sender->conn, &iov, 1) != 0)
            return;
        sender->messages++;
    }
}

static void *sender_run(void *argument)
{
    struct sender *sender = argument;
    struct side *side = &world.sides[sender->index];
    struct patience patience = {0};
    struct random random;

    random_init(&random, sender->index);
    while (
        !sender->failed &&
        /* Who stops polling before the last message has come keeps a part of it. */
        (sender->landed < BLOCKS || atomic_load(&received) < SENDERS * MESSAGES) &&
        !is_over(&patience, (uint64_t)sender->landed + sender->messages + atomic_load(&received))) {
        struct fabric_event events[64];
        const unsigned count = fabric_poll(side->endpoint, now(), events, 64);

        for (unsigned i = 0; i < count; i++) {
            if (events[i].kind == FABRIC_LANDED)
                sender->landed = (uint32_t)events[i].context;
            else
                sender->failed = true;
        }
        add_blocks(sender, &random);
        send_messages(sender, &random);
        fabric_flush(side->endpoint);
    }
    atomic_fetch_sub(&senders_left, 1);
    return NULL;
}

struct owner {
    uint32_t next_block[SIDE_MAX];
    uint32_t next_message[SIDE_MAX];
    uint32_t bad_messages;
    uint64_t sealed, posted;
    struct fabric_conn *conns[SIDE_MAX];
};

static void owner_take(struct owner *owner, const struct fabric_event *event)
{
    struct side *side = &world.sides[0];
    uint64_t place;

    switch (event->kind) {
    case FABRIC_MESSAGE:
        for (uint32_t s = 1; s <= SENDERS; s++) {
            if (owner->conns[s] == event->conn)
                owner->bad_messages +=
                    !pattern_is(event->data, event->bytes, owner->next_message[s]++);
        }
        atomic_fetch_add(&received, 1);
        fabric_message_release(event->conn, event->message);
        break;
    case FABRIC_SEALED:
        assert_int_equal(event->context, owner->sealed++);
        assert_true(event->quiet);
        place = event->context % SEGMENTS;
        world_walk_segment(&world, 0, (uint32_t)place, owner->next_block);
        pm_zero(side->pm, place * SEGMENT, SEGMENT);
        assert_int_equal(fabric_zone_post(side->zone, place * SEGMENT, owner->posted++), 0);
        break;
    default:
        fail_msg("event of kind %d", (int)event->kind);
    }
}

static void threads_land_blocks_and_send_messages_in_order(enum host_kind kind)
{
    static struct owner owner;
    struct sender senders[SENDERS + 1] = {0};
    struct side *side = &world.sides[0];
    struct patience patience = {0};

    memset(&owner, 0, sizeof owner);
    open_host(kind, PM_NONE);
    world_open(&world, &host.backend, SENDERS + 1, PM_BYTES);
    side_open_zone(&world, 0, SEGMENTS, SEGMENTS);
    owner.posted = SEGMENTS;
    for (uint32_t s = 1; s <= SENDERS; s++) {
        senders[s].index = s;
        world_connect(&world, s, 0, 0, &senders[s].conn, &owner.conns[s]);
    }
    atomic_store(&senders_left, SENDERS);
    atomic_store(&received, 0);
    slow_since_ns = clock_now_ns(clock_system());
    for (uint32_t s = 1; s <= SENDERS; s++)
        assert_int_equal(pthread_create(&senders[s].thread, NULL, sender_run, &senders[s]), 0);
    for (bool more = true; more && !is_over(&patience, atomic_load(&received) + owner.sealed);) {
        struct fabric_event events[64];
        unsigned count;

        more = atomic_load(&senders_left) > 0;
        count = fabric_poll(side->endpoint, now(), events, 64);
        for (unsigned i = 0; i < count; i++)
            owner_take(&owner, &events[i]);
        fabric_flush(side->endpoint);
        for (uint32_t s = 1; s <= SENDERS; s++)
            more |= owner.next_message[s] < MESSAGES;
    }
    for (uint32_t s = 1; s <= SENDERS; s++)
        pthread_join(senders[s].thread, NULL);
    while (owner.sealed < owner.posted) /* what is still open */
        world_walk_segment(&world, 0, (uint32_t)(owner.sealed++ % SEGMENTS), owner.next_block);
    for (uint32_t s = 1; s <= SENDERS; s++) {
        assert_false(senders[s].failed);
        assert_int_equal(senders[s].landed, BLOCKS);
        assert_int_equal(owner.next_block[s], BLOCKS);
        assert_int_equal(owner.next_message[s], MESSAGES);
    }
    assert_int_equal(owner.bad_messages, 0);
    world_close(&world);
    host_fini(&host);
}

WORLD_CASE(threads_land_blocks_and_send_messages_in_order_on_shm,
           threads_land_blocks_and_send_messages_in_order(OVER_SHM))
WORLD_CASE(threads_land_blocks_and_send_messages_in_order_on_tcp,
           threads_land_blocks_and_send_messages_in_order(OVER_TCP))
WORLD_CASE(threads_land_blocks_and_send_messages_in_order_on_verbs,
           threads_land_blocks_and_send_messages_in_order(OVER_VERBS))

/* --- sleep --- */

/* A role that answers each question when there is room for the answer (F9; a question is held until then, and
 * room that comes must wake it), and lands one block for each that it asks. */
enum { UNANSWERED = 8192 };

struct sleeper {
    struct reactor *reactor;
    struct fabric_endpoint *endpoint;
    uint32_t index;
    struct fabric_conn *out; /* to the other, for blocks and questions; NULL: not connected */
    _Atomic uint64_t polls;
    _Atomic uint32_t answered, landed, sealed;
    _Atomic uint32_t to_ask;  /* questions wanted */
    _Atomic uint32_t to_post; /* segments wanted */
    uint32_t asked, posted;
    uint32_t first, end; /* of the questions that are held */
    struct question {
        struct fabric_conn *conn;
        uint64_t message;
    } questions[UNANSWERED];
};

static void take_event(struct sleeper *sleeper, const struct fabric_event *event)
{
    if (event->kind == FABRIC_CONNECTED)
        sleeper->out = event->conn;
    if (event->kind == FABRIC_LANDED)
        atomic_fetch_add(&sleeper->landed, 1);
    if (event->kind == FABRIC_SEALED)
        atomic_fetch_add(&sleeper->sealed, 1);
    if (event->kind != FABRIC_MESSAGE)
        return;
    if (event->conn == sleeper->out) {
        atomic_fetch_add(&sleeper->answered, 1);
        fabric_message_release(event->conn, event->message);
        return;
    }
    ASSERT(sleeper->end - sleeper->first < UNANSWERED);
    sleeper->questions[sleeper->end++ % UNANSWERED] =
        (struct question){event->conn, event->message};
}

static uint32_t answer(struct sleeper *sleeper)
{
    const struct fabric_iov iov = {.data = "answer", .bytes = 6};
    uint32_t count = 0;

    for (; sleeper->first != sleeper->end; sleeper->first++, count++) {
        const struct question *question = &sleeper->questions[sleeper->first % UNANSWERED];
        const int error = fabric_send(question->conn, &iov, 1);

        ASSERT(error == 0 || error == ROWAN_EAGAIN);
        if (error)
            break;
        fabric_message_release(question->conn, question->message);
    }
    return count;
}

static enum poll_result sleeper_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    const struct fabric_iov iov = {.data = "question", .bytes = 8};
    struct sleeper *sleeper = role;
    struct side *side = &world.sides[sleeper->index];
    struct fabric_event events[16];
    unsigned count = fabric_poll(sleeper->endpoint, now_ns, events, 16);

    (void)wake_ns;
    atomic_fetch_add(&sleeper->polls, 1);
    for (unsigned i = 0; i < count; i++)
        take_event(sleeper, &events[i]);
    count += answer(sleeper);
    for (; sleeper->out && sleeper->asked < atomic_load(&sleeper->to_ask); count++) {
        if (fabric_rowan_room(sleeper->out) == 0 || fabric_send(sleeper->out, &iov, 1) != 0)
            break; /* the wake-up for room is tested here, too */
        ASSERT(world_add_block(&world, sleeper->index, sleeper->out, (uint64_t)sleeper->asked * 64,
                               sleeper->asked, 64) == 0); /* each its place (F4) */
        sleeper->asked++;
        ASSERT(fabric_rowan_post(sleeper->out, 0) == 0);
    }
    for (; sleeper->posted < atomic_load(&sleeper->to_post); count++)
        ASSERT(fabric_zone_post(side->zone, (uint64_t)sleeper->posted++ * SEGMENT, 0) == 0);
    fabric_flush(sleeper->endpoint);
    return count > 0 ? POLL_BUSY : POLL_IDLE;
}

static void start_sleeper(struct sleeper *sleeper, uint32_t index)
{
    const struct reactor_options options = {.name = "sleeper", .clock = clock_system(), .cpu = -1};
    const struct poller poller = {.name = "sleeper", .poll = sleeper_poll, .role = sleeper};
    struct event_source source;

    sleeper->index = index;
    sleeper->endpoint = world.sides[index].endpoint;
    assert_int_equal(reactor_create(&options, &sleeper->reactor), 0);
    assert_int_equal(reactor_add_poller(sleeper->reactor, &poller), 0);
    fabric_endpoint_source(sleeper->endpoint, &source);
    assert_int_equal(reactor_add_source(sleeper->reactor, &source), 0);
    assert_int_equal(reactor_start(sleeper->reactor), 0);
}

static bool is_asleep(struct sleeper *sleeper)
{
    const uint64_t before = atomic_load(&sleeper->polls);

    for (unsigned i = 0; i < 20; i++)
        wait_pause();
    return atomic_load(&sleeper->polls) == before;
}

static void ask(struct sleeper *sleeper, uint32_t questions)
{
    atomic_fetch_add(&sleeper->to_ask, questions);
    reactor_wake(sleeper->reactor);
}

static void sleepers_are_woken(enum host_kind kind, enum pm_durability durability)
{
    static struct sleeper owner, asker;
    struct fabric_conn *conn;
    uint32_t asked = 0;

    memset(&owner, 0, sizeof owner);
    memset(&asker, 0, sizeof asker);
    open_host(kind, durability);
    world_open(&world, &host.backend, 2, PM_BYTES);
    side_open_zone(&world, 0, SEGMENTS, 0);
    start_sleeper(&owner, 0);
    assert_true(WAIT_FOR(is_asleep(&owner)));
    assert_int_equal(fabric_connect(world.sides[1].endpoint, host_address(&host, 0), 0, 0, &conn),
                     0);
    start_sleeper(&asker, 1);
    for (unsigned round = 0; round < 30; round++) {
        const uint32_t questions = 1 + round * round * 3;

        ask(&asker, questions);
        asked += questions;
        assert_true(WAIT_FOR(atomic_load(&asker.answered) == asked));
        if (round == 5) { /* until now the zone was dry */
            assert_int_equal(atomic_load(&asker.landed), 0);
            assert_true(WAIT_FOR(is_asleep(&asker) || is_asleep(&asker)));
            atomic_store(&owner.to_post, SEGMENTS);
            reactor_wake(owner.reactor);
        }
        if (round >= 5)
            assert_true(WAIT_FOR(atomic_load(&asker.landed) == asked));
        if (round % 5 == 0)
            assert_true(WAIT_FOR(is_asleep(&owner) && is_asleep(&asker)));
    }
    reactor_stop(owner.reactor);
    reactor_stop(asker.reactor);
    reactor_join(owner.reactor);
    reactor_join(asker.reactor);
    reactor_destroy(owner.reactor);
    reactor_destroy(asker.reactor);
    world_close(&world);
    host_fini(&host);
}

WORLD_CASE(sleepers_are_woken_by_messages_connections_and_segments,
           sleepers_are_woken(OVER_SHM, PM_NONE))
WORLD_CASE(sleepers_are_woken_by_fences, sleepers_are_woken(OVER_SHM, PM_FENCE))
WORLD_CASE(sleepers_are_woken_by_sockets, sleepers_are_woken(OVER_TCP, PM_NONE))
WORLD_CASE(sleepers_are_woken_for_acknowledgements_after_the_fence,
           sleepers_are_woken(OVER_TCP, PM_FENCE))
WORLD_CASE(sleepers_are_woken_by_completions, sleepers_are_woken(OVER_VERBS, PM_NONE))

UNIT_MAIN(NULL, NULL)
