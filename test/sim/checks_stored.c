/* What lies in every PM, from watching its stores. A store is looked at where a sender or a log began a block or
 * goes on with one, never where the bytes look as if they were one: values may imitate entries (hazard H6).
 *
 * Checked here, with each block: C9; that nothing is stored over a block or into a segment that is free (a part of C4);
 * and that an operation of a client has one version (checks_once.c).
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "server/store/store_layout.h"
#include "test/sim/checks_state.h"

enum { FIRST_BLOCK_BYTES = 24 }; /* up to the end of the lengths: what tells a block's size */

#define NO_SEGMENT UINT64_MAX

/* --- tables --- */

struct checks_entry *checks_entry(struct checks *checks, uint16_t shard, uint64_t version)
{
    uint32_t at = checks->by_version[checks_bucket(shard, version)];
    while (at && (checks->entries[at].header.version != version ||
                  checks->entries[at].header.shard != shard))
        at = checks->entries[at].next_version;
    return at ? &checks->entries[at] : NULL;
}

static uint32_t new_copy(struct checks *checks)
{
    uint32_t at = checks->copy_free;
    if (at) {
        checks->copy_free = checks->copies[at].next;
        return at;
    }
    if (checks->copy_count == checks->copy_room)
        checks->copies = checks_grow(checks->copies, &checks->copy_room, sizeof *checks->copies);
    return checks->copy_count++;
}

static void set_strides(struct checks_server *server, const struct checks_copy *copy, uint32_t from,
                        uint32_t to)
{
    uint64_t first = (copy->offset - server->segment_offset) / ENTRY_ALIGN;
    for (uint64_t i = first; i < first + copy->bytes / ENTRY_ALIGN; i++) {
        if (server->copy_at[i] == from)
            server->copy_at[i] = to;
    }
}

/* The bytes are no block any more. */
static void drop(struct checks_server *server, uint32_t at)
{
    struct checks *checks = server->checks;
    struct checks_copy *copy = &checks->copies[at];
    set_strides(server, copy, at, CHECKS_NONE);
    if (copy->kind == CHECKS_BLOCK) {
        struct checks_entry *entry = &checks->entries[copy->entry];
        uint32_t *link = &entry->copies;
        while (*link != at)
            link = &checks->copies[*link].next;
        *link = copy->next;
        entry->count[server->number]--;
        entry->everywhere = false;
        checks_commit_note(checks, copy->entry);
    }
    copy->kind = CHECKS_FREE;
    copy->next = checks->copy_free;
    checks->copy_free = at;
}

/* --- what is told --- */

static const char *name_of(const struct checks_server *server)
{
    return server->checks->cluster->servers[server->number].process.name;
}

struct segment_meta checks_segment_meta(const struct checks_server *server, uint64_t segment)
{
    struct segment_meta meta;
    uint64_t word;
    memcpy(&word, server->pm->pm.base + META_OFFSET + segment * META_BYTES, sizeof word);
    bool whole = meta_decode(segment, word, &meta);
    ASSERT(whole);
    return meta;
}

static uint64_t segment_of(const struct checks_server *server, uint64_t offset)
{
    return (offset - server->segment_offset) / STORE_SEGMENT_BYTES;
}

static struct segment_meta meta_of(const struct checks_server *server, uint64_t offset)
{
    return checks_segment_meta(server, segment_of(server, offset));
}

/* A start finds what lies there. */
static bool is_in_use(const struct checks_server *server, uint64_t offset)
{
    enum segment_state state = meta_of(server, offset).state;
    return state != SEGMENT_FREE && state != SEGMENT_DIRTY;
}

void checks_fail_at(struct checks_server *server, uint64_t offset, const char *what)
{
    uint32_t at = server->copy_at[(offset - server->segment_offset) / ENTRY_ALIGN];
    const struct checks_copy *copy = &server->checks->copies[at];
    const struct checks_entry *entry =
        at && copy->kind == CHECKS_BLOCK ? &server->checks->entries[copy->entry] : NULL;
    checks_fail(server->checks, "C4", entry ? entry->key : JOURNAL_NO_KEY,
                entry ? entry->header.shard : JOURNAL_NO_SHARD,
                "%s: %s at %lu, in segment %lu, of state %u; entry %lx lies there", name_of(server),
                what, offset, segment_of(server, offset), (unsigned)meta_of(server, offset).state,
                entry ? entry->header.version : 0);
}

/* --- entries --- */

static void find_key(struct checks *checks, struct checks_entry *entry, const uint8_t *block)
{
    entry->key_name = checks_name(block + ENTRY_HEADER_BYTES, entry->header.key_bytes);
    uint32_t at = checks->by_key[checks_bucket(entry->key_name, 0)];
    while (at && checks->keys[at - 1].name != entry->key_name)
        at = checks->keys[at - 1].next;
    entry->key = at ? at - 1 : JOURNAL_NO_KEY;
    if (!at)
        return;
    entry->next_of_key = checks->keys[at - 1].last_entry;
    checks->keys[at - 1].last_entry = (uint32_t)(entry - checks->entries);
}

static struct checks_entry *new_entry(struct checks *checks, struct checks_server *server,
                                      const struct entry_header *header)
{
    if (checks->entry_count == checks->entry_room)
        checks->entries =
            checks_grow(checks->entries, &checks->entry_room, sizeof *checks->entries);
    while (checks->hash_count + header->blocks > checks->hash_room)
        checks->hashes = checks_grow(checks->hashes, &checks->hash_room, sizeof *checks->hashes);
    uint32_t number = checks->entry_count++;
    struct checks_entry *entry = &checks->entries[number];
    *entry = (struct checks_entry){.header = *header,
                                   .key = JOURNAL_NO_KEY,
                                   .stored_ns = checks->cluster->clock.now_ns,
                                   .first_hash = checks->hash_count};
    memset(checks->hashes + checks->hash_count, 0, header->blocks * sizeof *checks->hashes);
    checks->hash_count += header->blocks;
    checks_once(checks, server, entry);
    uint32_t *bucket = &checks->by_version[checks_bucket(header->shard, header->version)];
    entry->next_version = *bucket;
    *bucket = number;
    bucket = &checks->by_operation[checks_bucket(header->client_id, header->operation)];
    entry->next_operation = *bucket;
    *bucket = number;
    checks_commit_note(checks, number);
    return entry;
}

static bool same_header(const struct entry_header *a, const struct entry_header *b)
{
    return a->type == b->type && a->key_bytes == b->key_bytes && a->value_bytes == b->value_bytes &&
           a->client_id == b->client_id && a->operation == b->operation;
}

static uint64_t content_hash(const uint8_t *block, uint32_t bytes)
{
    return XXH3_64bits(block, bytes) | 1;
}

static bool is_as_before(const struct checks_server *server, const struct checks_copy *copy)
{
    const struct checks *checks = server->checks;
    const struct checks_entry *entry = &checks->entries[copy->entry];
    return content_hash(server->pm->pm.base + copy->offset, copy->bytes) ==
           checks->hashes[entry->first_hash + copy->block];
}

/* Counts its blocks: several copies of one count once. Those in segment `given_up` count, too. */
static bool has_all_blocks(struct checks *checks, const struct checks_entry *entry, uint32_t server,
                           bool durable, uint64_t given_up)
{
    const struct sim_pm *pm = checks->servers[server].pm;
    uint32_t blocks = entry->header.blocks, found = 0;
    while (checks->mark_room < blocks)
        checks->marks = checks_grow(checks->marks, &checks->mark_room, 1);
    memset(checks->marks, 0, blocks);
    for (uint32_t at = entry->copies; at && found < blocks; at = checks->copies[at].next) {
        const struct checks_copy *copy = &checks->copies[at];
        if (copy->server != server || checks->marks[copy->block] ||
            (segment_of(&checks->servers[server], copy->offset) != given_up &&
             !is_in_use(&checks->servers[server], copy->offset)) ||
            (durable && !sim_pm_is_durable(pm, copy->offset, copy->bytes)))
            continue;
        checks->marks[copy->block] = 1;
        found++;
    }
    return found == blocks;
}

bool checks_is_whole(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    return has_all_blocks(checks, entry, server,
                          checks->servers[server].pm->pm.durability == PM_FENCE, NO_SEGMENT);
}

bool checks_was_whole(struct checks *checks, const struct checks_entry *entry, uint32_t server,
                      uint64_t segment)
{
    return has_all_blocks(checks, entry, server, false, segment);
}

bool checks_is_anywhere(struct checks *checks, const struct checks_entry *entry)
{
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const bool left = version_epoch(entry->header.version) <
                          checks->first_epochs[i][entry->header.shard]; /* by an earlier replica */
        if (checks_is_replica(checks, entry->header.shard, i) && !left &&
            entry->count[i] >= entry->header.blocks &&
            has_all_blocks(checks, entry, i, false, NO_SEGMENT))
            return true;
    }
    return false;
}

struct checks_entry *checks_entry_at(struct checks *checks, uint32_t number, uint64_t offset)
{
    const struct checks_server *server = &checks->servers[number];
    const struct checks_entry *entry = NULL;
    for (uint32_t block = 0; !entry || block < entry->header.blocks; block++) {
        uint64_t stride = (offset - server->segment_offset) / ENTRY_ALIGN;
        if (offset < server->segment_offset || stride >= server->strides)
            return NULL;
        const struct checks_copy *copy = &checks->copies[server->copy_at[stride]];
        if (copy->kind != CHECKS_BLOCK || copy->offset != offset || copy->block != block ||
            (entry && entry != &checks->entries[copy->entry]))
            return NULL;
        entry = &checks->entries[copy->entry];
        offset += copy->bytes;
    }
    return &checks->entries[entry - checks->entries];
}

/* --- blocks --- */

/* The header as it stands; false if there was never such a block. */
static bool read_header(const struct checks *checks, const uint8_t *at, struct entry_header *header)
{
    uint32_t lengths, blocks;
    memcpy(&lengths, at + 16, sizeof lengths);
    memcpy(&blocks, at + 20, sizeof blocks);
    memcpy(&header->shard, at + 2, sizeof header->shard);
    memcpy(&header->version, at + 8, sizeof header->version);
    memcpy(&header->client_id, at + 24, sizeof header->client_id);
    memcpy(&header->operation, at + 28, sizeof header->operation);
    header->type = (enum entry_type)at[1];
    header->key_bytes = lengths & 0x7ff;
    header->value_bytes = lengths >> 11;
    header->block = (uint16_t)(blocks & 0xffff);
    header->blocks = (uint16_t)(blocks >> 16);
    return at[0] == 0 && header->type >= ENTRY_PUT && header->type < ENTRY_TYPES &&
           header->type != ENTRY_BATCH_PART && header->key_bytes <= ENTRY_MAX_KEY_BYTES &&
           header->value_bytes <= ENTRY_MAX_VALUE_BYTES && header->block < header->blocks &&
           header->blocks == entry_blocks(&checks->format, header->key_bytes, header->value_bytes);
}

static void check_c9(struct checks_server *server, const struct checks_entry *entry,
                     const struct entry_header *header, uint64_t hash)
{
    struct checks *checks = server->checks;
    uint64_t *known = &checks->hashes[entry->first_hash + header->block];
    if (!same_header(&entry->header, header) || (*known && *known != hash))
        checks_fail(
            checks, "C9", entry->key, header->shard,
            "%s: version %lx of shard %u is operation %u of client %u (block %u of %u), and was "
            "operation %u of client %u",
            name_of(server), header->version, header->shard, header->operation, header->client_id,
            header->block, header->blocks, entry->header.operation, entry->header.client_id);
    *known = hash;
}

static void take_entry_block(struct checks_server *server, uint32_t at,
                             const struct entry_header *header)
{
    struct checks *checks = server->checks;
    struct checks_copy *copy = &checks->copies[at];
    const uint8_t *block = server->pm->pm.base + copy->offset;
    struct checks_entry *entry = checks_entry(checks, header->shard, header->version);
    if (!entry)
        entry = new_entry(checks, server, header);
    if (header->blocks != entry->header.blocks) {
        checks_fail(checks, "C9", entry->key, header->shard,
                    "%s: version %lx of shard %u has %u blocks, and had %u", name_of(server),
                    header->version, header->shard, header->blocks, entry->header.blocks);
        return;
    }
    check_c9(server, entry, header, content_hash(block, copy->bytes));
    if (header->block == 0 && !entry->key_name)
        find_key(checks, entry, block);
    copy->kind = CHECKS_BLOCK;
    copy->entry = (uint32_t)(entry - checks->entries);
    copy->block = header->block;
    copy->next = entry->copies;
    entry->copies = at;
    if (header->block == 0)
        checks_look_copied(checks, entry, server->number, at);
    if (++entry->count[server->number] < header->blocks ||
        (header->blocks > 1 && !has_all_blocks(checks, entry, server->number, false, NO_SEGMENT)))
        return;
    checks_look_stored(checks, entry, server->number);
    enum segment_owner owner = meta_of(server, copy->offset).owner;
    if (header->blocks > 1 && header->block + 1 == header->blocks) {
        checks->counts.longs += owner == OWNER_WORKER;
        checks->counts.joined += owner == OWNER_DIGEST;
    }
    checks_tell(server, owner == OWNER_BACKUP_LOG ? JOURNAL_LANDED : JOURNAL_STORED, entry,
                owner == OWNER_DIGEST          ? "digest log"
                : owner == OWNER_CLEAN         ? "clean log"
                : header->type == ENTRY_DELETE ? "delete"
                                               : "put");
}

/* More of a block is there. */
static void take_part(struct checks_server *server, uint32_t at)
{
    struct checks *checks = server->checks;
    struct checks_copy *copy = &checks->copies[at];
    struct entry_header header;
    copy->late |= meta_of(server, copy->offset).state >= SEGMENT_USED;
    if (copy->have < FIRST_BLOCK_BYTES)
        return;
    if (!read_header(checks, server->pm->pm.base + copy->offset, &header)) {
        checks_fail_at(server, copy->offset, "no block");
        return;
    }
    copy->bytes =
        entry_block_bytes(&checks->format, header.key_bytes, header.value_bytes, header.block);
    uint64_t end = server->segment_offset + server->strides * ENTRY_ALIGN;
    if (copy->offset + copy->bytes > end) {
        copy->bytes = ENTRY_ALIGN;
        checks_fail_at(server, copy->offset, "a block that is too long");
        return;
    }
    set_strides(server, copy, CHECKS_NONE, at);
    /* Where only zeros are missing, the block is whole without them. */
    if (copy->have < copy->bytes &&
        entry_decode(&checks->format, server->pm->pm.base + copy->offset, copy->bytes, &header,
                     &(uint32_t){0}) != 0)
        return;
    checks->counts.blocks++;
    if (header.type == ENTRY_PUT || header.type == ENTRY_DELETE)
        take_entry_block(server, at, &header);
    else
        copy->kind = CHECKS_OTHER;
    if (header.type == ENTRY_COMMIT_VERSIONS && meta_of(server, copy->offset).owner == OWNER_WORKER)
        checks_commit_stored(checks, server->pm->pm.base + copy->offset, header.value_bytes);
}

/* --- stores --- */

static size_t begin_block(struct checks_server *server, uint64_t offset, size_t bytes)
{
    struct checks *checks = server->checks;
    uint64_t stride = (offset - server->segment_offset) / ENTRY_ALIGN;
    if (offset % ENTRY_ALIGN) {
        checks_fail_at(server, offset, "a store that goes on with nothing");
        return bytes;
    }
    uint32_t at = new_copy(checks);
    checks->copies[at] = (struct checks_copy){.kind = CHECKS_PART,
                                              .server = server->number,
                                              .offset = offset,
                                              .bytes = ENTRY_ALIGN,
                                              .have = (uint32_t)bytes};
    server->copy_at[stride] = at;
    take_part(server, at);
    struct checks_copy *copy = &checks->copies[at];
    if (copy->have > copy->bytes)
        copy->have = copy->bytes;
    return copy->have;
}

/* A store that touches a block which is there. Returns the bytes that are dealt with; 0: a new block begins. */
static size_t meet(struct checks_server *server, uint32_t at, uint64_t offset, size_t bytes)
{
    struct checks_copy *copy = &server->checks->copies[at];
    if (copy->kind == CHECKS_PART && offset == copy->offset + copy->have) {
        size_t rest = copy->have < FIRST_BLOCK_BYTES ? bytes : copy->bytes - copy->have;
        size_t taken = bytes < rest ? bytes : rest;
        copy->have += (uint32_t)taken;
        take_part(server, at);
        return taken;
    }
    /* The zeros of one that was whole without them. */
    if (copy->kind == CHECKS_OTHER && offset == copy->offset + copy->have) {
        size_t rest = copy->bytes - copy->have, taken = bytes < rest ? bytes : rest;
        copy->have += (uint32_t)taken;
        return taken;
    }
    if (copy->kind == CHECKS_PART && offset == copy->offset) { /* a pad over what was cut */
        drop(server, at);
        return 0;
    }
    if (copy->kind == CHECKS_BLOCK && is_as_before(server, copy)) {
        size_t rest = (size_t)(copy->offset + copy->bytes - offset);
        return bytes < rest ? bytes : rest;
    }
    checks_fail_at(server, offset, "a store over a block");
    drop(server, at);
    return bytes;
}

static void take_store(struct checks_server *server, uint64_t offset, size_t bytes)
{
    if (!is_in_use(server, offset))
        checks_fail_at(server, offset, "a store into no log's segment");
    while (bytes > 0) {
        uint32_t at = server->copy_at[(offset - server->segment_offset) / ENTRY_ALIGN];
        size_t taken = at ? meet(server, at, offset, bytes) : 0;
        if (taken == 0)
            taken = begin_block(server, offset, bytes);
        offset += taken;
        bytes -= taken;
    }
}

static void take_zeros(struct checks_server *server, uint64_t offset, size_t bytes)
{
    checks_clean_zeros(server, offset, bytes);
    uint64_t stride = (offset - server->segment_offset) / ENTRY_ALIGN;
    for (uint64_t i = stride; i < stride + bytes / ENTRY_ALIGN; i++) {
        if (server->copy_at[i])
            drop(server, server->copy_at[i]);
    }
}

/* What a power loss brings back: zeros over it that no fence covered. */
static void find_again(struct checks_server *server, uint64_t offset)
{
    const uint64_t end = server->segment_offset + server->strides * ENTRY_ALIGN;
    struct entry_header header;
    uint32_t bytes;
    if (entry_decode(&server->checks->format, server->pm->pm.base + offset,
                     (uint32_t)(end - offset), &header, &bytes) == 0)
        begin_block(server, offset, bytes);
}

/* A power loss has changed these bytes. */
static void take_loss(struct checks_server *server, uint64_t offset, size_t bytes)
{
    struct checks *checks = server->checks;
    uint64_t first = (offset - server->segment_offset) / ENTRY_ALIGN;
    uint64_t last = (offset + bytes - 1 - server->segment_offset) / ENTRY_ALIGN;
    for (uint64_t i = first; i <= last; i++) {
        uint32_t at = server->copy_at[i];
        const struct checks_copy *copy = &checks->copies[at];
        if (copy->kind == CHECKS_BLOCK) {
            if (is_as_before(server, copy))
                continue;
            checks_tell(server, JOURNAL_LOST, &checks->entries[copy->entry], "");
        }
        if (at)
            drop(server, at);
        find_again(server, server->segment_offset + i * ENTRY_ALIGN);
    }
}

/* --- watching --- */

static void read_superblock(struct checks_server *server)
{
    struct superblock block;
    if (superblock_read(&server->pm->pm, &block))
        return;
    if (server->segment_offset)
        return;
    server->segment_offset = block.segment_offset;
    server->segments = block.segments;
    server->strides = block.segments * (STORE_SEGMENT_BYTES / ENTRY_ALIGN);
    server->copy_at = calloc(server->strides, sizeof *server->copy_at);
    server->reused = calloc(server->segments, sizeof *server->reused);
    ASSERT(server->copy_at && server->reused);
}

/* Zeros of a whole stride and more are no part of a block, unless they go on with one, or are the last of one
 * that was whole without them: what it lies in was zeros. */
static bool is_wipe(const struct checks_server *server, uint64_t offset, const uint8_t *data,
                    size_t bytes)
{
    if (offset % ENTRY_ALIGN || bytes < ENTRY_ALIGN || !checks_is_zero(data, bytes))
        return false;
    uint32_t at = server->copy_at[(offset - server->segment_offset) / ENTRY_ALIGN];
    const struct checks_copy *copy = &server->checks->copies[at];
    if (!at)
        return true;
    if (copy->kind == CHECKS_BLOCK)
        return offset + bytes > copy->offset + copy->bytes || !is_as_before(server, copy);
    return copy->kind != CHECKS_PART || offset != copy->offset + copy->have;
}

static bool is_meta(const struct checks_server *server, uint64_t offset)
{
    return server->segment_offset && offset >= META_OFFSET &&
           offset < META_OFFSET + server->segments * META_BYTES;
}

static bool is_watched(struct checks_server *server, uint64_t offset, size_t bytes)
{
    if (!server->segment_offset)
        read_superblock(server);
    return server->segment_offset && bytes > 0 && offset >= server->segment_offset;
}

static void on_stored(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    struct checks_server *server = context;
    if (is_meta(server, offset))
        checks_clean_meta(server, (offset - META_OFFSET) / META_BYTES);
    if (!is_watched(server, offset, bytes))
        return;
    if (is_wipe(server, offset, data, bytes))
        take_zeros(server, offset, bytes);
    else
        take_store(server, offset, bytes);
}

static void on_lost(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    (void)data;
    struct checks_server *server = context;
    checks_loss_at(server->checks, server->number);
    if (offset == 0 && bytes == server->pm->pm.bytes) { /* all of it */
        offset = server->segment_offset;
        bytes = server->strides * ENTRY_ALIGN;
    }
    if (is_watched(server, offset, bytes))
        take_loss(server, offset, bytes);
}

static void on_flipped(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    struct checks_server *server = context;
    checks_doubt_at(server->checks, server->number);
    on_lost(context, offset, data, bytes); /* with fences that is no loss */
}

void checks_stored_open(struct checks *checks)
{
    checks->entries = checks_grow(NULL, &checks->entry_room, sizeof *checks->entries);
    checks->copies = checks_grow(NULL, &checks->copy_room, sizeof *checks->copies);
    checks->entry_count = checks->copy_count = 1; /* CHECKS_NONE */
    checks->entries[0] = (struct checks_entry){0};
    checks->copies[0] = (struct checks_copy){0};
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        struct checks_server *server = &checks->servers[i];
        struct sim_server *of = &checks->cluster->servers[i];
        *server = (struct checks_server){.checks = checks, .number = i, .pm = of->pm};
        read_superblock(server);
        server->pm->stored_context = of->lost_context = server;
        server->pm->stored = on_stored;
        of->lost = on_lost;
        of->flipped = on_flipped;
    }
}

void checks_stored_close(struct checks *checks)
{
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        checks->servers[i].pm->stored = NULL;
        checks->cluster->servers[i].lost = checks->cluster->servers[i].flipped = NULL;
        free(checks->servers[i].copy_at);
        free(checks->servers[i].reused);
    }
    free(checks->entries);
    free(checks->copies);
    free(checks->hashes);
    free(checks->marks);
}
