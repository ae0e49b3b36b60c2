/* cm_test.c - the adapter between the real seams. */
#define TEST_FIXTURE setup, teardown

#include "cm/cm_internal.h"
#include "cm/proposal.h"
#include "common/base/error.h"
#include "common/base/version.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"
#include "test/unit/cm/cm_fixture.h"

TEST(servers_join_and_get_the_configuration_with_the_secret)
{
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 11, 1);
    await_answer(&peers[0]);
    const Rowan__ConfigurationIs *is = peers[0].answer->configuration_is;
    assert_int_equal(peers[0].tag, 11);
    assert_int_equal(is->configuration.len, 0);
    assert_int_equal(is->n_waiting_for, 1);
    assert_int_equal(is->waiting_for[0], 2);
    assert_null(cm_config(manager));

    connect_now(&peers[1], FABRIC_SERVER);
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    assert_null(cm_config(manager));
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    send_join(&peers[0], 13, 1); /* it is told that both have come */
    await_answer(&peers[0]);
    assert_null(cm_config(manager));
    send_join(&peers[0], 14, 1); /* and still there */
    assert_true(WAIT_FOR((poll_some(~0u), peers[0].answer_count == 4)));
    struct cluster_config *config = configuration_of(&peers[0], 0);
    assert_int_equal(config->term, 1);
    assert_int_equal(config->cluster, 77);
    assert_true(config->has_secret);
    assert_int_equal(config->shard_count, 16);
    assert_int_equal(cluster_member(config, 1)->incarnation, 1001);
    cluster_release(config);
}

TEST(clients_get_ids_and_the_configuration_without_the_secret)
{
    make_cluster();
    have_a_client();
    connect_now(&peers[2], FABRIC_CLIENT);
    send_get(&peers[2], 5, 0);
    await_answer(&peers[2]);
    struct cluster_config *config = configuration_of(&peers[2], 5);
    assert_false(config->has_secret);
    cluster_release(config);
    send_get(&peers[2], 6, 2);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].tag, 6);
    assert_int_equal(peers[2].answer->configuration_is->configuration.len, 0);
    for (uint32_t id = 2; id <= 4; id++) {
        send_new_id(&peers[2], id);
        await_answer(&peers[2]);
        assert_int_equal(peers[2].answer->client_id_is->client_id, id);
    }
}

TEST(a_client_says_nothing_that_only_a_server_may_say)
{
    Rowan__Renew renew = ROWAN__RENEW__INIT;
    Rowan__Adopted adopted = ROWAN__ADOPTED__INIT;
    Rowan__Filled filled = ROWAN__FILLED__INIT;
    Rowan__Load load = ROWAN__LOAD__INIT;
    const Rowan__ControlMessage messages[] = {
        CONTROL_MESSAGE(RENEW, renew, &renew), CONTROL_MESSAGE(ADOPTED, adopted, &adopted),
        CONTROL_MESSAGE(FILLED, filled, &filled), CONTROL_MESSAGE(LOAD, load, &load)};
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    for (uint32_t i = 0; i < 4; i++) {
        send_message(&peers[2], 30 + i, &messages[i]);
        await_answer(&peers[2]);
        assert_failure(&peers[2], 30 + i, ROWAN_EREFUSED);
    }
}

TEST(a_manager_that_restarts_goes_on)
{
    make_cluster();
    have_a_client();
    for (int i = 0; i < 2; i++)
        drop_peer(&peers[i]);
    stop_manager();
    start_manager();
    await_lead();
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 21, 1);
    await_answer(&peers[0]);
    struct cluster_config *config = configuration_of(&peers[0], 21);
    assert_int_equal(config->term, 2);
    cluster_release(config);
    connect_now(&peers[2], FABRIC_CLIENT);
    send_new_id(&peers[2], 22);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].answer->client_id_is->client_id, 1 + CM_CLIENT_ID_BLOCK);
}

static void note_lead(void *context, bool leads)
{
    *(bool *)context = leads;
}

static bool gives_an_id(struct peer *peer)
{
    send_new_id(peer, 33);
    await_answer(peer);
    return peer->answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS;
}

/* The answer to a renewal that brings back what the last one said. */
static bool is_granted(struct peer *peer)
{
    Rowan__Renew renew = ROWAN__RENEW__INIT;
    renew.term = 1;
    if (peer->answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_LEASE_IS) {
        renew.manager_ns = peer->answer->lease_is->manager_ns;
        renew.manager = peer->answer->lease_is->manager;
    }
    send_message(peer, 44, &CONTROL_MESSAGE(RENEW, renew, &renew));
    await_answer(peer);
    assert_int_equal(peer->tag, 44);
    const Rowan__LeaseIs *is = peer->answer->lease_is;
    assert_true(is->manager == 5 && is->manager_ns > 0);
    return is->granted;
}

static bool are_granted(void)
{
    const bool first = is_granted(&peers[0]);
    return is_granted(&peers[1]) && first;
}

TEST(members_get_leases_and_are_told_what_is_committed)
{
    stop_manager();
    lease_ms = 50;
    start_manager();
    await_lead();
    make_cluster();
    assert_true(WAIT_FOR(are_granted()));
    Rowan__Adopted adopted = ROWAN__ADOPTED__INIT;
    adopted.term = 1;
    for (uint32_t i = 0; i < 2; i++)
        send_message(&peers[i], 0, &CONTROL_MESSAGE(ADOPTED, adopted, &adopted));
    assert_true(WAIT_FOR((are_granted(), peers[0].committed == 1 && peers[1].committed == 1)));
}

static void send_plan(struct peer *peer, Rowan__Plan__Kind kind, uint32_t server)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    plan.kind = kind;
    plan.server = server;
    send_message(peer, 21, &CONTROL_MESSAGE(PLAN, plan, &plan));
    await_answer(peer);
}

TEST(what_an_operator_wants_is_stored_or_refused)
{
    stop_manager();
    lease_ms = 500;
    start_manager();
    await_lead();
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    send_plan(&peers[2], ROWAN__PLAN__KIND__ADD, 3);
    struct cluster_config *config = configuration_of(&peers[2], 21);
    assert_true(cluster_wants(config, 3) && config->wanted_count == 3 && !config->has_secret);
    cluster_release(config);
    send_plan(&peers[2], ROWAN__PLAN__KIND__REMOVE, 3);
    config = configuration_of(&peers[2], 21);
    assert_false(cluster_wants(config, 3));
    cluster_release(config);
    send_plan(&peers[2], ROWAN__PLAN__KIND__DRAIN, 1);
    assert_failure(&peers[2], 21, ROWAN_EREFUSED);
    send_plan(&peers[2], (Rowan__Plan__Kind)CM_PLAN_KINDS, 1);
    assert_failure(&peers[2], 21, ROWAN_EUNSUPPORTED);
}

TEST(no_leases_are_granted_where_there_are_none)
{
    make_cluster();
    assert_false(are_granted() || are_granted());
}

TEST(a_standby_says_that_it_is_one_until_the_leader_has_gone)
{
    struct coord *leader;
    bool leads = false;
    uint64_t wake_ns;
    make_cluster();
    have_a_client();
    drop_peer(&peers[0]);
    stop_manager();
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "coord"), NULL, &leader), 0);
    assert_int_equal(coord_elect(leader, note_lead, &leads), 0);
    assert_true(
        WAIT_FOR((coord_poll(leader, clock_now_ns(clock_system()), &wake_ns), leads == true)));
    start_manager();
    connect_now(&peers[2], FABRIC_CLIENT);
    send_get(&peers[2], 31, 0);
    await_answer(&peers[2]);
    cluster_release(configuration_of(&peers[2], 31));
    assert_true(peers[2].answer->configuration_is->not_leading);
    send_new_id(&peers[2], 32);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 32, ROWAN_ENOTLEADING);
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 34, 1);
    await_answer(&peers[0]);
    assert_failure(&peers[0], 34, ROWAN_ENOTLEADING);
    coord_close(leader);
    assert_true(WAIT_FOR(gives_an_id(&peers[2])));
}

/* The value is gone; both servers come with what they stored, in `bytes` of the second one `flip`. */
static void recover_from(uint8_t *bytes, size_t count, uint8_t flip)
{
    uint8_t second[1024];
    memcpy(second, bytes, count);
    second[0] ^= flip;
    stored[0] = (ProtobufCBinaryData){.len = count, .data = bytes};
    stored[1] = (ProtobufCBinaryData){.len = count, .data = second};
    for (int i = 0; i < 2; i++)
        drop_peer(&peers[i]);
    stop_manager();
    assert_int_equal(unlink(temp_dir_at(&dir, "coord/value")), 0);
    recover = true;
    start_manager();
    await_lead();
    for (int i = 0; i < 2; i++)
        connect_now(&peers[i], FABRIC_SERVER);
    for (uint32_t i = 0; i < 10; i++) {
        send_join_of(&peers[i % 2], 20 + i, 1 + i % 2, (char[]){"shm"}, 77);
        const uint32_t before = peers[i % 2].answer_count;
        assert_true(
            WAIT_FOR((poll_some(~0u), peers[i % 2].answer_count > before || cm_error(manager))));
        if (cm_error(manager))
            return;
    }
    assert_true(WAIT_FOR((poll_some(~0u), cm_config(manager))));
}

TEST(what_was_lost_is_made_anew_from_what_servers_bring_and_not_from_garbage)
{
    uint8_t bytes[1024];
    make_cluster();
    const size_t count = cluster_encode(cm_config(manager), true, bytes, sizeof bytes);
    assert_true(count > 0);
    recover_from(bytes, count, 0);
    assert_int_equal(cm_error(manager), 0);
    const struct cluster_config *config = cm_config(manager);
    assert_true(config->term > UINT32_MAX && config->cluster == 77 && config->has_secret);
    assert_memory_equal(config->secret, "0123456789abcde", sizeof config->secret);
    recover_from(bytes, count, 0xff);
    assert_int_equal(failed_error, ROWAN_EDAMAGED);
}

/* Behind it comes another field 9, which counts. */
static size_t of_a_later_format(uint8_t *bytes, size_t count)
{
    memcpy(bytes + count, (const uint8_t[]){0x48, VERSION_CONFIGURATION_HIGHEST + 1}, 2);
    return count + 2;
}

TEST(a_server_that_brings_a_configuration_of_a_later_format_is_told_so)
{
    uint8_t bytes[1024];
    make_cluster();
    const size_t count = cluster_encode(cm_config(manager), true, bytes, sizeof bytes - 2);
    stored[0] = (ProtobufCBinaryData){.len = of_a_later_format(bytes, count), .data = bytes};
    connect_now(&peers[2], FABRIC_SERVER);
    peers[2].bring = true;
    send_join_of(&peers[2], 35, 1, (char[]){"shm"}, 77);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 35, ROWAN_EINCOMPATIBLE);
    stored[0] = (ProtobufCBinaryData){.len = 0};
    send_get(&peers[0], 36, 0);
    await_answer(&peers[0]);
    cluster_release(configuration_of(&peers[0], 36));
}

TEST(a_peer_of_another_cluster_is_not_let_in)
{
    make_cluster();
    connect_peer(&peers[2], FABRIC_SERVER, 78);
    assert_true(WAIT_FOR(after_poll(&peers[2].closed)));
    assert_int_equal(peers[2].closed_error, ROWAN_ECLUSTER);
    assert_false(peers[2].connected);
    connect_peer(&peers[3], FABRIC_SERVER, 77);
    assert_true(WAIT_FOR(after_poll(&peers[3].connected)));
}

TEST(bad_requests_are_answered_and_cost_nobody_else_anything)
{
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    assert_int_equal(send_bytes(&peers[2], "garbage!", 8), ROWAN_OK);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 0, ROWAN_EFORMAT);

    Rowan__GetStatus status = ROWAN__GET_STATUS__INIT;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(GET_STATUS, get_status, &status);
    send_message(&peers[2], 31, &message);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 31, ROWAN_EUNSUPPORTED);

    send_join(&peers[2], 32, 1);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 32, ROWAN_EREFUSED);
    send_join_of(&peers[0], 33, 1, (char[]){"a name that is longer than any fabric's"}, 0);
    await_answer(&peers[0]);
    assert_failure(&peers[0], 33, ROWAN_EINVALID);
    send_get(&peers[0], 34, 0);
    await_answer(&peers[0]);
    cluster_release(configuration_of(&peers[0], 34));
}

/* One client asks and never reads: it is given up, others are served. */
TEST(a_peer_that_does_not_read_is_given_up)
{
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    connect_now(&peers[3], FABRIC_CLIENT);
    const unsigned others = ~(1u << 2);
    uint8_t bytes[64];
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get);
    size_t count = control_encode(1, &message, bytes, sizeof bytes);
    uint32_t asked = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        if (send_bytes(&peers[2], bytes, count) == ROWAN_OK)
            asked++;
        fabric_flush(peers[2].endpoint);
        poll_some(others);
    }
    send_get(&peers[3], 41, 0);
    await_answer(&peers[3]);
    cluster_release(configuration_of(&peers[3], 41));
    assert_true(WAIT_FOR(after_poll(&peers[2].closed)));
    assert_true(peers[2].answer_count < asked);
    assert_int_equal(cm_error(manager), ROWAN_OK);
}

/* What a start found puts data in doubt; what a running server could not read does not. */
TEST(what_is_reported_of_damage_says_when_it_was_found)
{
    Rowan__Join body = ROWAN__JOIN__INIT;
    Rowan__DamagedShard rows[] = {ROWAN__DAMAGED_SHARD__INIT, ROWAN__DAMAGED_SHARD__INIT};
    Rowan__DamagedShard *damaged[] = {&rows[0], &rows[1]};
    struct cm_join join;
    struct cluster_config *none;
    rows[0].shard = 1;
    rows[1].shard = 2;
    rows[0].first_slot = rows[1].first_slot = DAMAGE_NO_SLOT;
    rows[1].found = true;
    body.damaged = damaged;
    body.n_damaged = 2;
    assert_int_equal(report_decode(&body, &join, &none), 0);
    assert_int_equal(join.damage.count, 2);
    assert_false(damage_was_found(&join.damage, 1));
    assert_true(damage_was_found(&join.damage, 2));
}

TEST(a_damaged_configuration_stops_the_manager)
{
    stop_manager();
    FILE *file = fopen(temp_dir_at(&dir, "coord/value"), "w");
    assert_non_null(file);
    fputs("not a configuration", file);
    fclose(file);
    start_manager();
    assert_true(WAIT_FOR((poll_some(0), cm_error(manager) != 0)));
    assert_int_equal(failed_error, ROWAN_EFORMAT);
    uint64_t wake_ns = WAKE_NEVER;
    assert_int_equal(cm_poll(manager, 1, &wake_ns), POLL_IDLE);
}

static void note_stored(void *context, int error, uint64_t version)
{
    assert_int_equal(error, 0);
    *(uint64_t *)context = version;
}

TEST(a_stored_configuration_of_a_later_format_stops_the_manager)
{
    uint8_t bytes[1024];
    uint64_t version = 0, wake_ns = WAKE_NEVER;
    struct coord *writer;
    make_cluster();
    const size_t count = cluster_encode(cm_config(manager), true, bytes, sizeof bytes - 2);
    stop_manager();
    assert_int_equal(unlink(temp_dir_at(&dir, "coord/value")), 0);
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "coord"), NULL, &writer), 0);
    assert_int_equal(
        coord_cas(writer, 0, bytes, of_a_later_format(bytes, count), note_stored, &version), 0);
    assert_true(WAIT_FOR((coord_poll(writer, 0, &wake_ns), version != 0)));
    coord_close(writer);
    start_manager();
    assert_true(WAIT_FOR((poll_some(0), cm_error(manager) != 0)));
    assert_int_equal(failed_error, ROWAN_EINCOMPATIBLE);
}

TEST(whatever_call_fails_a_manager_that_cannot_start_leaves_its_place_to_the_next)
{
    bool more = true;
    stop_manager();
    for (uint32_t nth = 1; more; nth++) {
        open_seams();
        manager = NULL;
        fail_call(nth);
        int error = create_manager();
        more = fail_stop();
        assert_true(more || !error);
        if (more)
            stop_manager();
    }
    connect_now(&peers[0], FABRIC_CLIENT);
}

TEST(a_network_device_that_failed_stops_the_manager)
{
    manager_endpoint->error = ROWAN_EIO;
    assert_true(WAIT_FOR((poll_some(0), cm_error(manager) != 0)));
    assert_int_equal(failed_error, ROWAN_EIO);
}

UNIT_MAIN(NULL, NULL)
