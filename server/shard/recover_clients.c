/* Tables of clients, read at a start. A table is whole if all its parts are there, from the first byte of the segment on
 * and one behind the other; else it counts for nothing, and an older one may speak.
 */
#include "server/shard/recover_clients.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/entry/commit.h"
#include "server/shard/apply.h"
#include "server/shard/records_table.h"

struct recover_client {
    struct records_item item; /* its operation is 0 */
    uint32_t lowest;
};

struct recover_table {
    struct recover_table *next;
    struct records_table clients;
};

/* A walk over the parts of the table at the head of a segment. */
struct walk {
    const struct server_common *common;
    const uint8_t *base;
    uint32_t position;
    struct commit_part next; /* parts 0: none was read */
};

int recover_clients_init(struct recover_clients *clients, const struct server_common *common)
{
    *clients = (struct recover_clients){.common = common};
    clients->speakers = calloc(STORE_SHARD_IDS, sizeof *clients->speakers);
    return clients->speakers ? 0 : ROWAN_ENOMEM;
}

void recover_clients_fini(struct recover_clients *clients)
{
    struct recover_table *table;
    while ((table = clients->tables)) {
        clients->tables = table->next;
        records_table_fini(&table->clients);
        free(table);
    }
    free(clients->speakers);
    clients->speakers = NULL;
}

void recover_clients_lead(struct recover_clients *clients, uint16_t shard, uint32_t epoch)
{
    clients->speakers[shard].epoch = epoch;
    clients->unknown++;
}

/* --- one table --- */

static struct walk walk_begin(const struct server_common *common, uint64_t offset)
{
    return (struct walk){.common = common, .base = pm_at(common->pm, offset)};
}

static bool walk_is_over(const struct walk *walk)
{
    return walk->next.parts > 0 && walk->next.part == walk->next.parts;
}

/* The next part. False: it is not there. */
static bool walk_next(struct walk *walk, struct commit_value *value)
{
    const uint8_t *at = walk->base + walk->position;
    struct entry_header header;
    struct commit_part part;
    uint32_t bytes;
    if (walk->position == STORE_SEGMENT_BYTES ||
        entry_decode(&walk->common->format, at, STORE_SEGMENT_BYTES - walk->position, &header,
                     &bytes) ||
        header.type != ENTRY_COMMIT_VERSIONS || apply_decode_commits(&header, at, value, &part) ||
        part.part != walk->next.part || (walk->next.parts && part.parts != walk->next.parts))
        return false;
    walk->position += bytes;
    walk->next = (struct commit_part){.part = (uint16_t)(part.part + 1), .parts = part.parts};
    return true;
}

/* Would the table speak for a shard for which nobody does? It has to be of an epoch that is over (R1). */
static bool is_news(const struct recover_clients *clients, const struct commit_shard *row)
{
    const struct recover_speaker *speaker = &clients->speakers[row->shard];
    return speaker->epoch > version_epoch(row->version) && !speaker->table;
}

/* Is a whole table there, and would it be news? */
static bool is_wanted(const struct recover_clients *clients, uint64_t offset)
{
    struct walk walk = walk_begin(clients->common, offset);
    struct commit_value value;
    bool news = false;
    while (!walk_is_over(&walk)) {
        if (!walk_next(&walk, &value))
            return false;
        for (uint32_t i = 0; i < value.shards; i++) {
            const struct commit_shard row = commit_shard_at(&value, i);
            news |= is_news(clients, &row);
        }
    }
    return news;
}

/* A client that is named twice keeps the lower number. */
static int add_client(struct recover_table *table, const struct commit_client *row)
{
    struct recover_client *client =
        (struct recover_client *)records_table_find(&table->clients, row->client, 0);
    if (!client) {
        client = (struct recover_client *)records_table_take(&table->clients, row->client, 0);
        if (!client)
            return ROWAN_ENOMEM;
        client->lowest = row->lowest;
    }
    if (row->lowest < client->lowest)
        client->lowest = row->lowest;
    return 0;
}

static int take_part(struct recover_clients *clients, struct recover_table *table,
                     const struct commit_value *value)
{
    for (uint32_t i = 0; i < value->shards; i++) {
        const struct commit_shard row = commit_shard_at(value, i);
        if (!is_news(clients, &row))
            continue;
        clients->speakers[row.shard].upto = row.version;
        clients->speakers[row.shard].table = table;
        clients->unknown--;
    }
    int error = 0;
    for (uint32_t i = 0; i < value->clients && !error; i++) {
        const struct commit_client row = commit_client_at(value, i);
        error = add_client(table, &row);
    }
    return error;
}

int recover_clients_read(struct recover_clients *clients, uint64_t offset)
{
    if (!is_wanted(clients, offset))
        return 0;
    struct recover_table *table = calloc(1, sizeof *table);
    if (!table)
        return ROWAN_ENOMEM;
    records_table_init(&table->clients, sizeof(struct recover_client));
    table->next = clients->tables;
    clients->tables = table;
    struct walk walk = walk_begin(clients->common, offset);
    struct commit_value value;
    int error = 0;
    while (!error && !walk_is_over(&walk)) {
        const bool whole = walk_next(&walk, &value);
        ASSERT(whole); /* nobody else uses this PM */
        error = take_part(clients, table, &value);
    }
    return error;
}

bool recover_clients_ask(const struct recover_clients *clients, const struct entry_header *header)
{
    const struct recover_speaker *speaker = &clients->speakers[header->shard];
    if (header->client_id == 0 || !speaker->table || header->version > speaker->upto)
        return header->client_id != 0;
    const struct recover_client *client = (const struct recover_client *)records_table_find(
        &speaker->table->clients, header->client_id, 0);
    return client && header->operation >= client->lowest;
}

struct raise {
    const struct recover_table *table;
    struct records *records;
};

static void raise_client(void *context, uint32_t client, uint32_t lowest)
{
    const struct raise *raise = context;
    const struct recover_client *row =
        (const struct recover_client *)records_table_find(&raise->table->clients, client, 0);
    if (row && row->lowest > lowest)
        records_found_lowest(raise->records, client, row->lowest);
}

void recover_clients_raise(const struct recover_clients *clients, uint16_t shard,
                           struct records *records)
{
    struct raise raise = {.table = clients->speakers[shard].table, .records = records};
    if (raise.table)
        records_each(records, raise_client, &raise);
}
