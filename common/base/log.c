/* log.c - one line per event, built in a buffer and handed to the system in one write, so that
 * lines of several threads and processes on one standard error do not mix.
 *
 * L1 A line has no control characters: a value that came from outside cannot forge a second line.
 * L2 A line that goes to the journal begins with its priority (sd-daemon(3)), and no time: the journal has its own.
 * L3 A file is turned over by one thread; the others write on, to the one that is standard error at that moment.
 * L4 Only the file that standard error is goes by FILE, the name that it had when it was looked up, to FILE.1: somebody else
 *    may have renamed it.
 * L5 Of each event so many lines are written, and no more (log_limiter.h): who knocks from outside fills no disk, and takes no
 *    processor's time. What is left out is counted, and told.
 */
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log_limiter.h"

enum { LINE_BYTES = 2048, NODE_BYTES = 64 };

static _Atomic int log_level_now = LOG_INFO;
static char node_name[NODE_BYTES];
static bool to_journal;
static char file_path[PATH_MAX];   /* "": standard error is no file that a name leads to */
static _Atomic uint64_t file_most; /* bytes of a file; 0: any number */
static _Atomic uint64_t file_bytes;
static atomic_flag turning = ATOMIC_FLAG_INIT;
static struct log_limiter limiter;
static _Atomic bool owes;          /* something was left out and not told */
static _Atomic uint64_t looked_ns; /* when log_poll looked for that last */

#define LOOK_NS NS_PER_S

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level_now, (int)level, memory_order_relaxed);
}

void log_set_node(const char *node)
{
    snprintf(node_name, sizeof(node_name), "%s", node);
}

/* systemd names the device and inode of the socket that it gave us. */
static bool is_journal(const struct stat *status)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long device, inode;

    return stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2 && device == status->st_dev &&
           inode == status->st_ino;
}

/* Does the name lead to the file that standard error is? */
static bool names_stderr(const char *path)
{
    struct stat named, open;

    return stat(path, &named) == 0 && fstat(STDERR_FILENO, &open) == 0 && S_ISREG(open.st_mode) &&
           named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

void log_open(uint64_t most_bytes)
{
    struct stat status;
    ssize_t bytes;

    memset(&limiter, 0, sizeof limiter);
    if (fstat(STDERR_FILENO, &status))
        return;
    to_journal = is_journal(&status);
    bytes = readlink("/proc/self/fd/2", file_path, sizeof file_path - 1);
    file_path[bytes > 0 ? bytes : 0] = '\0';
    if (!names_stderr(file_path))
        file_path[0] = '\0';
    log_limit(most_bytes);
}

/* A file that had none was not counted. */
void log_limit(uint64_t most_bytes)
{
    struct stat status;

    if (fstat(STDERR_FILENO, &status) || !S_ISREG(status.st_mode))
        return;
    atomic_store_explicit(&file_bytes, (uint64_t)status.st_size, memory_order_relaxed);
    atomic_store_explicit(&file_most, most_bytes, memory_order_relaxed);
}

static const char *const level_words[] = {"error", "warn", "info", "debug"};

/* How much of a buffer of `capacity` bytes snprintf filled when it returned `result`. */
static size_t printed_bytes(int result, size_t capacity)
{
    if (result < 0)
        return 0;
    return (size_t)result < capacity ? (size_t)result : capacity - 1;
}

static size_t write_head(char *line, size_t capacity, enum log_level level, const char *event)
{
    static const char priorities[] = {'3', '4', '6', '7'}; /* syslog(3) */
    struct timespec now;
    struct tm utc;
    int result;

    if (to_journal) { /* L2 */
        result = snprintf(line, capacity, "<%c>%s", priorities[level], event);
        return printed_bytes(result, capacity);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    result = snprintf(line, capacity, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ %s %s%s%s",
                      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                      utc.tm_sec, now.tv_nsec / 1000, level_words[level], event,
                      node_name[0] != '\0' ? " node=" : "", node_name);
    return printed_bytes(result, capacity);
}

/* If that fails the old file grows on. */
static void open_file(void)
{
    const int fd = open(file_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (fd < 0)
        return;
    if (dup2(fd, STDERR_FILENO) >= 0)
        log_limit(atomic_load_explicit(&file_most, memory_order_relaxed));
    close(fd);
}

/* FILE becomes FILE.1, in the place of an older one. If that fails the next lines try again. L4. */
static void turn_over(void)
{
    char old[PATH_MAX + 2];

    snprintf(old, sizeof old, "%s.1", file_path);
    if (file_path[0] != '\0' && (!names_stderr(file_path) || rename(file_path, old) == 0))
        open_file();
}

void log_reopen(void)
{
    if (file_path[0] == '\0' || atomic_flag_test_and_set_explicit(&turning, memory_order_acquire))
        return;
    if (!names_stderr(file_path))
        open_file();
    atomic_flag_clear_explicit(&turning, memory_order_release);
}

/* L3. Half of them in each of the two files. */
static void count_bytes(size_t bytes)
{
    const uint64_t most = atomic_load_explicit(&file_most, memory_order_relaxed);

    if (most == 0 ||
        atomic_fetch_add_explicit(&file_bytes, bytes, memory_order_relaxed) + bytes < most / 2 ||
        atomic_flag_test_and_set_explicit(&turning, memory_order_acquire))
        return;
    if (atomic_load_explicit(&file_bytes, memory_order_relaxed) >= most / 2)
        turn_over();
    atomic_flag_clear_explicit(&turning, memory_order_release);
}

/* If standard error itself fails the line is dropped. */
static void write_line(const char *line, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(STDERR_FILENO, line, bytes);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        line += written;
        bytes -= (size_t)written;
    }
}

static void write_event(enum log_level level, const char *event, uint64_t left_out,
                        const char *keys, va_list arguments)
{
    char line[LINE_BYTES], count[32] = "";
    size_t capacity = sizeof(line) - 1; /* the last byte is for the newline */
    size_t bytes;

    if (left_out > 0)
        snprintf(count, sizeof count, " left_out=%lu", left_out);
    capacity -= strlen(count);
    bytes = write_head(line, capacity, level, event);
    if (keys[0] != '\0' && bytes + 1 < capacity) {
        line[bytes++] = ' ';
        bytes += printed_bytes(vsnprintf(line + bytes, capacity - bytes, keys, arguments),
                               capacity - bytes);
    }
    memcpy(line + bytes, count, strlen(count));
    bytes += strlen(count);
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?'; /* L1 */
    }
    line[bytes++] = '\n';
    write_line(line, bytes);
    count_bytes(bytes);
}

void log_event(enum log_level level, const char *event, const char *keys, ...)
{
    const int errno_before = errno;
    uint64_t left_out;
    va_list arguments;

    if ((int)level > atomic_load_explicit(&log_level_now, memory_order_relaxed))
        return;
    if (log_limiter_allow(&limiter, level, event, clock_now_ns(clock_system()), &left_out)) {
        va_start(arguments, keys);
        write_event(level, event, left_out, keys, arguments);
        va_end(arguments);
    } else {
        atomic_store_explicit(&owes, true, memory_order_relaxed);
    }
    errno = errno_before;
}

static void write_count(enum log_level level, const char *event, const char *keys, ...)
{
    va_list arguments;

    va_start(arguments, keys);
    write_event(level, event, 0, keys, arguments);
    va_end(arguments);
}

void log_poll(uint64_t now_ns)
{
    uint64_t looked = atomic_load_explicit(&looked_ns, memory_order_relaxed), left_out;
    enum log_level level;
    const char *event;
    uint32_t place = 0;

    if (!atomic_load_explicit(&owes, memory_order_relaxed) || now_ns < looked + LOOK_NS ||
        !atomic_compare_exchange_strong_explicit(&looked_ns, &looked, now_ns, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    while ((event = log_limiter_owed(&limiter, now_ns, &place, &level, &left_out)))
        write_count(level, event, "left_out=%lu", left_out);
}
