/* settings_test.c - what a person may write as rowan-cm's settings. */
#include "cm/settings.h"
#include "common/base/error.h"
#include "test/lib/unit.h"

TEST(a_list_in_any_order_is_taken_rising)
{
    struct cm_settings settings = {.servers = " 30, 2,16383 ", .replicas = 3, .shards = 12};
    struct cm_state_options options = {.cluster = 9};
    char why[200];
    assert_int_equal(cm_settings_apply(&settings, &options, why, sizeof why), ROWAN_OK);
    assert_int_equal(options.server_count, 3);
    assert_int_equal(options.servers[0], 2);
    assert_int_equal(options.servers[1], 30);
    assert_int_equal(options.servers[2], 16383);
    assert_int_equal(options.replicas, 3);
    assert_int_equal(options.shards, 12);
    assert_int_equal(options.cluster, 9);
}

TEST(mistakes_get_a_sentence_and_change_nothing)
{
    char many[400] = "1";
    for (int i = 2; i <= CLUSTER_MAX_MEMBERS + 1; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
    const struct {
        const char *servers;
        const char *words;
    } cases[] = {
        {"", "numbers from 1"},      {"1,,2", "numbers from 1"},
        {"1,2,", "numbers from 1"},  {"1;2", "numbers from 1"},
        {"0,1,2", "numbers from 1"}, {"-1,2", "numbers from 1"},
        {"16384", "numbers from 1"}, {"99999999999999999999", "numbers from 1"},
        {"1 2", "numbers from 1"},   {"3,1,3", "server 3 twice"},
        {many, "more than 64"},      {"1,2", "3 replicas"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cm_settings settings = {.servers = cases[i].servers, .replicas = 3};
        struct cm_state_options options = {.cluster = 9}, before = options;
        char why[200] = "";
        assert_int_equal(cm_settings_apply(&settings, &options, why, sizeof why), ROWAN_ECONFIG);
        if (!strstr(why, cases[i].words))
            fail_msg("\"%s\" for %s", why, cases[i].servers);
        assert_memory_equal(&options, &before, sizeof options);
    }
}

UNIT_MAIN(NULL, NULL)
