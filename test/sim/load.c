/* Each client has slots, one for an operation that is outstanding, with a buffer for its value. A client posts when
 * its pause is over and a slot is free; the callback of the SDK records the answer at once, so calls and
 * answers have the order in which they happened.
 */
#include "test/sim/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_internal.h"
#include "common/base/assert.h"
#include "common/entry/entry.h"
#include "test/sim/load_state.h"
#include "test/sim/load_value.h"

enum {
    TINY_IN = 16, /* one value in so many has less than 8 B */
    SMALL_ROOM_IN = 16,
    MOST_FALSE = 6,    /* false entries in a value */
    LAST_WRITE_IN = 4, /* load_write_some: one key in so many */
};

#define AGAIN_NS         NS_PER_MS /* after ROWAN_EAGAIN */
#define READER_PERIOD_NS NS_PER_S

/* --- making --- */

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    ASSERT(memory);
    return memory;
}

static void init_client(struct load *load, uint32_t number)
{
    const struct load_options *options = &load->options;
    struct load_client *client = &load->client[number];
    client->seen = allocate(options->keys, sizeof *client->seen);
    client->again_key = JOURNAL_NO_KEY;
    client->due_ns =
        load->cluster->clock.now_ns + random_below(&load->random, options->mean_pause_ns + 1);
    snprintf(client->name, sizeof client->name, "client-%u", number + 1);
    for (uint32_t i = options->depth; i-- > 0;) {
        uint32_t at = number * options->depth + i;
        struct load_slot *slot = &load->slots[at];
        *slot = (struct load_slot){.load = load,
                                   .next = client->free,
                                   .buffer = load->buffers + (size_t)at * options->max_value_bytes,
                                   .client = number};
        client->free = slot;
    }
}

struct load *load_create(struct sim_cluster *cluster, const struct load_options *options,
                         struct history *history, struct failure *failure)
{
    ASSERT(options->keys && options->hot_keys <= options->keys && options->depth);
    ASSERT(options->max_value_bytes <= ROWAN_MAX_VALUE_BYTES && options->long_in);
    ASSERT(options->gets + options->puts + options->put_ifs + options->deletes);
    struct load *load = allocate(1, sizeof *load);
    load->cluster = cluster;
    load->options = *options;
    load->history = history;
    load->failure = failure;
    random_init(&load->random, options->seed);
    load->clients = cluster->options.clients;
    load->timeout_ns = cluster->options.timeout_ns;
    load->highest = allocate(options->keys, sizeof *load->highest);
    size_t slots = (size_t)load->clients * options->depth;
    load->slots = allocate(slots, sizeof *load->slots);
    load->buffers = allocate(slots, options->max_value_bytes + 1);
    for (uint32_t i = 0; i < load->clients; i++)
        init_client(load, i);
    return load;
}

void load_destroy(struct load *load)
{
    if (!load)
        return;
    for (uint32_t i = 0; i < load->clients; i++)
        free(load->client[i].seen);
    free(load->buffers);
    free(load->slots);
    free(load->highest);
    free(load);
}

void load_on_acknowledged(struct load *load, load_acknowledged *acknowledged, void *context)
{
    load->acknowledged = acknowledged;
    load->acknowledged_context = context;
}

void load_on_seen(struct load *load, load_seen *seen, void *context)
{
    load->seen = seen;
    load->seen_context = context;
}

/* --- keys --- */

/* How long a key is that has `bytes` at least. */
static uint32_t key_length(const struct load *load, uint32_t key, uint32_t bytes, bool tagged)
{
    const uint32_t most = load->options.max_key_bytes;
    if (key < 10 && !tagged)
        return 1;
    if (key % 10 == 3)
        return LOAD_SHORT_KEY_BYTES;
    if (most > LOAD_SHORT_KEY_BYTES && key % 10 == 5)
        return most - key * 7919 % (most - LOAD_SHORT_KEY_BYTES) * (key % 20 == 5);
    return bytes + key * 7 % 40;
}

/* Of 1 to 64 B, and some longer; one in 8 shares its slot with others by a tag. */
uint32_t load_key(const struct load *load, uint32_t key, char *out)
{
    ASSERT(key < load->options.keys);
    char text[LOAD_SHORT_KEY_BYTES];
    bool tagged = key % 8 == 7;
    int bytes = snprintf(text, sizeof text, tagged ? "{t}%u" : "%u", key);
    uint32_t wanted = key_length(load, key, (uint32_t)bytes, tagged);
    memset(out, '.', wanted);
    memcpy(out, text, (size_t)bytes);
    return wanted;
}

uint32_t load_keys(const struct load *load)
{
    return load->options.keys;
}

static uint32_t draw_key(struct load *load)
{
    const struct load_options *options = &load->options;
    bool hot = options->hot_keys && random_below(&load->random, 2);
    return (uint32_t)random_below(&load->random, hot ? options->hot_keys : options->keys);
}

const struct shard *load_shard(const struct load *load, uint32_t client, uint32_t key)
{
    const struct cluster_config *config = session_config(load->cluster->clients[client].session);
    char bytes[LOAD_KEY_BYTES];
    uint32_t count = load_key(load, key, bytes);
    return config ? cluster_shard_of_slot(config, slot_of_key(bytes, count)) : NULL;
}

struct journal_event load_event(const struct load_slot *slot, enum journal_kind kind)
{
    const struct load *load = slot->load;
    const struct shard *shard = load_shard(load, slot->client, slot->key);
    struct journal_event event = {
        .kind = kind, .key = slot->key, .shard = shard ? shard->id : JOURNAL_NO_SHARD};
    memcpy(event.node, load->client[slot->client].name, sizeof event.node);
    return event;
}

/* --- values --- */

/* Lengths around the end of a block are worth more than others. */
static uint32_t draw_long_bytes(struct load *load, uint32_t block_limit, uint32_t key_bytes)
{
    uint32_t most = load->options.max_value_bytes;
    uint32_t capacity = block_limit - ENTRY_HEADER_BYTES;
    uint32_t blocks = (most + key_bytes) / capacity;
    if (blocks && random_below(&load->random, 4) == 0) {
        uint64_t payload = (1 + random_below(&load->random, blocks)) * capacity - 1 +
                           random_below(&load->random, 3);
        return payload > key_bytes ? load_at_most(payload - key_bytes, most) : 0;
    }
    return (uint32_t)random_below(&load->random, (uint64_t)most + 1);
}

static uint32_t draw_value_bytes(struct load *load, uint32_t block_limit, uint32_t key_bytes,
                                 bool forged)
{
    const struct load_options *options = &load->options;
    uint64_t bytes;
    if (random_below(&load->random, options->long_in) == 0)
        return draw_long_bytes(load, block_limit, key_bytes);
    if (forged)
        bytes = LOAD_FALSE_VALUE_BYTES + random_below(&load->random, 1024);
    else if (random_below(&load->random, TINY_IN) == 0)
        bytes = random_below(&load->random, 8);
    else
        bytes = 8 + random_below(&load->random, LOAD_SHORT_BYTES - 7);
    return load_at_most(bytes, options->max_value_bytes);
}

/* Another key, in the same shard if a few draws find one, with a version that would hide the present one. */
static void draw_false_entry(struct load *load, const struct load_slot *slot,
                             struct load_false_entry *entry)
{
    const struct shard *own = load_shard(load, slot->client, slot->key), *shard = own;
    uint32_t key = slot->key;
    char bytes[LOAD_KEY_BYTES];
    for (uint32_t i = 0; i < 8 && (key == slot->key || shard->id != own->id); i++) {
        key = draw_key(load);
        shard = load_shard(load, slot->client, key);
    }
    while (load_key(load, key, bytes) > sizeof entry->key)
        key = (key + 1) % load->options.keys;
    uint64_t version = load->highest[key];
    if (version_epoch(version) < shard->epoch)
        version = version_make(shard->epoch, version_counter(load->highest[slot->key]));
    version += 1 + random_below(&load->random, 64);
    if (random_below(&load->random, 4) == 0)
        version = version_make(shard->epoch + 1, 1 + random_below(&load->random, 64));
    *entry = (struct load_false_entry){
        .type = random_below(&load->random, 4) ? ENTRY_PUT : ENTRY_DELETE,
        .shard = shard->id,
        .version = version,
        .seed = random_below(&load->random, 4) ? 0 : (uint32_t)random_u64(&load->random)};
    entry->key_bytes = (uint16_t)load_key(load, key, bytes);
    memcpy(entry->key, bytes, entry->key_bytes);
}

static void forge(struct load *load, const struct load_slot *slot, uint32_t block_limit,
                  uint32_t key_bytes)
{
    uint32_t shift = random_below(&load->random, 4) ? 0 : (uint32_t)random_below(&load->random, 64);
    uint64_t count = 1 + random_below(&load->random, MOST_FALSE);
    struct load_false_entry entry;
    for (uint32_t at = 8; at && count > 0; count--) {
        draw_false_entry(load, slot, &entry);
        at = load_value_forge(&entry, block_limit, key_bytes, shift, slot->buffer,
                              slot->value_bytes, at);
    }
}

static void make_value(struct load *load, struct load_slot *slot, uint32_t key_bytes)
{
    uint32_t forged_in = load->options.forged_in;
    bool forged = forged_in && random_below(&load->random, forged_in) == 0;
    uint32_t block_limit =
        session_config(load->cluster->clients[slot->client].session)->block_limit;
    slot->value_bytes = draw_value_bytes(load, block_limit, key_bytes, forged);
    load_value_make(&load->random, ++load->numbers, slot->buffer, slot->value_bytes);
    if (forged)
        forge(load, slot, block_limit, key_bytes);
}

/* --- calls --- */

static enum history_kind draw_kind(struct load *load)
{
    const struct load_options *options = &load->options;
    uint64_t draw = random_below(&load->random, (uint64_t)options->gets + options->puts +
                                                    options->put_ifs + options->deletes);
    if (draw < options->gets)
        return HISTORY_GET;
    draw -= options->gets;
    if (draw < options->puts)
        return HISTORY_PUT;
    return draw - options->puts < options->put_ifs ? HISTORY_PUT_IF : HISTORY_DELETE;
}

/* What the client saw last, mostly; or that there is nothing; or what was never there, or not there for long. */
static uint64_t draw_expected(struct load *load, const struct load_slot *slot)
{
    uint64_t seen = load->client[slot->client].seen[slot->key];
    switch (random_below(&load->random, 8)) {
    case 0:
        return 0;
    case 1:
        return seen ? seen - 1 + 2 * random_below(&load->random, 2)
                    : 1 + random_below(&load->random, 1000);
    case 2:
        return load->highest[slot->key];
    default:
        return seen;
    }
}

static void tell_call(const struct load_slot *slot)
{
    struct journal *journal = slot->load->cluster->options.journal;
    if (!journal)
        return;
    struct journal_event event = load_event(slot, JOURNAL_CALL);
    switch (slot->kind) {
    case HISTORY_GET:
        snprintf(event.text, sizeof event.text, "%zu: get", slot->number);
        break;
    case HISTORY_PUT:
        snprintf(event.text, sizeof event.text, "%zu: put %u B", slot->number, slot->value_bytes);
        break;
    case HISTORY_PUT_IF:
        snprintf(event.text, sizeof event.text, "%zu: put %u B if %u:%lu", slot->number,
                 slot->value_bytes, version_epoch(slot->expected), version_counter(slot->expected));
        break;
    case HISTORY_DELETE:
        snprintf(event.text, sizeof event.text, "%zu: delete", slot->number);
        break;
    }
    journal_add(journal, &event);
}

/* The call is posted, or refused for now. */
static bool post(struct load *load, struct load_slot *slot)
{
    static const enum message_type TYPES[] = {MESSAGE_GET, MESSAGE_PUT, MESSAGE_PUT_IF,
                                              MESSAGE_DELETE};
    char key[LOAD_KEY_BYTES];
    struct session_request request = {.type = TYPES[slot->kind],
                                      .key = key,
                                      .key_bytes = load_key(load, slot->key, key),
                                      .callback = load_on_completion,
                                      .context = slot};
    struct history_op op = {.kind = slot->kind,
                            .client = slot->client,
                            .key = slot->key,
                            .called_ns = load->cluster->clock.now_ns};
    if (slot->kind == HISTORY_GET) {
        memset(slot->buffer, LOAD_POISON,
               load_at_most(LOAD_SHORT_BYTES, load->options.max_value_bytes));
        request.room = slot->buffer;
        request.room_bytes = slot->room_bytes;
    } else if (slot->kind != HISTORY_DELETE) {
        make_value(load, slot, (uint32_t)request.key_bytes);
        request.value = slot->buffer;
        request.value_bytes = slot->value_bytes;
        request.expected = op.expected = slot->expected;
        op.value = load_value_hash(slot->buffer, slot->value_bytes);
    }
    struct session *session = load->cluster->clients[slot->client].session;
    slot->called_ns = load_client_now_ns(load, slot->client);
    slot->timeout_ns = load->timeout_ns;
    int error = session_post(session, &request);
    if (error) {
        ASSERT(error == ROWAN_EAGAIN);
        return false;
    }
    slot->called = true;
    slot->number = history_call(load->history, &op);
    load->posted++;
    tell_call(slot);
    return true;
}

/* An operation of the client with what `slot` says. False: its session takes none now. */
static bool post_in(struct load_client *client, struct load_slot *slot)
{
    client->free = slot->next;
    client->outstanding++;
    if (post(slot->load, slot))
        return true;
    load_give_slot(slot);
    return false;
}

static bool post_get(struct load *load, struct load_client *client, uint32_t key, bool last)
{
    struct load_slot *slot = client->free;
    slot->kind = HISTORY_GET;
    slot->key = key;
    slot->room_bytes = load->options.max_value_bytes;
    slot->last = last;
    return post_in(client, slot);
}

/* What comes last and is still to be posted. */
static uint32_t last_left(const struct load *load)
{
    return load->reads + load->writes + load->changes;
}

static bool post_change(struct load_client *client, enum history_kind kind, uint32_t key)
{
    struct load_slot *slot = client->free;
    slot->kind = kind;
    slot->key = key;
    slot->expected = kind == HISTORY_PUT_IF ? slot->load->highest[key] : 0;
    slot->last = true;
    return post_in(client, slot);
}

/* One of its keys, others for other clients; JOURNAL_NO_KEY: there is none. */
static uint32_t key_of_shard(const struct load *load, uint32_t number, uint32_t position)
{
    const struct cluster_config *config = session_config(load->cluster->clients[number].session);
    for (uint32_t i = 0; i < load->options.keys; i++) {
        uint32_t key = (number + i) % load->options.keys;
        if (load_shard(load, number, key) == &config->shards[position])
            return key;
    }
    return JOURNAL_NO_KEY;
}

/* To a shard that the client has not written to yet, when nothing is outstanding: so it says that it needs no record
 * of before. */
static bool post_to_shard(struct load *load, uint32_t number)
{
    struct load_client *client = &load->client[number];
    uint32_t key = key_of_shard(load, number, client->shards - 1);
    bool posted = key == JOURNAL_NO_KEY || post_change(client, HISTORY_PUT, key);
    client->shards -= posted;
    return posted;
}

/* What comes last: reads, or writes. */
static bool post_last(struct load *load, uint32_t number)
{
    static const enum history_kind CHANGES[] = {HISTORY_PUT, HISTORY_PUT_IF, HISTORY_DELETE};
    struct load_client *client = &load->client[number];
    if (last_left(load) == 0)
        return post_to_shard(load, number);
    uint32_t *left = load->reads ? &load->reads : load->writes ? &load->writes : &load->changes;
    uint32_t key = load->options.keys - *left;
    if (left == &load->reads) {
        bool posted = post_get(load, client, key, true);
        load->reads -= posted;
        return posted;
    }
    const enum history_kind change = load->deletes ? HISTORY_DELETE : CHANGES[key % 3];
    bool posted = post_change(client, left == &load->writes ? HISTORY_PUT : change, key);
    if (posted)
        *left -= left == &load->writes ? load_at_most(*left, LAST_WRITE_IN) : 1;
    return posted;
}

static bool post_random(struct load *load, struct load_client *client)
{
    if (client->again_key != JOURNAL_NO_KEY) {
        uint32_t key = client->again_key;
        client->again_key = JOURNAL_NO_KEY;
        return post_get(load, client, key, false);
    }
    struct load_slot *slot = client->free;
    const bool reads = slot->client < load->options.readers;
    const uint64_t period = load->cluster->clock.now_ns / READER_PERIOD_NS + slot->client;
    slot->key = reads ? (uint32_t)(period % load->options.hot_keys) : draw_key(load);
    slot->kind = !reads ? draw_kind(load) : period % 7 < 2 ? HISTORY_PUT_IF : HISTORY_GET;
    slot->last = false;
    slot->expected = slot->kind != HISTORY_PUT_IF ? 0 : reads ? 1 : draw_expected(load, slot);
    slot->room_bytes = load->options.max_value_bytes;
    if (slot->kind == HISTORY_GET && random_below(&load->random, SMALL_ROOM_IN) == 0)
        slot->room_bytes = load_at_most(random_below(&load->random, LOAD_SHORT_BYTES),
                                        load->options.max_value_bytes);
    return post_in(client, slot);
}

/* --- steps --- */

/* Roughly exponential, of the mean that the options say: minus the logarithm of a random number, which is
 * taken as linear between two powers of 2. */
static uint64_t draw_pause_ns(struct load *load, uint32_t number)
{
    uint32_t burst = number < load->options.readers ? 0 : load->options.burst;
    if (burst > 1 && random_below(&load->random, burst) != 0)
        return 0;
    uint64_t word = random_u64(&load->random) | 1;
    unsigned zeros = (unsigned)__builtin_clzll(word);
    uint64_t mantissa = word << zeros << 1 >> 48; /* of 2^16 */
    uint64_t log = ((uint64_t)(zeros + 1) << 16) - mantissa;
    return ((load->options.mean_pause_ns * 2 / 3 * log) >> 16) * (burst > 1 ? burst : 1);
}

static bool may_post(const struct load *load, uint32_t number)
{
    return load->client[number].free && !load->cluster->clients[number].process.stopped &&
           session_ready(load->cluster->clients[number].session);
}

static bool has_last(const struct load *load, uint32_t number)
{
    const struct load_client *client = &load->client[number];
    return last_left(load) > 0 || (client->shards && client->outstanding == 0);
}

static bool has_more(const struct load *load, uint32_t number)
{
    return has_last(load, number) || !load_is_over(load);
}

/* Of what comes last one: all clients are to have some. True: there may be more. */
static bool step_client(struct load *load, uint32_t number)
{
    struct load_client *client = &load->client[number];
    uint64_t now_ns = load->cluster->clock.now_ns;
    while (has_more(load, number) && client->due_ns <= now_ns && may_post(load, number)) {
        bool last = has_last(load, number);
        bool posted = last ? post_last(load, number) : post_random(load, client);
        client->due_ns = !posted ? now_ns + AGAIN_NS
                         : last  ? now_ns
                                 : now_ns + draw_pause_ns(load, number);
        if (last && posted)
            return true;
    }
    return false;
}

/* Its session has ended: of what was outstanding nobody will hear. */
static void give_up(struct load *load, uint32_t number)
{
    struct load_slot *slots = &load->slots[number * load->options.depth];
    load->client[number].ended = load->cluster->clients[number].ended;
    for (uint32_t i = 0; i < load->options.depth; i++) {
        if (slots[i].called)
            load_give_up(&slots[i]);
    }
}

void load_step(struct load *load)
{
    for (uint32_t i = 0; i < load->clients; i++) {
        if (load->client[i].ended != load->cluster->clients[i].ended)
            give_up(load, i);
    }
    bool more;
    do {
        more = false;
        for (uint32_t i = 0; i < load->clients; i++)
            more |= step_client(load, i);
    } while (more);
}

uint64_t load_next_ns(const struct load *load)
{
    uint64_t next_ns = WAKE_NEVER;
    for (uint32_t i = 0; i < load->clients; i++) {
        uint64_t due_ns = load->client[i].due_ns;
        if (has_more(load, i) && may_post(load, i) && due_ns < next_ns)
            next_ns = due_ns;
    }
    return next_ns;
}

void load_stop(struct load *load)
{
    load->stopped = true;
}

bool load_is_over(const struct load *load)
{
    return load->stopped || load->posted - load->rejected >= load->options.operations;
}

uint32_t load_outstanding(const struct load *load)
{
    uint32_t outstanding = last_left(load);
    for (uint32_t i = 0; i < load->clients; i++)
        outstanding += load->client[i].outstanding + load->client[i].shards;
    return outstanding;
}

uint64_t load_posted(const struct load *load)
{
    return load->posted;
}

/* Every client may post at once. */
static void hurry(struct load *load)
{
    for (uint32_t i = 0; i < load->clients; i++)
        load->client[i].due_ns = load->cluster->clock.now_ns;
}

void load_read_all(struct load *load)
{
    load->reads = load->options.keys;
    hurry(load);
}

void load_write_some(struct load *load)
{
    load->writes = load->options.keys;
    hurry(load);
}

void load_write_all(struct load *load, uint64_t timeout_ns)
{
    load->changes = load->options.keys;
    load->timeout_ns = timeout_ns;
    for (uint32_t i = 0; i < load->clients; i++)
        load->cluster->clients[i].session->timeout_ns = timeout_ns;
    hurry(load);
}

void load_delete_all(struct load *load)
{
    load->deletes = true;
    load_write_all(load, load->timeout_ns);
}

void load_write_shards(struct load *load)
{
    for (uint32_t i = 0; i < load->clients; i++) {
        const struct cluster_config *config = session_config(load->cluster->clients[i].session);
        load->client[i].shards = config ? config->shard_count : 0;
    }
    hurry(load);
}
