/* metrics.h - the registry: which counters a process has, and their text for Prometheus.
 *
 * A role has its counters in a struct of its own, and a table that says what each of them is. It registers both once, before
 * anybody reads. Sets of one table with the same labels are shown as their sum: three workers count gets, one line tells how
 * many.
 *
 * Some figures only a role can work out. So whoever is to show the registry asks first (metrics_ask), and the role that looks
 * after it (metrics_asked, in each of its polls) brings those up to date and answers.
 */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/metrics/counter.h"

enum { METRICS_MAX_SETS = 512, METRICS_LABELS_BYTES = 64 };

enum metric_kind {
    METRIC_COUNTER,   /* struct counter that only rises */
    METRIC_GAUGE,     /* struct counter */
    METRIC_HISTOGRAM, /* struct latencies, shown in seconds; its unit counts for nothing */
};

/* Names and units as Prometheus wants them (https://prometheus.io/docs/practices/naming/): base units, `_total` behind what
 * only rises. Rows of one name follow each other, with the same kind and help. */
struct metric {
    const char *name, *help;
    const char *labels; /* `kind="get",outcome="ok"`; "": none */
    enum metric_kind kind;
    size_t offset; /* in the values */
    double unit;   /* what one of the counter is, in that of the name; 0: the same */
};

struct metrics_set {
    const struct metric *rows;
    uint32_t count;
    const void *values;
    char labels[METRICS_LABELS_BYTES];
};

struct metrics {
    struct metrics_set sets[METRICS_MAX_SETS];
    uint32_t count;
    _Atomic uint64_t asked, answered;
    const char
        *_Atomic why_not; /* as of the last answer: why the process is not ready; NULL: it is */
    void (*on_answer)(void *context); /* called by metrics_answer; must not block */
    void *on_answer_context;
};

/* metrics_add: before anybody reads. `rows` and `values` outlive the registry; `labels` (as a metric's) is copied. `metrics`
 * NULL: nobody asks, nothing is done. More than METRICS_MAX_SETS, or longer labels, are a mistake of the programmer. */
void metrics_add(struct metrics *metrics, const struct metric *rows, uint32_t count,
                 const void *values, const char *labels);

/* metrics_ask: brings the role's figures up to date; on_answer is called when they are. One asker. Whoever asks wakes the role
 * then. metrics_current: is what was asked for last there? */
void metrics_ask(struct metrics *metrics);
bool metrics_current(const struct metrics *metrics);

/* metrics_asked: the role is to bring its figures up to date, and then to call metrics_answer. `why_not`: static. */
static inline bool metrics_asked(const struct metrics *metrics)
{
    return metrics && atomic_load_explicit(&metrics->asked, memory_order_acquire) !=
                          atomic_load_explicit(&metrics->answered, memory_order_relaxed);
}
void metrics_answer(struct metrics *metrics, const char *why_not);

/* metrics_print: all of it in Prometheus's text format (version 0.0.4). Any thread. */
void metrics_print(const struct metrics *metrics, FILE *out);

#endif
