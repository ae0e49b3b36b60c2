/* skew.c - load that turns from uniform to skewed, for test/bench/rebalance: CLIENTS threads, each with DEPTH operations
 * outstanding, read and write keys of one cluster; it says every STEP_MS how many were answered. From a moment on most of the requests
 * that would have gone to one server go to keys of one shard instead. So many are outstanding that each server has full batches: what
 * it does for one more operation is then what the operation costs.
 *
 *   skew DIRECTORY MAP RECORDS SECONDS TURN_SECONDS SERVER SHARD
 *
 * MAP has a line "SERVER SHARD" for each slot, as the cluster was before. Keys are k0 to k(RECORDS-1), and are written first. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/rowan.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/cluster/slot.h"

enum {
    CLIENTS = 2,
    DEPTH = 8192,
    VALUE_BYTES = 43,
    KEY_BYTES = 24,
    STEP_MS = 50,
    SKEWED_PERCENT = 80,
    WRITE_PERCENT = 5 /* as in the paper, section 6.6 */
};

struct place {
    uint32_t server, shard;
};

static struct place places[SLOT_COUNT];
static uint32_t *hot; /* keys of the shard */
static uint32_t hot_count, records;

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

static struct {
    uint32_t server; /* that is asked less */
    atomic_bool skewed, ends;
    atomic_uint_fast64_t answered, failed;
} stream;

static bool chance(struct random *draws, uint32_t percent)
{
    return random_below(draws, 100) < percent;
}

static struct rowan *open_session(const char *directory)
{
    struct rowan_options options;
    struct rowan *rowan;
    rowan_options_init(&options);
    options.directory = directory;
    options.depth = DEPTH;
    options.spin_us = 0;
    if (rowan_open(&options, &rowan))
        fail("the cluster cannot be reached");
    return rowan;
}

/* A thread: its session, and what it draws with. */
struct client {
    struct rowan *rowan;
    struct random draws;
    pthread_t thread;
    struct op {
        struct client *client;
        char value[64];
    } ops[DEPTH];
};

static void post(struct op *op);

static void complete(const struct rowan_completion *completion)
{
    atomic_fetch_add(completion->status ? &stream.failed : &stream.answered, 1);
    if (!atomic_load(&stream.ends))
        post(completion->context);
}

static void post(struct op *op)
{
    struct client *client = op->client;
    char key[KEY_BYTES];
    name(key, (uint32_t)random_below(&client->draws, records));
    if (atomic_load(&stream.skewed) && place_of(key).server == stream.server &&
        chance(&client->draws, SKEWED_PERCENT))
        name(key, hot[random_below(&client->draws, hot_count)]);
    const int error =
        chance(&client->draws, WRITE_PERCENT)
            ? rowan_post_put(client->rowan, key, strlen(key), op->value, VALUE_BYTES, complete, op)
            : rowan_post_get(client->rowan, key, strlen(key), op->value, sizeof op->value, complete,
                             op);
    if (error)
        fail("an operation was refused");
}

static void *ask(void *context)
{
    struct client *client = context;
    for (uint32_t i = 0; i < DEPTH; i++) {
        client->ops[i].client = client;
        post(&client->ops[i]);
    }
    while (!atomic_load(&stream.ends)) {
        if (rowan_poll(client->rowan, NULL, 0, 1) < 0)
            fail("the session has ended");
    }
    if (rowan_wait_all(client->rowan))
        fail("operations did not end");
    rowan_close(client->rowan);
    return NULL;
}

static void load(struct rowan *rowan)
{
    static struct rowan_op ops[DEPTH];
    static char keys[DEPTH][KEY_BYTES], value[VALUE_BYTES];
    for (uint32_t first = 0; first < records; first += DEPTH) {
        const uint32_t count = records - first < DEPTH ? records - first : DEPTH;
        for (uint32_t i = 0; i < count; i++) {
            name(keys[i], first + i);
            ops[i] = (struct rowan_op){.key = keys[i],
                                       .key_bytes = strlen(keys[i]),
                                       .value = value,
                                       .value_bytes = VALUE_BYTES};
        }
        if (rowan_multi_put(rowan, ops, count))
            fail("the records cannot be written");
    }
}

static void run(uint64_t seconds, uint64_t turn_seconds)
{
    const uint64_t start_ns = clock_now_ns(clock_system());
    uint64_t told = 0;
    for (uint64_t step = 1; step * STEP_MS <= seconds * 1000; step++) {
        const uint64_t end_ns = start_ns + step * STEP_MS * NS_PER_MS;
        atomic_store(&stream.skewed, step * STEP_MS > turn_seconds * 1000);
        uint64_t now_ns;
        while ((now_ns = clock_now_ns(clock_system())) < end_ns)
            usleep((useconds_t)((end_ns - now_ns) / NS_PER_US + 1));
        const uint64_t answered = atomic_load(&stream.answered);
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", step * STEP_MS, answered - told,
               (uint64_t)atomic_load(&stream.failed));
        fflush(stdout);
        told = answered;
    }
    atomic_store(&stream.ends, true);
}

int main(int argc, char **argv)
{
    static struct client clients[CLIENTS];
    if (argc != 8)
        fail("skew DIRECTORY MAP RECORDS SECONDS TURN_SECONDS SERVER SHARD");
    read_map(argv[2]);
    records = (uint32_t)strtoul(argv[3], NULL, 10);
    stream.server = (uint32_t)strtoul(argv[6], NULL, 10);
    find_hot((uint32_t)strtoul(argv[7], NULL, 10));
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].rowan = open_session(argv[1]);
        random_init(&clients[i].draws, i);
    }
    load(clients[0].rowan);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (pthread_create(&clients[i].thread, NULL, ask, &clients[i]))
            fail("a thread cannot be started");
    }
    run(strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    for (uint32_t i = 0; i < CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    return atomic_load(&stream.failed) > 0;
}
