/* managers_test.c - lists of managers: what is right, what a mistake is called, whose turn it is. */

#include "common/base/error.h"
#include "common/cluster/managers.h"
#include "test/lib/unit.h"

TEST(a_list_is_addresses_with_commas_between_them)
{
    struct managers managers;

    assert_int_equal(managers_parse("tcp:127.0.0.1:7000,tcp:[::1]:7010", &managers, NULL), 0);
    assert_int_equal(managers.count, 2);
    assert_string_equal(managers.addresses[0], "tcp:127.0.0.1:7000");
    assert_string_equal(managers.addresses[1], "tcp:[::1]:7010");
    assert_int_equal(managers_parse("shm:/run/cm", &managers, NULL), 0);
    assert_int_equal(managers.count, 1);
    assert_string_equal(managers_address(&managers), "shm:/run/cm");
}

static void refused(const char *list, int error, const char *words)
{
    struct managers managers = {.count = 77};
    const char *why = NULL;

    assert_int_equal(managers_parse(list, &managers, &why), error);
    assert_non_null(why);
    if (!strstr(why, words))
        fail_msg("\"%s\" does not say \"%s\"", why, words);
    assert_int_equal(managers_parse(list, &managers, NULL), error);
    assert_int_equal(managers.count, 77);
}

TEST(each_mistake_has_a_sentence)
{
    char text[CLUSTER_MAX_ADDRESS_BYTES + 10];

    refused("", ROWAN_EADDRESS, "missing");
    refused(",tcp:a:1", ROWAN_EADDRESS, "missing");
    refused("tcp:a:1,,tcp:b:1", ROWAN_EADDRESS, "missing");
    refused("tcp:a:1,", ROWAN_EADDRESS, "missing");
    refused("nothing", ROWAN_EADDRESS, "begins with its fabric");
    refused("tcp:a:1,b,tcp:c:1", ROWAN_EADDRESS, "begins with its fabric");
    refused("tcp:a:1,:b", ROWAN_EADDRESS, "begins with its fabric");
    refused("tcp:a:1,shm:/b", ROWAN_EINVALID, "one fabric");
    refused("tcp:a:1,tcpx:b:1", ROWAN_EINVALID, "one fabric");
    refused("t:1,t:2,t:3,t:4,t:5,t:6,t:7,t:8,t:9", ROWAN_ETOOMANY, "more than 8");
    refused("tcp:a:1,tcp:b", ROWAN_EADDRESS, "HOST:PORT");
    refused("verbs:10.0.0.1:70000", ROWAN_EADDRESS, "1 to 65535");
    refused("tcp:10.0.0.300:1", ROWAN_EADDRESS, "neither a name nor");
    refused("shm:run/cm", ROWAN_EADDRESS, "/DIRECTORY/NAME");
    memset(text, 'x', sizeof text);
    text[1] = ':';
    text[CLUSTER_MAX_ADDRESS_BYTES + 1] = '\0';
    refused(text, ROWAN_EINVALID, "255 bytes");
}

TEST(the_longest_list_fits)
{
    char list[MANAGERS_LIST_BYTES];
    struct managers managers;

    memset(list, 'x', sizeof list);
    for (uint32_t i = 0; i < MANAGERS_MAX; i++) {
        char *address = list + i * (CLUSTER_MAX_ADDRESS_BYTES + 1);
        address[1] = ':';
        address[CLUSTER_MAX_ADDRESS_BYTES] = i + 1 < MANAGERS_MAX ? ',' : '\0';
    }
    assert_int_equal(managers_parse(list, &managers, NULL), 0);
    assert_int_equal(managers.count, MANAGERS_MAX);
    for (uint32_t i = 0; i < MANAGERS_MAX; i++)
        assert_int_equal(strlen(managers.addresses[i]), CLUSTER_MAX_ADDRESS_BYTES);
}

TEST(each_is_tried_once_a_round_and_a_find_begins_a_new_one)
{
    struct managers managers;

    assert_int_equal(managers_parse("t:1,t:2,t:3", &managers, NULL), 0);
    for (uint32_t round = 1; round <= 2; round++) {
        assert_string_equal(managers_address(&managers), "t:1");
        assert_true(managers_next(&managers, 0));
        assert_true(managers_next(&managers, 0));
        assert_string_equal(managers_address(&managers), "t:3");
        assert_int_equal(managers.rounds, round - 1);
        assert_false(managers_next(&managers, 0));
        assert_int_equal(managers.rounds, round);
    }
    assert_true(managers_next(&managers, 0));
    managers_found(&managers); /* and is lost again */
    assert_int_equal(managers.rounds, 0);
    assert_true(managers_next(&managers, 0));
    assert_string_equal(managers_address(&managers), "t:3");
    assert_true(managers_next(&managers, 0));
    assert_false(managers_next(&managers, 0));

    assert_int_equal(managers_parse("t:1", &managers, NULL), 0);
    assert_false(managers_next(&managers, 0));
    assert_string_equal(managers_address(&managers), "t:1");
}

TEST(one_that_is_passed_over_has_no_turn_for_a_while_if_there_are_others)
{
    struct managers managers;
    const uint64_t now_ns = NS_PER_S, until_ns = 2 * NS_PER_S;

    assert_int_equal(managers_parse("t:1,t:2,t:3", &managers, NULL), 0);
    managers_pass_over(&managers, until_ns);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(managers_next(&managers, now_ns), round == 0);
        assert_string_equal(managers_address(&managers), "t:2");
        assert_true(managers_next(&managers, now_ns));
        assert_string_equal(managers_address(&managers), "t:3");
    }
    assert_false(managers_next(&managers, until_ns));
    assert_string_equal(managers_address(&managers), "t:1");
    managers_pass_over(&managers, until_ns);
    managers_found(&managers);
    assert_true(managers_next(&managers, now_ns) && managers_next(&managers, now_ns));
    assert_false(managers_next(&managers, now_ns));
    assert_string_equal(managers_address(&managers), "t:1");

    assert_int_equal(managers_parse("t:1", &managers, NULL), 0);
    managers_pass_over(&managers, until_ns);
    assert_false(managers_next(&managers, now_ns));
}

UNIT_MAIN(NULL, NULL)
