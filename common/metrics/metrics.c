/* The text is built name by name: Prometheus wants all lines of a name together, and names come in the order of the tables. A
 * table's rows of one name are shown for each group of sets: those that share the table and the labels.
 *
 *  M1  A line is shown once: by the first set of its group, with the sum of all.
 */
#include "common/metrics/metrics.h"

#include <string.h>

#include "common/base/assert.h"

void metrics_add(struct metrics *metrics, const struct metric *rows, uint32_t count,
                 const void *values, const char *labels)
{
    if (!metrics)
        return;
    ASSERT(metrics->count < METRICS_MAX_SETS && strlen(labels) < METRICS_LABELS_BYTES);
    struct metrics_set *set = &metrics->sets[metrics->count++];
    *set = (struct metrics_set){.rows = rows, .count = count, .values = values};
    snprintf(set->labels, sizeof set->labels, "%s", labels);
}

void metrics_ask(struct metrics *metrics)
{
    atomic_fetch_add_explicit(&metrics->asked, 1, memory_order_release);
}

bool metrics_current(const struct metrics *metrics)
{
    return atomic_load_explicit(&metrics->answered, memory_order_acquire) ==
           atomic_load_explicit(&metrics->asked, memory_order_relaxed);
}

void metrics_answer(struct metrics *metrics, const char *why_not)
{
    const uint64_t asked = atomic_load_explicit(&metrics->asked, memory_order_relaxed);
    atomic_store_explicit(&metrics->why_not, why_not, memory_order_relaxed);
    atomic_store_explicit(&metrics->answered, asked, memory_order_release);
    metrics->on_answer(metrics->on_answer_context);
}

/* --- text --- */

static bool same_group(const struct metrics_set *one, const struct metrics_set *other)
{
    return one->rows == other->rows && strcmp(one->labels, other->labels) == 0;
}

/* M1 */
static bool leads_group(const struct metrics *metrics, uint32_t set)
{
    for (uint32_t i = 0; i < set; i++) {
        if (same_group(&metrics->sets[i], &metrics->sets[set]))
            return false;
    }
    return true;
}

/* Of the set's group, the counter `offset` bytes into each one's values. */
static uint64_t sum(const struct metrics *metrics, uint32_t set, size_t offset)
{
    uint64_t value = 0;
    for (uint32_t i = set; i < metrics->count; i++) {
        const struct metrics_set *other = &metrics->sets[i];
        if (same_group(other, &metrics->sets[set]))
            value += counter_get((const void *)((const char *)other->values + offset));
    }
    return value;
}

/* The name, its suffix, and in braces what labels there are. */
static void print_name(FILE *out, const struct metric *metric, const struct metrics_set *set,
                       const char *suffix, const char *bound)
{
    const char *parts[] = {set->labels, metric->labels, bound};
    char separator = '{';
    fprintf(out, "%s%s", metric->name, suffix);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!*parts[i])
            continue;
        fprintf(out, "%c%s", separator, parts[i]);
        separator = ',';
    }
    if (separator == ',')
        fputc('}', out);
    fputc(' ', out);
}

static void print_histogram(FILE *out, const struct metrics *metrics, uint32_t set,
                            const struct metric *metric)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < LATENCIES_BUCKETS; i++) {
        char bound[32] = "le=\"+Inf\"";
        count +=
            sum(metrics, set,
                metric->offset + offsetof(struct latencies, counts) + i * sizeof(struct counter));
        if (i % 4 != 0 && i < LATENCIES_BUCKETS - 1)
            continue; /* a line for each power of two */
        if (i < LATENCIES_BUCKETS - 1)
            snprintf(bound, sizeof bound, "le=\"%.9g\"", (double)(latencies_most_ns(i) + 1) / 1e9);
        print_name(out, metric, &metrics->sets[set], "_bucket", bound);
        fprintf(out, "%llu\n", (unsigned long long)count);
    }
    print_name(out, metric, &metrics->sets[set], "_sum", "");
    fprintf(out, "%.9f\n",
            (double)sum(metrics, set, metric->offset + offsetof(struct latencies, sum_ns)) / 1e9);
    print_name(out, metric, &metrics->sets[set], "_count", "");
    fprintf(out, "%llu\n", (unsigned long long)count);
}

static void print_line(FILE *out, const struct metrics *metrics, uint32_t set,
                       const struct metric *metric)
{
    if (metric->kind == METRIC_HISTOGRAM) {
        print_histogram(out, metrics, set, metric);
        return;
    }
    const uint64_t value = sum(metrics, set, metric->offset);
    print_name(out, metric, &metrics->sets[set], "", "");
    if (metric->unit == 0)
        fprintf(out, "%llu\n", (unsigned long long)value);
    else
        fprintf(out, "%.9g\n", (double)value * metric->unit);
}

/* Is the row's name that of one in front of it, in this table or in one that was shown? */
static bool name_is_shown(const struct metrics *metrics, uint32_t set, uint32_t row)
{
    const char *name = metrics->sets[set].rows[row].name;
    for (uint32_t i = 0; i <= set; i++) {
        const struct metrics_set *other = &metrics->sets[i];
        const uint32_t end = i == set ? row : other->count;
        if (i < set && other->rows == metrics->sets[set].rows)
            return true;
        for (uint32_t j = 0; j < end; j++) {
            if (strcmp(other->rows[j].name, name) == 0)
                return true;
        }
    }
    return false;
}

static void print_metric(FILE *out, const struct metrics *metrics, const struct metric *first)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", first->name, first->help, first->name,
            types[first->kind]);
    for (uint32_t set = 0; set < metrics->count; set++) {
        for (uint32_t row = 0; row < metrics->sets[set].count; row++) {
            const struct metric *metric = &metrics->sets[set].rows[row];
            if (strcmp(metric->name, first->name) == 0 && leads_group(metrics, set))
                print_line(out, metrics, set, metric);
        }
    }
}

void metrics_print(const struct metrics *metrics, FILE *out)
{
    for (uint32_t set = 0; set < metrics->count; set++) {
        for (uint32_t row = 0; row < metrics->sets[set].count; row++) {
            if (!name_is_shown(metrics, set, row))
                print_metric(out, metrics, &metrics->sets[set].rows[row]);
        }
    }
}
