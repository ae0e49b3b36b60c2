/* When segments become committed, what a start makes of the settled versions that stand behind them, and what is said
 * when there are no more. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "landing.h"
#include "server/clean/clean_state.h"
#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "server/worker/worker_state.h"
#include "test/lib/caught_log.h"
#include "test/lib/unit.h"

#define COMMIT_NS (200 * NS_PER_MS) /* longer than the control role waits for settled versions */

static void assert_segments(struct landing *landing, uint64_t used, uint64_t committed)
{
    stage_pass(landing->stage, COMMIT_NS);
    const struct landing_said said = landing_ask(landing);

    assert_int_equal(said.segments_used, used);
    assert_int_equal(said.segments_committed, committed);
}

static uint64_t settled(struct landing *landing)
{
    return landing_ask(landing).settled;
}

TEST(a_sealed_segment_is_committed_once_its_versions_are)
{
    struct landing landing = landing_with(stage, 1, 2);

    landing_seal(&landing);
    assert_segments(&landing, 1, 0);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    assert_segments(&landing, 1, 0);
    assert_int_equal(settled(&landing), version_make(1, 1));
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    assert_segments(&landing, 0, 1);
    assert_int_equal(settled(&landing), version_make(1, 2));
}

/* What lies in the open segment is not settled, whatever is committed. */
TEST(settled_versions_lie_in_closed_segments)
{
    struct landing landing = landing_with(stage, 1);

    landing_seal(&landing);
    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    assert_segments(&landing, 0, 1);
    assert_int_equal(settled(&landing), version_make(1, 1));
    landing_seal(&landing);
    assert_segments(&landing, 0, 2);
    assert_int_equal(settled(&landing), version_make(1, 2));
}

TEST(a_hole_keeps_the_segments_behind_it)
{
    struct landing landing = landing_with(stage, 1, 3);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    landing_seal(&landing);
    assert_segments(&landing, 1, 0);
    assert_int_equal(settled(&landing), version_make(1, 1));
    landing_put(&landing, 2);
    assert_segments(&landing, 1, 0);
    landing_seal(&landing);
    assert_segments(&landing, 0, 2);
    assert_int_equal(settled(&landing), version_make(1, 3));
}

/* What a start would find in the PM, once a bit of that segment has flipped. */
static struct verify verify_flipped(struct stage *stage, uint64_t segment)
{
    const struct control *control = server_poller(stage->server, 0).role;
    struct verify verify;
    uint8_t *bytes =
        control->common->pm->base + store_segment_offset(control->common->store, segment);
    bytes[ENTRY_HEADER_BYTES] ^= 1;
    verify_begin(&verify, control->common->pm);
    while (!verify_step(&verify))
        ;
    bytes[ENTRY_HEADER_BYTES] ^= 1;
    return verify;
}

/* Its primary is away, and has told of no commit. Others' entries may be settled there, so damage counts. */
TEST(a_shard_that_nobody_serves_keeps_the_segments_with_what_is_not_settled_and_no_others)
{
    struct landing landing = landing_with(stage, 1);

    landing_seal(&landing);
    landing_commit(&landing, 0, version_make(1, 0));
    landing_seal(&landing);
    assert_segments(&landing, 2, 0);
    const struct store *store =
        ((struct control *)server_poller(stage->server, 0).role)->common->store;
    uint64_t first = 0;
    while (store_meta(store, first).owner != OWNER_BACKUP_LOG)
        first++;
    stage_pass(stage, 2 * NS_PER_S);
    assert_segments(&landing, 1, 1);
    assert_int_equal(store_meta(store, first).state, SEGMENT_USED);
    assert_int_equal(verify_flipped(stage, first).places, 1);
    landing_put(&landing, 2);
    landing_seal(&landing);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage_pass(stage, 2 * NS_PER_S);
    assert_segments(&landing, 1, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    assert_segments(&landing, 0, 3);
}

/* Nobody waits for it, so with nothing more to come the segment would stay. */
TEST(what_no_role_could_read_keeps_no_segment)
{
    struct landing landing = landing_begin(stage);
    uint8_t *block = stage->heap->pm.base + landing_put(&landing, 2);

    block[ENTRY_HEADER_BYTES] ^= 1;
    stage->fabric->unquiet = true;
    landing_seal(&landing);
    block[ENTRY_HEADER_BYTES] ^= 1;
    stage->fabric->unquiet = false;
    puppet_quiet(stage->fabric, STAGE_CONTROL, 0);
    landing_put(&landing, 1);
    landing_seal(&landing);
    assert_segments(&landing, 2, 0);
    stage_pass(stage, 2 * NS_PER_S);
    assert_segments(&landing, 1, 1);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    assert_segments(&landing, 0, 2);
}

/* Somebody may still store into it. */
TEST(a_segment_that_is_not_quiet_is_not_committed_beside_one_that_is)
{
    struct landing landing = landing_with(stage, 1);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage->fabric->unquiet = true;
    landing_seal(&landing);
    stage->fabric->unquiet = false;
    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    landing_seal(&landing);
    assert_segments(&landing, 1, 1);
}

/* The blocks that lie there would be gone before the entry is whole. */
TEST(a_block_of_an_entry_that_is_not_whole_keeps_its_segment)
{
    static uint8_t value[100000];
    struct landing landing = landing_begin(stage);
    const struct entry_format format = stage_format(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version_make(1, 2),
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = sizeof value};

    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, header.value_bytes);
    assert_int_equal(header.blocks, 2);
    landing_put(&landing, 1);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    landing_block(&landing, header, key, value);
    landing_seal(&landing);
    assert_segments(&landing, 1, 0);
    header.block = 1;
    landing_block(&landing, header, key, value);
    assert_segments(&landing, 1, 0);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    assert_segments(&landing, 1, 0);
    landing_seal(&landing);
    assert_segments(&landing, 0, 2);
}

TEST(a_full_segment_of_the_log_is_committed_once_its_writes_have_landed)
{
    static uint8_t value[60000];
    struct landing landing = landing_begin(stage);
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(0);

    for (unsigned i = 0; landing_ask(&landing).segments_used == 0; i++) {
        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, sizeof value, 0);
        stage_run(stage);
        if (i < 50)
            stage_land_all(stage);
    }
    assert_segments(&landing, 1, 0);
    stage_land_all(stage);
    assert_segments(&landing, 0, 1);
}

TEST(a_segment_is_committed_when_the_settled_versions_are_durable)
{
    struct landing landing = landing_with(stage, 1);

    landing_seal(&landing);
    stage_hold_fences(stage, true);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    assert_segments(&landing, 1, 0);
    stage_hold_fences(stage, false);
    assert_segments(&landing, 0, 1);
}

static uint64_t settled_in_pm(const struct stage *stage)
{
    const struct pm *pm = &stage->heap->pm;
    struct superblock block;
    struct row row;

    assert_int_equal(superblock_read(pm, &block), 0);
    assert_int_equal(row_read(pm, store_geometry(block.segments).replicas[0], STAGE_BACKED, &row),
                     ROW_WHOLE);
    return row.settled;
}

/* Not before what was copied is durable (G5); and in a segment that is closed meanwhile nobody would look for damage (G4). */
TEST(what_the_replica_table_calls_settled_is_durable_and_in_segments_that_are_committed_then)
{
    struct landing landing = landing_begin(stage);

    landing_put(&landing, 1);
    landing_seal(&landing);
    stage_pass(stage, COMMIT_NS);
    landing_put(&landing, 2);
    landing_seal(&landing);
    stage_hold_fences(stage, true);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, COMMIT_NS);
    assert_int_equal(settled(&landing), version_make(1, 2));
    assert_int_equal(settled_in_pm(stage), version_make(1, 0));
    stage_hold_fences(stage, false);
    stage_poll(stage);
    assert_int_equal(settled_in_pm(stage), version_make(1, 1));
    assert_segments(&landing, 0, 2);
}

TEST(a_start_goes_on_from_the_settled_version)
{
    struct landing landing = landing_with(stage, 1, 2);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    landing_seal(&landing);
    assert_segments(&landing, 0, 1);
    landing = landing_return(stage);
    assert_segments(&landing, 0, 1);
    assert_int_equal(settled(&landing), version_make(1, 2));
    /* All of the epochs before is settled where the log reconciliation is over. */
    for (uint16_t shard = 0; shard < STAGE_BACKED; shard++)
        landing_commit(&landing, shard, version_make(2, 0));
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    stage_pass(stage, COMMIT_NS);
    assert_int_equal(settled(&landing), version_make(2, 0));
}

static int put_status(struct stage *stage, struct puppet_conn *client)
{
    stage_put_lands(stage, client, stage_key_of(0));
    return stage_reply(stage).status;
}

static void fill(struct stage *stage, struct puppet_conn *client)
{
    int status;

    stage->fabric->unquiet = true;
    while (!(status = put_status(stage, client))) {
        assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
        stage_run(stage);
    }
    assert_int_equal(status, ROWAN_EBUSY);
}

/* The client asks again meanwhile. */
TEST(puts_wait_for_cleaning_and_are_refused_when_it_gives_no_space)
{
    struct puppet_conn *client = stage_client(stage);

    fill(stage, client);
    log_catch();
    uint32_t busy = 0;
    for (unsigned i = 0; i < 19; i++) {
        stage_pass(stage, 100 * NS_PER_MS);
        busy += put_status(stage, client) == ROWAN_EBUSY;
    }
    stage_pass(stage, 100 * NS_PER_MS);
    const char *text = log_caught(), *waits = strstr(text, "writes_wait");
    assert_int_equal(busy, 19);
    assert_non_null(waits);
    assert_null(strstr(waits + 1, "writes_wait")); /* as often as something changes */
    assert_memory_equal(waits, "writes_wait shard=0 epoch=1 server=1 for=space", 46);
    assert_int_equal(put_status(stage, client), ROWAN_EFULL);
}

/* Passes for tombstones may free no segment for longer than it takes until a server is full. */
TEST(puts_wait_as_long_as_tombstones_go)
{
    struct puppet_conn *client = stage_client(stage);
    struct control *control = server_poller(stage->server, 0).role;

    fill(stage, client);
    for (unsigned i = 0; i < 50; i++) {
        atomic_store(&control->clean->tombstones.hopes, true);
        stage_pass(stage, 100 * NS_PER_MS);
        assert_int_equal(put_status(stage, client), ROWAN_EBUSY);
    }
    atomic_store(&control->clean->tombstones.hopes, false);
    for (unsigned i = 0; i < 20; i++)
        stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(put_status(stage, client), ROWAN_EFULL);
}

static uint32_t wakes;

void __wrap_reactor_wake(struct reactor *reactor); /* meson.build: in place of reactor_wake */
void __wrap_reactor_wake(struct reactor *reactor)
{
    (void)reactor;
    wakes++;
}

/* It may be asleep. The segment holds versions of the epoch before, which settle when the next one has begun. */
TEST(who_closes_the_log_for_an_epoch_that_began_wakes_the_control_role)
{
    stage_close(stage);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->config->manager = 9;
    stage->config->lease_ms = CLUSTER_MAX_LEASE_MS;
    stage_begin(stage);
    stage_grant(stage);
    stage_commit(stage, 1);
    stage_put_lands(stage, stage_client(stage), stage_key_of(0));
    stage->config->term++;
    stage->config->shards[0].epoch++;
    stage_configure_for(stage, stage->config, 0);
    stage_pass(stage, 10 * NS_PER_MS);
    stage_commit(stage, 2);
    struct worker *worker = server_poller(stage->server, 1).role;
    const struct inbox *outbox = &worker->role.outbox;
    const uint64_t segment = worker->log.segment;
    const uint32_t pushed = outbox->ring.tail;

    assert_true(worker->log.open && worker->unsettled);
    inbox_set_reactor(&worker->role.outbox, (struct reactor *)&wakes);
    wakes = 0;
    stage_answer_suffixes(stage, 0);
    stage_land_all(stage);
    assert_int_not_equal(worker->log.segment, segment);
    assert_true(wakes > outbox->ring.tail - pushed);
}

UNIT_MAIN(NULL, NULL)
