/* A server as a backup: senders that are shut out of its landing zone, and what of it is void. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "test/lib/unit.h"

static struct control *control_of(const struct stage *stage)
{
    return server_poller(stage->server, 0).role;
}

/* Of the second put: it is stored, or undone, once more. */
static void toggle(const struct landing *landing, uint64_t offset)
{
    ((uint8_t *)pm_at(&landing->stage->heap->pm, offset))[ENTRY_HEADER_BYTES + 1] ^= 4;
}

struct three {
    struct landing landing;
    uint64_t places[3], end;
};

/* Of three puts, all of a sender that was given up, the second is not whole then. */
static struct three void_three(struct stage *stage)
{
    struct three three = {.landing = landing_begin(stage)};

    for (unsigned i = 0; i < 3; i++)
        three.places[i] = landing_put(&three.landing, i + 1);
    three.end = three.landing.offset;
    toggle(&three.landing, three.places[1]);
    stage_run(stage);
    puppet_void(stage->fabric, STAGE_CONTROL, 0, (uint32_t)(three.end - three.places[0]) + 4096);
    stage_run(stage);
    three.landing.offset += 4096;
    return three;
}

static bool is_zero(const struct stage *stage, uint64_t from, uint64_t to)
{
    return bytes_are_zero(pm_at(&stage->heap->pm, from), to - from);
}

static void assert_second_is_missing(struct three *three)
{
    landing_commit(&three->landing, STAGE_BACKED, version_make(1, 3));
    stage_pass(three->landing.stage, NS_PER_S);
    landing_assert_fetch(&three->landing, 2, 2);
}

TEST(what_becomes_whole_where_it_is_void_is_not_read)
{
    struct three three = void_three(stage);

    toggle(&three.landing, three.places[1]);
    landing_put(&three.landing, 4); /* what is void ends in front of it */
    assert_second_is_missing(&three);
    assert_int_equal(landing_ask(&three.landing).version, version_make(1, 4));
}

TEST(nor_is_it_in_the_last_scan_of_its_segment)
{
    struct three three = void_three(stage);

    toggle(&three.landing, three.places[1]);
    stage->fabric->unquiet = true;
    landing_seal(&three.landing);
    assert_second_is_missing(&three);
}

/* Several ranges of a segment, the last of which nobody had read. */
TEST(what_is_whole_where_it_is_void_is_read)
{
    struct three three = void_three(stage);
    const uint64_t first = three.landing.offset;

    for (uint64_t i = 4; i <= 6; i++)
        landing_put(&three.landing, i);
    puppet_void(three.landing.stage->fabric, STAGE_CONTROL, (uint32_t)(first - three.places[0]),
                (uint32_t)(three.landing.offset - first));
    stage_run(stage);
    toggle(&three.landing, three.places[1]);
    landing_commit(&three.landing, STAGE_BACKED, version_make(1, 6));
    stage_pass(stage, NS_PER_S);
    landing_assert_fetch(&three.landing, 2, 2);
    landing_assert_no_fetch(&three.landing);
}

TEST(nothing_undecided_is_read_or_lost)
{
    struct landing landing = landing_begin(stage);
    struct blog_segment *segment = control_of(stage)->oldest;
    const uint32_t begin = (uint32_t)(landing.offset - segment->offset);
    struct blog_voids *undecided = malloc(sizeof *undecided + sizeof undecided->ranges[0]);

    *undecided = (struct blog_voids){.undecided = true, .count = 1};
    undecided->ranges[0] = (struct blog_void){begin, begin + 4096};
    atomic_store(&segment->voids, undecided);
    landing_put(&landing, 1);
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, 0);
    atomic_store(&segment->voids, NULL);
    free(undecided);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 2));
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
}

TEST(a_start_finds_nothing_where_it_was_void)
{
    struct three three = void_three(stage);

    toggle(&three.landing, three.places[1]);
    stage_return(stage);
    assert_true(is_zero(stage, three.places[1], three.places[2]));
    assert_true(is_zero(stage, three.end, three.end + 4096));
    assert_false(is_zero(stage, three.places[0], three.places[1]));
    assert_false(is_zero(stage, three.places[2], three.end));
}

/* The digest roles have left the segment long before. */
TEST(what_is_void_is_zeroed_once_nobody_can_store_there)
{
    struct three three = void_three(stage);
    struct blog_segment *segment = control_of(stage)->oldest;
    const uint64_t number = segment->segment;

    stage->fabric->unquiet = true;
    landing_seal(&three.landing);
    stage_pass(stage, NS_PER_S);
    toggle(&three.landing, three.places[1]);
    assert_false(is_zero(stage, three.places[1], three.places[2]));
    stage_hold_fences(stage, true);
    puppet_quiet(stage->fabric, STAGE_CONTROL, 0);
    stage_pass(stage, NS_PER_S);
    assert_true(is_zero(stage, three.places[1], three.places[2]));
    assert_ptr_equal(control_of(stage)->leaving, segment);
    stage_hold_fences(stage, false);
    stage_pass(stage, NS_PER_S);
    assert_null(control_of(stage)->leaving);
    assert_false(is_zero(stage, three.places[2], three.end));
    for (uint32_t i = 0; i < STORE_VOIDS; i++)
        assert_int_equal(store_void_add(control_of(stage)->common->store, number, 0, 64), 0);
}

TEST(more_than_the_table_takes_ends_the_server)
{
    struct control *control = control_of(stage);
    const uint64_t number = control->oldest->segment;

    for (uint32_t i = 0; i < STORE_VOIDS; i++)
        assert_int_equal(store_void_add(control->common->store, number, 64 * i, 64), 0);
    puppet_void(stage->fabric, STAGE_CONTROL, 1 << 20, 64);
    stage_run(stage);
    assert_int_equal(atomic_load(&control->common->error), ROWAN_ETOOMANY);
    assert_true(control_zone_is_shutting_out(control));
}

TEST(a_server_is_shut_out_when_the_fabric_says_so)
{
    struct control *control = control_of(stage);

    assert_false(control_zone_is_shutting_out(control));
    assert_int_equal(control_zone_shut_out(control, 2, 101), 0);
    assert_int_equal(control_zone_shut_out(control, 3, 7), 0);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 3, 0);
    stage_run(stage);
    assert_true(control_zone_is_shutting_out(control));
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_run(stage);
    assert_false(control_zone_is_shutting_out(control));
    assert_int_equal(control_zone_shut_out(control, 4, 7), 0);
    control_zone_readmit(control, 4); /* before it was true */
    assert_false(control_zone_is_shutting_out(control));
    assert_int_equal(atomic_load(&control->common->error), 0);
}

TEST(a_failed_sync_shuts_nobody_out_and_ends_the_server)
{
    struct control *control = control_of(stage);

    assert_int_equal(control_zone_shut_out(control, 2, 101), 0);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, ROWAN_EIO);
    stage_run(stage);
    assert_true(control_zone_is_shutting_out(control));
    assert_int_equal(atomic_load(&control->common->error), ROWAN_EIO);
}

UNIT_MAIN(NULL, NULL)
