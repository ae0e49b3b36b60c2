/* What becomes of a program's settings when it reads them again, and when one of them is set. The log is caught. */
#define TEST_FIXTURE setup, teardown

#include "common/base/config_live.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"

struct settings {
    const char *address, *peers;
    uint64_t workers, percent, level, replicas;
    bool pin, checkpoints;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"address", CONFIG_STRING, FIELD(address), "here", 0, 0, NULL, "an address"},
    {"peers", CONFIG_STRING | CONFIG_LIVE, FIELD(peers), "none", 0, 0, NULL, "others"},
    {"workers", CONFIG_U64, FIELD(workers), "2", 1, 64, NULL, "workers"},
    {"percent", CONFIG_U64 | CONFIG_LIVE, FIELD(percent), "75", 1, 95, NULL, "a part"},
    {"level", CONFIG_CHOICE | CONFIG_LIVE, FIELD(level), "info", 0, 0, "error|info|debug", "lines"},
    {"replicas", CONFIG_U64 | CONFIG_MADE, FIELD(replicas), "3", 1, 7, NULL, "copies"},
    {"pin", CONFIG_BOOL, FIELD(pin), "no", 0, 0, NULL, "pin threads"},
    {"checkpoints", CONFIG_BOOL | CONFIG_LIVE, FIELD(checkpoints), "yes", 0, 0, NULL, "write them"},
};

static const struct config_spec spec = {
    .program = "rowan-server",
    .release = "1.2.3",
    .summary = "serves",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static struct temp_dir dir;
static char path[300], text[4096];
static char *words[8] = {(char *)(uintptr_t) "rowan-server", (char *)(uintptr_t) "--config", path};
static struct settings settings;
static struct config_rest rest;
static struct config_live live;
static unsigned applied;
static FILE *log_file;
static int real_stderr;

static void apply(void *context)
{
    assert_ptr_equal(context, &settings);
    applied++;
}

static const char *check(const void *of, char *why, size_t why_bytes)
{
    const struct settings *fresh = of;
    if (fresh->percent != 13)
        return NULL;
    snprintf(why, why_bytes, "percent %lu is unlucky", fresh->percent);
    return why;
}

/* What the log has got since the last call. */
static const char *logged(void)
{
    const ssize_t bytes = pread(fileno(log_file), text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    assert_int_equal(ftruncate(fileno(log_file), 0), 0);
    assert_int_equal(lseek(fileno(log_file), 0, SEEK_SET), 0);
    return text;
}

static void start(int argc)
{
    assert_int_equal(config_parse(&spec, argc, words, &settings, &rest), CONFIG_OK);
    live = (struct config_live){.spec = &spec,
                                .argc = argc,
                                .argv = words,
                                .file = rest.file,
                                .settings = &settings,
                                .settings_bytes = sizeof settings,
                                .check = check,
                                .apply = apply,
                                .context = &settings};
}

static int setup(void **state)
{
    (void)state;
    temp_dir_init(&dir);
    snprintf(path, sizeof path, "%s", temp_dir_at(&dir, "server.conf"));
    log_file = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    assert_true(log_file && real_stderr >= 0 && dup2(fileno(log_file), STDERR_FILENO) >= 0);
    applied = 0;
    temp_dir_write(path, "[rowan-server]\npercent = 60\nworkers = 4\naddress = there\n");
    start(3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    config_live_fini(&live);
    config_free(&rest);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    fclose(log_file);
    temp_dir_fini(&dir);
    return 0;
}

static void read_again(const char *content)
{
    temp_dir_write(path, content);
    config_live_ask(&live);
    assert_true(config_live_poll(&live));
    assert_false(config_live_poll(&live)); /* once */
}

TEST(who_was_not_asked_reads_nothing)
{
    temp_dir_write(path, "[rowan-server]\npercent = 50\n");
    assert_false(config_live_poll(&live));
    assert_int_equal(settings.percent, 60);
    assert_string_equal(logged(), "");
}

TEST(what_is_live_changes_and_is_applied_once)
{
    read_again("[rowan-server]\npercent = 50\nworkers = 4\naddress = there\nlevel = debug\n"
               "checkpoints = no\n");
    assert_int_equal(settings.percent, 50);
    assert_int_equal(settings.level, 2);
    assert_false(settings.checkpoints);
    assert_int_equal(applied, 1);
    const char *told = logged();
    assert_non_null(strstr(told, "setting_changed key=percent from=60 to=50\n"));
    assert_non_null(strstr(told, "setting_changed key=level from=info to=debug\n"));
    assert_non_null(strstr(told, "setting_changed key=checkpoints from=yes to=no\n"));
    assert_non_null(strstr(told, "changed=3 kept=0\n"));
    assert_null(strstr(told, "setting_kept"));
    read_again("[rowan-server]\nworkers = 4\naddress = there\n"); /* the defaults */
    assert_int_equal(settings.percent, 75);
    assert_true(settings.checkpoints);
    assert_int_equal(applied, 2);
}

TEST(a_string_that_changes_outlives_what_it_came_from)
{
    const char *before = settings.peers;
    char said[] = "a,b", why[200];
    assert_int_equal(config_live_set(&live, "peers", said, why, sizeof why), 0);
    memset(said, 'x', sizeof said - 1);
    assert_string_equal(settings.peers, "a,b");
    assert_string_equal(before, "none");
    before = settings.peers;
    read_again("[rowan-server]\nworkers = 4\naddress = there\npeers = c\n");
    assert_string_equal(settings.peers, "c");
    assert_string_equal(before, "a,b");
    assert_non_null(strstr(logged(), "setting_changed key=peers from=a,b to=c\n"));
}

TEST(a_file_that_is_as_before_changes_nothing)
{
    config_live_ask(&live);
    assert_true(config_live_poll(&live));
    assert_int_equal(applied, 0);
    assert_non_null(strstr(logged(), "changed=0 kept=0\n"));
}

TEST(of_a_key_that_cannot_change_one_sentence_says_so_and_the_others_change)
{
    const char *before = settings.address;
    read_again("[rowan-server]\nworkers = 8\naddress = elsewhere\npercent = 50\npin = "
               "yes\nreplicas = 2\n");
    assert_int_equal(settings.workers, 4);
    assert_int_equal(settings.replicas, 3);
    assert_ptr_equal(settings.address, before);
    assert_string_equal(settings.address, "there");
    assert_false(settings.pin);
    assert_int_equal(settings.percent, 50);
    assert_int_equal(applied, 1);
    const char *told = logged();
    assert_non_null(strstr(told, "key=workers detail=\"workers changes only at a restart\"\n"));
    assert_non_null(strstr(told, "key=address detail=\"address changes only at a restart\"\n"));
    assert_non_null(strstr(told, "key=pin detail=\"pin changes only at a restart\"\n"));
    assert_non_null(
        strstr(told, "detail=\"replicas does not change: it is fixed when the cluster is made\""));
    assert_non_null(strstr(told, "changed=1 kept=4\n"));
}

TEST(a_file_with_a_mistake_changes_nothing)
{
    static const struct {
        const char *content, *sentence;
    } wrong[] = {
        {"[rowan-server]\npercent = 50\nwrkers = 1\n", "line 3: unknown key wrkers"},
        {"[rowan-server]\npercent = 50\nlevel = loud\n", "line 3: level must be one of"},
        {"[rowan-server]\npercent = 96\n", "line 2: percent must be a number from 1 to 95"},
        {"[rowan-cm]\npercent = 50\n", "none is [rowan-server]"},
        {"[rowan-server]\nlevel = debug\npercent = 13\n", "percent 13 is unlucky"},
    };
    const struct settings before = settings;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        read_again(wrong[i].content);
        const char *told = logged();
        if (!strstr(told, "error settings_refused detail=\"") || !strstr(told, wrong[i].sentence))
            fail_msg("%s: %s", wrong[i].sentence, told);
        assert_memory_equal(&settings, &before, sizeof settings);
    }
    unlink(path);
    config_live_ask(&live);
    assert_true(config_live_poll(&live));
    assert_non_null(strstr(logged(), "cannot open the configuration file"));
    assert_memory_equal(&settings, &before, sizeof settings);
    assert_int_equal(applied, 0);
}

TEST(the_command_line_wins_as_at_the_start)
{
    config_free(&rest);
    words[3] = (char *)(uintptr_t) "--percent=20";
    start(4);
    read_again("[rowan-server]\npercent = 50\nlevel = debug\nworkers = 4\naddress = there\n");
    assert_int_equal(settings.percent, 20);
    assert_int_equal(settings.level, 2);
}

/* It is refused, with this sentence, and nothing has changed. */
static void assert_refused(const char *name, const char *value, const char *sentence)
{
    const struct settings before = settings;
    char why[200] = "";
    assert_int_equal(config_live_set(&live, name, value, why, sizeof why), ROWAN_ECONFIG);
    assert_string_equal(why, sentence);
    assert_memory_equal(&settings, &before, sizeof settings);
    assert_int_equal(applied, 0);
}

TEST(a_key_that_is_set_wrongly_gets_the_sentence_of_a_start)
{
    assert_refused("percent", "96", "percent must be a number from 1 to 95, not \"96\"");
    assert_refused("percent", "many", "percent must be a number from 1 to 95, not \"many\"");
    assert_refused("level", "", "level must be one of error|info|debug, not \"\"");
    assert_refused("checkpoints", "2", "checkpoints must be yes or no, not \"2\"");
    assert_refused("wrk\x1b[2J", "1", "unknown key wrk?[2J; rowan-server --help lists the keys");
    assert_refused("config", "x", "unknown key config; rowan-server --help lists the keys");
    assert_refused("workers", "8", "workers changes only at a restart");
    assert_refused("address", "x", "address changes only at a restart");
    assert_refused("replicas", "2",
                   "replicas does not change: it is fixed when the cluster is made");
    assert_refused("percent", "13", "percent 13 is unlucky");
    assert_string_equal(logged(), "");
}

TEST(what_is_set_holds_until_the_settings_are_read_again)
{
    char why[200];
    assert_int_equal(config_live_set(&live, "percent", "40", why, sizeof why), 0);
    assert_int_equal(settings.percent, 40);
    assert_int_equal(applied, 1);
    assert_non_null(strstr(logged(), "setting_changed key=percent from=60 to=40\n"));
    assert_int_equal(config_live_set(&live, "percent", "40", why, sizeof why), 0);
    assert_int_equal(applied, 1); /* it was so */
    config_live_ask(&live);
    assert_true(config_live_poll(&live));
    assert_int_equal(settings.percent, 60);
    assert_int_equal(applied, 2);
}

TEST(values_are_printed_as_a_person_writes_them)
{
    static const char *const printed[] = {"there", "none", "4", "60", "info", "3", "no", "yes"};
    settings.workers = 4;
    for (unsigned i = 0; i < spec.key_count; i++) {
        char shown[32];
        config_print(&keys[i], &settings, shown, sizeof shown);
        assert_string_equal(shown, printed[i]);
    }
}

UNIT_MAIN(NULL, NULL)
