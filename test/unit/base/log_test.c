/* Standard error goes to a file while a test runs; log lines and a failed assert are read there. */
#define TEST_FIXTURE catch_stderr, release_stderr

#include <regex.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "test/lib/unit.h"

static char text[16384];
static FILE *file;
static int real_stderr;

static int catch_stderr(void **state)
{
    (void)state;
    file = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    if (file == NULL || real_stderr < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
        return -1;
    log_set_level(LOG_INFO);
    log_set_node("");
    return 0;
}

static int release_stderr(void **state)
{
    (void)state;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    fclose(file);
    return 0;
}

static const char *caught(void)
{
    ssize_t bytes = pread(fileno(file), text, sizeof(text) - 1, 0);

    assert_true(bytes >= 0);
    text[bytes] = '\0';
    return text;
}

static void assert_caught(const char *pattern)
{
    regex_t regex;

    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, caught(), 0, NULL, 0) != 0)
        fail_msg("\"%s\" is not like \"%s\"", text, pattern);
    regfree(&regex);
}

#define TIME "^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6}Z "

TEST(a_line_has_time_level_event_and_keys)
{
    log_event(LOG_WARN, "segment_sealed", "shard=%u bytes=%d", 3U, 64);
    assert_caught(TIME "warn segment_sealed shard=3 bytes=64\n$");
}

TEST(an_event_without_keys_ends_with_its_name)
{
    log_event(LOG_ERROR, "stopped", "");
    log_event(LOG_INFO, "started", "");
    assert_caught("error stopped\n.* info started\n$");
}

TEST(the_nodes_name_is_in_every_line)
{
    log_set_node("server-1");
    log_event(LOG_INFO, "started", "port=%d", 1);
    assert_caught(TIME "info started node=server-1 port=1\n$");
}

TEST(lines_above_the_level_are_dropped)
{
    log_event(LOG_DEBUG, "detail", "a=%d", 1);
    assert_string_equal(caught(), "");
    log_set_level(LOG_DEBUG);
    log_event(LOG_DEBUG, "detail", "a=%d", 2);
    assert_caught("debug detail a=2\n$");
    log_set_level(LOG_ERROR);
    log_event(LOG_WARN, "warning", "a=%d", 3);
    assert_null(strstr(caught(), "warning"));
}

TEST(a_value_cannot_forge_a_line)
{
    log_event(LOG_INFO, "put", "key=%s", "a\nb\x1b[2Jc");
    assert_caught(TIME "info put key=a\\?b\\?\\[2Jc\n$");
}

TEST(a_line_that_is_too_long_is_cut_and_still_ends)
{
    char *value = malloc(10001);

    memset(value, 'x', 10000);
    value[10000] = '\0';
    log_event(LOG_INFO, "put", "key=%s", value);
    free(value);
    log_event(LOG_INFO, "next", "a=%d", 1);
    assert_caught("x\n[^x]* info next a=1\n$");
}

TEST(a_failed_assert_names_itself_and_aborts)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* no test framework in between */
        ASSERT(child != 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_caught("error assert_failed place=.*log_test\\.c:[0-9]+ expression=\"child != 0\"\n$");
}

UNIT_MAIN(NULL, NULL)
