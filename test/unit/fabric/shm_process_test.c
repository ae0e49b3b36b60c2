/* shm_process_test.c - landing zones between real processes: senders that are killed or stopped at
 * any step of a claim or at any moment, and a stopped owner.
 *
 * Children only send. Each notes in shared memory how many of its blocks were reported as landed;
 * the parent owns the zone and checks that it has them all, each whole, in the sender's order, at
 * 64 B strides.
 */
#define TEST_FIXTURE open_host, close_host

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "common/base/random.h"
#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"
#include "test/unit/fabric/fabric_host.h"

enum { SENDERS = 3, SEGMENT = FABRIC_SEGMENT_BYTES, SEGMENTS = 6, DEPTH = 4 };
enum { PM_BYTES = 32 << 20, BLOCK_PLACES = 8192, NEVER = -1 };

/* When a child ends itself, by `signal`, at the nth time it comes to `step`. */
struct fate {
    int step;
    unsigned nth;
    int signal;
};

struct ledger {
    _Atomic uint32_t landed[SIDE_MAX]; /* blocks, by sender */
};

static struct fabric_host host;
static struct world world;
static struct ledger *ledger;
static struct fate fate;
static pid_t children[SENDERS + 1]; /* by sender number, from 1 */

/* --- a child --- */

static void meet_fate(enum shm_step step, struct shm_conn *conn)
{
    (void)conn;
    if ((int)step == fate.step && fate.nth-- == 0)
        raise(fate.signal);
}

static void child_send(struct fabric_conn *conn, uint32_t sender, struct random *random,
                       uint32_t *number)
{
    uint32_t blocks = 1 + (uint32_t)random_below(random, 16);

    if (fabric_rowan_room(conn) < blocks)
        return;
    while (blocks-- > 0) {
        const uint64_t at = (uint64_t)(*number % BLOCK_PLACES) * (PM_BYTES / BLOCK_PLACES);

        world_add_block(&world, sender, conn, at, (*number)++,
                        64 * (1 + (uint32_t)random_below(random, 40)));
    }
    fabric_rowan_post(conn, *number);
}

/* Sends until its connection breaks. */
static void child_run(uint32_t sender, uint64_t seed)
{
    struct side *side = &world.sides[sender];
    const struct fabric_identity identity = {.cluster = 7, .id = sender, .kind = FABRIC_SERVER};
    struct fabric_conn *conn = NULL;
    struct random random;
    uint32_t number = 0;
    bool connected = false;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    random_init(&random, seed + sender);
    shm_step_hook_installed = meet_fate;
    if (fabric_open("shm", NULL, &side->fabric) || host_pm(&host, PM_BYTES, &side->pm) ||
        fabric_register(side->fabric, side->pm) ||
        fabric_endpoint_open(side->fabric, 0, &side->endpoint))
        _exit(3);
    fabric_endpoint_identity(side->endpoint, &identity);
    for (;;) {
        struct fabric_event events[64];
        unsigned count;

        if (!conn && fabric_connect(side->endpoint, host_address(&host, 0), 0, 0, &conn))
            _exit(4);
        count = fabric_poll(side->endpoint, clock_now_ns(clock_system()), events, 64);
        for (unsigned i = 0; i < count; i++) {
            if (events[i].kind == FABRIC_CONNECTED)
                connected = true;
            if (events[i].kind == FABRIC_LANDED)
                atomic_store(&ledger->landed[sender], (uint32_t)events[i].context);
            if (events[i].kind == FABRIC_CLOSED && connected)
                _exit(0);
            if (events[i].kind == FABRIC_CLOSED)
                conn = NULL; /* the owner is not there yet */
        }
        if (connected)
            child_send(conn, sender, &random, &number);
        fabric_flush(side->endpoint);
    }
}

static void start_sender(uint32_t sender, uint64_t seed, struct fate its_fate)
{
    children[sender] = fork();
    assert_true(children[sender] >= 0);
    if (children[sender] == 0) {
        fate = its_fate;
        host.files = 100 * sender;
        child_run(sender, seed);
    }
}

/* --- the owner --- */

static uint32_t next_number[SIDE_MAX]; /* of each sender's blocks, as found in the zone */
static uint32_t events_seen;
static uint64_t posts[1 << 16]; /* places, by post */
static uint32_t posted, sealed;
static uint64_t spares[SEGMENTS]; /* places that may be posted */
static uint32_t spare_count;

static void post_spares(void)
{
    while (posted - sealed < DEPTH && spare_count > 0) {
        assert_true(posted < 1 << 16);
        posts[posted] = spares[--spare_count];
        assert_int_equal(fabric_zone_post(world.sides[0].zone, posts[posted], posted), 0);
        posted++;
    }
}

/* Blocks and, where a claim was void, bytes that mean nothing. */
static void scan_segment(uint64_t place)
{
    const struct pm *pm = world.sides[0].pm;

    for (uint64_t at = place; at < place + SEGMENT;) {
        struct block_head head;

        if (!block_is_whole(pm_at(pm, at), place + SEGMENT - at, &head)) {
            at += FABRIC_STRIDE;
            continue;
        }
        assert_true(head.sender >= 1 && head.sender <= SENDERS);
        assert_int_equal(head.number, next_number[head.sender]++);
        at += head.bytes;
    }
}

static void recycle(uint64_t place)
{
    pm_zero(world.sides[0].pm, place, SEGMENT);
    spares[spare_count++] = place;
}

static void owner_poll(void)
{
    struct side *side = &world.sides[0];

    side_poll(&world, 0);
    for (; events_seen < side->event_count; events_seen++) {
        const struct fabric_event *event = &side->events[events_seen];

        if (event->kind == FABRIC_SEALED) {
            assert_int_equal(event->context, sealed++);
            scan_segment(posts[event->context]);
        }
        if ((event->kind == FABRIC_SEALED && event->quiet) || event->kind == FABRIC_QUIET)
            recycle(posts[event->context]);
        post_spares();
    }
}

static bool owner_polls_until(bool (*condition)(uint32_t), uint32_t argument)
{
    const uint64_t end_ns = clock_now_ns(clock_system()) + 20 * NS_PER_S;

    while (!condition(argument)) {
        if (clock_now_ns(clock_system()) > end_ns)
            return false;
        owner_poll();
    }
    return true;
}

static bool is_sealed(uint32_t count)
{
    return sealed >= count;
}

static bool has_unquiet(uint32_t count)
{
    const struct side *side = &world.sides[0];
    uint32_t found = 0;

    for (uint32_t i = 0; i < side->event_count; i++)
        found += side->events[i].kind == FABRIC_SEALED && !side->events[i].quiet;
    return found >= count;
}

static bool has_quiet(uint32_t count)
{
    return side_count(&world.sides[0], FABRIC_QUIET) >= count;
}

/* The first child has ended, or with WUNTRACED been stopped. */
static bool has_changed_state(uint32_t flags)
{
    return waitpid(children[1], NULL, WNOHANG | (int)flags) == children[1];
}

static void owner_polls_for(uint64_t ns)
{
    const uint64_t end_ns = clock_now_ns(clock_system()) + ns;

    while (clock_now_ns(clock_system()) < end_ns)
        owner_poll();
}

static void owner_open(void)
{
    memset(next_number, 0, sizeof next_number);
    events_seen = posted = sealed = spare_count = 0;
    world_open(&world, &host.backend, 1, PM_BYTES);
    assert_int_equal(
        fabric_zone_open(world.sides[0].endpoint, world.sides[0].pm, DEPTH, &world.sides[0].zone),
        0);
    for (uint32_t i = 0; i < SEGMENTS; i++)
        spares[spare_count++] = (uint64_t)i * SEGMENT;
    post_spares();
}

/* Ends all children; what was reported as landed is in the zone. */
static void finish(void)
{
    for (uint32_t sender = 1; sender <= SENDERS; sender++) {
        if (children[sender] > 0) {
            kill(children[sender], SIGKILL);
            waitpid(children[sender], NULL, 0);
        }
        children[sender] = 0;
    }
    owner_polls_for(5 * NS_PER_MS);
    for (uint32_t post = sealed; post < posted; post++)
        scan_segment(posts[post]);
    for (uint32_t sender = 1; sender <= SENDERS; sender++)
        assert_true(next_number[sender] >= atomic_load(&ledger->landed[sender]));
    world_close(&world);
}

static int open_host(void **state)
{
    (void)state;
    host_init(&host, OVER_SHM);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ledger != MAP_FAILED);
    memset(&world, 0, sizeof world);
    return 0;
}

static int close_host(void **state)
{
    (void)state;
    for (uint32_t sender = 1; sender <= SENDERS; sender++) {
        if (children[sender] > 0)
            kill(children[sender], SIGKILL);
        children[sender] = 0;
    }
    munmap(ledger, sizeof *ledger);
    host_fini(&host);
    return 0;
}

/* --- cases --- */

static const struct fate no_fate = {.step = NEVER};

static void start_all(uint64_t seed, struct fate of_first)
{
    for (uint32_t sender = 1; sender <= SENDERS; sender++) /* before there is anything to inherit */
        start_sender(sender, seed, sender == 1 ? of_first : no_fate);
    owner_open();
}

static void killed_at(enum shm_step step)
{
    for (unsigned round = 0; round < 2; round++) {
        uint32_t before;

        memset(ledger, 0, sizeof *ledger);
        start_all(round, (struct fate){.step = (int)step,
                                       .nth = step == STEP_FULL ? 1 : 100 + 1000 * round,
                                       .signal = SIGKILL});
        assert_true(owner_polls_until(has_changed_state, 0));
        children[1] = 0;
        before = sealed;
        assert_true(owner_polls_until(is_sealed, before + DEPTH + 2)); /* the others go on */
        finish();
    }
}

WORLD_CASE(a_sender_killed_before_it_claims_holds_nothing_up, killed_at(STEP_INTENT))
WORLD_CASE(a_sender_killed_after_it_closed_a_segment_holds_nothing_up, killed_at(STEP_FULL))
WORLD_CASE(a_sender_killed_after_it_claimed_holds_nothing_up, killed_at(STEP_CLAIMED))
WORLD_CASE(a_sender_killed_before_it_was_done_holds_nothing_up, killed_at(STEP_STORED))
WORLD_CASE(a_sender_killed_when_it_was_done_holds_nothing_up, killed_at(STEP_DONE))

TEST(senders_killed_at_any_moment_hold_nothing_up)
{
    struct random random;

    random_init(&random, 9);
    for (unsigned round = 0; round < 10; round++) {
        uint32_t before;

        memset(ledger, 0, sizeof *ledger);
        start_all(100 + round, no_fate);
        assert_true(owner_polls_until(is_sealed, 1));
        owner_polls_for(random_below(&random, 10 * NS_PER_MS));
        kill(children[1 + round % 2], SIGKILL);
        owner_polls_for(random_below(&random, 2 * NS_PER_MS));
        kill(children[2 - round % 2], SIGKILL);
        before = sealed;
        assert_true(owner_polls_until(is_sealed, before + DEPTH + 2));
        finish();
    }
}

static void stopped_at(enum shm_step step)
{
    start_all(7, (struct fate){.step = (int)step, .nth = 500, .signal = SIGSTOP});
    assert_true(owner_polls_until(has_changed_state, WUNTRACED));
    owner_polls_for(20 * NS_PER_MS); /* the others close its segment, and wait for the next */
    for (uint64_t ns = 0; ns < 2 * SHM_VOID_NS && !has_unquiet(1); ns += SHM_VOID_STEP_NS) {
        host.skipped_ns += SHM_VOID_STEP_NS; /* a longer one would count no more */
        owner_polls_for(SHM_CHECK_NS);
    }
    assert_true(has_unquiet(1));
    assert_true(owner_polls_until(is_sealed, sealed + DEPTH));      /* the others go on */
    assert_int_equal(side_count(&world.sides[0], FABRIC_QUIET), 0); /* it may be storing yet */
    kill(children[1], SIGCONT);
    assert_true(owner_polls_until(has_quiet, 1));
    assert_true(owner_polls_until(is_sealed, sealed + DEPTH));
    assert_int_equal(waitpid(children[1], NULL, 0), children[1]); /* its connection broke */
    children[1] = 0;
    finish();
    host.skipped_ns = 0;
}

WORLD_CASE(a_sender_stopped_after_it_claimed_is_voided, stopped_at(STEP_CLAIMED))
WORLD_CASE(a_sender_stopped_before_it_was_done_is_voided, stopped_at(STEP_STORED))

/* --- a stopped owner --- */

static void owner_child_run(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    owner_open();
    for (;;)
        owner_poll();
}

TEST(a_stopped_owner_stops_no_sender_before_its_zone_is_dry)
{
    enum { BYTES = 32 << 10, FIT = SEGMENT / BYTES, COUNT = (DEPTH + 2) * FIT };
    const pid_t owner = fork();
    const uint64_t end_ns = clock_now_ns(clock_system()) + 20 * NS_PER_S;
    struct fabric_conn *conn = NULL;
    uint32_t tries = 0;

    if (owner == 0)
        owner_child_run();
    host.files = 1000;
    world_open_some(&world, &host.backend, 1, 2, PM_BYTES);
    while (side_count(&world.sides[1], FABRIC_CONNECTED) == 0) {
        assert_true(clock_now_ns(clock_system()) < end_ns);
        if (side_count(&world.sides[1], FABRIC_CLOSED) == tries) {
            assert_int_equal(
                fabric_connect(world.sides[1].endpoint, host_address(&host, 0), 0, 0, &conn), 0);
            tries++;
        }
        side_poll(&world, 1);
    }
    kill(owner, SIGSTOP);
    waitpid(owner, NULL, WUNTRACED);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(world_add_block(&world, 1, conn, (uint64_t)i * BYTES % PM_BYTES, i, BYTES),
                         0);
        assert_int_equal(fabric_rowan_post(conn, i), 0);
        side_poll(&world, 1);
    }
    while (side_count(&world.sides[1], FABRIC_LANDED) < DEPTH * FIT) {
        assert_true(clock_now_ns(clock_system()) < end_ns);
        side_poll(&world, 1);
    }
    for (unsigned i = 0; i < 1000; i++)
        side_poll(&world, 1);
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), DEPTH * FIT); /* F8 */
    assert_int_equal(fabric_rowan_room(conn),
                     fabric_caps(world.sides[1].fabric)->max_batch_blocks - 2 * FIT);
    kill(owner, SIGCONT);
    while (side_count(&world.sides[1], FABRIC_LANDED) < COUNT) {
        assert_true(clock_now_ns(clock_system()) < end_ns);
        side_poll(&world, 1);
    }
    kill(owner, SIGKILL); /* and its death is seen */
    waitpid(owner, NULL, 0);
    world_wait(&world, 1, FABRIC_CLOSED, tries);
    world_close(&world);
}

UNIT_MAIN(NULL, NULL)
