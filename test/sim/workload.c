/* Random operations, and the model that knows their answers. */
#include "test/sim/workload.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum {
    DISTURB_EVERY = 16,  /* rounds */
    QUIET_ROUNDS = 4096, /* follow as many disturbed ones: in them the longest write succeeds */
    MIN_LARGE_BYTES = 60000
};

struct object {
    bool live;
    bool taken; /* an operation on it is outstanding */
    uint64_t version;
    uint64_t highest; /* version ever seen */
    uint64_t value_seed;
    uint32_t value_bytes;
};

struct slot {
    bool outstanding, done;
    uint8_t type;
    uint32_t key;
    uint64_t value_seed;
    uint32_t value_bytes;
    uint64_t expected;
    uint8_t *buffer; /* of the value put, or got */
    struct rowan_completion completion;
};

struct workload {
    struct sim_cluster *cluster;
    struct sim_workload_options options;
    struct sim_workload_result *result;
    struct random random;
    struct object *objects;
    struct slot *slots;
    uint8_t *scratch;
};

static void wrong(struct workload *workload, const struct slot *slot, const char *format, ...)
{
    struct sim_workload_result *result = workload->result;
    if (!result->right)
        return;
    result->right = false;
    int used =
        snprintf(result->why, sizeof result->why,
                 "seed %lu, key %u, type %u: ", workload->options.seed, slot->key, slot->type);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->why + used, sizeof result->why - (size_t)used, format, arguments);
    va_end(arguments);
}

/* --- keys and values --- */

/* Most keys are short; some have 1 byte, some 1024. */
static uint32_t make_key(uint32_t number, uint8_t *key)
{
    int digits = snprintf((char *)key, 16, "%u", number);
    uint32_t bytes = (uint32_t)digits + number % 37;
    if (number < 10)
        bytes = 1;
    else if (number % 50 == 10)
        bytes = ROWAN_MAX_KEY_BYTES;
    memset(key + digits, '.', bytes - (uint32_t)digits);
    return bytes;
}

static void make_value(uint64_t seed, uint8_t *value, uint32_t bytes)
{
    struct random random;
    random_init(&random, seed);
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = random_u64(&random);
        memcpy(value + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

static uint32_t draw_value_bytes(struct workload *workload)
{
    const struct sim_workload_options *options = &workload->options;
    struct random *random = &workload->random;
    if (options->large_in && random_below(random, options->large_in) == 0)
        return ROWAN_MAX_VALUE_BYTES -
               (uint32_t)random_below(random, ROWAN_MAX_VALUE_BYTES - MIN_LARGE_BYTES);
    return (uint32_t)random_below(random, options->max_value_bytes + 1);
}

/* --- posting --- */

static void on_completion(const struct rowan_completion *completion)
{
    struct slot *slot = completion->context;
    ASSERT(slot->outstanding && !slot->done);
    slot->done = true;
    slot->completion = *completion;
}

static uint8_t draw_type(struct workload *workload)
{
    uint64_t percent = random_below(&workload->random, 100);
    if (workload->options.only_puts)
        return MESSAGE_PUT;
    return percent < 40   ? MESSAGE_GET
           : percent < 70 ? MESSAGE_PUT
           : percent < 85 ? MESSAGE_PUT_IF
                          : MESSAGE_DELETE;
}

/* False: the session has no room. */
static bool post(struct workload *workload, struct slot *slot)
{
    uint8_t key[ROWAN_MAX_KEY_BYTES + 16];
    struct session_request request = {.type = slot->type,
                                      .key = key,
                                      .key_bytes = make_key(slot->key, key),
                                      .callback = on_completion,
                                      .context = slot};
    if (slot->type == MESSAGE_GET) {
        request.room = slot->buffer;
        request.room_bytes = ROWAN_MAX_VALUE_BYTES;
    } else if (slot->type != MESSAGE_DELETE) {
        make_value(slot->value_seed, slot->buffer, slot->value_bytes);
        request.value = slot->buffer;
        request.value_bytes = slot->value_bytes;
        request.expected = slot->expected;
    }
    uint64_t client = random_below(&workload->random, workload->cluster->options.clients);
    if (session_post(workload->cluster->clients[client].session, &request))
        return false;
    slot->outstanding = true;
    workload->objects[slot->key].taken = true;
    return true;
}

static bool post_random(struct workload *workload, struct slot *slot)
{
    struct random *random = &workload->random;
    slot->key = (uint32_t)random_below(random, workload->options.keys);
    const struct object *object = &workload->objects[slot->key];
    if (object->taken)
        return false;
    slot->type = draw_type(workload);
    slot->value_seed = random_u64(random);
    slot->value_bytes = draw_value_bytes(workload);
    slot->expected = 0;
    if (slot->type == MESSAGE_PUT_IF) {
        slot->expected = object->live ? object->version : 0;
        if (random_below(random, 4) == 0)
            slot->expected ^= 1 + random_below(random, 8);
    }
    return post(workload, slot);
}

/* --- checking --- */

static void check_get(struct workload *workload, const struct slot *slot,
                      const struct object *object)
{
    const struct rowan_completion *answer = &slot->completion;
    workload->result->gets++;
    if (answer->status != (object->live ? 0 : ROWAN_ENOTFOUND)) {
        wrong(workload, slot, "get says %s, but the key is %s", error_name(answer->status),
              object->live ? "there" : "not there");
        return;
    }
    if (!object->live)
        return;
    make_value(object->value_seed, workload->scratch, object->value_bytes);
    if (answer->version != object->version || answer->value_bytes != object->value_bytes ||
        memcmp(slot->buffer, workload->scratch, object->value_bytes) != 0)
        wrong(workload, slot, "got version %lx of %zu bytes, not %lx of %u (or other bytes)",
              answer->version, answer->value_bytes, object->version, object->value_bytes);
}

static void check_put(struct workload *workload, const struct slot *slot, struct object *object)
{
    const struct rowan_completion *answer = &slot->completion;
    bool conditional = slot->type == MESSAGE_PUT_IF;
    uint64_t present = object->live ? object->version : 0;
    int right = conditional && slot->expected != present ? ROWAN_EVERSION : 0;
    workload->result->puts += !conditional;
    workload->result->conditional_puts += conditional;
    if (answer->status != right) {
        wrong(workload, slot, "put says %s, not %s", error_name(answer->status), error_name(right));
        return;
    }
    if (right) {
        if (answer->version != present)
            wrong(workload, slot, "the version there is told as %lx, not %lx", answer->version,
                  present);
        return;
    }
    if (answer->version <= object->highest) {
        wrong(workload, slot, "version %lx after %lx", answer->version, object->highest);
        return;
    }
    object->live = true;
    object->version = object->highest = answer->version;
    object->value_seed = slot->value_seed;
    object->value_bytes = slot->value_bytes;
}

static void check_delete(struct workload *workload, const struct slot *slot, struct object *object)
{
    int right = object->live ? 0 : ROWAN_ENOTFOUND;
    workload->result->deletes++;
    if (slot->completion.status != right)
        wrong(workload, slot, "delete says %s, not %s", error_name(slot->completion.status),
              error_name(right));
    object->live = false;
}

static void check(struct workload *workload, struct slot *slot)
{
    struct object *object = &workload->objects[slot->key];
    const uint64_t words[] = {workload->cluster->clock.now_ns, slot->type, slot->key,
                              (uint64_t)slot->completion.status, slot->completion.version};
    workload->result->hash = XXH3_64bits_withSeed(words, sizeof words, workload->result->hash);
    slot->outstanding = slot->done = false;
    object->taken = false;
    if (slot->completion.status == ROWAN_EFULL && slot->type != MESSAGE_GET &&
        workload->options.may_be_full)
        workload->result->full++;
    else if (slot->type == MESSAGE_GET)
        check_get(workload, slot, object);
    else if (slot->type == MESSAGE_DELETE)
        check_delete(workload, slot, object);
    else
        check_put(workload, slot, object);
}

/* --- running --- */

/* Checks what is done; how many are outstanding still. */
static uint32_t check_done(struct workload *workload)
{
    uint32_t outstanding = 0;
    for (uint32_t i = 0; i < workload->options.side_by_side; i++) {
        struct slot *slot = &workload->slots[i];
        if (slot->done)
            check(workload, slot);
        outstanding += slot->outstanding;
    }
    return outstanding;
}

static void wake_all(struct sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        sim_cluster_stop(cluster, &cluster->servers[i].process, false);
    if (sim_cluster_is_down(cluster))
        sim_cluster_restart(cluster, false);
}

static void disturb(struct workload *workload, uint64_t round)
{
    if (!workload->options.disturb || round % DISTURB_EVERY)
        return;
    if (round / QUIET_ROUNDS % 2)
        wake_all(workload->cluster);
    else
        workload->options.disturb(workload->cluster, &workload->random);
}

static void run_random(struct workload *workload)
{
    const struct sim_workload_options *options = &workload->options;
    uint64_t posted = 0, rounds = 0;
    uint32_t outstanding = 0;
    while (workload->result->right && (posted < options->operations || outstanding > 0)) {
        for (uint32_t i = 0; i < options->side_by_side && posted < options->operations; i++) {
            if (!workload->slots[i].outstanding)
                posted += post_random(workload, &workload->slots[i]);
        }
        disturb(workload, ++rounds);
        sim_cluster_step(workload->cluster);
        outstanding = check_done(workload);
    }
}

static void read_all(struct workload *workload)
{
    struct slot *slot = &workload->slots[0];
    for (uint32_t key = 0; key < workload->options.keys && workload->result->right; key++) {
        slot->key = key;
        slot->type = MESSAGE_GET;
        while (!post(workload, slot))
            sim_cluster_step(workload->cluster);
        while (!slot->done)
            sim_cluster_step(workload->cluster);
        check(workload, slot);
        workload->result->objects += workload->objects[key].live;
    }
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    ASSERT(memory);
    return memory;
}

void sim_workload_run(struct sim_cluster *cluster, const struct sim_workload_options *options,
                      struct sim_workload_result *result)
{
    struct workload workload = {.cluster = cluster, .options = *options, .result = result};
    struct sim_workload_options *filled = &workload.options;
    filled->operations = options->operations ? options->operations : 1000;
    filled->keys = options->keys ? options->keys : 200;
    filled->side_by_side = options->side_by_side ? options->side_by_side : 16;
    filled->max_value_bytes = options->max_value_bytes ? options->max_value_bytes : 300;
    *result = (struct sim_workload_result){.right = true};
    random_init(&workload.random, options->seed);
    workload.objects = allocate(filled->keys, sizeof *workload.objects);
    workload.slots = allocate(filled->side_by_side, sizeof *workload.slots);
    workload.scratch = allocate(1, ROWAN_MAX_VALUE_BYTES);
    for (uint32_t i = 0; i < filled->side_by_side; i++)
        workload.slots[i].buffer = allocate(1, ROWAN_MAX_VALUE_BYTES);

    run_random(&workload);
    wake_all(cluster);
    read_all(&workload);

    /* A wrong answer leaves operations outstanding, which point into the slots. */
    for (uint32_t i = 0; i < filled->side_by_side; i++) {
        while (workload.slots[i].outstanding && !workload.slots[i].done)
            sim_cluster_step(cluster);
        free(workload.slots[i].buffer);
    }
    free(workload.scratch);
    free(workload.slots);
    free(workload.objects);
}
