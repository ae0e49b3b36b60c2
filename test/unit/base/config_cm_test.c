/* config_cm_test.c - where a directory says its CM is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/config.h"
#include "common/base/error.h"

static char directory[] = "/tmp/rowan-config-XXXXXX";
static char path[64];

static void hold(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/cm", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path) || rmdir(directory);
}

static void a_directory_without_the_file_is_no_clusters(void **state)
{
    char address[32] = "as it was";

    (void)state;
    assert_int_equal(config_read_cm(directory, address, sizeof address), ROWAN_ENOTFOUND);
    assert_int_equal(config_read_cm("/nowhere/at/all", address, sizeof address), ROWAN_ENOTFOUND);
    assert_string_equal(address, "as it was");
}

static void the_first_line_is_the_address(void **state)
{
    char address[32];

    (void)state;
    hold("shm:/some/where\n");
    assert_int_equal(config_read_cm(directory, address, sizeof address), 0);
    assert_string_equal(address, "shm:/some/where");
    hold("shm:/no/newline");
    assert_int_equal(config_read_cm(directory, address, sizeof address), 0);
    assert_string_equal(address, "shm:/no/newline");
}

static void an_empty_or_too_long_file_is_refused(void **state)
{
    char address[8] = "was";

    (void)state;
    hold("\n");
    assert_int_equal(config_read_cm(directory, address, sizeof address), ROWAN_EFORMAT);
    hold("12345678");
    assert_int_equal(config_read_cm(directory, address, sizeof address), ROWAN_EFORMAT);
    assert_string_equal(address, "was");
    hold("1234567");
    assert_int_equal(config_read_cm(directory, address, sizeof address), 0);
    assert_string_equal(address, "1234567");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_without_the_file_is_no_clusters),
        cmocka_unit_test(the_first_line_is_the_address),
        cmocka_unit_test(an_empty_or_too_long_file_is_refused),
    };

    return cmocka_run_group_tests_name("config_cm", tests, set_up, tear_down);
}
