#include "common/base/error.h"
#include "test/lib/unit.h"

#define ERROR_ROW(name, number, sentence) {name, number, #name},
static const struct {
    int code;
    int number;
    const char *name;
} rows[] = {ERROR_TABLE(ERROR_ROW)};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

TEST(every_code_has_a_name_and_a_sentence_of_its_own)
{
    for (unsigned i = 0; i < ROWS; i++) {
        assert_string_equal(error_name(rows[i].code), rows[i].name);
        assert_true(strlen(error_sentence(rows[i].code)) > 5);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(error_sentence(rows[i].code), error_sentence(rows[k].code));
    }
}

TEST(numbers_are_unique_and_codes_negative)
{
    for (unsigned i = 0; i < ROWS; i++) {
        assert_int_equal(rows[i].code, -rows[i].number);
        assert_true(rows[i].code < 0);
        for (unsigned k = 0; k < i; k++)
            assert_int_not_equal(rows[i].number, rows[k].number);
    }
}

TEST(success_and_unknown_numbers_have_words_too)
{
    assert_string_equal(error_name(0), "ROWAN_OK");
    assert_string_equal(error_sentence(0), "done");
    assert_non_null(strstr(error_sentence(-9999), "unknown"));
    assert_string_equal(error_name(-9999), "ROWAN_E?");
    assert_string_equal(error_name(1), "ROWAN_E?");
}

TEST(system_reasons_become_the_nearest_code)
{
    assert_int_equal(error_from_errno(ENOENT), ROWAN_ENOTFOUND);
    assert_int_equal(error_from_errno(ENOSPC), ROWAN_ENOSPACE);
    assert_int_equal(error_from_errno(EACCES), ROWAN_EPERMISSION);
    assert_int_equal(error_from_errno(EEXIST), ROWAN_EEXISTS);
    assert_int_equal(error_from_errno(EADDRINUSE), ROWAN_EINUSE);
    assert_int_equal(error_from_errno(ENOMEM), ROWAN_ENOMEM);
    assert_int_equal(error_from_errno(ECONNREFUSED), ROWAN_EUNREACHABLE);
    assert_int_equal(error_from_errno(ECONNRESET), ROWAN_ECLOSED);
    assert_int_equal(error_from_errno(EIO), ROWAN_EIO);
    assert_int_equal(error_from_errno(12345), ROWAN_EIO);
}

/* ROWAN_ETIMEDOUT promises that nothing was changed; a connection's time-out promises nothing. */
TEST(a_connections_timeout_is_not_taken_for_a_rejection)
{
    assert_int_not_equal(error_from_errno(ETIMEDOUT), ROWAN_ETIMEDOUT);
}

UNIT_MAIN(NULL, NULL)
