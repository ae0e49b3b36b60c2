/* keys_test.c - what servers prove themselves by, and tickets are made with, is drawn anew: how long what was before counts. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "common/base/version.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { TOOL = 20, TAG = 7 };

static struct world *with_an_admin(void)
{
    struct world *world = committed_cluster();
    struct cm_plan plan = {
        .kind = CM_PLAN_USER,
        .user = {.name = "ann", .role = USER_ADMIN, .verifier.rounds = SCRAM_MIN_ROUNDS}};
    world_plan(world, TOOL, TAG, plan);
    world_settle(world);
    commit_among(world, ALL);
    return world;
}

static void ask(struct world *world, enum cm_login to, uint64_t rotation, uint8_t drawn)
{
    world_plan(world, TOOL, TAG,
               (struct cm_plan){.kind = CM_PLAN_LOGIN,
                                .to = to,
                                .rotation = rotation,
                                .drawn = {.proof = {drawn}, .tickets = {drawn}}});
    world_settle(world);
}

static void reports(struct world *world, uint32_t server, uint32_t format)
{
    struct cm_join join = world_join_of(server);
    join.format = format;
    join.data_cluster = in_force(world)->cluster;
    join.named = join.formatted = true;
    join.known_term = term(world);
    world_join(world, server, 300, &join);
    world_settle(world);
}

TEST(the_former_proof_counts_until_every_server_has_adopted_the_change)
{
    struct world *world = with_an_admin();
    const uint64_t before = term(world);
    ask(world, CM_LOGIN_ROTATE, 5, 1);
    assert_int_equal(term(world), before + 1);
    assert_true(in_force(world)->keys.changing && in_force(world)->keys.proof[0] == 1);
    ask(world, CM_LOGIN_ROTATE, 5, 2); /* the tool asks again */
    ask(world, CM_LOGIN_ROTATE, 7, 2); /* another one waits, and gives up */
    world_close(world, TOOL);
    commit_among(world, FIRST_TWO);
    assert_int_equal(term(world), before + 1);
    assert_true(in_force(world)->keys.changing);
    commit_among(world, ALL);
    commit_among(world, ALL);
    ask(world, CM_LOGIN_ROTATE, 5, 2);
    assert_int_equal(term(world), before + 2);
    assert_true(!in_force(world)->keys.changing && in_force(world)->keys.proof[0] == 1);
    ask(world, CM_LOGIN_ROTATE, 6, 3);
    assert_true(in_force(world)->keys.changing && in_force(world)->keys.proof[0] == 3);
    assert_int_equal(in_force(world)->keys.former_proof[0], 1);
    assert_int_equal(in_force(world)->keys.tickets[0], 1); /* kept */
}

enum { CLIENT = 30, LATER = 31 };

static uint32_t id_of(const struct world *world, uint32_t connection)
{
    const struct world_sent *sent = world_last(world, connection);
    return sent && sent->kind == CM_ACTION_CLIENT_ID ? sent->client_id : 0;
}

TEST(ids_wait_for_the_key_of_their_tickets_and_none_of_before_is_given) /* S14 */
{
    struct world *world = with_an_admin();
    for (uint32_t server = 1; server <= SERVERS; server++)
        reports(world, server, VERSION_CONFIGURATION_HIGHEST);
    world_new_id(world, CLIENT, TAG);
    world_settle(world);
    commit_among(world, ALL);
    assert_true(id_of(world, CLIENT) > 0);
    ask(world, CM_LOGIN_REQUIRED, 0, 1);
    const uint32_t below = in_force(world)->keys.former_below;
    assert_true(in_force(world)->keys.changing && below > id_of(world, CLIENT));
    world_new_id(world, LATER, TAG);
    world_settle(world);
    commit_among(world, FIRST_TWO);
    assert_int_equal(id_of(world, LATER), 0);
    for (uint32_t i = 0; i < 3; i++)
        commit_among(world, ALL);
    assert_true(id_of(world, LATER) >= below);
    assert_false(in_force(world)->keys.changing);
}

TEST(no_rotation_while_a_server_runs_a_version_that_does_not_know_it)
{
    struct world *world = with_an_admin();
    reports(world, 1, VERSION_CONFIGURATION_MIXED);
    ask(world, CM_LOGIN_ROTATE, 5, 1);
    assert_failure(world_last(world, TOOL), ROWAN_EREFUSED,
                   "server 1 runs a version that knows no rotation");
    ask(world, CM_LOGIN_REQUIRED, 0, 1);
    assert_configuration(world_last(world, TOOL), TAG, term(world), false);
    assert_true(in_force(world)->users->required && !in_force(world)->keys.drawn); /* as before */
}

UNIT_MAIN(NULL, NULL)
