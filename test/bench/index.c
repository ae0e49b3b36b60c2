/* bench_index - what an operation of the index costs, and what an object costs in DRAM, at every
 * million of objects up to ten.
 *
 * Entries of 128 B (the mean ZippyDB object) lie in a map on the heap. Each operation is timed on
 * its own between two readings of the clock; the median cost of reading the clock twice with
 * nothing between is measured first and taken off. Keys to look up are drawn evenly from all that
 * were inserted, so nearly each lookup meets cold caches.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/histogram.h"
#include "common/base/random.h"
#include "server/index.h"
#include "test/lib/entry_log.h"

enum {
    KEY_BYTES = 48,
    VALUE_BYTES = 43,
    ENTRY_BYTES = 128,
    LOOKUPS = 200000, /* hits, and misses, at each million */
    STEP = 1000000,
    MAX_MILLIONS = 10,
};

struct row {
    uint64_t objects;
    uint64_t insert_ns, hit_ns, miss_ns; /* medians */
    uint64_t insert_p9999_ns;
    uint64_t longest_insert_ns; /* of the million that ends here */
    double bytes_per_object;
    double most_bytes_per_object; /* at any count of this million; 0 for the first */
};

struct bench {
    struct entry_log log;
    struct index *index;
    struct random random;
    uint64_t clock_ns; /* two readings with nothing between */
    struct histogram times;
};

static uint64_t now_ns(void)
{
    return clock_now_ns(clock_system());
}

static void bench_add(struct bench *bench, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t spent_ns = end_ns - start_ns;
    histogram_add(&bench->times, spent_ns > bench->clock_ns ? spent_ns - bench->clock_ns : 0);
}

static void bench_calibrate(struct bench *bench)
{
    histogram_reset(&bench->times);
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t start_ns = now_ns();
        bench_add(bench, start_ns, now_ns());
    }
    bench->clock_ns = histogram_quantile(&bench->times, 0.5);
}

static void bench_inserts(struct bench *bench, uint64_t from, uint64_t to, struct row *row)
{
    histogram_reset(&bench->times);
    for (uint64_t i = from; i < to; i++) {
        uint8_t key[KEY_BYTES];
        entry_log_key(i, key, KEY_BYTES);
        uint64_t hash = index_hash(key, KEY_BYTES);
        uint64_t offset = entry_log_append(&bench->log, ENTRY_PUT, key, KEY_BYTES, VALUE_BYTES, 1);
        uint64_t previous;
        uint64_t start_ns = now_ns();
        int result = index_update(bench->index, hash, key, KEY_BYTES, 1, offset, &previous);
        bench_add(bench, start_ns, now_ns());
        ASSERT(result == INDEX_INSERTED);
        double each = (double)index_bytes(bench->index) / (double)(i + 1);
        if (i + 1 >= STEP && each > row->most_bytes_per_object)
            row->most_bytes_per_object = each;
    }
    row->insert_ns = histogram_quantile(&bench->times, 0.5);
    row->insert_p9999_ns = histogram_quantile(&bench->times, 0.9999);
    row->longest_insert_ns = bench->times.max;
    row->bytes_per_object = (double)index_bytes(bench->index) / (double)to;
}

/* The median time of lookups of keys `from` to `from + count`, which are there or are not. */
static uint64_t bench_lookups(struct bench *bench, uint64_t from, uint64_t count, bool there)
{
    histogram_reset(&bench->times);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        uint64_t number = from + random_below(&bench->random, count);
        uint8_t key[KEY_BYTES];
        entry_log_key(number, key, KEY_BYTES);
        uint64_t hash = index_hash(key, KEY_BYTES);
        uint64_t start_ns = now_ns();
        uint64_t offset = index_find(bench->index, hash, key, KEY_BYTES);
        bench_add(bench, start_ns, now_ns());
        ASSERT(offset == (there ? ENTRY_ALIGN + number * ENTRY_BYTES : 0));
    }
    return histogram_quantile(&bench->times, 0.5);
}

static void print_row(const struct row *row)
{
    printf("%10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %12.2f %12.2f %14.1f %14.1f\n",
           row->objects, row->insert_ns, row->hit_ns, row->miss_ns, row->bytes_per_object,
           row->most_bytes_per_object, (double)row->insert_p9999_ns / 1e3,
           (double)row->longest_insert_ns / 1e3);
    fflush(stdout);
}

static json_t *row_json(const struct row *row)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I}", "objects", (json_int_t)row->objects,
                     "insert_ns", (json_int_t)row->insert_ns, "hit_ns", (json_int_t)row->hit_ns,
                     "miss_ns", (json_int_t)row->miss_ns, "bytes_per_object", row->bytes_per_object,
                     "most_bytes_per_object", row->most_bytes_per_object, "insert_p9999_ns",
                     (json_int_t)row->insert_p9999_ns, "longest_insert_ns",
                     (json_int_t)row->longest_insert_ns);
}

static void bench_run(struct bench *bench, unsigned millions, bool json)
{
    json_t *rows = json_array();
    uint64_t longest_ns = 0;
    if (!json)
        printf("%10s %10s %8s %8s %12s %12s %14s %14s\n", "objects", "insert ns", "hit ns",
               "miss ns", "B/object", "most B/obj", "p99.99 ins us", "longest ins us");
    for (unsigned million = 1; million <= millions; million++) {
        uint64_t objects = (uint64_t)million * STEP;
        struct row row = {.objects = objects};
        bench_inserts(bench, objects - STEP, objects, &row);
        row.hit_ns = bench_lookups(bench, 0, objects, true);
        row.miss_ns = bench_lookups(bench, UINT64_C(1) << 40, UINT64_C(1) << 40, false);
        if (row.longest_insert_ns > longest_ns)
            longest_ns = row.longest_insert_ns;
        if (json)
            json_array_append_new(rows, row_json(&row));
        else
            print_row(&row);
    }
    if (json) {
        json_t *all = json_pack("{s:I,s:I,s:I,s:o}", "entry_bytes", (json_int_t)ENTRY_BYTES,
                                "clock_ns", (json_int_t)bench->clock_ns, "longest_insert_ns",
                                (json_int_t)longest_ns, "rows", rows);
        json_dumpf(all, stdout, JSON_INDENT(1));
        printf("\n");
        json_decref(all);
    } else {
        json_decref(rows);
        printf("longest single insert: %.1f us; %" PRIu64 " ns of clock taken off each time\n",
               (double)longest_ns / 1e3, bench->clock_ns);
    }
}

int main(int argc, char **argv)
{
    unsigned millions = MAX_MILLIONS;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--millions") == 0 && i + 1 < argc) {
            unsigned long given = strtoul(argv[++i], &end, 10);
            millions = *end == '\0' && given <= MAX_MILLIONS ? (unsigned)given : 0;
        } else {
            millions = 0;
        }
    }
    if (millions == 0) {
        fprintf(stderr, "usage: index [--json] [--millions 1..%d]\n", MAX_MILLIONS);
        return 2;
    }
    static struct bench bench;
    entry_log_init(&bench.log, (uint64_t)millions * STEP * ENTRY_BYTES + ENTRY_BYTES);
    ASSERT(entry_bytes(&bench.log.format, KEY_BYTES, VALUE_BYTES) == ENTRY_BYTES);
    if (index_create(&bench.log.heap->pm, &bench.log.format, &bench.index) != 0) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    random_init(&bench.random, 1);
    bench_calibrate(&bench);
    bench_run(&bench, millions, json);
    index_destroy(bench.index);
    entry_log_fini(&bench.log);
    return 0;
}
