/* Leases: the control role's renewals to the manager, and what a worker may answer. */
#include "common/base/error.h"
#include "common/base/memory.h"
#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "test/unit/server/lease_stage.h"

/* The next reply to a client; its status, or 1: there is none. */
static int next_status(struct stage *stage)
{
    const struct puppet_sent *sent;
    struct message_reply reply;
    const uint8_t *value;

    while ((sent = puppet_take(stage->fabric))) {
        if (sent->conn->address[0] == '\0' && sent->conn->id > 1000 &&
            message_parse_reply(sent->data, sent->bytes, &reply, &value))
            return reply.status;
    }
    return 1;
}

static int ask(struct stage *stage, struct puppet_conn *client)
{
    stage_get(stage, client, stage_key_of(0));
    stage_run(stage);
    return next_status(stage);
}

/* --- the control role --- */

/* J10: sooner after an answer that grants none. */
TEST(the_lease_is_renewed_four_times_in_its_length_and_the_managers_time_brought_back)
{
    struct renewal renewal = last_renewal(stage);

    assert_int_equal(renewal.term, stage->config->term);
    assert_int_equal(renewal.manager, MANAGER);
    assert_int_equal(renewal.manager_ns, 0);
    answer(stage, renewal.tag, MANAGER, 77, false);
    for (uint64_t i = 0; i < 3; i++) {
        const uint64_t before_ns = stage->now_ns;

        renewal = next_renewal(stage);
        assert_int_equal(stage->now_ns - before_ns, i == 0 ? LEASE_NS / 16 : RENEW_NS);
        assert_int_equal(renewal.manager_ns, 77 + i);
        answer(stage, renewal.tag, MANAGER, 78 + i, true);
    }
}

TEST(clients_are_answered_while_a_lease_holds_that_counts_from_its_renewal)
{
    struct puppet_conn *client = stage_client(stage);

    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    const struct renewal renewal = next_renewal(stage);
    const uint64_t sent_ns = stage->now_ns;
    answer(stage, renewal.tag, MANAGER, 1, false);
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    next_renewal(stage);
    next_renewal(stage);
    answer(stage, renewal.tag, MANAGER, 1, true);
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    stage->now_ns = sent_ns + HERE_NS - 1;
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    stage->now_ns++;
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    const struct renewal older = next_renewal(stage);
    stage->now_ns += RENEW_NS / 2;
    grant(stage);
    answer(stage, older.tag, MANAGER, 1, true); /* takes nothing away */
    stage->now_ns += HERE_NS - 1;
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, client));
}

TEST(a_server_that_is_to_stop_serves_until_its_lease_is_over_and_leaves_then)
{
    struct puppet_conn *client = stage_client(stage);
    grant(stage);
    const uint64_t over_ns = stage->now_ns + HERE_NS;
    const struct renewal older = next_renewal(stage);
    server_stop(stage->server);
    stage_run(stage);
    answer(stage, older.tag, MANAGER, 1, true); /* comes too late */
    assert_false(server_has_stopped(stage->server));
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    const struct renewal last = next_renewal(stage);
    assert_int_equal(stage->now_ns, over_ns);
    assert_true(last.leaves);
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    answer(stage, last.tag, MANAGER, 1, false);
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = ROWAN_EREMOVED;
    failure.detail = (char *)(uintptr_t) "it was removed";
    stage_tell(stage_cm(stage), 0, &CONTROL_MESSAGE(FAILURE, failure, &failure));
    assert_false(server_has_stopped(stage->server));
    stage_run(stage);
    assert_true(server_has_stopped(stage->server));
    assert_int_equal(server_error(stage->server), 0);
}

TEST(that_an_object_cannot_be_read_is_told_to_the_manager_at_once_and_once)
{
    const struct control *control = server_poller(stage->server, 0).role;
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(0);
    grant(stage);
    stage_put_lands(stage, client, key);
    const uint32_t key_bytes = (uint32_t)strlen(key);
    const uint64_t at = index_find(control->workers[0]->shards[0]->index,
                                   index_hash(key, key_bytes), key, key_bytes);
    control->common->pm->base[at + ENTRY_HEADER_BYTES + key_bytes] ^= 1;
    for (unsigned i = 0; i < 2; i++) {
        const Rowan__ControlMessage *message;
        uint32_t told = 0;
        stage->fabric->taken = stage->fabric->sent_count;
        assert_int_equal(ask(stage, client), ROWAN_EDAMAGED);
        stage->fabric->taken = 0;
        while ((message = stage_message(stage, stage_cm(stage), NULL))) {
            if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN && message->join->n_damaged)
                told += message->join->damaged[0]->found && message->join->damaged[0]->shard == 0;
        }
        assert_int_equal(told, 1);
    }
}

/* Its leases are shorter than a second. */
TEST(a_server_without_memory_ends_when_a_lease_and_a_second_are_over)
{
    grant(stage);
    atomic_store(&memory_least, 64);
    stage_run(stage);
    stage_pass(stage, NS_PER_S - 1);
    const int early = server_error(stage->server);
    stage_pass(stage, 1);
    atomic_store(&memory_least, 0);
    assert_int_equal(early, 0);
    assert_int_equal(server_error(stage->server), ROWAN_ENOMEM);
}

static void assert_stops_after(struct stage *stage, uint64_t ns)
{
    const uint64_t end_ns = stage->now_ns + ns;
    while (!server_has_stopped(stage->server)) {
        assert_true(stage->wake_ns > stage->now_ns && stage->wake_ns <= end_ns);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    assert_int_equal(stage->now_ns, end_ns);
}

TEST(a_server_that_is_to_stop_waits_for_its_removal_only_so_long)
{
    grant(stage);
    server_stop(stage->server);
    stage_run(stage);
    assert_true(next_renewal(stage).leaves);
    assert_stops_after(stage, 4 * LEASE_NS);
}

TEST(a_server_that_leaves_ends_where_the_manager_does_not_know_of_that_and_grants_it_a_lease)
{
    grant(stage);
    const struct renewal older = next_renewal(stage);
    server_stop(stage->server);
    stage_run(stage);
    const struct renewal first = next_renewal(stage);
    assert_true(first.leaves);
    answer(stage, older.tag, MANAGER, 1, true); /* of before */
    assert_false(server_has_stopped(stage->server));
    answer(stage, first.tag, MANAGER, 1, true);
    assert_true(server_has_stopped(stage->server));
    assert_int_equal(server_error(stage->server), 0);
}

/* Less than its lease, by another setting than it began with. */
TEST(a_server_that_is_to_stop_ends_in_the_time_that_was_set_last)
{
    const struct server_options options = {.stop_timeout_ns = LEASE_NS / 4};
    grant(stage);
    server_tune(stage->server, &options);
    server_stop(stage->server);
    stage_run(stage);
    assert_stops_after(stage, LEASE_NS / 4);
}

/* The manager grants nobody any while one is silent, and is to know that this one does not fall silent, too. */
TEST(a_server_that_has_no_lease_when_it_is_to_stop_says_that_it_leaves)
{
    server_stop(stage->server);
    stage_run(stage);
    assert_false(server_has_stopped(stage->server));
    assert_true(last_renewal(stage).leaves);
    assert_stops_after(stage, 4 * LEASE_NS);
}

TEST(what_another_manager_grants_or_for_a_renewal_of_long_ago_counts_for_nothing)
{
    struct puppet_conn *client = stage_client(stage);
    const struct renewal old = last_renewal(stage);
    struct renewal renewal;

    for (int i = 0; i < 8; i++)
        renewal = next_renewal(stage);
    answer(stage, renewal.tag, MANAGER + 1, 55, true);
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    assert_int_equal(next_renewal(stage).manager_ns, 0);
    answer(stage, old.tag, MANAGER, 55, true); /* its place is the last one's by now */
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
}

TEST(a_new_manager_grants_once_its_configuration_is_known_and_the_old_one_no_more)
{
    struct puppet_conn *client = stage_client(stage);

    grant(stage);
    stage->config->term++;
    stage->config->manager = MANAGER + 1;
    stage_adopt(stage);
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND); /* J3 */
    const struct renewal renewal = next_renewal(stage);
    assert_int_equal(renewal.manager, MANAGER + 1);
    assert_int_equal(renewal.manager_ns, 0);
    answer(stage, renewal.tag, MANAGER, 99, true);
    stage->now_ns += HERE_NS - RENEW_NS;
    assert_int_equal(ask(stage, client), ROWAN_EBUSY);
    answer(stage, next_renewal(stage).tag, MANAGER + 1, 3, true);
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    assert_int_equal(next_renewal(stage).manager_ns, 3);
}

TEST(renewals_go_on_with_the_next_connection_at_once_when_it_has_shown_that_it_leads)
{
    struct renewal renewal = next_renewal(stage);

    answer(stage, renewal.tag, MANAGER, 5, true);
    puppet_close(stage_cm(stage), ROWAN_ECLOSED);
    stage_run(stage);
    stage_pass(stage, RENEW_NS / 2);
    puppet_connected(stage_cm(stage), false);
    const uint32_t from = stage->fabric->sent_count;
    stage_run(stage);
    assert_int_equal(renewals(stage, from, &renewal), 0);
    stage_adopt(stage);
    assert_int_equal(renewals(stage, from, &renewal), 1);
    assert_int_equal(renewal.manager_ns, 0);
}

/* --- sends that stay incomplete --- */

/* Time passes; the server that the last renewal names. */
static uint32_t incomplete_after(struct stage *stage, uint64_t ns)
{
    const uint64_t until_ns = stage->now_ns + ns;
    struct renewal renewal = {0};

    while (stage->now_ns < until_ns) {
        renewal = next_renewal(stage);
        answer(stage, renewal.tag, MANAGER, 1, true);
    }
    return renewal.incomplete;
}

static void send_write(struct stage *stage)
{
    grant(stage);
    stage_put(stage, stage_client(stage), stage_key_of(0));
    stage_run(stage);
}

TEST(a_peer_that_takes_nothing_for_six_leases_is_named_until_it_does)
{
    send_write(stage);
    assert_int_equal(incomplete_after(stage, 6 * LEASE_NS - RENEW_NS), 0);
    assert_int_equal(incomplete_after(stage, 2 * LEASE_NS), 2);
    assert_true(puppet_land(stage->peer));
    assert_int_equal(incomplete_after(stage, 2 * LEASE_NS), 0);
}

TEST(a_peer_to_which_there_is_no_connection_is_named_until_there_is)
{
    puppet_close(stage->peer, ROWAN_ECLOSED);
    assert_int_equal(incomplete_after(stage, 8 * LEASE_NS), 2);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    puppet_connected(stage->peer, true);
    assert_int_equal(incomplete_after(stage, 2 * LEASE_NS), 0);
}

TEST(a_peer_that_takes_some_or_is_short_of_space_is_not_named_nor_one_that_was_not_looked_at)
{
    Rowan__SpaceIs space = ROWAN__SPACE_IS__INIT;

    for (int i = 0; i < 3; i++)
        send_write(stage);
    assert_int_equal(incomplete_after(stage, 5 * LEASE_NS), 0);
    assert_true(puppet_land(stage->peer));
    assert_int_equal(incomplete_after(stage, 5 * LEASE_NS), 0);
    stage->now_ns += 5 * LEASE_NS / 2; /* not so long that the manager is taken for silent */
    stage_run(stage);
    assert_int_equal(incomplete_after(stage, 2 * LEASE_NS), 0);
    space.full = true;
    stage_tell(stage->peer, 0, &CONTROL_MESSAGE(SPACE_IS, space_is, &space));
    assert_int_equal(incomplete_after(stage, 9 * LEASE_NS), 0);
}

/* --- the worker --- */

/* The lease holds when the poll begins, and ends before its answers leave. */
static void run_over_the_end(struct stage *stage)
{
    stage->later_ns = HERE_NS;
    stage_run(stage);
    stage->later_ns = 0;
}

/* Nothing of a poll in which the lease ended reaches the client, whose connection ends. */
static void assert_cut(struct stage *stage, const struct puppet_conn *client)
{
    assert_int_equal(next_status(stage), 1);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
}

/* The key has a value; its version. */
static uint64_t put_one(struct stage *stage)
{
    struct puppet_conn *client = stage_client(stage);

    stage_put_lands(stage, client, stage_key_of(0));
    assert_int_equal(next_status(stage), 0);
    return (uint64_t)1 << 32;
}

TEST(a_value_is_not_told_when_the_lease_ended_before_it_left)
{
    grant(stage);
    put_one(stage);
    struct puppet_conn *client = stage_client(stage), *idle = stage_client(stage);
    assert_int_equal(ask(stage, client), 0);
    stage_get(stage, client, stage_key_of(0));
    run_over_the_end(stage);
    assert_cut(stage, client);
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, idle));
    assert_int_equal(ask(stage, idle), 0);
}

TEST(the_absence_of_a_key_is_not_told_when_the_lease_ended_before_it_left)
{
    grant(stage);
    struct puppet_conn *client = stage_client(stage);
    assert_int_equal(ask(stage, client), ROWAN_ENOTFOUND);
    stage_get(stage, client, stage_key_of(0));
    run_over_the_end(stage);
    assert_cut(stage, client);
}

TEST(a_conflict_is_not_told_when_the_lease_ended_before_it_left)
{
    grant(stage);
    put_one(stage);
    struct puppet_conn *client = stage_client(stage);
    stage_put_if(stage, client, stage_key_of(0), 12345);
    stage_run(stage);
    assert_int_equal(next_status(stage), ROWAN_EVERSION);
    stage_put_if(stage, client, stage_key_of(0), 12345);
    run_over_the_end(stage);
    assert_cut(stage, client);
}

/* It landed everywhere, and the retry hears so. */
TEST(a_write_is_not_acknowledged_when_the_lease_ended_before_that_left)
{
    grant(stage);
    struct puppet_conn *client = stage_client(stage);
    const uint32_t id = client->id, operation = stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    puppet_land(stage->peer);
    run_over_the_end(stage);
    assert_cut(stage, client);

    const struct message_request again = {.type = MESSAGE_PUT,
                                          .operation = operation,
                                          .key_bytes = (uint16_t)strlen(stage_key_of(0)),
                                          .value_bytes = 5};
    client = stage_client_again(stage, id);
    stage_send(stage, client, &again, stage_key_of(0), "value");
    stage_run(stage);
    assert_int_equal(next_status(stage), 0);
}

/* Nor when it lands while there is none; nothing new begins then, and what goes to backups goes on. */
TEST(a_write_that_lands_without_a_lease_is_not_acknowledged)
{
    grant(stage);
    struct puppet_conn *client = stage_client(stage), *other = stage_client(stage);
    stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    stage->now_ns += HERE_NS;
    const uint32_t blocks = stage->fabric->log_count;
    stage_put(stage, other, stage_key_of(0));
    stage_run(stage);
    assert_int_equal(next_status(stage), ROWAN_EBUSY);
    assert_int_equal(stage->fabric->log_count, blocks);
    puppet_land(stage->peer);
    stage_run(stage);
    assert_cut(stage, client);
    stage->now_ns += 20 * NS_PER_MS;
    stage_run(stage);
    assert_true(stage->fabric->log_count > blocks); /* its commit version */
}

/* A fabric without room would show the first answers to make some. */
TEST(answers_that_make_room_for_others_leave_only_while_the_lease_holds)
{
    grant(stage);
    struct puppet_conn *client = stage_client(stage);
    client->room = 1;
    client->shows_early = true;
    for (int i = 0; i < 3; i++)
        stage_get(stage, client, stage_key_of(0));
    stage_poll(stage); /* all three in one poll */
    for (int i = 0; i < 3; i++)
        assert_int_equal(next_status(stage), ROWAN_ENOTFOUND);
    client->room = 1;
    for (int i = 0; i < 3; i++)
        stage_get(stage, client, stage_key_of(0));
    run_over_the_end(stage);
    assert_cut(stage, client);
}

UNIT_MAIN(NULL, NULL)
