/* skew.c - load that turns from uniform to skewed, for test/bench/rebalance: reads and writes keys of one cluster, at a fixed
 * number outstanding, and says every STEP_MS how many were answered. From a moment on most of the requests that would have gone
 * to one server go to keys of one shard instead.
 *
 *   skew DIRECTORY MAP RECORDS SECONDS TURN_SECONDS SERVER SHARD
 *
 * MAP has a line "SERVER SHARD" for each slot, as the cluster was before. Keys are k0 to k(RECORDS-1), and are written first. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rowan.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/cluster/slot.h"

enum {
    DEPTH = 256,
    VALUE_BYTES = 43,
    KEY_BYTES = 24,
    STEP_MS = 50,
    SKEWED_PERCENT = 80,
    WRITE_PERCENT = 50
};

struct place {
    uint32_t server, shard;
};

static struct place places[SLOT_COUNT];
static uint32_t *hot; /* keys of the shard */
static uint32_t hot_count, records;
static uint64_t answered, failed;
static struct random draws;
static char values[DEPTH][64];

static void fail(const char *what)
{
    fprintf(stderr, "skew: %s\n", what);
    exit(1);
}

static struct place place_of(const char *key)
{
    return places[slot_of_key(key, (uint32_t)strlen(key))];
}

static void name(char *key, uint32_t number)
{
    snprintf(key, KEY_BYTES, "k%" PRIu32, number);
}

static void read_map(const char *path)
{
    FILE *file = fopen(path, "r");
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        if (!file || fscanf(file, "%" SCNu32 " %" SCNu32, &places[i].server, &places[i].shard) != 2)
            fail("the map cannot be read");
    }
    fclose(file);
}

static void find_hot(uint32_t shard)
{
    char key[KEY_BYTES];
    hot = calloc(records, sizeof *hot);
    for (uint32_t i = 0; hot && i < records; i++) {
        name(key, i);
        if (place_of(key).shard == shard)
            hot[hot_count++] = i;
    }
    if (hot_count == 0)
        fail("no key is of that shard");
}

/* Posts again from its own completion, until `ends`. */
struct stream {
    struct rowan *rowan;
    uint32_t slot, server;
    bool skewed, ends;
};

static bool chance(uint32_t percent)
{
    return random_below(&draws, 100) < percent;
}

static void post(struct rowan *rowan, const struct stream *stream, char *value);

static const struct stream *now; /* what is drawn by */

static void complete(const struct rowan_completion *completion)
{
    if (completion->status)
        failed++;
    else
        answered++;
    if (!now->ends)
        post(now->rowan, now, completion->context);
}

static void post(struct rowan *rowan, const struct stream *stream, char *value)
{
    char key[KEY_BYTES];
    name(key, (uint32_t)random_below(&draws, records));
    if (stream->skewed && place_of(key).server == stream->server && chance(SKEWED_PERCENT))
        name(key, hot[random_below(&draws, hot_count)]);
    const int error =
        chance(WRITE_PERCENT)
            ? rowan_post_put(rowan, key, strlen(key), value, VALUE_BYTES, complete, value)
            : rowan_post_get(rowan, key, strlen(key), value, sizeof values[0], complete, value);
    if (error)
        fail("an operation was refused");
}

static void load(struct rowan *rowan)
{
    static struct rowan_op ops[DEPTH];
    static char keys[DEPTH][KEY_BYTES];
    for (uint32_t first = 0; first < records; first += DEPTH) {
        const uint32_t count = records - first < DEPTH ? records - first : DEPTH;
        for (uint32_t i = 0; i < count; i++) {
            name(keys[i], first + i);
            ops[i] = (struct rowan_op){.key = keys[i],
                                       .key_bytes = strlen(keys[i]),
                                       .value = values[i],
                                       .value_bytes = VALUE_BYTES};
        }
        if (rowan_multi_put(rowan, ops, count))
            fail("the records cannot be written");
    }
}

static void run(struct stream *stream, uint64_t seconds, uint64_t turn_seconds)
{
    const uint64_t start_ns = clock_now_ns(clock_system());
    uint64_t told = 0;
    now = stream;
    for (uint32_t i = 0; i < DEPTH; i++)
        post(stream->rowan, stream, values[i]);
    for (uint64_t step = 1; step * STEP_MS <= seconds * 1000; step++) {
        const uint64_t end_ns = start_ns + step * STEP_MS * NS_PER_MS;
        stream->skewed = step * STEP_MS > turn_seconds * 1000;
        while (clock_now_ns(clock_system()) < end_ns) {
            if (rowan_poll(stream->rowan, NULL, 0, 1) < 0)
                fail("the session has ended");
        }
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", step * STEP_MS, answered - told, failed);
        fflush(stdout);
        told = answered;
    }
    stream->ends = true;
    if (rowan_wait_all(stream->rowan))
        fail("operations did not end");
}

int main(int argc, char **argv)
{
    struct rowan_options options;
    struct stream stream = {0};
    if (argc != 8)
        fail("skew DIRECTORY MAP RECORDS SECONDS TURN_SECONDS SERVER SHARD");
    read_map(argv[2]);
    records = (uint32_t)strtoul(argv[3], NULL, 10);
    stream.server = (uint32_t)strtoul(argv[6], NULL, 10);
    find_hot((uint32_t)strtoul(argv[7], NULL, 10));
    random_init(&draws, 1);
    rowan_options_init(&options);
    options.directory = argv[1];
    options.depth = DEPTH;
    if (rowan_open(&options, &stream.rowan))
        fail("the cluster cannot be reached");
    load(stream.rowan);
    run(&stream, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    rowan_close(stream.rowan);
    return failed > 0;
}
