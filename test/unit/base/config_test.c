/* Each mistake a person can make, and the very sentence that answers it. */
#include <sys/mman.h>

#include "common/base/config.h"
#include "common/base/error.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"

struct settings {
    const char *cm;
    const char *dir;
    uint64_t workers;
    uint64_t pm_bytes;
    bool json;
    uint64_t durability;
};

static const struct config_key keys[] = {
    {"cm", CONFIG_STRING, offsetof(struct settings, cm), NULL, 0, 0, NULL, "the CM's address"},
    {"dir", CONFIG_STRING, offsetof(struct settings, dir), "", 0, 0, NULL, "a directory"},
    {"workers", CONFIG_U64, offsetof(struct settings, workers), "2", 1, 64, NULL, "workers"},
    {"pm-bytes", CONFIG_U64, offsetof(struct settings, pm_bytes), "1G", 64 << 20, UINT64_MAX, NULL,
     "bytes of persistent memory"},
    {"json", CONFIG_BOOL, offsetof(struct settings, json), "no", 0, 0, NULL, "one JSON object"},
    {"durability", CONFIG_CHOICE, offsetof(struct settings, durability), "async", 0, 0,
     "fence|async|none", "when a write is acknowledged"},
};

static const struct config_spec server = {
    .program = "rowan-server",
    .release = "1.2.3 (commit abc)",
    .summary = "serves shards",
    .keys = keys,
    .key_count = sizeof(keys) / sizeof(keys[0]),
};

static const struct config_spec tool = {
    .program = "rowan",
    .release = "1.2.3 (commit abc)",
    .summary = "reads and writes",
    .positional = "get KEY | put KEY VALUE",
    .keys = keys,
    .key_count = sizeof(keys) / sizeof(keys[0]),
};

static struct settings settings;
static struct config_rest rest;
static char printed[8192];
static char path[] = "/tmp/config_test.XXXXXX";

/* Parses the words up to NULL; what was printed on `stream_fd` is left in `printed`. */
static enum config_outcome parse_watching(int stream_fd, const struct config_spec *spec,
                                          const char *const *words)
{
    FILE *file = tmpfile();
    int real = dup(stream_fd);
    char *argv[16] = {(char *)(uintptr_t) "program"};
    enum config_outcome outcome;
    ssize_t bytes;
    int argc = 1;

    assert_non_null(file);
    for (; *words != NULL; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    fflush(NULL);
    dup2(fileno(file), stream_fd);
    outcome = config_parse(spec, argc, argv, &settings, &rest);
    fflush(NULL);
    dup2(real, stream_fd);
    close(real);
    bytes = pread(fileno(file), printed, sizeof(printed) - 1, 0);
    assert_true(bytes >= 0);
    printed[bytes] = '\0';
    fclose(file);
    return outcome;
}

#define PARSE(spec, ...)                                                                           \
    parse_watching(STDERR_FILENO, spec, (const char *const[]){__VA_ARGS__, NULL})

/* The words are refused, with this sentence and nothing else, and the settings are untouched. */
#define ASSERT_REFUSED(spec, sentence, ...)                                                        \
    do {                                                                                           \
        struct settings before;                                                                    \
        memset(&settings, 0x5a, sizeof(settings));                                                 \
        before = settings;                                                                         \
        assert_int_equal(PARSE(spec, __VA_ARGS__), CONFIG_USAGE);                                  \
        assert_string_equal(printed, sentence "\n");                                               \
        assert_memory_equal(&settings, &before, sizeof(settings));                                 \
    } while (0)

static int make_file(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* As a file that --config names. `why` is without its name. */
static int parse_ini(const struct config_spec *spec, const char *text, size_t bytes, char why[256])
{
    char name[64], sentence[256];
    const int fd = memfd_create("ini", MFD_CLOEXEC);
    char *argv[] = {"program", "--config", name, NULL};
    int error;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    error = config_parse_why(spec, 3, argv, &settings, &rest, sentence, sizeof(sentence));
    if (error) {
        const size_t named = strncmp(sentence, name, strlen(name)) == 0 ? strlen(name) + 2 : 0;

        snprintf(why, 256, "%s", sentence + named);
    }
    close(fd);
    return error;
}

/* The sentence for an INI text, or "" where it is right. */
static const char *ini_answer_bytes(const char *text, size_t bytes)
{
    static char why[256];
    struct settings before;
    int error;

    memset(&settings, 0x5a, sizeof(settings));
    before = settings;
    why[0] = '\0';
    error = parse_ini(&server, text, bytes, why);
    if (error != 0) {
        assert_int_equal(error, ROWAN_ECONFIG);
        assert_memory_equal(&settings, &before, sizeof(settings));
    } else {
        config_free(&rest);
    }
    return why;
}

static const char *ini_answer(const char *text)
{
    return ini_answer_bytes(text, strlen(text));
}

TEST(defaults_stand_where_nothing_is_given)
{
    assert_int_equal(PARSE(&server, "--cm", "host:1"), CONFIG_OK);
    assert_string_equal(settings.cm, "host:1");
    assert_string_equal(settings.dir, "");
    assert_int_equal(settings.workers, 2);
    assert_int_equal(settings.pm_bytes, UINT64_C(1) << 30);
    assert_false(settings.json);
    assert_int_equal(settings.durability, 1);
    assert_int_equal(rest.argc, 0);
    assert_string_equal(printed, "");
    config_free(&rest);
}

TEST(both_spellings_of_an_option_are_taken)
{
    assert_int_equal(PARSE(&server, "--cm=a=b", "--workers", "64", "--durability=none", "--json",
                           "--pm-bytes=2G"),
                     CONFIG_OK);
    assert_string_equal(settings.cm, "a=b");
    assert_int_equal(settings.workers, 64);
    assert_int_equal(settings.durability, 2);
    assert_int_equal(settings.pm_bytes, UINT64_C(2) << 30);
    assert_true(settings.json);
    config_free(&rest);
}

TEST(the_command_line_wins_over_the_file_and_the_file_over_defaults)
{
    temp_dir_write(path,
                   "# a comment\n[rowan-cm]\nworkers = x\n[rowan-server]\n  cm = file:1\n ; why\n"
                   "  workers = 3\n\tdurability: fence\r\njson = yes\n");
    assert_int_equal(PARSE(&server, "--workers", "4", "--config", path), CONFIG_OK);
    assert_string_equal(settings.cm, "file:1");
    assert_int_equal(settings.workers, 4);
    assert_int_equal(settings.durability, 0);
    assert_true(settings.json);
    assert_int_equal(settings.pm_bytes, UINT64_C(1) << 30);
    config_free(&rest);
}

TEST(the_last_of_two_on_the_command_line_wins)
{
    assert_int_equal(PARSE(&server, "--cm", "a", "--cm", "b"), CONFIG_OK);
    assert_string_equal(settings.cm, "b");
    config_free(&rest);
}

TEST(other_words_are_handed_back_in_order)
{
    assert_int_equal(PARSE(&tool, "--json", "put", "--cm", "a", "-", "--", "--workers", "-5"),
                     CONFIG_OK);
    assert_true(settings.json);
    assert_int_equal(rest.argc, 4);
    assert_string_equal(rest.argv[0], "put");
    assert_string_equal(rest.argv[1], "-");
    assert_string_equal(rest.argv[2], "--workers");
    assert_string_equal(rest.argv[3], "-5");
    assert_null(rest.argv[4]);
    config_free(&rest);
}

TEST(a_bool_takes_the_next_word_only_where_no_other_words_may_stand)
{
    assert_int_equal(PARSE(&server, "--json", "--cm", "a"), CONFIG_OK);
    assert_true(settings.json);
    config_free(&rest);
    assert_int_equal(PARSE(&server, "--cm", "a", "--json", "no"), CONFIG_OK);
    assert_false(settings.json);
    config_free(&rest);
    assert_int_equal(PARSE(&tool, "--cm", "a", "--json", "no"), CONFIG_OK);
    assert_true(settings.json);
    assert_string_equal(rest.argv[0], "no");
    config_free(&rest);
    assert_int_equal(PARSE(&tool, "--cm", "a", "--json=false"), CONFIG_OK);
    assert_false(settings.json);
    config_free(&rest);
}

TEST(each_mistake_on_the_command_line_has_its_sentence)
{
    ASSERT_REFUSED(&server,
                   "rowan-server: unknown option --wrkers; rowan-server --help lists the "
                   "options",
                   "--wrkers", "3");
    ASSERT_REFUSED(&server,
                   "rowan-server: unknown option -w; rowan-server --help lists the options", "-w");
    ASSERT_REFUSED(&tool,
                   "rowan: unknown option -5; rowan --help lists the options, and -- ends them",
                   "put", "k", "-5");
    ASSERT_REFUSED(&server, "rowan-server: --workers must be a number from 1 to 64, not \"65\"",
                   "--workers", "65");
    ASSERT_REFUSED(&server, "rowan-server: --workers must be a number from 1 to 64, not \"0\"",
                   "--workers=0");
    ASSERT_REFUSED(&server, "rowan-server: --workers must be a number from 1 to 64, not \"two\"",
                   "--workers", "two");
    ASSERT_REFUSED(&server, "rowan-server: --pm-bytes must be a number, at least 64M, not \"1K\"",
                   "--pm-bytes", "1K");
    ASSERT_REFUSED(&server,
                   "rowan-server: --durability must be one of fence|async|none, not \"fenc\"",
                   "--durability", "fenc");
    ASSERT_REFUSED(&server, "rowan-server: --json must be yes or no, not \"maybe\"",
                   "--json=maybe");
    ASSERT_REFUSED(&server, "rowan-server: --cm needs a value", "--cm");
    ASSERT_REFUSED(&server, "rowan-server: --cm needs a value", "--cm", "--json");
    ASSERT_REFUSED(&server, "rowan-server: --config needs a value", "--config");
    ASSERT_REFUSED(&server, "rowan-server: --config is given twice", "--config=a", "--config=b");
    ASSERT_REFUSED(&server, "rowan-server: \"get\" is not expected here; options begin with --",
                   "get");
    ASSERT_REFUSED(&server,
                   "rowan-server: cm is required and missing: give --cm VALUE, or cm = VALUE in "
                   "section [rowan-server] of the file that --config names",
                   "--json");
    ASSERT_REFUSED(&server,
                   "rowan-server: cannot open the configuration file /nowhere/a.ini: No such file "
                   "or directory",
                   "--config", "/nowhere/a.ini", "--cm", "a");
    ASSERT_REFUSED(&server, "rowan-server: cannot read the configuration file /: Is a directory",
                   "--config", "/");
}

TEST(a_mistake_in_the_file_names_the_file_and_the_line)
{
    char expected[256];

    temp_dir_write(path, "[rowan-server]\ncm = a\nworkers = 0\n");
    assert_int_equal(PARSE(&server, "--config", path, "--workers", "3"), CONFIG_USAGE);
    snprintf(expected, sizeof(expected),
             "rowan-server: %s: line 3: workers must be a number from 1 to 64, not \"0\"\n", path);
    assert_string_equal(printed, expected);
}

TEST(a_file_that_is_too_large_is_refused)
{
    char expected[256];

    temp_dir_write(path, "");
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(PARSE(&server, "--config", path), CONFIG_USAGE);
    snprintf(expected, sizeof(expected),
             "rowan-server: the configuration file %s is larger than 1 MiB\n", path);
    assert_string_equal(printed, expected);
}

TEST(each_mistake_in_a_file_has_its_sentence)
{
    assert_string_equal(ini_answer("[rowan-server]\ncm=a\nwrkers=3\n"),
                        "line 3: unknown key wrkers; rowan-server --help lists the keys");
    assert_string_equal(ini_answer("[rowan-server]\ncm=a\npm-bytes=1\n"),
                        "line 3: pm-bytes must be a number, at least 64M, not \"1\"");
    assert_string_equal(ini_answer("[rowan-server]\ndurability=\n"),
                        "line 2: durability must be one of fence|async|none, not \"\"");
    assert_string_equal(ini_answer("[rowan-server]\njson=on\n"),
                        "line 2: json must be yes or no, not \"on\"");
    assert_string_equal(ini_answer("[rowan-server]\ncm=a\n\ncm=b\n"), "line 4: cm is given twice");
    assert_string_equal(ini_answer("cm=a\n"),
                        "line 1: cm stands before any [section]; write [rowan-server] above it");
    assert_string_equal(ini_answer("[rowan-sevrer]\ncm=a\n"),
                        "the file has sections, but none is [rowan-server]");
    assert_string_equal(ini_answer("[rowan-server]\ncm\nworkers=0\n"),
                        "line 2 is neither [section], nor key = value, nor a comment");
    assert_string_equal(ini_answer("[rowan-server\ncm=a\n"),
                        "line 1 is neither [section], nor key = value, nor a comment");
    assert_string_equal(ini_answer("[rowan-server]\nworkers=1\n"),
                        "cm is required and missing: give --cm VALUE, or cm = VALUE in section "
                        "[rowan-server] of the file that --config names");
}

TEST(bytes_that_are_no_text_are_refused)
{
    char text[4200] = "[rowan-server]\ncm=a\n#";

    memset(text + 21, 'x', sizeof(text) - 21);
    assert_string_equal(ini_answer_bytes(text, sizeof(text)), "line 3 is longer than 4095 bytes");
    assert_string_equal(ini_answer_bytes("[rowan-server]\ncm=a\0b\n", 22),
                        "line 2 has a zero byte: this is no text file");
    assert_string_equal(ini_answer("[rowan-server]\nwork\x1b[2J=3\n"),
                        "line 2: unknown key work?[2J; rowan-server --help lists the keys");
}

TEST(a_comment_behind_a_value_is_refused_and_does_not_cut_it)
{
    assert_string_equal(
        ini_answer("[rowan-server]\ncm=a\nworkers = 2 ; two\n"),
        "line 3: there is a \" ;\" in the value of workers; a comment stands on a line of its own");
}

TEST(a_line_of_4095_bytes_is_taken_whole)
{
    char text[4200] = "[rowan-server]\ncm=";
    char why[256] = "";

    memset(text + 18, 'x', 4091);
    text[18 + 4091] = '\n';
    assert_int_equal(parse_ini(&server, text, 18 + 4092, why), 0);
    assert_int_equal(strlen(settings.cm), 4091);
    config_free(&rest);
}

TEST(an_empty_file_is_right_where_nothing_is_required)
{
    struct config_spec spec = server;
    char why[256] = "";

    spec.keys++;
    spec.key_count--;
    assert_int_equal(parse_ini(&spec, "", 0, why), 0);
    assert_int_equal(settings.workers, 2);
    config_free(&rest);
}

TEST(help_lists_every_key_with_unit_range_and_default)
{
    static const char *const words[] = {"--wrong", "--help", NULL};

    assert_int_equal(parse_watching(STDOUT_FILENO, &tool, words), CONFIG_HELP);
    assert_non_null(
        strstr(printed, "Usage: rowan [--key value]... get KEY | put KEY VALUE\nreads and writes"));
    for (unsigned i = 0; i < tool.key_count; i++) {
        assert_non_null(strstr(printed, keys[i].name));
        assert_non_null(strstr(printed, keys[i].help));
    }
    assert_non_null(strstr(printed, "a number from 1 to 64; default: 2\n"));
    assert_non_null(strstr(printed, "a number, at least 64M; default: 1G\n"));
    assert_non_null(strstr(printed, "one of fence|async|none; default: async\n"));
    assert_non_null(strstr(printed, "any text; required\n"));
    assert_non_null(strstr(printed, "--config FILE\n"));
    assert_non_null(strstr(printed, "  --json\n"));
    assert_null(strstr(printed, "--json VALUE"));
}

TEST(version_tells_the_release_and_every_format)
{
    static const char *const words[] = {"--wrong", "--version", NULL};
    static const char *const formats[] = {"messages 1", "configuration 1", "PM 8", "shm ",
                                          "tcp ",       "verbs "};

    assert_int_equal(parse_watching(STDOUT_FILENO, &server, words), CONFIG_HELP);
    assert_non_null(strstr(printed, "rowan-server 1.2.3 (commit abc)\nformats: "));
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        assert_non_null(strstr(printed, formats[i]));
}

TEST(help_behind_the_end_of_options_is_a_word)
{
    assert_int_equal(PARSE(&tool, "--cm=a", "--", "--help"), CONFIG_OK);
    assert_string_equal(rest.argv[0], "--help");
    config_free(&rest);
}

TEST(numbers_take_suffixes_and_refuse_all_else)
{
    static const struct {
        const char *text;
        uint64_t number;
    } right[] = {
        {"0", 0},
        {"12", 12},
        {"64K", 64 << 10},
        {"3M", 3 << 20},
        {"2G", UINT64_C(2) << 30},
        {"5T", UINT64_C(5) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const wrong[] = {"",
                                        "K",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1k",
                                        "1KK",
                                        "1.5",
                                        "0x10",
                                        "1P",
                                        "1K\n",
                                        "18446744073709551616",
                                        "16777216T"};

    for (unsigned i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        uint64_t number = 7;

        assert_int_equal(config_parse_u64(right[i].text, &number), 0);
        assert_true(number == right[i].number);
    }
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint64_t number = 7;

        assert_int_equal(config_parse_u64(wrong[i], &number), ROWAN_EINVALID);
        assert_int_equal(number, 7);
    }
}

UNIT_MAIN(make_file, remove_file)
