/* In the place of common/base/log.c. */
#include "test/sim/sim_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

static struct journal *journal_now;
static const char *node_now;
static sim_log_observer *observer_now;
static void *observer_context;

void sim_log_journal(struct journal *journal)
{
    journal_now = journal;
}

void sim_log_node(const char *name)
{
    node_now = name;
}

const char *sim_log_node_now(void)
{
    return node_now ? node_now : "";
}

void sim_log_observe(sim_log_observer *observer, void *context)
{
    observer_now = observer;
    observer_context = context;
}

void log_set_level(enum log_level level)
{
    (void)level; /* a run's hash is over all lines */
}

void log_set_node(const char *node)
{
    (void)node;
}

void log_reopen(void)
{
}

void log_poll(uint64_t now_ns)
{
    (void)now_ns;
}

void log_event(enum log_level level, const char *event, const char *keys, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, keys);
    vsnprintf(line, sizeof line, keys, arguments);
    va_end(arguments);
    if (journal_now)
        journal_note(journal_now, JOURNAL_LOG, sim_log_node_now(), "%s %s", event, line);
    if (observer_now)
        observer_now(observer_context, sim_log_node_now(), event, line);
    /* What ends the process must not end with its journal. */
    if (level == LOG_ERROR && (!journal_now || strcmp(event, "assert_failed") == 0))
        fprintf(stderr, "%s %s\n", event, line);
}
