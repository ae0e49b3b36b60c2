/* config_cm_test.c - where a directory says its CM is. */
#include "common/base/config.h"
#include "common/base/error.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"

static struct temp_dir directory;

static void hold(const char *text)
{
    temp_dir_write(temp_dir_at(&directory, "cm"), text);
}

static int set_up(void **state)
{
    (void)state;
    temp_dir_init(&directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_dir_fini(&directory);
    return 0;
}

TEST(a_directory_without_the_file_is_no_clusters)
{
    char address[32] = "as it was";

    assert_int_equal(config_read_cm(directory.path, address, sizeof address), ROWAN_ENOTFOUND);
    assert_int_equal(config_read_cm("/nowhere/at/all", address, sizeof address), ROWAN_ENOTFOUND);
    assert_string_equal(address, "as it was");
}

TEST(the_first_line_is_the_address)
{
    char address[32];

    hold("shm:/some/where\n");
    assert_int_equal(config_read_cm(directory.path, address, sizeof address), 0);
    assert_string_equal(address, "shm:/some/where");
    hold("shm:/no/newline");
    assert_int_equal(config_read_cm(directory.path, address, sizeof address), 0);
    assert_string_equal(address, "shm:/no/newline");
}

TEST(an_empty_or_too_long_file_is_refused)
{
    char address[8] = "was";

    hold("\n");
    assert_int_equal(config_read_cm(directory.path, address, sizeof address), ROWAN_EFORMAT);
    hold("12345678");
    assert_int_equal(config_read_cm(directory.path, address, sizeof address), ROWAN_EFORMAT);
    assert_string_equal(address, "was");
    hold("1234567");
    assert_int_equal(config_read_cm(directory.path, address, sizeof address), 0);
    assert_string_equal(address, "1234567");
}

UNIT_MAIN(set_up, tear_down)
