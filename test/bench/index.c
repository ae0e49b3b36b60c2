/* index - what an operation of the index costs, and what an object costs in DRAM, at every million
 * of objects up to ten.
 *
 * Entries of 128 B (the mean ZippyDB object) lie in a map on the heap. Each operation is timed on
 * its own between two readings of the clock; the median cost of reading the clock twice with
 * nothing between is measured first and taken off. Keys to look up are drawn evenly from all that
 * were inserted, so nearly each lookup meets cold caches.
 *
 * The longest single insert is measured in three indexes that grow by the same inserts: an
 * insert's time is the least of the three. What growing costs it costs in each; what another
 * program on the machine costs hits the same insert of ten million hardly three times.
 *
 * Exit code 1: an object cost more DRAM than the design allows.
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
#include "server/index/index.h"
#include "test/lib/entry_log.h"

enum {
    KEY_BYTES = 48,
    VALUE_BYTES = 43,
    ENTRY_BYTES = 128,
    LOOKUPS = 200000, /* hits, and misses, at each million */
    STEP = 1000000,
    MAX_MILLIONS = 10,
    INDEXES = 3,
};

static const double MAX_BYTES_PER_OBJECT = 16; /* design, section 5, from a million objects on */

struct row {
    uint64_t objects;
    uint64_t insert_ns, hit_ns, miss_ns; /* medians */
    uint64_t insert_p9999_ns;
    uint64_t longest_insert_ns;      /* of the million that ends here, the least of three */
    uint64_t longest_insert_once_ns; /* in the first index alone */
    double bytes_per_object;
    double most_bytes_per_object; /* at any count of this million; of the first: at its end */
};

struct bench {
    struct entry_log log;
    struct index *indexes[INDEXES]; /* the first is asked, all grow alike */
    struct random random;
    uint64_t clock_ns; /* two readings with nothing between */
    struct histogram times;
    uint64_t least_ns[STEP]; /* of each insert of this million */
};

static uint64_t now_ns(void)
{
    return clock_now_ns(clock_system());
}

/* Adds the time without the clock's cost to the histogram, and returns it. */
static uint64_t bench_add(struct bench *bench, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t spent_ns = end_ns - start_ns;
    spent_ns = spent_ns > bench->clock_ns ? spent_ns - bench->clock_ns : 0;
    histogram_add(&bench->times, spent_ns);
    return spent_ns;
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

static uint64_t entry_offset(uint64_t number)
{
    return ENTRY_ALIGN + number * ENTRY_BYTES;
}

/* Inserts the million of keys from `from` on, whose entries are there, and times each insert. */
static void bench_inserts(struct bench *bench, struct index *index, uint64_t from, double *most)
{
    histogram_reset(&bench->times);
    for (uint64_t i = from; i < from + STEP; i++) {
        uint8_t key[KEY_BYTES];
        entry_log_key(i, key, KEY_BYTES);
        uint64_t hash = index_hash(key, KEY_BYTES), previous;
        uint64_t start_ns = now_ns();
        int result = index_update(index, hash, key, KEY_BYTES, 1, entry_offset(i), &previous);
        uint64_t spent_ns = bench_add(bench, start_ns, now_ns());
        ASSERT(result == INDEX_INSERTED);
        if (spent_ns < bench->least_ns[i - from])
            bench->least_ns[i - from] = spent_ns;
        double each = (double)index_bytes(index) / (double)(i + 1);
        if (i + 1 >= STEP && each > *most)
            *most = each;
    }
}

/* All inserts of one million of objects. */
static void bench_grow(struct bench *bench, uint64_t from, struct row *row)
{
    for (uint64_t i = from; i < from + STEP; i++) {
        uint8_t key[KEY_BYTES];
        entry_log_key(i, key, KEY_BYTES);
        uint64_t offset = entry_log_append(&bench->log, ENTRY_PUT, key, KEY_BYTES, VALUE_BYTES, 1);
        ASSERT(offset == entry_offset(i));
        bench->least_ns[i - from] = UINT64_MAX;
    }
    for (unsigned i = INDEXES; i-- > 0;)
        bench_inserts(bench, bench->indexes[i], from, &row->most_bytes_per_object);
    row->insert_ns = histogram_quantile(&bench->times, 0.5);
    row->insert_p9999_ns = histogram_quantile(&bench->times, 0.9999);
    row->longest_insert_once_ns = bench->times.max;
    for (uint64_t i = 0; i < STEP; i++)
        if (bench->least_ns[i] > row->longest_insert_ns)
            row->longest_insert_ns = bench->least_ns[i];
    row->bytes_per_object = (double)index_bytes(bench->indexes[0]) / (double)(from + STEP);
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
        uint64_t offset = index_find(bench->indexes[0], hash, key, KEY_BYTES);
        bench_add(bench, start_ns, now_ns());
        ASSERT(offset == (there ? entry_offset(number) : 0));
    }
    return histogram_quantile(&bench->times, 0.5);
}

static void print_head(void)
{
    printf("%10s %8s %8s %8s %10s %10s %12s %12s %12s\n", "objects", "insert", "hit", "miss",
           "B/object", "at most", "insert", "longest", "longest");
    printf("%10s %8s %8s %8s %10s %10s %12s %12s %12s\n", "", "ns", "ns", "ns", "", "between",
           "p99.99 us", "of 3, us", "once, us");
}

static void print_row(const struct row *row)
{
    printf("%10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64
           " %10.2f %10.2f %12.1f %12.1f %12.1f\n",
           row->objects, row->insert_ns, row->hit_ns, row->miss_ns, row->bytes_per_object,
           row->most_bytes_per_object, (double)row->insert_p9999_ns / 1e3,
           (double)row->longest_insert_ns / 1e3, (double)row->longest_insert_once_ns / 1e3);
    fflush(stdout);
}

static json_t *row_json(const struct row *row)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I}", "objects", (json_int_t)row->objects,
                     "insert_ns", (json_int_t)row->insert_ns, "hit_ns", (json_int_t)row->hit_ns,
                     "miss_ns", (json_int_t)row->miss_ns, "bytes_per_object", row->bytes_per_object,
                     "most_bytes_per_object", row->most_bytes_per_object, "insert_p9999_ns",
                     (json_int_t)row->insert_p9999_ns, "longest_insert_ns",
                     (json_int_t)row->longest_insert_ns, "longest_insert_once_ns",
                     (json_int_t)row->longest_insert_once_ns);
}

/* True if the bound on memory held. */
static bool bench_run(struct bench *bench, unsigned millions, bool json)
{
    json_t *rows = json_array();
    uint64_t longest_ns = 0;
    bool held = true;
    if (!json)
        print_head();
    for (unsigned million = 1; million <= millions; million++) {
        uint64_t objects = (uint64_t)million * STEP;
        struct row row = {.objects = objects};
        bench_grow(bench, objects - STEP, &row);
        row.hit_ns = bench_lookups(bench, 0, objects, true);
        row.miss_ns = bench_lookups(bench, UINT64_C(1) << 40, UINT64_C(1) << 40, false);
        if (row.longest_insert_ns > longest_ns)
            longest_ns = row.longest_insert_ns;
        held = held && row.most_bytes_per_object <= MAX_BYTES_PER_OBJECT;
        json_array_append_new(rows, row_json(&row));
        if (!json)
            print_row(&row);
    }
    json_t *all = json_pack("{s:I,s:I,s:I,s:o}", "entry_bytes", (json_int_t)ENTRY_BYTES, "clock_ns",
                            (json_int_t)bench->clock_ns, "longest_insert_ns",
                            (json_int_t)longest_ns, "rows", rows);
    if (json) {
        json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        printf("\n");
    } else {
        printf("longest single insert: %.1f us; taken off each time for the clock: %" PRIu64
               " ns\n",
               (double)longest_ns / 1e3, bench->clock_ns);
    }
    json_decref(all);
    return held;
}

static bool parse_arguments(int argc, char **argv, unsigned *millions, bool *json)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            *json = true;
        } else if (strcmp(argv[i], "--millions") == 0 && i + 1 < argc) {
            char *end;
            unsigned long given = strtoul(argv[++i], &end, 10);
            if (*end != '\0' || given < 1 || given > MAX_MILLIONS)
                return false;
            *millions = (unsigned)given;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    unsigned millions = MAX_MILLIONS;
    bool json = false;
    if (!parse_arguments(argc, argv, &millions, &json)) {
        fprintf(stderr, "usage: index [--json] [--millions 1..%d]\n", MAX_MILLIONS);
        return 2;
    }
    entry_log_init(&bench.log, (uint64_t)millions * STEP * ENTRY_BYTES + ENTRY_BYTES);
    ASSERT(entry_bytes(&bench.log.format, KEY_BYTES, VALUE_BYTES) == ENTRY_BYTES);
    for (unsigned i = 0; i < INDEXES; i++) {
        int error = index_create(&bench.log.heap->pm, &bench.log.format, &bench.indexes[i]);
        ASSERT(error == 0);
    }
    random_init(&bench.random, 1);
    bench_calibrate(&bench);
    bool held = bench_run(&bench, millions, json);
    for (unsigned i = 0; i < INDEXES; i++)
        index_destroy(bench.indexes[i]);
    entry_log_fini(&bench.log);
    if (!held)
        fprintf(stderr, "more than %.0f B of DRAM an object\n", MAX_BYTES_PER_OBJECT);
    return held ? 0 : 1;
}
