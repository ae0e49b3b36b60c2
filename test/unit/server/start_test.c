/* A server's start on a PM with or without data: what it tells the CM, and what it writes when. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "server/store/store_layout.h"
#include "stage.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"

enum { LIMIT = 1024 };

static int open_stage(void **state)
{
    stage_start(stage_new(state), LIMIT);
    return 0;
}

static uint32_t damaged; /* the first shard of which the last report says so */

static Rowan__Join last_report(struct stage *stage)
{
    const struct puppet_conn *cm = stage_cm(stage);
    const Rowan__ControlMessage *message;
    Rowan__Join report = ROWAN__JOIN__INIT;

    while ((message = stage_message(stage, cm, NULL)))
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN) {
            report = *message->join;
            damaged = report.n_damaged ? report.damaged[0]->shard : 0;
        }
    assert_true(report.server == 1);
    return report;
}

static struct store_run last_run(struct stage *stage)
{
    struct store_run run = {.sequence = 0};
    int error = store_read_run(&stage->heap->pm, &run);

    assert_true(error == 0 || error == ROWAN_ENOTFOUND);
    return run;
}

/* The backup has nothing, and nothing to say but that. */
static void let_unions_end(struct stage *stage)
{
    if (stage_answer_suffixes(stage, 0))
        stage_land_all(stage);
    stage->fabric->taken = stage->fabric->sent_count;
}

TEST(an_empty_pm_is_reported_so_and_written_for_a_configuration_only)
{
    Rowan__Join report = last_report(stage);

    assert_true(report.data_cluster == 0 && !report.possibly_incomplete);
    assert_true(atomic_load(&stage->heap->stores) == 0);
    stage_begin(stage);
    assert_true(last_run(stage).sequence == 1 && last_run(stage).incarnation == 100);
}

TEST(a_restart_reports_its_data_and_writes_nothing_before_it_is_named)
{
    stage_begin(stage);
    stage_restart(stage);
    Rowan__Join report = last_report(stage);

    assert_true(report.data_cluster == 77 && report.incarnation == 200 &&
                !report.possibly_incomplete);
    uint64_t stores = atomic_load(&stage->heap->stores);

    stage_run(stage);
    assert_true(atomic_load(&stage->heap->stores) == stores);
    assert_true(last_run(stage).incarnation == 100);
    stage_begin(stage);
    assert_true(last_run(stage).incarnation == 200);
}

TEST(the_run_record_waits_for_what_it_relies_on_and_the_zone_for_it)
{
    const struct fabric_identity peer = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};

    stage_begin(stage);
    stage_restart(stage);
    stage_hold_fences(stage, true);
    stage_adopt(stage);
    assert_true(last_run(stage).incarnation == 100); /* the scan's fence is not done */
    stage_hold_fences(stage, false);
    /* One poll for each of the recovery's last steps. */
    for (unsigned i = 0; i < 1000 && last_run(stage).incarnation == 100; i++)
        stage_poll(stage);
    assert_true(last_run(stage).incarnation == 200);
    assert_false(stage->fabric->zone_is_open);
    assert_null(puppet_accept(stage->fabric, STAGE_CONTROL, &peer));
    stage_run(stage);
    assert_true(stage->fabric->zone_is_open);
    assert_non_null(puppet_accept(stage->fabric, STAGE_CONTROL, &peer));
}

/* The last start ended before this server had formatted its PM: epoch 1 is over. */
static void configure_second_start(struct stage *stage, uint32_t next_client_id)
{
    stage->config->term = 2;
    stage->config->next_client_id = next_client_id;
    for (uint32_t i = 0; i < stage->config->shard_count; i++)
        stage->config->shards[i].epoch = 2;
    stage_begin(stage);
    let_unions_end(stage);
}

TEST(a_server_may_be_formatted_in_a_later_start_while_nobody_has_a_client_id)
{
    configure_second_start(stage, CLUSTER_FIRST_CLIENT_ID);
    assert_int_equal(server_error(stage->server), 0);
    assert_true(stage->fabric->zone_is_open);
    stage->config->term++;
    stage->config->next_client_id = 1025;
    stage_adopt(stage);
    struct puppet_conn *client = stage_client(stage);

    stage->fabric->taken = stage->fabric->sent_count;
    stage_put(stage, client, stage_key_of(0));
    stage_land_done(stage);
}

TEST(an_empty_server_is_no_replica_once_somebody_has_a_client_id)
{
    configure_second_start(stage, 1025);
    assert_int_equal(server_error(stage->server), ROWAN_EDAMAGED);
}

TEST(whoever_has_no_client_id_may_not_write_before_somebody_has_one)
{
    stage->config->next_client_id = CLUSTER_FIRST_CLIENT_ID;
    stage_begin(stage);
    struct puppet_conn *client = stage_client_again(stage, 0);

    stage->fabric->taken = stage->fabric->sent_count;
    stage_get(stage, client, stage_key_of(0));
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, ROWAN_ENOTFOUND);
    stage_put_lands(stage, client, stage_key_of(0));
    assert_int_equal(stage_reply(stage).status, ROWAN_EREFUSED);

    stage->config->term++;
    stage->config->next_client_id = 1025;
    stage_adopt(stage);
    stage_put(stage, client, stage_key_of(0));
    stage_land_done(stage);
}

/* Honest clients meet it while the configuration that reserved their ids is on its way. */
TEST(an_id_is_not_believed_before_the_configuration_that_reserved_it_has_come)
{
    stage->config->next_client_id = CLUSTER_FIRST_CLIENT_ID;
    stage_begin(stage);
    struct puppet_conn *client = stage_client_again(stage, 7);

    stage->fabric->taken = stage->fabric->sent_count;
    const uint32_t operation = stage_put(stage, client, stage_key_of(0));
    stage_land_all(stage);
    assert_int_equal(stage_reply(stage).status, ROWAN_EBUSY);
    stage_get(stage, client, stage_key_of(0));
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, ROWAN_ENOTFOUND);

    stage->config->term++;
    stage->config->next_client_id = 1025;
    stage_adopt(stage);
    const struct message_request again = {.type = MESSAGE_PUT,
                                          .operation = operation,
                                          .key_bytes = (uint16_t)strlen(stage_key_of(0)),
                                          .value_bytes = 5};
    stage_send(stage, client, &again, stage_key_of(0), "value");
    stage_land_all(stage);
    struct message_reply reply = stage_reply(stage);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.operation, operation);
}

static void fail_join(struct stage *stage, int error)
{
    Rowan__Failure body = ROWAN__FAILURE__INIT;

    body.error = error;
    body.detail = (char *)(uintptr_t) "no";
    stage_cm_tells(stage, stage_join_tag(stage), &CONTROL_MESSAGE(FAILURE, failure, &body));
}

/* As while the CM knows of a process that has ended. */
TEST(a_server_that_may_not_join_yet_reports_again)
{
    last_report(stage);
    fail_join(stage, ROWAN_EAGAIN);
    assert_int_equal(server_error(stage->server), 0);
    stage_pass(stage, NS_PER_S / 2); /* a manager that is silent for a whole one is left */
    last_report(stage);
    stage_begin(stage);
    assert_true(last_run(stage).incarnation == 100);
}

/* Others were started meanwhile, with a process in its place. */
TEST(a_server_that_serves_and_may_not_join_any_more_ends)
{
    assert_false(last_report(stage).named);
    stage_adopt(stage);
    assert_true(last_report(stage).named);
    assert_int_equal(server_error(stage->server), 0);
    fail_join(stage, ROWAN_EAGAIN);
    assert_int_equal(server_error(stage->server), ROWAN_EREFUSED);
}

TEST(a_server_that_is_about_to_serve_and_may_not_join_any_more_ends)
{
    stage_hold_fences(stage, true);
    stage_adopt(stage);
    fail_join(stage, ROWAN_EAGAIN);
    assert_int_equal(server_error(stage->server), ROWAN_EREFUSED);
}

TEST(any_other_refusal_ends_the_server)
{
    fail_join(stage, ROWAN_EREFUSED);
    assert_int_equal(server_error(stage->server), ROWAN_EREFUSED);
}

/* Whoever asks waits for the answer, so it is not lost for want of room. */
TEST(a_question_for_a_suffix_is_refused_when_there_is_room)
{
    const struct fabric_identity peer = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;

    stage_begin(stage);
    struct puppet_conn *link = puppet_accept(stage->fabric, STAGE_CONTROL, &peer);

    stage_run(stage);
    stage->fabric->taken = stage->fabric->sent_count;
    link->room = 0;
    body.shard = STAGE_BACKED;
    body.epoch = 2; /* not yet */
    for (uint32_t tag = 3; tag < 6; tag++)
        stage_tell(link, tag, &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body));
    stage_run(stage);
    assert_null(puppet_take(stage->fabric));
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    link->room = UINT32_MAX;
    stage->now_ns = stage->wake_ns;
    stage_run(stage);
    for (unsigned i = 0; i < 3; i++) {
        const struct puppet_sent *sent = puppet_take(stage->fabric);
        Rowan__ControlMessage *answer;
        uint32_t tag;

        assert_true(sent && sent->conn == link);
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &answer), 0);
        assert_int_equal(answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_FAILURE);
        assert_true(tag >= 3 && tag < 6);
        control_free(answer);
    }
    assert_null(puppet_take(stage->fabric));
}

/* The stage's PM promises no fences. */
TEST(a_reboot_makes_data_incomplete_until_all_is_united)
{
    stage_begin(stage);
    stage->boot++;
    stage_restart(stage);
    assert_true(last_report(stage).possibly_incomplete);
    stage_begin(stage);
    assert_true(last_run(stage).incarnation == 200 && last_run(stage).possibly_incomplete);
    /* It ends before the log reconciliation does: no reboot, but the doubt is still there. */
    stage_restart(stage);
    assert_true(last_report(stage).possibly_incomplete);
    stage_begin(stage);
    let_unions_end(stage);
    for (unsigned i = 0; i < 20; i++) {
        stage->now_ns += 100 * NS_PER_MS;
        stage_run(stage);
    }
    /* Shard 3 is led by the backup, which has not said that its log reconciliation is over. */
    assert_true(last_run(stage).possibly_incomplete);
    const Rowan__Join report = last_report(stage);
    assert_true(!report.possibly_incomplete && report.n_damaged == 1);
    assert_int_equal(damaged, 3);
}

TEST(the_doubt_ends_with_the_unions)
{
    /* Server 1 leads all that it holds. */
    stage->config->shards[3].primary = 2;
    stage->config->shards[3].backup_count = 0;
    stage_begin(stage);
    stage->boot++;
    stage_return(stage);
    assert_true(last_run(stage).possibly_incomplete);
    let_unions_end(stage);
    for (unsigned i = 0; i < 20; i++) {
        stage->now_ns += 100 * NS_PER_MS;
        stage_run(stage);
    }
    assert_true(last_run(stage).incarnation == 200 && !last_run(stage).possibly_incomplete);
    stage_restart(stage);
    assert_false(last_report(stage).possibly_incomplete);
}

TEST(the_data_of_another_cluster_end_the_server)
{
    stage_begin(stage);
    stage_restart(stage);
    stage->config->cluster++;
    stage_adopt(stage);
    assert_int_equal(server_error(stage->server), ROWAN_ECLUSTER);
    assert_false(stage->fabric->zone_is_open);
}

TEST(a_replica_that_should_be_there_and_is_not_ends_the_server)
{
    stage_begin(stage);
    stage_restart(stage);
    const struct store_geometry at = store_geometry(store_segments_in(stage->heap->pm.bytes));
    for (unsigned i = 0; i < 2; i++)
        memset(stage->heap->pm.base + at.replicas[i], 0, 4096); /* the first rows */
    stage_adopt(stage);
    assert_int_equal(server_error(stage->server), ROWAN_EDAMAGED);
    assert_non_null(strstr(server_why(stage->server), "replica of shard 0"));
}

TEST(a_pm_that_is_not_this_servers_is_refused_at_once)
{
    struct server *other = NULL;
    const struct server_options options = {.server = 2,
                                           .incarnation = 1,
                                           .clock = &stage->clock,
                                           .cm = "puppet:cm",
                                           .address = "puppet:9",
                                           .workers = 1,
                                           .digests = 1,
                                           .reactors = 1,
                                           .landing_segments = 2};

    stage_begin(stage);
    struct puppet_fabric *fabric = puppet_create(LIMIT);

    assert_int_equal(server_create(&options, &fabric->head, &stage->heap->pm, &other),
                     ROWAN_ECLUSTER);
    uint8_t *second = stage->heap->pm.base + HEAD_SECOND_OFFSET;
    stage->heap->pm.base[20] ^= 1;
    second[20] ^= 1;
    assert_int_equal(server_create(&options, &fabric->head, &stage->heap->pm, &other),
                     ROWAN_EDAMAGED);
    stage->heap->pm.base[8] = second[8] = VERSION_PM_HIGHEST + 1;
    assert_int_equal(server_create(&options, &fabric->head, &stage->heap->pm, &other),
                     ROWAN_EFORMAT);
    assert_null(other);
    puppet_destroy(fabric);
}

/* From its creation to a put and a get of a client. */
static int serve_for_a_while(struct stage *stage)
{
    int error = stage_try(stage, LIMIT);

    if (error)
        return error;
    stage_begin(stage);
    let_unions_end(stage);
    if (stage->fabric->zone_is_open) {
        struct puppet_conn *client = stage_client(stage);

        if (puppet_lives(stage->fabric, STAGE_WORKER, client))
            stage_put(stage, client, stage_key_of(0));
        stage_land_all(stage);
        if (puppet_lives(stage->fabric, STAGE_WORKER, client))
            stage_get(stage, client, stage_key_of(0));
        stage_land_all(stage);
    }
    return server_error(stage->server);
}

TEST(whatever_memory_is_missing_is_an_error_and_the_next_start_serves)
{
    bool more = true;

    stage_begin(stage);
    for (uint32_t nth = 1; more; nth++) {
        stage_end(stage);
        fail_call(nth);
        int error = serve_for_a_while(stage);

        more = fail_stop();
        assert_int_equal(error, more && error ? ROWAN_ENOMEM : 0);
    }
    struct message_reply got = {0};

    while (!stage_is_quiet(stage))
        got = stage_reply(stage);
    assert_int_equal(got.value_bytes, 5);
}

UNIT_MAIN(NULL, NULL)
