/* A server as a backup: what it makes of entries that its primary brings by message, because it asked for them or because
 * log reconciliation found that it lacks them. The test plays the primary (server 2). */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "test/lib/unit.h"

enum { LIMIT = 1024, BLOCKS = 512, LONG_BYTES = 300 << 10 };

static int open_stage(void **state)
{
    stage_open(stage_new(state), LIMIT);
    return 0;
}

/* --- playing the primary --- */

struct bundle {
    const char *key;
    Rowan__StoreEntries body;
    Rowan__VersionRange range, *gone;
    ProtobufCBinaryData data[BLOCKS];
    uint8_t bytes[BLOCKS][LIMIT];
};

/* Not the one of landing_put. */
static const char *other_key(void)
{
    static char key[32];
    unsigned i = 0;

    do
        snprintf(key, sizeof key, "other-%u", i++);
    while (slot_of_key(key, (uint32_t)strlen(key)) / 4096 != STAGE_BACKED);
    return key;
}

static struct bundle *bundle_of(uint32_t epoch)
{
    static struct bundle bundle;

    bundle.key = other_key();
    rowan__store_entries__init(&bundle.body);
    bundle.body.shard = STAGE_BACKED;
    bundle.body.epoch = epoch;
    bundle.body.blocks = bundle.data;
    return &bundle;
}

/* A put; of its blocks those from `first` on, `count` at most. */
static struct bundle *add(struct stage *stage, struct bundle *bundle, uint64_t version,
                          uint32_t value_bytes, uint32_t first, uint32_t count)
{
    static uint8_t value[LONG_BYTES];
    const struct entry_format format = stage_format(stage);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version,
                                  .key_bytes = (uint16_t)strlen(bundle->key),
                                  .value_bytes = value_bytes};

    memset(value, 'v', sizeof value);
    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, value_bytes);
    for (uint32_t i = first; i < header.blocks && i < first + count; i++) {
        uint8_t *at = bundle->bytes[bundle->body.n_blocks];

        header.block = (uint16_t)i;
        bundle->data[bundle->body.n_blocks++] = (ProtobufCBinaryData){
            .data = at, .len = entry_encode_block(&format, &header, bundle->key, value, at)};
    }
    return bundle;
}

/* These versions are gone. */
static struct bundle *add_gone(struct bundle *bundle, uint64_t first, uint64_t last)
{
    rowan__version_range__init(&bundle->range);
    bundle->range.first = first;
    bundle->range.last = last;
    bundle->gone = &bundle->range;
    bundle->body.gone = &bundle->gone;
    bundle->body.n_gone = 1;
    return bundle;
}

static void bring(struct landing *landing, struct bundle *bundle)
{
    landing->stage->fabric->taken = landing->stage->fabric->sent_count;
    stage_tell(landing->peer, 9, &CONTROL_MESSAGE(STORE_ENTRIES, store_entries, &bundle->body));
    stage_run(landing->stage);
}

enum { NOTHING = 1 };

/* What the server answered: 0 stored, an error, or NOTHING yet. */
static int answer_of(struct landing *landing)
{
    const struct puppet_sent *sent;
    int answer = NOTHING;

    while ((sent = puppet_take(landing->stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE && tag == 9)
            answer = message->failure->error;
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_ENTRIES_STORED && tag == 9) {
            assert_int_equal(message->entries_stored->shard, STAGE_BACKED);
            answer = 0;
        }
        control_free(message);
    }
    return answer;
}

static int bring_and_ask(struct landing *landing, struct bundle *bundle)
{
    bring(landing, bundle);
    return answer_of(landing);
}

static int bring_put(struct landing *landing, uint32_t epoch, uint64_t version)
{
    return bring_and_ask(landing, add(landing->stage, bundle_of(epoch), version, 5, 0, 1));
}

/* So many blocks of a long entry, the second version. */
static int bring_part(struct landing *landing, uint32_t first, uint32_t count)
{
    return bring_and_ask(
        landing, add(landing->stage, bundle_of(1), version_make(1, 2), LONG_BYTES, first, count));
}

static struct store *store_of(const struct stage *stage)
{
    const struct control *control = server_poller(stage->server, 0).role;

    return control->common->store;
}

/* Bytes in the digest logs. */
static uint64_t kept_bytes(struct stage *stage)
{
    const struct store *store = store_of(stage);
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < store_segments(store); i++) {
        struct segment_meta meta = store_meta(store, i);
        const uint8_t *at = pm_at(&stage->heap->pm, store_segment_offset(store, i));

        if (meta.state == SEGMENT_FREE || meta.owner != OWNER_DIGEST)
            continue;
        for (uint32_t j = 0; j < STORE_SEGMENT_BYTES; j += ENTRY_ALIGN) {
            uint32_t word;

            memcpy(&word, at + j, sizeof word);
            bytes += word != 0 ? ENTRY_ALIGN : 0;
        }
    }
    return bytes;
}

static uint64_t applied(const struct stage *stage)
{
    return digest_entries(stage_digest(stage));
}

static bool holds(const struct stage *stage)
{
    return reclaim_since(&stage_digest(stage)->reclaim) != RECLAIM_NOTHING;
}

/* Version 2 of 3 has not landed, and is asked for. */
static struct landing with_hole(struct stage *stage)
{
    struct landing landing = landing_with(stage, 1, 3);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    stage_run(stage);
    landing_assert_fetch(&landing, 2, 2);
    assert_true(landing_ask(&landing).missing);
    return landing;
}

/* A server that started again, whose primary reconciles: it lacks version (1, 2), and nothing is committed. */
static struct landing reconciled(struct stage *stage)
{
    landing_with(stage, 1, 3);
    stage_run(stage);
    return landing_return(stage);
}

/* --- answers to Fetch --- */

TEST(what_was_asked_for_is_stored_and_confirmed)
{
    struct landing landing = with_hole(stage);

    assert_int_equal(bring_put(&landing, 1, version_make(1, 2)), 0);
    assert_false(landing_ask(&landing).missing);
    assert_int_equal(kept_bytes(stage), 64);
}

TEST(nothing_is_confirmed_or_shown_before_it_is_durable)
{
    struct landing landing = with_hole(stage);

    stage_hold_fences(stage, true);
    assert_int_equal(bring_put(&landing, 1, version_make(1, 2)), NOTHING);
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_MS);
    assert_true(landing_ask(&landing).missing);
    stage_hold_fences(stage, false);
    landing.stage->fabric->taken = 0;
    stage_run(stage);
    assert_int_equal(answer_of(&landing), 0);
    assert_false(landing_ask(&landing).missing);
}

/* Also while the first one is not durable yet. */
TEST(an_answer_that_comes_late_or_twice_stores_nothing)
{
    struct landing landing = with_hole(stage);
    struct bundle *bundle = add(stage, bundle_of(1), version_make(1, 2), 5, 0, 1);

    stage_hold_fences(stage, true);
    assert_int_equal(bring_and_ask(&landing, bundle), NOTHING);
    assert_int_equal(bring_and_ask(&landing, bundle), NOTHING);
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_int_equal(answer_of(&landing), 0);
    assert_int_equal(bring_and_ask(&landing, bundle), 0);
    assert_int_equal(bring_put(&landing, 1, version_make(1, 3)), 0);
    assert_int_equal(kept_bytes(stage), 64);
}

/* There are more holes than the prefix has ranges. */
TEST(what_the_contiguous_prefix_has_forgotten_is_not_stored_again_if_the_index_shows_it)
{
    struct landing landing = landing_begin(stage);
    const uint32_t last = 2 * PREFIX_RANGES + 2;
    struct bundle *bundle = bundle_of(1);

    for (uint32_t i = 2; i <= last; i += 2)
        landing_put(&landing, i);
    landing_commit(&landing, STAGE_BACKED, version_make(1, last));
    stage_run(stage);
    landing_assert_fetch(&landing, 1, 1);
    bundle->key = stage_key_of(STAGE_BACKED);
    assert_int_equal(bring_and_ask(&landing, add(stage, bundle, version_make(1, last), 5, 0, 1)),
                     0);
    assert_int_equal(kept_bytes(stage), 0);
    /* The one before was superseded. */
    bundle->body.n_blocks = 0;
    assert_int_equal(
        bring_and_ask(&landing, add(stage, bundle, version_make(1, last - 1), 5, 0, 1)), 0);
    assert_int_equal(kept_bytes(stage), 64);
}

TEST(a_message_of_another_epoch_or_sender_is_dropped)
{
    struct landing landing = with_hole(stage);
    const struct fabric_identity other = {
        .cluster = 77, .id = 2, .incarnation = 101, .role = 1, .kind = FABRIC_SERVER};

    assert_int_equal(bring_put(&landing, 2, version_make(1, 2)), ROWAN_EAGAIN);
    assert_int_equal(bring_put(&landing, 0, version_make(1, 2)), ROWAN_EAGAIN);
    landing.peer = puppet_accept(stage->fabric, STAGE_CONTROL, &other); /* another worker */
    stage_run(stage);
    assert_int_equal(bring_put(&landing, 1, version_make(1, 2)), ROWAN_EAGAIN);
    landing.peer = landing.tool;
    assert_int_equal(bring_put(&landing, 1, version_make(1, 2)), ROWAN_EAGAIN);
    assert_int_equal(kept_bytes(stage), 0);
}

TEST(nothing_that_is_damaged_or_not_asked_for_is_stored)
{
    struct landing landing = with_hole(stage);
    /* What no commit version covers; an epoch to come; counter 0. */
    const uint64_t wrong[] = {version_make(1, 4), version_make(2, 1), version_make(1, 0)};

    for (unsigned bad = 0; bad < 7; bad++) {
        struct bundle *bundle = bundle_of(1);

        add(stage, bundle, bad < 3 ? wrong[bad] : version_make(1, 2), 500, 0, 1);
        if (bad == 3)
            bundle->bytes[0][50] ^= 1;
        else if (bad == 4 || bad == 5)
            bundle->data[0].len -= bad == 4 ? 64 : 1;
        else if (bad == 6)
            bundle->body.n_blocks = 0;
        int error = bring_and_ask(&landing, bundle);

        assert_true(error == ROWAN_EFORMAT || error == ROWAN_EDAMAGED);
    }
    assert_int_equal(kept_bytes(stage), 0);
    assert_true(landing_ask(&landing).missing);
}

/* --- what is gone --- */

TEST(a_version_that_is_gone_is_not_missing_and_is_settled)
{
    struct landing landing = with_hole(stage);

    assert_int_equal(
        bring_and_ask(&landing, add_gone(bundle_of(1), version_make(1, 2), version_make(1, 2))), 0);
    assert_false(landing_ask(&landing).missing);
    assert_int_equal(kept_bytes(stage), 0);
    landing_seal(&landing);
    assert_int_equal(landing_ask(&landing).settled, version_make(1, 3));
    stage_pass(stage, 10 * NS_PER_S);
    landing_assert_no_fetch(&landing);
}

TEST(nothing_else_is_gone)
{
    struct landing landing = with_hole(stage);
    static const struct {
        uint32_t epoch;
        uint64_t first, last;
        int answer;
    } wrong[] = {
        {2, 2, 2, ROWAN_EAGAIN},                       /* another epoch's primary */
        {1, 2, 4, ROWAN_EFORMAT},                      /* above the commit version */
        {1, 0, 2, ROWAN_EFORMAT},                      /* no version */
        {1, 3, 2, ROWAN_EFORMAT},                      /* no range */
        {1, 2, 2 + QUERY_GONE_VERSIONS, ROWAN_EFORMAT} /* more than is told at a time */
    };

    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(bring_and_ask(&landing, add_gone(bundle_of(wrong[i].epoch),
                                                          version_make(1, wrong[i].first),
                                                          version_make(1, wrong[i].last))),
                         wrong[i].answer);
    assert_int_equal(
        bring_and_ask(&landing, add_gone(bundle_of(1), version_make(2, 1), version_make(2, 1))),
        ROWAN_EFORMAT);
    assert_true(landing_ask(&landing).missing);
}

TEST(so_many_versions_are_gone_at_a_time_and_no_more)
{
    struct landing landing = with_hole(stage);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 2 * QUERY_GONE_VERSIONS));
    for (uint64_t more = 2; more-- > 0;)
        assert_int_equal(
            bring_and_ask(&landing, add_gone(bundle_of(1), version_make(1, 4),
                                             version_make(1, 3 + QUERY_GONE_VERSIONS + more))),
            more ? ROWAN_EFORMAT : 0);
}

TEST(nothing_is_gone_of_an_earlier_epoch_or_while_the_shard_is_recovering)
{
    struct landing landing = reconciled(stage);

    for (unsigned committed = 0; committed < 2; committed++) {
        for (uint32_t epoch = 1; epoch <= 2; epoch++)
            assert_int_equal(bring_and_ask(&landing, add_gone(bundle_of(2), version_make(epoch, 2),
                                                              version_make(epoch, 2))),
                             ROWAN_EFORMAT);
        landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
        stage_run(stage);
    }
}

/* --- what is held --- */

TEST(what_is_not_applied_yet_is_held)
{
    struct landing landing = with_hole(stage);

    assert_false(holds(stage));
    stage_hold_fences(stage, true);
    bring(&landing, add(stage, bundle_of(1), version_make(1, 2), 5, 0, 1));
    assert_true(holds(stage));
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_false(holds(stage));
}

TEST(a_suffix_of_data_that_may_be_incomplete_stays_until_the_reconciliation_is_over)
{
    struct landing landing = reconciled(stage);

    assert_true(atomic_load(&stage_digest(stage)->shards[STAGE_BACKED]->exposed) == UINT64_MAX);
    stage->boot++;
    landing = landing_return(stage);
    const struct shard_state *shard = stage_digest(stage)->shards[STAGE_BACKED];
    assert_true(atomic_load(&shard->exposed) == shard->suffix.above);
    assert_false(holds(stage)); /* what others have there may go */
    landing_commit(&landing, STAGE_BACKED, version_make(3, 0));
    stage_run(stage);
    assert_true(atomic_load(&shard->exposed) == UINT64_MAX);
}

/* Its first block landed, then the connection broke; it came by message. */
TEST(blocks_of_a_settled_version_are_not_waited_for)
{
    struct landing landing = landing_begin(stage);
    static uint8_t value[LONG_BYTES];
    const struct entry_format format = stage_format(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version_make(1, 1),
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = LIMIT};

    memset(value, 'v', sizeof value);
    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, LIMIT);
    landing_block(&landing, header, key, value);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage_run(stage);
    assert_int_equal(
        bring_and_ask(&landing, add(stage, bundle_of(1), version_make(1, 1), LIMIT, 0, 2)), 0);
    assert_int_equal(stage_digest(stage)->join.used, 1);
    landing_seal(&landing);
    assert_int_equal(landing_ask(&landing).settled, version_make(1, 1));
    assert_int_equal(stage_digest(stage)->join.used, 0);
}

/* The rest would be stored into a segment that may serve something else by now. */
TEST(an_interrupted_entry_that_is_settled_meanwhile_does_not_go_on)
{
    struct landing landing = with_hole(stage);

    assert_int_equal(bring_part(&landing, 0, 100), 0);
    const uint64_t part = kept_bytes(stage);
    landing_put(&landing, 2);
    stage_run(stage);
    landing_seal(&landing);
    assert_int_equal(landing_ask(&landing).settled, version_make(1, 3));
    assert_int_equal(bring_part(&landing, 100, 100), ROWAN_EAGAIN);
    assert_int_equal(kept_bytes(stage), part);
}

/* --- long entries --- */

TEST(a_long_entry_comes_in_several_messages)
{
    struct landing landing = with_hole(stage);
    const uint64_t before = applied(stage);

    for (uint32_t from = 0; from < 400; from += 100) {
        assert_true(landing_ask(&landing).missing);
        assert_int_equal(bring_part(&landing, from, 100), 0);
    }
    assert_false(landing_ask(&landing).missing);
    assert_int_equal(applied(stage), before + 1);
}

/* The sender does not know how much of it came. */
TEST(a_long_entry_that_was_interrupted_starts_again_in_its_place)
{
    struct landing landing = with_hole(stage);

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(bring_part(&landing, 0, 100), 0);
    const uint64_t part = kept_bytes(stage);

    assert_int_equal(part, 100 * LIMIT);
    puppet_close(landing.peer, ROWAN_ECLOSED);
    landing = landing_begin(stage);
    assert_int_equal(bring_part(&landing, 200, 100), ROWAN_EAGAIN);
    assert_int_equal(bring_part(&landing, 0, 200), 0);
    assert_int_equal(bring_part(&landing, 200, 200), 0);
    assert_false(landing_ask(&landing).missing);
    assert_in_range(kept_bytes(stage), LONG_BYTES, LONG_BYTES + LONG_BYTES / 16);
}

/* --- log reconciliation --- */

TEST(what_a_reconciliation_brings_is_taken_until_it_is_over)
{
    struct landing landing = reconciled(stage);
    const uint64_t kept = kept_bytes(stage);

    /* Of the epoch that begins nothing can have been asked for. */
    assert_int_equal(bring_put(&landing, 2, version_make(2, 1)), ROWAN_EFORMAT);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(bring_put(&landing, 2, version_make(1, 2)), 0);
        assert_int_equal(bring_put(&landing, 2, version_make(1, 3)), 0);
    }
    assert_int_equal(kept_bytes(stage), kept + 64);
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    stage_run(stage);
    assert_int_equal(landing_ask(&landing).commit, version_make(2, 0));
    assert_int_equal(bring_put(&landing, 2, version_make(1, 9)), 0);
    assert_int_equal(kept_bytes(stage), kept + 64);
}

/* The contiguous prefix knows nothing of a settled epoch; and the index has a newer entry of the key. */
TEST(what_a_start_has_found_is_not_stored_again)
{
    struct landing landing = reconciled(stage);

    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    stage_run(stage);
    stage->boot++; /* now each replica may lack anything, and all is reconciled */
    landing = landing_return(stage);
    assert_int_equal(bring_put(&landing, 3, version_make(1, 1)), 0);
    assert_int_equal(kept_bytes(stage), 0);
    assert_int_equal(bring_put(&landing, 3, version_make(1, 2)), 0);
    assert_int_equal(kept_bytes(stage), 64);
}

/* After the next start it is a part of the uncommitted suffix. A torn one counts for nothing. */
TEST(what_came_by_message_is_found_by_a_start)
{
    struct landing landing = reconciled(stage);
    const uint64_t before = applied(stage);

    bring(&landing, add(stage, bundle_of(2), version_make(1, 2), 5, 0, 1));
    bring(&landing, add(stage, bundle_of(2), version_make(1, 4), LONG_BYTES, 0, 100));
    assert_int_equal(applied(stage), before + 1);
    landing = landing_return(stage);
    const uint64_t kept = kept_bytes(stage);

    assert_int_equal(bring_put(&landing, 3, version_make(1, 2)), 0);
    assert_int_equal(kept_bytes(stage), kept);
}

/* --- space --- */

TEST(a_server_without_segments_answers_so_and_soon_asks_again)
{
    struct landing landing = with_hole(stage);
    struct bundle *bundle = add(stage, bundle_of(1), version_make(1, 2), 5, 0, 1);
    struct store *store = store_of(stage);
    uint64_t segment, last = 0;

    while (!store_allocate(store, OWNER_DIGEST, 0, &segment))
        last = segment;
    stage_pass(stage, 7 * NS_PER_S); /* it has asked three times, and would do so 8 s later */
    stage->fabric->taken = stage->fabric->sent_count;
    assert_int_equal(bring_and_ask(&landing, bundle), ROWAN_EFULL);
    stage_pass(stage, NS_PER_S);
    landing_assert_fetch(&landing, 2, 2);
    store_transition(store, last, SEGMENT_USED);
    store_transition(store, last, SEGMENT_DIRTY);
    store_transition(store, last, SEGMENT_FREE);
    assert_int_equal(bring_and_ask(&landing, bundle), 0);
    assert_false(landing_ask(&landing).missing);
}

UNIT_MAIN(NULL, NULL)
