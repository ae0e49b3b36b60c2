/* zookeeper_acl_test.c - who has not the managers' secret neither reads nor writes what they keep in ZooKeeper. */
#define TEST_FIXTURE open_owners, close_owners

#include "common/base/error.h"
#include "test/lib/coord_owner.h"
#include "test/lib/unit.h"
#include "test/unit/coord/zookeeper_fixture.h"

#define LOGIN "rowan:0123456789abcdef"

/* Alice and Bob have it, Eve has none, Mallory another one. */
static struct owner alice, bob, eve, mallory;

static int open_owners(void **state)
{
    (void)state;
    path_number++;
    alice = (struct owner){.coord = open_handle_as(LOGIN, SESSION_MS)};
    bob = (struct owner){.coord = open_handle_as(LOGIN, SESSION_MS)};
    eve = (struct owner){.coord = open_handle(SESSION_MS)};
    mallory = (struct owner){.coord = open_handle_as("rowan:another", SESSION_MS)};
    return 0;
}

static int close_owners(void **state)
{
    (void)state;
    coord_close(alice.coord);
    coord_close(bob.coord);
    coord_close(eve.coord);
    coord_close(mallory.coord);
    return 0;
}

static bool is_refused(struct owner *owner)
{
    poll_owner(&alice); /* she may be about to close the nodes */
    return read_value(owner) == ROWAN_EPERMISSION;
}

static void nobody_else_reads_or_writes(uint64_t version)
{
    struct owner *others[] = {&eve, &mallory};
    for (unsigned i = 0; i < 2; i++) {
        assert_true(is_refused(others[i]));
        assert_int_equal(cas_value(others[i], version, "theirs", 6), ROWAN_EPERMISSION);
        assert_int_equal(cas_value(others[i], 0, "theirs", 6), ROWAN_EPERMISSION);
    }
    assert_int_equal(read_value(&bob), 0);
    assert_int_equal(bob.version, version);
    assert_memory_equal(bob.value, "ours", 4);
}

/* Of the node itself, of its parent, in which it could be made anew, and of the leader's. */
static void nobody_else_is_on_the_lists(bool with_leader)
{
    static const char *const nodes[] = {"", "/value", "/leader"};
    char path[64], acl[256];
    for (unsigned i = 0; i < 2U + with_leader; i++) {
        snprintf(path, sizeof path, "/a/case/%u%s", path_number, nodes[i]);
        zookeeper_server_acl(&server, LOGIN, path, acl, sizeof acl);
        assert_non_null(strstr(acl, "'digest,'rowan:"));
        assert_null(strstr(acl, "world"));
    }
}

TEST(without_the_secret_nobody_reads_or_writes)
{
    assert_int_equal(cas_value(&alice, 0, "ours", 4), 0);
    nobody_else_reads_or_writes(1);
    assert_int_equal(coord_elect(bob.coord, on_leader, &bob), 0);
    assert_true(WAIT_FOR(has_won(&bob)));
    nobody_else_is_on_the_lists(true);
}

TEST(nodes_that_were_open_are_closed_by_the_next_who_stores_with_the_secret)
{
    assert_int_equal(cas_value(&eve, 0, "open", 4), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(cas_value(&eve, 1, "open", 4), 0); /* who only reads locks nobody out */
    assert_int_equal(cas_value(&alice, 2, "ours", 4), 0);
    assert_true(WAIT_FOR(is_refused(&eve)));
    nobody_else_reads_or_writes(3);
    nobody_else_is_on_the_lists(false);
}

TEST(nodes_that_were_open_are_closed_by_the_next_who_leads_with_the_secret)
{
    assert_int_equal(cas_value(&eve, 0, "ours", 4), 0);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_true(WAIT_FOR(is_refused(&eve)));
    nobody_else_reads_or_writes(1);
}

TEST(the_secret_goes_with_each_connection_that_is_made_anew)
{
    assert_int_equal(cas_value(&alice, 0, "ours", 4), 0);
    zookeeper_server_kill(&server);
    zookeeper_server_start(&server);
    assert_int_equal(read_value(&alice), 0);
    nobody_else_reads_or_writes(1);
}

static void skip_acl(bool skip)
{
    FILE *file = fopen(temp_dir_at(&server.dir, "zoo.cfg"), "a");
    assert_non_null(file);
    fprintf(file, "skipACL=%s\n", skip ? "yes" : "no"); /* the last one counts */
    assert_int_equal(fclose(file), 0);
    zookeeper_server_kill(&server);
    zookeeper_server_start(&server);
}

/* deploy/guide/security.md */
TEST(a_secret_that_is_lost_is_replaced_while_the_ensemble_looks_at_no_list)
{
    assert_int_equal(cas_value(&alice, 0, "ours", 4), 0);
    assert_true(is_refused(&mallory));
    skip_acl(true);
    assert_int_equal(read_value(&mallory), 0); /* connected again */
    assert_int_equal(cas_value(&mallory, 1, "new", 3), 0);
    assert_int_equal(coord_elect(mallory.coord, on_leader, &mallory), 0);
    assert_true(WAIT_FOR(has_won(&mallory)));
    skip_acl(false);
    assert_int_equal(read_value(&mallory), 0);
    assert_int_equal(read_value(&alice), ROWAN_EPERMISSION);
}

int main(void)
{
    if (!start_server())
        return 0;
    const int failed = unit_run(NULL, NULL);
    zookeeper_server_fini(&server);
    return failed;
}
