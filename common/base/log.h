/* log.h - one line per event on standard error: `time level event key=value ...`.
 * Never on the data path. Any thread; a line is written whole. Of one event at one level so many lines are written at once, and a
 * few a second (log_limiter.h); the next one tells how many were left out (left_out=N). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Lines above `level` are dropped; LOG_INFO at start. */
void log_set_level(enum log_level level);

/* log_open: where lines go is looked up: to the journal with priorities, where standard error leads there; in a file, which is
 * FILE.1 from then on when it has half of `most_bytes`, with a new FILE behind it; 0: it grows. Once, before there are other threads. log_limit: another limit, later; any thread. */
void log_open(uint64_t most_bytes);
void log_limit(uint64_t most_bytes);

/* log_reopen: if the file was renamed or removed since, lines go to a new one of its name from now on. Any thread. */
void log_reopen(void);

/* A short name of this process ("server-1") that every line carries; copied. Before there are other threads. */
void log_set_node(const char *node);

/* log_poll: counts of lines that were left out are told when an event has been quiet for a while. Now and then; any thread. */
void log_poll(uint64_t now_ns);

/* log_event(LOG_INFO, "segment_sealed", "shard=%u", 3u): `event` is a literal, `keys` a printf format of key=value
 * pairs with blanks between them, "" for none. */
void log_event(enum log_level level, const char *event, const char *keys, ...)
    __attribute__((format(printf, 3, 4)));

#endif
