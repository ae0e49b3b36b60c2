/* coord_value_test.c - the value of the file backend: its format, what it makes of files that a crash or a
 * disk left, and of other processes. What every backend must do: coord_file_test.c. */
#include "common/base/crc.h"
#include "common/coord/coord_store.h"
#include "test/lib/caught_log.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"
#include "test/unit/coord/coord_fixture.h"

static size_t load_file(const char *name, uint8_t *bytes, size_t room)
{
    int fd = open(temp_dir_at(&dir, name), O_RDONLY);
    ssize_t got;

    assert_true(fd >= 0);
    got = read(fd, bytes, room);
    assert_true(got >= 0);
    close(fd);
    return (size_t)got;
}

TEST(a_missing_or_closed_directory_is_refused)
{
    struct coord *coord = NULL;
    const uid_t user = geteuid();

    assert_int_equal(coord_open_file(temp_dir_at(&dir, "no"), NULL, &coord), ROWAN_ENOTFOUND);
    save_file("plain", NULL, 0);
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "plain"), NULL, &coord), ROWAN_ENOTFOUND);
    assert_int_equal(chmod(dir.path, 0555), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* root may everything */
    assert_int_equal(coord_open_file(dir.path, NULL, &coord), ROWAN_EPERMISSION);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir.path, 0700), 0);
    assert_null(coord);
}

TEST(the_value_file_has_its_written_format)
{
    uint8_t bytes[sizeof(golden) + 1];

    save_file("value", golden, sizeof(golden));
    open_owner(&alice);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 7);
    assert_int_equal(alice.bytes, 5);
    assert_memory_equal(alice.value, "hello", 5);

    for (uint64_t version = 7; version > 0; version--) {
        if (version == 7)
            assert_int_equal(unlink(temp_dir_at(&dir, "value")), 0);
        assert_int_equal(cas_value(&alice, 7 - version, "hello", 5), 0);
    }
    assert_int_equal(load_file("value", bytes, sizeof(bytes)), sizeof(golden));
    assert_memory_equal(bytes, golden, sizeof(golden));
    coord_close(alice.coord);
}

TEST(every_damaged_byte_is_reported)
{
    uint8_t bytes[sizeof(golden) + 1];

    open_owner(&alice);
    for (size_t i = 0; i < sizeof(golden); i++) {
        memcpy(bytes, golden, sizeof(golden));
        bytes[i] ^= 0x10;
        save_file("value", bytes, sizeof(golden));
        assert_int_equal(read_value(&alice), ROWAN_EFORMAT);
        assert_int_equal(alice.bytes, 0);
        if (i < sizeof(golden) - 5)
            assert_int_equal(cas_value(&alice, 7, "new", 3), ROWAN_EFORMAT);
    }
    coord_close(alice.coord);
}

TEST(a_value_file_of_another_version_is_not_called_damaged)
{
    struct coord_header header;

    open_owner(&alice);
    for (int step = -1; step <= 1; step += 2) {
        memcpy(&header, golden, sizeof(header));
        header.magic[7] = (uint8_t)(header.magic[7] + step);
        header.header_crc = crc32c(0, &header, offsetof(struct coord_header, header_crc));
        save_file("value", (const uint8_t *)&header, sizeof(header));
        assert_int_equal(read_value(&alice), ROWAN_EINCOMPATIBLE);
        assert_int_equal(cas_value(&alice, 7, "new", 3), ROWAN_EINCOMPATIBLE);
    }
    coord_close(alice.coord);
}

TEST(a_cut_or_extended_value_file_is_reported)
{
    uint8_t bytes[sizeof(golden) + 1] = {0};

    memcpy(bytes, golden, sizeof(golden));
    open_owner(&alice);
    for (size_t count = 0; count <= sizeof(bytes); count++) {
        save_file("value", bytes, count);
        assert_int_equal(read_value(&alice), count == sizeof(golden) ? 0 : ROWAN_EFORMAT);
    }
    coord_close(alice.coord);
}

TEST(what_a_crash_left_of_the_next_value_is_ignored)
{
    static const uint8_t half[5000] = "RWCOORD1 and no more";

    open_owner(&alice);
    assert_int_equal(cas_value(&alice, 0, "one", 3), 0);
    save_file("value.new", half, sizeof(half));
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 1);
    assert_memory_equal(alice.value, "one", 3);
    assert_int_equal(cas_value(&alice, 1, "two", 3), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 2);
    assert_memory_equal(alice.value, "two", 3);
    assert_int_not_equal(access(temp_dir_at(&dir, "value.new"), F_OK), 0);
    coord_close(alice.coord);
}

TEST(a_compare_and_set_waits_for_the_one_before_it)
{
    int lock_fd = hold_lock("value.lock");

    open_owner(&alice);
    assert_int_equal(coord_cas(alice.coord, 0, "one", 3, on_cas, &alice), 0);
    for (int posted = 0; posted < 3; posted++) { /* tried and put off, three times */
        assert_true(WAIT_FOR(poll_owner(&alice) == POLL_BUSY));
        assert_false(alice.answered);
    }
    log_catch();
    for (unsigned later = 1; later <= 3; later++) {
        const uint64_t now_ns = clock_now_ns(clock_system()) + later * NS_PER_S;
        uint64_t wake_ns = WAKE_NEVER;
        (void)WAIT_FOR(coord_poll(alice.coord, now_ns, &wake_ns) == POLL_BUSY);
    }
    const char *text = log_caught(), *locked = strstr(text, "coord_locked");
    assert_non_null(locked);
    assert_null(strstr(locked + 1, "coord_locked"));
    close(lock_fd);
    assert_true(WAIT_FOR(coord_poll(alice.coord, clock_now_ns(clock_system()) + 4 * NS_PER_S,
                                    &(uint64_t){WAKE_NEVER}) == POLL_BUSY &&
                         alice.answered));
    assert_int_equal(alice.error, 0);
    assert_int_equal(alice.version, 1);
    coord_close(alice.coord);
}

TEST(close_does_not_wait_for_another_process)
{
    int lock_fd = hold_lock("value.lock");

    open_owner(&alice);
    assert_int_equal(coord_cas(alice.coord, 0, "one", 3, on_cas, &alice), 0);
    assert_true(WAIT_FOR(poll_owner(&alice) == POLL_BUSY));
    coord_close(alice.coord);
    assert_false(alice.answered);
    close(lock_fd);
}

/* Opens, stores "new" over "old", and watches and stands meanwhile. The answer to the compare-and-set. */
static int store_new(void)
{
    int error = coord_open_file(dir.path, NULL, &alice.coord);

    if (error)
        return error;
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    error = read_value(&alice);
    if (!error)
        error = cas_value(&alice, 1, "new", 3);
    coord_close(alice.coord);
    return error;
}

TEST(whatever_call_fails_the_value_is_the_old_one_or_the_new_one_as_was_answered)
{
    bool more = true;

    for (uint32_t nth = 1; more; nth++) {
        open_owner(&alice);
        assert_int_equal(cas_value(&alice, 0, "old", 3), 0);
        coord_close(alice.coord);
        fail_call(nth);
        int error = store_new();

        more = fail_stop();
        assert_true(more || !error);
        open_owner(&alice);
        assert_int_equal(read_value(&alice), 0);
        if (error != ROWAN_EUNKNOWN)
            assert_int_equal(alice.version, error ? 1 : 2);
        assert_memory_equal(alice.value, alice.version == 1 ? "old" : "new", 3);
        coord_close(alice.coord);
        assert_int_not_equal(access(temp_dir_at(&dir, "value.new"), F_OK), 0);
        assert_int_equal(unlink(temp_dir_at(&dir, "value")), 0);
    }
}

UNIT_MAIN(NULL, NULL)
