/* What clients know of (C2), and a rotating sample of what servers hold: index items (C3), committed segments (C6). */
#include <string.h>

#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "test/sim/checks_state.h"

enum {
    LOOK_ROUNDS = 4, /* a key is looked at in one round of so many */
    HOT_KEYS = 8,    /* every other look is at one of the first keys */
    SEGMENT_ROUNDS = 16,
    SUSPECT_ROUNDS = 300, /* in which a digest role comes to what has landed */
};

/* --- copies of long entries --- */

static enum segment_owner owner_at(const struct checks_server *of, const struct store *store,
                                   uint64_t offset)
{
    return store_meta(store, (offset - of->segment_offset) / STORE_SEGMENT_BYTES).owner;
}

/* There copies lie in one piece. */
static bool is_in_own_log(const struct checks_server *of, const struct store *store,
                          uint64_t offset)
{
    const enum segment_owner owner = owner_at(of, store, offset);
    return owner == OWNER_DIGEST || owner == OWNER_CLEAN;
}

/* A start copies an entry whose blocks lie apart, and no later one does again: the whole copy is found first. */
static void look_at_start(struct checks *checks, const struct control *control,
                          const struct checks_entry *entry, uint32_t server, uint32_t made)
{
    for (uint32_t at = entry->copies; at; at = checks->copies[at].next) {
        const struct checks_copy *copy = &checks->copies[at];
        if (at != made && copy->server == server && copy->block == 0 &&
            is_in_own_log(&checks->servers[server], control->common->store, copy->offset) &&
            checks_entry_at(checks, server, copy->offset) == entry)
            checks_fail(checks, "copies", entry->key, entry->header.shard,
                        "server %u copies version %lx of shard %u, and has a whole copy at %lu",
                        server + 1, entry->header.version, entry->header.shard, copy->offset);
    }
}

void checks_look_copied(struct checks *checks, const struct checks_entry *entry, uint32_t server,
                        uint32_t made)
{
    const struct control *control = checks_control(checks, server);
    if (!control || !control->common->store ||
        owner_at(&checks->servers[server], control->common->store, checks->copies[made].offset) !=
            OWNER_DIGEST)
        return;
    if (control->recover) {
        look_at_start(checks, control, entry, server, made);
        return;
    }
    /* What comes late, or again, by message fills no segments. */
    const struct shard_state *shard = checks_shard(control, entry->header.shard);
    if (shard && version_epoch(entry->header.version) >= shard->first_epoch &&
        prefix_has(&shard->prefix, entry->header.version))
        checks_fail(checks, "late", entry->key, entry->header.shard,
                    "server %u stores version %lx of shard %u in a digest log, and knows that it "
                    "has it",
                    server + 1, entry->header.version, entry->header.shard);
}

/* --- C2 --- */

/* An answer may have been on its way when what it tells of was lost. */
static bool is_late(const struct checks *checks, const struct shard *shard, uint16_t slot,
                    uint64_t version)
{
    bool late = checks_in_doubt(checks, shard->id, version_epoch(version));
    for (uint32_t i = checks->loss_count; i > 0 && !late; i--)
        late = checks_loss_concerns(&checks->losses[i - 1], slot) &&
               version < checks->losses[i - 1].loss.version;
    return late;
}

/* A client knows of the version: it was acknowledged, or seen. */
static void version_told(struct checks *checks, uint32_t number, uint64_t version, const char *how)
{
    struct checks_key *key = &checks->keys[number];
    const struct shard *shard = cluster_shard_of_slot(checks->config, key->slot);
    const bool late = is_late(checks, shard, key->slot, version);
    struct checks_entry *entry = checks_entry_of(checks, shard->id, version);
    if (!entry)
        checks_fail(checks, "C2", number, shard->id,
                    "version %lx of shard %u was %s, and nobody has stored it", version, shard->id,
                    how);
    else if (entry->key != number)
        checks_fail(checks, "C2", number, shard->id, "version %lx of shard %u is key %u's", version,
                    shard->id, entry->key);
    else if (!late && !checks_is_everywhere(checks, entry))
        checks_fail(checks, "C2", number, shard->id,
                    "version %lx of shard %u was %s, and is not durable on all replicas", version,
                    shard->id, how);
    if (!late && version > key->settled)
        key->settled = version;
}

void checks_acknowledged(void *context, uint32_t key, uint64_t version)
{
    struct checks *checks = context;
    checks->counts.acknowledged++;
    if (checks->config && key < checks->key_count)
        version_told(checks, key, version, "acknowledged");
}

void checks_seen(void *context, uint32_t key, uint64_t version)
{
    struct checks *checks = context;
    if (checks->config && key < checks->key_count)
        version_told(checks, key, version, "seen by a client");
}

/* --- C3 --- */

struct control *checks_control(const struct checks *checks, uint32_t server)
{
    return sim_cluster_control(checks->cluster, server);
}

struct shard_state *checks_shard(const struct control *control, uint16_t shard)
{
    const struct shard *row = control && control->config && control->shards
                                  ? cluster_shard(control->config, shard)
                                  : NULL;
    struct shard_state *state = row ? control->shards[row - control->config->shards] : NULL;
    return state && state->id == shard ? state : NULL;
}

/* What a primary shows, it answers reads with. */
static void check_shown(struct checks *checks, uint32_t number, struct checks_entry *entry,
                        uint32_t server)
{
    struct checks_key *key = &checks->keys[number];
    if (!checks_is_everywhere(checks, entry))
        checks_fail(checks, "C2", number, entry->header.shard,
                    "server %u shows version %lx of shard %u, which is not durable on all replicas",
                    server + 1, entry->header.version, entry->header.shard);
    if (entry->header.version > key->settled)
        key->settled = entry->header.version;
}

static const struct shard_state *shard_at(const struct control *control, uint16_t slot)
{
    return control && control->config
               ? checks_shard(control, cluster_shard_of_slot(control->config, slot)->id)
               : NULL;
}

static bool may_go(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    return entry && checks_may_go(&checks->servers[server], entry);
}

/* The index has nothing: is the newest that it must have had a tombstone, and gone by right (C5)? It may have come and gone
 * since the last look. */
static bool has_gone(struct checks *checks, const struct checks_key *key,
                     const struct shard_state *shard, uint32_t server, uint64_t settled)
{
    const struct checks_entry *newest = NULL;
    uint64_t version = key->shown[server];
    if (version < key->settled && key->settled <= settled)
        version = key->settled;
    for (uint32_t at = key->last_entry; at; at = checks->entries[at].next_of_key) {
        const struct checks_entry *entry = &checks->entries[at];
        if (checks_is_of(checks, shard->id, entry->header.shard) &&
            entry->header.version >= version && entry->header.version <= settled &&
            (!newest || entry->header.version > newest->header.version))
            newest = entry;
    }
    /* Copied is what there is: a tombstone may have gone before this replica began. */
    if (newest && newest->header.type == ENTRY_DELETE &&
        version_epoch(newest->header.version) < shard->first_epoch)
        return true;
    return may_go(checks, newest, server) ||
           may_go(checks, checks_entry_of(checks, shard->id, version), server);
}

static const struct shard_state *parent_of(const struct control *control,
                                           const struct shard_state *shard)
{
    return checks_shard(control, atomic_load_explicit(&shard->parent, memory_order_relaxed));
}

/* Up to where the index, with its parent's, has all. Of epochs before its first the parent knows: a start takes the beginning of
 * that for settled, whatever the parent has. */
static uint64_t settled_of(const struct shard_state *shard, const struct shard_state *parent)
{
    const uint64_t settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    const uint64_t start = version_make(shard->first_epoch, 0);
    if (!parent || settled > start)
        return settled;
    const uint64_t before = atomic_load_explicit(&parent->settled, memory_order_relaxed);
    return before < start ? before : start; /* its epochs go on, and may overtake the child's */
}

static void look_at_item(struct checks *checks, uint32_t number, uint32_t server)
{
    struct checks_key *key = &checks->keys[number];
    const struct control *control = checks_control(checks, server);
    const struct shard_state *shard = shard_at(control, key->slot);
    if (!shard)
        return;
    if (shard->filling) { /* it is no replica yet, and what an earlier one here showed is gone */
        key->shown[server] = 0;
        return;
    }
    checks->counts.looks++;
    const struct shard_state *parent = parent_of(control, shard);
    uint64_t offset = index_find(shard->index, key->hash, key->bytes, key->count), version = 0;
    const bool own = offset;
    if (!own && parent)
        offset = index_find(parent->index, key->hash, key->bytes, key->count);
    if (offset) {
        struct checks_entry *entry = checks_entry_at(checks, server, offset);
        if (!entry || entry->key != number) {
            checks_fail(
                checks, "C3", number, shard->id,
                "the index of server %u points to offset %lu, where no whole entry of the key lies",
                server + 1, offset);
            return;
        }
        version = entry->header.version;
        checks_suffix_indexed(checks, own ? shard : parent, server, entry);
        if (shard->primary && !checks_in_doubt(checks, shard->id, shard->epoch) &&
            !atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            check_shown(checks, number, entry, server);
    }
    const uint64_t settled = settled_of(shard, parent);
    if (!offset && has_gone(checks, key, shard, server, settled))
        return;
    uint64_t *shown = &key->shown[server];
    if (version < *shown)
        checks_fail(checks, "C3", number, shard->id,
                    "the index of server %u has version %lx of the key, and must have %lx",
                    server + 1, version, *shown);
    if (version < key->settled && key->settled <= settled)
        checks_fail(checks, "settled", number, shard->id,
                    "the index of server %u has version %lx of the key, version %lx was "
                    "acknowledged, and it takes "
                    "all up to %lx for settled",
                    server + 1, version, key->settled, settled);
    *shown = version;
}

static void look_at_key(struct checks *checks)
{
    if (!checks->key_count)
        return;
    uint64_t turn = checks->looks++;
    uint64_t hot = checks->key_count < HOT_KEYS ? checks->key_count : HOT_KEYS;
    uint32_t number = (uint32_t)(turn / 2 % (turn % 2 ? hot : checks->key_count));
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        look_at_item(checks, number, i);
}

void checks_look_stored(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    if (entry->key == JOURNAL_NO_KEY)
        return;
    uint64_t *newest = &checks->keys[entry->key].newest[server];
    if (entry->header.version > *newest)
        *newest = entry->header.version;
    if (entry->header.version == *newest)
        return;
    checks->suspects[checks->suspect_next++ % CHECKS_SUSPECTS] = (struct checks_suspect){
        .key = entry->key, .server = server, .until_round = checks->rounds + SUSPECT_ROUNDS};
}

static void look_at_suspects(struct checks *checks)
{
    for (uint32_t i = 0; i < CHECKS_SUSPECTS; i++) {
        const struct checks_suspect *suspect = &checks->suspects[i];
        if (checks->rounds < suspect->until_round)
            look_at_item(checks, suspect->key, suspect->server);
    }
}

/* --- C6 --- */

/* Nobody reads it there, whoever has stored it: it is no entry. */
static bool is_in_void(const struct checks_server *server, const struct checks_copy *copy)
{
    const uint64_t at = copy->offset - server->segment_offset;
    return checks_is_void(server, at / STORE_SEGMENT_BYTES, at % STORE_SEGMENT_BYTES, copy->bytes);
}

static void look_at_segment(struct checks *checks, const struct checks_server *server,
                            uint64_t segment)
{
    if (checks_segment_meta(server, segment).state != SEGMENT_COMMITTED)
        return;
    const uint64_t strides = STORE_SEGMENT_BYTES / ENTRY_ALIGN;
    uint32_t before = CHECKS_NONE;
    for (uint64_t i = segment * strides; i < (segment + 1) * strides; i++) {
        uint32_t at = server->copy_at[i];
        if (at == before || checks->copies[at].kind != CHECKS_BLOCK || checks->copies[at].late)
            continue;
        before = at;
        struct checks_entry *entry = &checks->entries[checks->copies[at].entry];
        /* Of one that broke off only some blocks are left: nobody acknowledged it, and no start has found it. */
        if (!checks_in_doubt(checks, entry->header.shard, version_epoch(entry->header.version)) &&
            version_epoch(entry->header.version) >=
                checks->first_epochs[server->number][entry->header.shard] &&
            checks_is_replica(checks, entry->header.shard, server->number) &&
            !checks_is_everywhere(checks, entry) && checks_is_anywhere(checks, entry) &&
            checks_is_missed(checks, entry) && !checks_may_be_lost(server, &entry->header) &&
            !is_in_void(server, &checks->copies[at]))
            checks_fail(checks, "C6", entry->key, entry->header.shard,
                        "segment %lu of server %u is committed, and version %lx of shard %u in it "
                        "is not on "
                        "all replicas",
                        segment, server->number + 1, entry->header.version, entry->header.shard);
    }
}

/* One segment of each server in turn. */
static void look_at_committed(struct checks *checks)
{
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const struct checks_server *server = &checks->servers[i];
        if (server->segments)
            look_at_segment(checks, server, checks->rounds / SEGMENT_ROUNDS % server->segments);
    }
}

/* It is another replica: what the one before it showed binds nobody. */
static void forget_shown(struct checks *checks, const struct shard *row, uint32_t server)
{
    for (uint32_t i = 0; i < checks->key_count; i++) {
        struct checks_key *key = &checks->keys[i];
        if (key->slot >= row->first_slot && key->slot <= row->last_slot)
            key->shown[server] = 0;
    }
}

static void look_at_replicas(struct checks *checks)
{
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        const uint32_t count =
            control && control->config && control->shards ? control->config->shard_count : 0;
        for (uint32_t j = 0; j < count; j++) {
            const struct shard_state *shard = control->shards[j];
            const struct shard *row = &control->config->shards[j];
            uint32_t *first_epoch = &checks->first_epochs[i][row->id];
            if (shard && shard->filling)
                checks->copied_epochs[i][row->id] = shard->epoch;
            if (!shard || shard->first_epoch == *first_epoch)
                continue;
            *first_epoch = shard->first_epoch;
            forget_shown(checks, row, i);
        }
    }
}

void checks_look(struct checks *checks)
{
    if (checks->cluster->options.lease_ms)
        look_at_replicas(checks);
    look_at_suspects(checks);
    if (checks->rounds % LOOK_ROUNDS == 0)
        look_at_key(checks);
    if (checks->rounds % SEGMENT_ROUNDS == 0) {
        look_at_committed(checks);
        checks_suffix_look(checks, checks->rounds / SEGMENT_ROUNDS);
    }
}
