/* verbs_resolve_test.c - address handles, for which the kernel may take a second: nobody else waits meanwhile. */
#define TEST_FIXTURE open_sides, close_sides

#include <poll.h>
#include <sched.h>

#include "common/base/error.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "test/lib/soft_verbs.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { PM_BYTES = 1 << 20, SIDES = 3 };

static int open_sides(void **state)
{
    (void)state;
    soft_verbs_configure(&(struct soft_config){.seed = 1});
    host_init_verbs(&host, FABRIC_RECEIVE_SHARED, 0);
    world_open(&world, &host.backend, SIDES, PM_BYTES);
    return 0;
}

static int close_sides(void **state)
{
    soft_verbs_hold_ahs(false);
    return close_host(state);
}

static struct fabric_conn *connect_to(unsigned from, unsigned to)
{
    struct fabric_conn *conn;

    assert_int_equal(
        fabric_connect(world.sides[from].endpoint, host_address(&host, to), 0, to, &conn), 0);
    return conn;
}

static void wait_held(uint32_t count)
{
    const uint64_t end_ns = host_now_ns(&host) + 60 * NS_PER_S;

    while (soft_verbs_held_ahs() < count) {
        assert_true(host_now_ns(&host) < end_ns);
        world_poll(&world);
        sched_yield();
    }
}

static struct soft_stats stats(void)
{
    struct soft_stats found;

    soft_verbs_stats(&found);
    return found;
}

TEST(an_address_that_takes_long_holds_up_no_other_connection)
{
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};
    struct fabric_conn *active, *passive, *late;

    world_connect(&world, 1, 0, 0, &active, &passive);
    soft_verbs_hold_ahs(true);
    late = connect_to(2, 0);
    wait_held(1);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(fabric_send(active, &iov, 1), 0);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        fabric_message_release(passive, side_event(&world.sides[0], FABRIC_MESSAGE, i)->message);
    }
    assert_int_equal(side_count(&world.sides[0], FABRIC_ACCEPTED), 1);
    assert_int_equal(side_count(&world.sides[2], FABRIC_CONNECTED), 0);
    assert_int_equal(fabric_send(late, &iov, 1), ROWAN_ECLOSED);
    soft_verbs_hold_ahs(false);
    world_wait(&world, 2, FABRIC_CONNECTED, 1);
    world_wait(&world, 0, FABRIC_ACCEPTED, 2);
}

TEST(a_handshake_that_takes_too_long_ends_though_the_kernel_still_looks)
{
    soft_verbs_hold_ahs(true);
    connect_to(2, 0);
    wait_held(1);
    host.skipped_ns += VERBS_HANDSHAKE_NS + NS_PER_S;
    world_wait(&world, 2, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[2], FABRIC_CLOSED, 0)->error, ROWAN_EUNREACHABLE);
    soft_verbs_hold_ahs(false);
    connect_to(2, 0); /* what was made for the first is not taken for the second */
    world_wait(&world, 2, FABRIC_CONNECTED, 1);
    world_wait(&world, 0, FABRIC_ACCEPTED, 1);
    assert_int_equal(stats().ahs, 2);
}

/* How many addresses are known for not answering. */
static uint32_t silent(unsigned side)
{
    struct verbs_resolver *resolver =
        &((struct verbs_endpoint *)world.sides[side].endpoint)->fabric->resolver;
    uint32_t count;

    pthread_mutex_lock(&resolver->mutex);
    count = resolver->silent_count;
    pthread_mutex_unlock(&resolver->mutex);
    return count;
}

TEST(an_address_that_nobody_has_is_unreachable)
{
    soft_verbs_hold_ahs(true);
    connect_to(2, 0);
    wait_held(1);
    soft_verbs_fail_call(1, EHOSTUNREACH);
    soft_verbs_hold_ahs(false);
    world_wait(&world, 2, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[2], FABRIC_CLOSED, 0)->error, ROWAN_EUNREACHABLE);
    assert_int_equal(side_count(&world.sides[0], FABRIC_ACCEPTED), 0);
    assert_int_equal(silent(0), 1);
    connect_to(2, 0);
    world_wait(&world, 0, FABRIC_ACCEPTED, 1);
    assert_int_equal(silent(0), 0);
}

TEST(an_endpoint_closes_while_the_kernel_looks)
{
    soft_verbs_hold_ahs(true);
    connect_to(2, 0);
    connect_to(1, 0);
    wait_held(1);
    fabric_endpoint_close(world.sides[0].endpoint); /* one is looked for, one waits */
    world.sides[0].endpoint = NULL;
    soft_verbs_hold_ahs(false);
    fabric_close(world.sides[0].fabric);
    world.sides[0].fabric = NULL;
    assert_int_equal(stats().ahs, 0);
    for (unsigned side = 1; side < 3; side++)
        assert_int_equal(side_count(&world.sides[side], FABRIC_CONNECTED), 0);
}

TEST(too_many_that_wait_are_refused)
{
    struct verbs_resolver *resolver =
        &((struct verbs_endpoint *)world.sides[0].endpoint)->fabric->resolver;

    pthread_mutex_lock(&resolver->mutex);
    resolver->count += VERBS_JOBS; /* as if others waited */
    pthread_mutex_unlock(&resolver->mutex);
    connect_to(2, 0);
    world_wait(&world, 2, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[2], FABRIC_CLOSED, 0)->error, ROWAN_ETOOMANY);
    pthread_mutex_lock(&resolver->mutex);
    resolver->count -= VERBS_JOBS;
    pthread_mutex_unlock(&resolver->mutex);
    connect_to(2, 0);
    world_wait(&world, 2, FABRIC_CONNECTED, 1);
}

static uint32_t waiting(unsigned side)
{
    struct verbs_resolver *resolver =
        &((struct verbs_endpoint *)world.sides[side].endpoint)->fabric->resolver;
    uint32_t count = 0;

    pthread_mutex_lock(&resolver->mutex);
    for (const struct verbs_job *job = resolver->jobs.first; job; job = job->link.next)
        count++;
    pthread_mutex_unlock(&resolver->mutex);
    return count;
}

TEST(what_a_connection_that_ended_wanted_is_taken_back)
{
    struct fabric_conn *conns[2];

    soft_verbs_hold_ahs(true);
    for (unsigned i = 0; i < 2; i++)
        conns[i] = connect_to(1 + i, 0);
    wait_held(1);
    while (waiting(0) == 0)
        world_poll(&world);
    for (unsigned i = 0; i < 2; i++)
        fabric_conn_close(conns[i]);
    while (((struct endpoint *)world.sides[0].endpoint)->counts[LIST_HANDSHAKE] > 0)
        world_poll(&world);
    assert_int_equal(waiting(0), 0);
    assert_int_equal(soft_verbs_held_ahs(), 1);
}

TEST(who_sleeps_is_woken_when_the_address_is_there)
{
    const struct verbs_endpoint *endpoint = (struct verbs_endpoint *)world.sides[0].endpoint;
    struct event_source source;

    fabric_endpoint_source(world.sides[0].endpoint, &source);
    soft_verbs_hold_ahs(true);
    connect_to(2, 0);
    wait_held(1);
    source.arm(source.context);
    side_poll(&world, 0);
    source.disarm(source.context); /* takes what else there was to wake it */
    source.arm(source.context);
    side_poll(&world, 0);
    soft_verbs_hold_ahs(false);
    /* Not the timer, that looks at handshakes now and then. */
    assert_int_equal(poll(&(struct pollfd){.fd = endpoint->wake_fd, .events = POLLIN}, 1, 60000),
                     1);
    while (side_count(&world.sides[0], FABRIC_ACCEPTED) == 0) {
        assert_int_equal(poll(&(struct pollfd){.fd = source.fd, .events = POLLIN}, 1, 60000), 1);
        source.disarm(source.context);
        side_poll(&world, 0);
        side_poll(&world, 2);
        source.arm(source.context);
        side_poll(&world, 0);
    }
    source.disarm(source.context);
}

/* --- the order --- */

static struct verbs_job jobs[6];

static void assert_order(struct verbs_resolver *resolver, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_ptr_equal(verbs_resolver_next(resolver), &jobs[numbers[i]]);
    assert_null(verbs_resolver_next(resolver));
}

static void wait_in(struct verbs_resolver *resolver, const uint8_t *hosts, uint32_t count)
{
    resolver->jobs.first = resolver->jobs.last = NULL;
    for (uint32_t i = 0; i < count; i++) {
        jobs[i] = (struct verbs_job){.waits = true};
        jobs[i].attributes.grh.dgid.raw[15] = hosts[i];
        LIST_APPEND(&resolver->jobs, &jobs[i], link);
    }
}

static union ibv_gid gid_of(uint32_t number)
{
    union ibv_gid gid = {.raw = {[14] = (uint8_t)(number >> 8), [15] = (uint8_t)number}};

    return gid;
}

TEST_WITH(who_did_not_answer_comes_behind_all_others, NULL, NULL)
{
    static const uint8_t hosts[] = {7, 7, 8, 9, 7, 8};
    static struct verbs_resolver resolver;
    const union ibv_gid seven = gid_of(7), nine = gid_of(9);

    wait_in(&resolver, hosts, 6);
    assert_order(&resolver, (const uint32_t[]){0, 1, 2, 3, 4, 5}, 6);
    verbs_resolver_remember(&resolver, &seven, false);
    verbs_resolver_remember(&resolver, &nine, false);
    verbs_resolver_remember(&resolver, &seven, false);
    wait_in(&resolver, hosts, 6);
    assert_order(&resolver, (const uint32_t[]){2, 5, 0, 1, 3, 4}, 6);
    verbs_resolver_remember(&resolver, &seven, true);
    wait_in(&resolver, hosts, 6);
    assert_order(&resolver, (const uint32_t[]){0, 1, 2, 4, 5, 3}, 6);
    for (uint32_t i = 1000; i < 1000 + 2 * VERBS_SILENT; i++) { /* the longest known go */
        const union ibv_gid gid = gid_of(i);

        verbs_resolver_remember(&resolver, &gid, false);
    }
    wait_in(&resolver, hosts, 6);
    assert_order(&resolver, (const uint32_t[]){0, 1, 2, 3, 4, 5}, 6);
}

UNIT_MAIN(NULL, NULL)
