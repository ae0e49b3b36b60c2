/* fabric_conformance_bulk.c - bulk writes, F10. Side 0 grants, sides 1 and 2 write. And F4 of all services at once. */
#define TEST_FIXTURE open_three, close_three

#include "common/base/clock.h"
#include "common/base/error.h"
#include "test/lib/fabric_conformance.h"
#include "test/lib/unit.h"

enum {
    MEGABYTE = 1 << 20,
    PLACE = 16 * MEGABYTE, /* of what is granted, behind the segments of the zone */
    GRANTED = 2 * MEGABYTE,
};

struct link {
    struct fabric_conn *writer, *owner; /* the two ends */
    struct fabric_grant grant;
};

static struct link link_make(unsigned writer)
{
    struct link link;

    world_connect(&world, writer, 0, 0, &link.writer, &link.owner);
    return link;
}

static struct link link_granted(unsigned writer, uint64_t offset, uint64_t context)
{
    struct link link = link_make(writer);

    assert_int_equal(fabric_grant(link.owner, offset, GRANTED, context, &link.grant), 0);
    return link;
}

/* Fills its memory at `from` with a pattern of that seed. */
static const void *fill(unsigned side, uint64_t from, uint32_t bytes, uint64_t seed)
{
    static uint8_t data[FABRIC_MAX_WRITE_BYTES];

    pattern_fill(data, bytes, seed);
    pm_store(world.sides[side].pm, from, data, bytes);
    return pm_at(world.sides[side].pm, from);
}

static int write_seed(unsigned side, const struct link *link, uint64_t at, uint32_t bytes,
                      uint64_t seed)
{
    return fabric_write(link->writer, &link->grant, at, fill(side, at, bytes, seed), bytes, seed);
}

static bool is_written(uint64_t offset, uint32_t bytes, uint64_t seed)
{
    return pattern_is(pm_at(world.sides[0].pm, offset), bytes, seed);
}

static bool is_untouched(uint64_t offset, uint64_t bytes)
{
    const uint8_t *at = pm_at(world.sides[0].pm, offset);

    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static uint32_t written(unsigned side)
{
    return side_count(&world.sides[side], FABRIC_WRITTEN);
}

static uint32_t revoked(void)
{
    return side_count(&world.sides[0], FABRIC_REVOKED);
}

TEST(f10_what_is_written_is_there_and_nothing_else_is)
{
    static const uint32_t sizes[] = {64, 4096, 65536, 128, MEGABYTE};
    struct link link;
    uint64_t at = 0;

    side_open_zone(&world, 0, 2, 2);
    link = link_granted(1, PLACE, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(write_seed(1, &link, at, sizes[i], 100 + i), 0);
        world_wait(&world, 1, FABRIC_WRITTEN, i + 1);
        assert_int_equal(side_event(&world.sides[1], FABRIC_WRITTEN, i)->context, 100 + i);
        assert_ptr_equal(side_event(&world.sides[1], FABRIC_WRITTEN, i)->conn, link.writer);
        assert_true(is_written(PLACE + at, sizes[i], 100 + i));
        at += sizes[i];
        assert_true(is_untouched(PLACE + at, CONFORMANCE_PM_BYTES - PLACE - at));
    }
    assert_true(is_untouched(0, PLACE));
    assert_int_equal(write_seed(1, &link, 0, 64, 7), 0); /* what is there may be written over */
    world_wait(&world, 1, FABRIC_WRITTEN, 6);
    assert_true(is_written(PLACE, 64, 7));
    assert_int_equal(revoked(), 0);
}

TEST(f10_the_largest_write_arrives)
{
    struct link link;

    side_open_zone(&world, 0, 2, 2);
    link = link_make(1);
    assert_int_equal(fabric_grant(link.owner, PLACE, FABRIC_MAX_WRITE_BYTES, 0, &link.grant), 0);
    assert_int_equal(write_seed(1, &link, 0, FABRIC_MAX_WRITE_BYTES, 1), 0);
    world_wait(&world, 1, FABRIC_WRITTEN, 1);
    assert_true(is_written(PLACE, FABRIC_MAX_WRITE_BYTES, 1));
}

TEST(f9_f10_a_full_queue_of_writes_says_again_and_changes_nothing)
{
    struct link link;
    uint32_t added = 0;

    side_open_zone(&world, 0, 2, 2);
    link = link_granted(1, PLACE, 0);
    for (unsigned round = 0; round < 3; round++) {
        const uint32_t before = added;
        int error;

        while ((error = write_seed(1, &link, (uint64_t)(added - before) * 4096, 4096, added)) ==
               0) {
            added++;
            assert_true((uint64_t)(added - before) * 4096 < GRANTED);
            if (added % 3 == 0)
                fabric_flush(world.sides[1].endpoint);
        }
        assert_int_equal(error, ROWAN_EAGAIN);
        assert_true(added - before > 1);
        world_wait(&world, 1, FABRIC_WRITTEN, added);
        for (uint32_t i = before; i < added; i++) {
            assert_int_equal(side_event(&world.sides[1], FABRIC_WRITTEN, i)->context, i);
            assert_true(is_written(PLACE + (uint64_t)(i - before) * 4096, 4096, i));
        }
    }
    world_poll_times(&world, 50);
    assert_int_equal(written(1), added);
}

/* The connection ends on both sides; what is granted is given back once. */
static void expect_end(void)
{
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    world_wait(&world, 0, FABRIC_REVOKED, 1);
    world_poll_times(&world, 200);
    assert_int_equal(revoked(), 1);
    assert_int_equal(written(1), 0);
}

TEST(f10_a_write_outside_of_its_grant_ends_the_connection)
{
    static const uint64_t places[] = {GRANTED, GRANTED - 64, UINT64_C(1) << 62, UINT64_MAX - 63,
                                      CONFORMANCE_PM_BYTES};

    for (unsigned i = 0; i < 5; i++) {
        struct link link;

        if (i > 0)
            open_three(state);
        side_open_zone(&world, 0, 2, 2);
        link = link_granted(1, PLACE, 9);
        assert_int_equal(
            fabric_write(link.writer, &link.grant, places[i], fill(1, 0, 128, 1), 128, 0), 0);
        expect_end();
        assert_int_equal(side_event(&world.sides[0], FABRIC_REVOKED, 0)->context, 9);
        assert_null(side_event(&world.sides[0], FABRIC_REVOKED, 0)->conn);
        assert_true(is_untouched(0, CONFORMANCE_PM_BYTES));
        if (i < 4)
            close_three(state);
    }
}

TEST(f10_a_grant_that_nobody_gave_ends_the_connection)
{
    struct link link;

    side_open_zone(&world, 0, 2, 2);
    link = link_granted(1, PLACE, 0);
    link.grant.words[0] ^= 1;
    assert_int_equal(write_seed(1, &link, 0, 64, 1), 0);
    expect_end();
    assert_true(is_untouched(0, CONFORMANCE_PM_BYTES));
}

TEST(f10_a_write_after_revoke_ends_the_connection)
{
    struct link link;

    side_open_zone(&world, 0, 2, 2);
    link = link_granted(1, PLACE, 77);
    assert_int_equal(write_seed(1, &link, 0, 4096, 1), 0);
    world_wait(&world, 1, FABRIC_WRITTEN, 1);
    fabric_revoke(link.owner, &link.grant);
    fabric_revoke(link.owner, &link.grant); /* changes nothing */
    world_wait(&world, 0, FABRIC_REVOKED, 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_REVOKED, 0)->context, 77);
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
    assert_int_equal(write_seed(1, &link, 0, 4096, 2), 0);
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    world_poll_times(&world, 200);
    assert_int_equal(written(1), 1);
    assert_true(is_written(PLACE, 4096, 1));
    assert_int_equal(revoked(), 1);
}

/* Whatever part of it had come: nothing comes after REVOKED. */
TEST(f10_nothing_is_written_after_revoked)
{
    struct link link;
    static uint8_t seen[GRANTED];

    for (unsigned polls = 0; polls < 24; polls += 1 + polls / 4) {
        if (polls > 0)
            open_three(state);
        side_open_zone(&world, 0, 2, 2);
        link = link_granted(1, PLACE, 0);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(write_seed(1, &link, (uint64_t)i * MEGABYTE, MEGABYTE, i), 0);
        world_poll_times(&world, polls);
        fabric_revoke(link.owner, &link.grant);
        world_wait(&world, 0, FABRIC_REVOKED, 1);
        memcpy(seen, pm_at(world.sides[0].pm, PLACE), GRANTED);
        world_poll_times(&world, 200);
        assert_memory_equal(seen, pm_at(world.sides[0].pm, PLACE), GRANTED);
        assert_int_equal(revoked(), 1);
        if (polls + 1 + polls / 4 < 24)
            close_three(state);
    }
}

TEST(f10_the_end_of_a_connection_revokes_its_grants)
{
    enum { BY_OWNER, BY_WRITER, ENDPOINT, WAYS };

    for (unsigned way = 0; way < WAYS; way++) {
        struct link link, other;
        struct fabric_grant second;

        if (way > 0)
            open_three(state);
        side_open_zone(&world, 0, 2, 2);
        link = link_granted(1, PLACE, 1);
        assert_int_equal(fabric_grant(link.owner, PLACE + GRANTED, 64, 2, &second), 0);
        other = link_granted(2, PLACE + 2 * GRANTED, 3);
        assert_int_equal(write_seed(1, &link, 0, MEGABYTE, 1), 0);
        fabric_flush(world.sides[1].endpoint);
        if (way == BY_OWNER)
            fabric_conn_close(link.owner);
        else if (way == BY_WRITER)
            fabric_conn_close(link.writer);
        else
            side_close(&world, 1);
        world_wait(&world, 0, FABRIC_REVOKED, 2);
        world_poll_times(&world, 200);
        assert_int_equal(revoked(), 2);
        assert_int_equal(side_event(&world.sides[0], FABRIC_REVOKED, 0)->context +
                             side_event(&world.sides[0], FABRIC_REVOKED, 1)->context,
                         3);
        /* Not what another one was granted. */
        assert_int_equal(write_seed(2, &other, 64, 4096, 5), 0);
        world_wait(&world, 2, FABRIC_WRITTEN, 1);
        assert_true(is_written(PLACE + 2 * GRANTED + 64, 4096, 5));
        if (way + 1 < WAYS)
            close_three(state);
    }
}

TEST(f10_bulk_writes_blocks_and_messages_go_at_once)
{
    enum { COUNT = 60 };
    uint32_t next[SIDE_MAX] = {0}, added[3] = {0}, told[3] = {0};
    struct link links[3];

    side_open_zone(&world, 0, 3, 3);
    for (unsigned s = 1; s < 3; s++)
        links[s] = link_granted(s, PLACE + s * GRANTED, s);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (unsigned s = 1; s < 3; s++) {
            const struct fabric_iov iov = {.data = &i, .bytes = sizeof i};
            const uint64_t at = 8 * (uint64_t)MEGABYTE + i * 256;

            while (write_seed(s, &links[s], (uint64_t)i * 32768, 32768 - 64 * (i % 7), i) ==
                   ROWAN_EAGAIN)
                world_poll(&world);
            assert_int_equal(world_add_block(&world, s, links[s].writer, at, added[s]++, 192), 0);
            assert_int_equal(fabric_rowan_post(links[s].writer, i), 0);
            while (fabric_send(links[s].writer, &iov, 1) == ROWAN_EAGAIN)
                world_poll(&world);
        }
        if (i % 5 == 4)
            world_poll(&world);
    }
    for (unsigned s = 1; s < 3; s++) {
        world_wait(&world, s, FABRIC_WRITTEN, COUNT);
        world_wait(&world, s, FABRIC_LANDED, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(
                is_written(PLACE + s * GRANTED + (uint64_t)i * 32768, 32768 - 64 * (i % 7), i));
            assert_int_equal(side_event(&world.sides[s], FABRIC_WRITTEN, i)->context, i);
            assert_int_equal(side_event(&world.sides[s], FABRIC_LANDED, i)->context, i);
        }
    }
    world_wait(&world, 0, FABRIC_MESSAGE, 2 * COUNT);
    for (uint32_t m = 0; m < 2 * COUNT; m++) { /* each sender's in order */
        const struct fabric_event *event = side_event(&world.sides[0], FABRIC_MESSAGE, m);
        const unsigned s = event->conn == links[1].owner ? 1 : 2;

        assert_int_equal(event->bytes, sizeof told[s]);
        assert_memory_equal(event->data, &told[s], sizeof told[s]);
        told[s]++;
    }
    assert_int_equal(world_walk_zone(&world, 0, 3, next), 2 * COUNT);
}

TEST(f8_f10_neither_a_dry_zone_nor_held_messages_hold_up_bulk_writes)
{
    static const uint8_t zeros[20000];
    const struct fabric_iov iov = {.data = zeros, .bytes = sizeof zeros};
    struct link link;
    uint32_t sent = 0;

    side_open_zone(&world, 0, 2, 0);
    link = link_granted(1, PLACE, 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(
            world_add_block(&world, 1, link.writer, 8 * MEGABYTE + (uint64_t)i * 256, i, 192), 0);
    assert_int_equal(fabric_rowan_post(link.writer, 0), 0);
    for (unsigned refused = 0; refused < 100; world_poll(&world)) {
        const int error = fabric_send(link.writer, &iov, 1);

        sent += error == 0;
        refused = error ? refused + 1 : 0;
    }
    assert_true(sent > 0); /* and all that came is held */
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(write_seed(1, &link, (uint64_t)i * 65536, 65536, i), 0);
        world_wait(&world, 1, FABRIC_WRITTEN, i + 1);
        assert_true(is_written(PLACE + (uint64_t)i * 65536, 65536, i));
    }
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 0);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_wait(&world, 1, FABRIC_LANDED, 1);
}

TEST(grants_that_cannot_be_are_refused)
{
    struct fabric_grant grants[FABRIC_MAX_GRANTS + 1];
    struct fabric_conn *active, *passive;
    struct link link;

    world_connect(&world, 1, 0, 0, &active, &passive); /* before there is a zone */
    assert_int_equal(fabric_grant(passive, PLACE, 64, 0, grants), ROWAN_EINVALID);
    side_open_zone(&world, 0, 2, 0);
    link = link_make(2);
    assert_int_equal(fabric_grant(link.writer, PLACE, 64, 0, grants), ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, PLACE + 8, 64, 0, grants), ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, PLACE, 0, 0, grants), ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, PLACE, 100, 0, grants), ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, CONFORMANCE_PM_BYTES + 64, 64, 0, grants),
                     ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, CONFORMANCE_PM_BYTES, 64, 0, grants), ROWAN_EINVALID);
    assert_int_equal(fabric_grant(link.owner, 64, CONFORMANCE_PM_BYTES, 0, grants), ROWAN_EINVALID);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < FABRIC_MAX_GRANTS; i++)
            assert_int_equal(fabric_grant(link.owner, PLACE + (uint64_t)i * 64, 64, i, &grants[i]),
                             0);
        assert_int_equal(fabric_grant(link.owner, 0, 64, 0, &grants[FABRIC_MAX_GRANTS]),
                         ROWAN_ETOOMANY);
        for (uint32_t i = 0; i < FABRIC_MAX_GRANTS; i++)
            fabric_revoke(link.owner, &grants[i]);
        world_wait(&world, 0, FABRIC_REVOKED, (round + 1) * FABRIC_MAX_GRANTS);
    }
    assert_int_equal(side_count(&world.sides[2], FABRIC_CLOSED), 0);
}

TEST(writes_that_cannot_be_are_refused)
{
    _Alignas(64) static uint8_t strange[64];
    struct pm *pm = world.sides[1].pm;
    struct link link;

    side_open_zone(&world, 0, 2, 0);
    link = link_granted(1, PLACE, 0);
    assert_int_equal(fabric_write(link.writer, &link.grant, 0, strange, 64, 0), ROWAN_EINVALID);
    assert_int_equal(fabric_write(link.writer, &link.grant, 0, pm_at(pm, 0), 0, 0), ROWAN_EINVALID);
    assert_int_equal(fabric_write(link.writer, &link.grant, 0, pm_at(pm, 0), 65, 0),
                     ROWAN_EINVALID);
    assert_int_equal(fabric_write(link.writer, &link.grant, 8, pm_at(pm, 0), 64, 0),
                     ROWAN_EINVALID);
    assert_int_equal(
        fabric_write(link.writer, &link.grant, 0, pm_at(pm, 0), FABRIC_MAX_WRITE_BYTES + 64, 0),
        ROWAN_EINVALID);
    assert_int_equal(fabric_write(link.owner, &link.grant, 0, pm_at(world.sides[0].pm, 0), 64, 0),
                     ROWAN_EINVALID);
    assert_int_equal(write_seed(1, &link, 0, 64, 1), 0);
    world_wait(&world, 1, FABRIC_WRITTEN, 1);
}

/* --- F4 --- */

static uint64_t now_ns(void)
{
    return world.backend->now_ns(world.backend->context);
}

static uint64_t patience_ns(void)
{
    return (world.backend->wait_s ? world.backend->wait_s : 20) * NS_PER_S;
}

enum { GIVEN = 32768, GIVEN_BLOCKS = 1 << 20, GRANTED_AT = 16 << 20 };

/* Gives memory to both services that do not copy, all its bytes ORIGINAL (but the first of a block, which is 0). */
enum { ORIGINAL = 0x11, CHANGED = 0xdd };

static void give_memory(struct fabric_conn *active, const struct fabric_grant *grant)
{
    enum { BLOCKS = 8 };
    struct pm *pm = world.sides[1].pm;
    const uint32_t limit = world.sides[1].caps.block_limit, bytes = limit < 1024 ? limit : 1024;
    static uint8_t original[GIVEN];

    memset(original, ORIGINAL, sizeof original);
    pm_store(pm, 0, original, GIVEN);
    original[0] = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        pm_store(pm, GIVEN_BLOCKS + i * bytes, original, bytes);
    assert_int_equal(fabric_write(active, grant, 0, pm_at(pm, 0), GIVEN, 0), 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(fabric_rowan_add(active, pm_at(pm, GIVEN_BLOCKS + i * bytes), bytes), 0);
    assert_int_equal(fabric_rowan_post(active, 0), 0);
    fabric_flush(world.sides[1].endpoint);
}

static void nothing_changed_comes(void)
{
    const struct pm *pm = world.sides[0].pm;
    const uint64_t end_ns = now_ns() + patience_ns();

    while (side_count(&world.sides[0], FABRIC_CLOSED) == 0) {
        assert_true(now_ns() < end_ns);
        world_poll(&world);
    }
    world_poll_times(&world, 100);
    assert_null(memchr(pm_at(pm, 0), CHANGED, FABRIC_SEGMENT_BYTES));
    assert_null(memchr(pm_at(pm, GRANTED_AT), CHANGED, GIVEN));
}

TEST(f4_what_comes_of_a_closed_connection_is_what_was_given)
{
    enum { MOST_POLLS = 6 };
    static uint8_t changed[GIVEN];

    memset(changed, CHANGED, sizeof changed);
    for (unsigned polls = 0; polls < MOST_POLLS; polls++) {
        struct fabric_conn *active, *passive;
        struct fabric_grant grant;

        if (polls > 0)
            open_three(state);
        side_open_zone(&world, 0, 2, 1);
        world_connect(&world, 1, 0, 0, &active, &passive);
        assert_int_equal(fabric_grant(passive, GRANTED_AT, GIVEN, 0, &grant), 0);
        give_memory(active, &grant);
        for (unsigned i = 0; i < polls; i++)
            world_poll(&world);
        fabric_conn_close(active);
        pm_store(world.sides[1].pm, 0, changed, GIVEN);
        pm_store(world.sides[1].pm, GIVEN_BLOCKS, changed, GIVEN);
        nothing_changed_comes();
        if (polls + 1 < MOST_POLLS)
            close_three(state);
    }
}

const struct unit_case *conformance_bulk_cases(void)
{
    return unit_cases;
}
