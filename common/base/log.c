/* log.c - one line per event, built in a buffer and handed to the system in one write, so that
 * lines of several threads and processes on one standard error do not mix.
 *
 * L1 A line has no control characters: a value that came from outside cannot forge a second line.
 */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, NODE_BYTES = 64 };

static _Atomic int log_level_now = LOG_INFO;
static char node_name[NODE_BYTES];

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level_now, (int)level, memory_order_relaxed);
}

void log_set_node(const char *node)
{
    snprintf(node_name, sizeof(node_name), "%s", node);
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
    struct timespec now;
    struct tm utc;
    int result;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    result = snprintf(line, capacity, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ %s %s%s%s",
                      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                      utc.tm_sec, now.tv_nsec / 1000, level_words[level], event,
                      node_name[0] != '\0' ? " node=" : "", node_name);
    return printed_bytes(result, capacity);
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

void log_event(enum log_level level, const char *event, const char *keys, ...)
{
    char line[LINE_BYTES];
    const size_t capacity = sizeof(line) - 1; /* the last byte is for the newline */
    int errno_before = errno;
    size_t bytes;
    va_list arguments;

    if ((int)level > atomic_load_explicit(&log_level_now, memory_order_relaxed))
        return;
    bytes = write_head(line, capacity, level, event);
    if (keys[0] != '\0' && bytes + 1 < capacity) {
        line[bytes++] = ' ';
        va_start(arguments, keys);
        bytes += printed_bytes(vsnprintf(line + bytes, capacity - bytes, keys, arguments),
                               capacity - bytes);
        va_end(arguments);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?'; /* L1 */
    }
    line[bytes++] = '\n';
    write_line(line, bytes);
    errno = errno_before;
}
