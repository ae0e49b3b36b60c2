/* settings_test.c - what a person may write as rowan-cm's settings. */
#include "cm/settings.h"
#include "test/lib/unit.h"

static struct cm_settings settings_of(const char *servers)
{
    return (struct cm_settings){.metrics = "",
                                .servers = servers,
                                .coord_dir = "somewhere",
                                .zookeeper = "",
                                .zookeeper_key = "",
                                .replicas = 3};
}

TEST(a_list_in_any_order_is_taken_rising)
{
    struct cm_settings settings = settings_of(" 30, 2,16383 ");
    settings.shards = 12;
    settings.recover = true;
    settings.lease_ms = 500;
    struct cm_state_options options = {.cluster = 9};
    char why[200];
    assert_null(cm_settings_apply(&settings, &options, why, sizeof why));
    assert_int_equal(options.server_count, 3);
    assert_int_equal(options.servers[0], 2);
    assert_int_equal(options.servers[1], 30);
    assert_int_equal(options.servers[2], 16383);
    assert_int_equal(options.replicas, 3);
    assert_int_equal(options.shards, 12);
    assert_true(options.recover);
    assert_int_equal(options.lease_ms, 500);
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
        struct cm_settings settings = settings_of(cases[i].servers);
        struct cm_state_options options = {.cluster = 9}, before = options;
        char why[200];
        const char *wrong = cm_settings_apply(&settings, &options, why, sizeof why);
        assert_non_null(wrong);
        if (!strstr(wrong, cases[i].words))
            fail_msg("\"%s\" for %s", wrong, cases[i].servers);
        assert_memory_equal(&options, &before, sizeof options);
    }
}

TEST(a_lease_too_short_is_one_sentence)
{
    struct cm_settings settings = settings_of("1,2,3");
    struct cm_state_options options = {.cluster = 9};
    char why[200];
    settings.lease_ms = 1;
    assert_string_equal(cm_settings_apply(&settings, &options, why, sizeof why),
                        "lease-ms must be 0 or at least 2");
}

TEST(what_belongs_to_the_kind_of_coordination_is_given_and_nothing_else)
{
    const struct {
        enum cm_coord coord;
        const char *dir, *zookeeper, *key, *words;
    } cases[] = {
        {CM_COORD_FILE, "here", "", "", NULL},
        {CM_COORD_ZOOKEEPER, "", "a:1,b:2/rowan", "", NULL},
        {CM_COORD_ZOOKEEPER, "", "a:1,b:2/rowan", "key", NULL},
        {CM_COORD_FILE, "here", "", "key", "zookeeper-key belongs to coord zookeeper"},
        {CM_COORD_FILE, "", "", "", "coord file needs coord-dir"},
        {CM_COORD_FILE, "here", "a:1", "", "zookeeper belongs to coord zookeeper"},
        {CM_COORD_ZOOKEEPER, "", "", "", "coord zookeeper needs zookeeper"},
        {CM_COORD_ZOOKEEPER, "here", "a:1", "", "coord-dir belongs to coord file"},
        {CM_COORD_ZOOKEEPER, "", "a", "", "must be HOST:PORT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cm_settings settings = settings_of("1,2,3");
        struct cm_state_options options;
        char why[200];
        settings.coord = cases[i].coord;
        settings.coord_dir = cases[i].dir;
        settings.zookeeper = cases[i].zookeeper;
        settings.zookeeper_key = cases[i].key;
        const char *wrong = cm_settings_apply(&settings, &options, why, sizeof why);
        if (!wrong != !cases[i].words || (wrong && !strstr(wrong, cases[i].words)))
            fail_msg("\"%s\", not \"%s\"", wrong ? wrong : "",
                     cases[i].words ? cases[i].words : "");
    }
}

UNIT_MAIN(NULL, NULL)
