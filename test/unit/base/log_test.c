/* Standard error goes to a file while a test runs; log lines and a failed assert are read there. */
#define TEST_FIXTURE catch_stderr, release_stderr

#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_limiter.h"
#include "test/lib/unit.h"

static char text[65536];
static FILE *file;
static int real_stderr;

static int catch_stderr(void **state)
{
    (void)state;
    file = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    if (file == NULL || real_stderr < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
        return -1;
    log_open(0); /* each case has the whole burst of each event; none but the flood writes more */
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

TEST(a_line_for_the_journal_has_a_priority_and_no_time)
{
    struct stat status;
    char stream[64];
    assert_int_equal(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof stream, "%lu:%lu", status.st_dev, status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(0);
    log_event(LOG_WARN, "segment_sealed", "shard=%u", 3U);
    log_event(LOG_ERROR, "stopped", "");
    assert_string_equal(caught(), "<4>segment_sealed shard=3\n<3>stopped\n");
    snprintf(stream, sizeof stream, "%lu:%lu", status.st_dev, status.st_ino + 1); /* another's */
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(0);
    log_event(LOG_INFO, "started", "");
    assert_caught("\n[0-9]{4}-.*Z info started\n$");
    unsetenv("JOURNAL_STREAM");
}

static long size_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

TEST(a_file_and_its_predecessor_have_no_more_bytes_than_they_may)
{
    enum { MOST = 4000, LINES = 200, LINE = 60 };
    char path[] = "/tmp/rowan-log-XXXXXX", old[sizeof path + 2], last[64] = "";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    snprintf(old, sizeof old, "%s.1", path);
    log_open(MOST);
    for (unsigned i = 0; i < LINES; i++)
        log_event(LOG_INFO, "line", "number=%u", i);
    assert_in_range(size_of(old), MOST / 2, MOST / 2 + LINE);
    assert_in_range(size_of(path), 1, MOST / 2 + LINE);
    FILE *const found = fopen(path, "r");
    assert_non_null(found);
    assert_int_equal(fseek(found, -11, SEEK_END), 0);
    assert_non_null(fgets(last, sizeof last, found));
    assert_string_equal(last, "number=199\n");
    fclose(found);
    unlink(path);
    unlink(old);
}

TEST(a_file_that_grew_gets_its_limit_later)
{
    char path[] = "/tmp/rowan-log-XXXXXX", old[sizeof path + 2];
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    snprintf(old, sizeof old, "%s.1", path);
    log_open(0);
    for (unsigned i = 0; i < 100; i++)
        log_event(LOG_INFO, "line", "number=%u", i);
    assert_int_equal(size_of(old), -1);
    log_limit(2000); /* it has more than half of that already */
    log_event(LOG_INFO, "last", "number=%u", 100U);
    assert_true(size_of(old) > 2000);
    log_event(LOG_INFO, "first", "number=%u", 101U);
    assert_in_range(size_of(path), 1, 100);
    log_limit(0);
    for (unsigned i = 0; i < 100; i++)
        log_event(LOG_INFO, "line", "number=%u", i);
    assert_true(size_of(path) > 2000);
    unlink(path);
    unlink(old);
}

TEST(a_file_that_was_renamed_is_left_for_a_new_one_of_its_name)
{
    char path[] = "/tmp/rowan-log-XXXXXX", away[sizeof path + 5], old[sizeof path + 2];
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    snprintf(away, sizeof away, "%s.away", path);
    snprintf(old, sizeof old, "%s.1", path);
    log_open(4000);
    log_event(LOG_INFO, "before", "");
    assert_int_equal(rename(path, away), 0);
    const long bytes = size_of(away);
    log_reopen();
    log_event(LOG_INFO, "after", "");
    assert_int_equal(size_of(away), bytes);
    assert_in_range(size_of(path), 1, 60);
    log_reopen(); /* nothing to do */
    log_event(LOG_INFO, "after", "");
    assert_int_equal(rename(path, away), 0); /* and nobody says so before the file is full */
    for (unsigned i = 0; i < 60; i++)
        log_event(LOG_INFO, "line", "number=%u", i);
    assert_in_range(size_of(away), 2000, 2060);
    assert_in_range(size_of(path), 1, 1000);
    assert_int_equal(size_of(old), -1);
    unlink(path);
    unlink(away);
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

static unsigned count(const char *piece)
{
    unsigned found = 0;

    for (const char *at = caught(); (at = strstr(at, piece)); at++)
        found++;
    return found;
}

TEST(a_flood_of_one_event_leaves_a_burst_a_count_and_the_others_lines)
{
    enum { FLOOD = 100000 };
    char told[64];

    for (unsigned i = 0; i < FLOOD; i++)
        log_event(LOG_WARN, "login_refused", "user=%u", i);
    log_event(LOG_ERROR, "server_failed", "error=%d", 5);
    assert_caught("error server_failed error=5\n$");
    const unsigned lines = count("warn login_refused user=");
    assert_in_range(lines, LOG_BURST, FLOOD / 2); /* more: two a second, if this took so long */
    log_poll(clock_now_ns(clock_system()) + LOG_BURST * NS_PER_S);
    if (count(" left_out=") == 1) {
        snprintf(told, sizeof told, "warn login_refused left_out=%u\n$", FLOOD - lines);
        assert_caught(told);
    }
    assert_true(count(" left_out=") >= 1);
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
