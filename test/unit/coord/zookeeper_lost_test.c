/* zookeeper_lost_test.c - what becomes of requests, watches and leadership when a ZooKeeper server or a session ends. */
#define TEST_FIXTURE open_owners, close_owners

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include "common/base/error.h"
#include "test/lib/coord_owner.h"
#include "test/lib/unit.h"
#include "test/unit/coord/zookeeper_fixture.h"

static struct owner alice, bob;

/* A resolver that takes as long over slow.test as this is held, before the C library's. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    look_up *next;
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "slow.test") != 0)
        return next(host, service, hints, out);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return next("127.0.0.1", service, hints, out);
}

static int open_owners(void **state)
{
    (void)state;
    path_number++;
    alice = (struct owner){.coord = open_handle(SESSION_MS)};
    bob = (struct owner){.coord = open_handle(SESSION_MS)};
    return 0;
}

static int close_owners(void **state)
{
    (void)state;
    coord_close(alice.coord);
    coord_close(bob.coord);
    return 0;
}

/* Alice's process stands still: the ensemble hears nothing of her. */
TEST(who_is_silent_for_longer_than_its_session_leads_no_more)
{
    coord_close(alice.coord);
    alice.coord = open_handle(SHORT_SESSION_MS);
    assert_int_equal(cas_value(&alice, 0, "x", 1), 0);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(read_value(&alice),
                         0); /* the second was handed over behind the watch: that is set */
    assert_int_equal(coord_elect(bob.coord, on_leader, &bob), 0);
    assert_true(WAIT_FOR(has_won(&bob)));
    assert_int_equal(cas_value(&bob, 1, "x", 1), 0);

    /* She learns both, and goes on in a session of her own. */
    assert_true(WAIT_FOR(has_lost(&alice)));
    assert_true(WAIT_FOR((poll_owner(&alice), alice.changes > 0)));
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 2);
    assert_int_equal(cas_value(&alice, 2, "x", 1), 0);
    assert_int_equal(alice.wins, 1);
    coord_close(bob.coord);
    bob.coord = NULL;
    assert_true(WAIT_FOR(has_won(&alice)));
}

TEST(requests_wait_for_a_server_that_is_away)
{
    assert_int_equal(cas_value(&alice, 0, "x", 1), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_int_equal(read_value(&bob), 0); /* he is connected */
    zookeeper_server_kill(&server);
    assert_true(WAIT_FOR(has_lost(&alice))); /* nobody knows when her session ends */
    alice.answered = bob.answered = false;
    assert_int_equal(coord_read(alice.coord, on_read, &alice), 0);
    assert_int_equal(coord_cas(bob.coord, 1, "y", 1, on_cas, &bob), 0);
    for (int i = 0; i < 100; i++)
        assert_false(is_answered(&alice) || is_answered(&bob));
    zookeeper_server_start(&server);
    assert_true(WAIT_FOR(is_answered(&alice)));
    assert_true(alice.error == 0 && alice.version >= 1);
    assert_true(WAIT_FOR(is_answered(&bob)));
    assert_int_equal(bob.error, ROWAN_EUNKNOWN); /* it may be wrong by now */
    assert_int_equal(read_value(&bob), 0);
    assert_int_equal(bob.version, 1);
    assert_int_equal(cas_value(&bob, 1, "y", 1), 0);
    assert_true(WAIT_FOR((poll_owner(&alice), alice.changes > 0)));
    assert_true(WAIT_FOR(has_won(&alice)));
}

/* The server takes it from its socket or does not: it is stopped when it comes, and killed. A read is asked again. */
TEST(of_a_compare_and_set_whose_connection_breaks_nobody_knows)
{
    assert_int_equal(cas_value(&alice, 0, "x", 1), 0);
    assert_int_equal(read_value(&bob), 0);
    kill(server.pid, SIGSTOP);
    alice.answered = bob.answered = false;
    assert_int_equal(coord_cas(alice.coord, 1, "x", 1, on_cas, &alice), 0);
    assert_int_equal(coord_read(bob.coord, on_read, &bob), 0);
    for (int i = 0; i < 10; i++) { /* handed over, and sent */
        poll_owner(&alice);
        poll_owner(&bob);
    }
    assert_false(alice.answered || bob.answered);
    zookeeper_server_kill(&server);
    assert_true(WAIT_FOR(is_answered(&alice)));
    assert_int_equal(alice.error, ROWAN_EUNKNOWN);
    assert_false(is_answered(&bob));
    zookeeper_server_start(&server);
    assert_true(WAIT_FOR(is_answered(&bob)));
    assert_int_equal(bob.error, 0);
    assert_int_equal(read_value(&alice), 0);
    assert_true(alice.version == 1 || alice.version == 2);
    assert_int_equal(cas_value(&alice, alice.version, "x", 1), 0);
}

TEST(a_leader_whose_node_was_removed_learns_it_and_leads_again)
{
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    char path[64];
    snprintf(path, sizeof path, "/a/case/%u/leader", path_number);
    zookeeper_server_delete(&server, path);
    assert_true(WAIT_FOR(has_lost(&alice)));
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_int_equal(alice.wins, 2);
}

TEST(a_resolver_that_takes_long_holds_up_nobody_and_is_waited_for)
{
    char ensemble[128];
    coord_close(alice.coord);
    pthread_mutex_lock(&gate);
    snprintf(ensemble, sizeof ensemble, "slow.test:%u/a/case/%u", server.port, path_number);
    assert_int_equal(coord_open_zookeeper(ensemble, NULL, SESSION_MS, NULL, &alice.coord), 0);
    assert_int_equal(coord_cas(alice.coord, 0, "x", 1, on_cas, &alice), 0);
    for (int i = 0; i < 100; i++)
        assert_false(is_answered(&alice));
    pthread_mutex_unlock(&gate);
    assert_true(WAIT_FOR(is_answered(&alice)));
    assert_int_equal(alice.error, 0);
}

TEST(only_what_has_the_form_is_an_ensemble)
{
    const char *right[] = {"zk:2181", "a:1,b:2,c:3", "[::1]:2181/x", "a:1,b:2/x/y.z", "a:1/..."};
    const char *wrong[] = {"",        "zk",       "zk:",     ":2181",        "zk:2181,",
                           "zk:21x",  "zk :2181", "a:1/",    "a:1//x",       "a:1/x/",
                           "a:1/./x", "a:1/../x", "a:1/x y", "a:1/x,b:2/y ", "a:1/q,b:2/q"};
    struct coord *coord;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        assert_true(coord_zookeeper_is_right(right[i]));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(coord_zookeeper_is_right(wrong[i]));
        assert_int_equal(coord_open_zookeeper(wrong[i], NULL, SESSION_MS, NULL, &coord),
                         ROWAN_EINVALID);
    }
}

int main(void)
{
    if (!start_server())
        return 0;
    int failed = unit_run(NULL, NULL);
    zookeeper_server_fini(&server);
    return failed;
}
