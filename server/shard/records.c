/* Completion records. A client has the list of its operations in the order of their first arrival;
 * a hash table leads from (client, operation) to the same items.
 *
 *  1. An operation has an item from records_look (version 0: no effect known) or records_add on, so
 *     that a completion needs no memory.
 *  2. Items leave at the head of their client's list, when the head is below the client's lowest
 *     unanswered number. An item below it behind a higher head is not used any more: the verdict is
 *     STALE.
 *  3. A client that has gone has no items. It stays until records_changed has reported it, or until
 *     its place is needed.
 *  4. Its lowest number is then reported as the number after the highest that was seen, not as "all":
 *     the client may be gone from this shard only, and wait elsewhere for a later operation.
 */
#include "server/shard/records.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/list.h"
#include "server/shard/records_table.h"

enum { LIST_BUCKETS = 1024 }; /* looked at in one call of records_list */

struct record {
    struct records_item item;
    struct record *younger; /* of the client, by arrival */
    uint64_t version;       /* 0: it took no effect yet */
};
_Static_assert(sizeof(struct record) == 32, "the memory that the header promises");

struct records_client {
    struct records_item item; /* its operation is 0 */
    struct record *oldest, *youngest;
    uint32_t lowest, highest; /* unanswered; seen */
    uint32_t unknown;         /* the highest number of a mark */
    bool changed;             /* `lowest` has, since the last walk: it is in the list `changed` */
    bool gone;                /* implies `changed` */
    struct {
        struct records_client *next, *prev;
    } place; /* in the list `changed` */
};
_Static_assert(sizeof(struct records_client) == 64, "the memory that the header promises");

struct records_inside {
    struct records_table clients, records;
    struct {
        struct records_client *first, *last;
    } changed;
    struct records_client
        *recent;    /* the last one used, as requests of a client come in batches; or NULL */
    uint64_t count; /* records with a version */
    uint32_t gone;
};

static struct records_inside *open_inside(struct records *records)
{
    if (records->inside)
        return records->inside;
    struct records_inside *inside = calloc(1, sizeof *inside);
    if (!inside)
        return NULL;
    records_table_init(&inside->clients, sizeof(struct records_client));
    records_table_init(&inside->records, sizeof(struct record));
    return records->inside = inside;
}

void records_fini(struct records *records)
{
    if (!records->inside)
        return;
    records_table_fini(&records->inside->clients);
    records_table_fini(&records->inside->records);
    free(records->inside);
    records->inside = NULL;
}

/* Client 0 is nobody; no client uses the highest number (client/session.c). */
static bool is_number(uint32_t client, uint32_t operation)
{
    return client != 0 && operation != 0 && operation != UINT32_MAX;
}

/* --- clients --- */

static void mark_changed(struct records_inside *inside, struct records_client *client)
{
    if (client->changed)
        return;
    client->changed = true;
    LIST_APPEND(&inside->changed, client, place);
}

static void unmark_changed(struct records_inside *inside, struct records_client *client)
{
    LIST_REMOVE(&inside->changed, client, place);
    client->changed = false;
}

static void drop_gone(struct records_inside *inside, struct records_client *client)
{
    ASSERT(client->gone && !client->oldest);
    unmark_changed(inside, client);
    inside->gone--;
    if (inside->recent == client)
        inside->recent = NULL;
    records_table_give(&inside->clients, &client->item);
}

static struct records_client *find_client(const struct records_inside *inside, uint32_t number)
{
    return (struct records_client *)records_table_find(&inside->clients, number, 0);
}

/* Invariant 3. */
static void drop_all_gone(struct records_inside *inside)
{
    struct records_client *next;
    for (struct records_client *client = inside->changed.first; client && inside->gone;
         client = next) {
        next = client->place.next;
        if (client->gone)
            drop_gone(inside, client);
    }
}

static int find_or_open_client(struct records_inside *inside, uint32_t number,
                               struct records_client **out)
{
    struct records_client *client = find_client(inside, number);
    if (!client) {
        if (inside->clients.count >= RECORDS_MAX_CLIENTS)
            drop_all_gone(inside);
        if (inside->clients.count >= RECORDS_MAX_CLIENTS)
            return ROWAN_EBUSY;
        client = (struct records_client *)records_table_take(&inside->clients, number, 0);
        if (!client)
            return ROWAN_ENOMEM;
        *client = (struct records_client){.item = client->item};
    } else if (client->gone) {
        client->gone = false;
        client->lowest = client->highest = client->unknown = 0;
        inside->gone--;
    }
    inside->recent = client;
    *out = client;
    return 0;
}

static inline int open_client(struct records_inside *inside, uint32_t number,
                              struct records_client **out)
{
    struct records_client *recent = inside->recent;
    if (!recent || recent->item.client != number || recent->gone)
        return find_or_open_client(inside, number, out);
    *out = recent;
    return 0;
}

/* Invariant 2. */
static void forget_below(struct records_inside *inside, struct records_client *client,
                         uint32_t lowest)
{
    struct record *record;
    while ((record = client->oldest) && record->item.operation < lowest) {
        client->oldest = record->younger;
        if (!client->oldest)
            client->youngest = NULL;
        inside->count -= record->version != 0;
        records_table_give(&inside->records, &record->item);
    }
}

static void raise_lowest(struct records_inside *inside, struct records_client *client,
                         uint32_t lowest)
{
    if (lowest <= client->lowest)
        return;
    client->lowest = lowest;
    mark_changed(inside, client);
    forget_below(inside, client, lowest);
}

/* --- records --- */

/* Invariant 1: an item for an operation that has none. */
static int open_record(struct records_inside *inside, struct records_client *client,
                       uint32_t operation, struct record **out)
{
    if (inside->records.count >= RECORDS_MAX)
        return ROWAN_EBUSY;
    struct record *record =
        (struct record *)records_table_take(&inside->records, client->item.client, operation);
    if (!record)
        return ROWAN_ENOMEM;
    record->younger = NULL;
    record->version = 0;
    if (client->youngest)
        client->youngest->younger = record;
    else
        client->oldest = record;
    client->youngest = record;
    if (operation > client->highest)
        client->highest = operation;
    *out = record;
    return 0;
}

int records_look(struct records *records, uint32_t client_number, uint32_t operation,
                 uint32_t lowest, uint64_t *version)
{
    ASSERT(is_number(client_number, operation) && lowest <= operation);
    struct records_inside *inside = open_inside(records);
    struct records_client *client;
    if (!inside)
        return ROWAN_ENOMEM;
    int error = open_client(inside, client_number, &client);
    if (error)
        return error;
    raise_lowest(inside, client, lowest);
    if (operation < client->lowest)
        return RECORDS_STALE;
    struct record *record;
    if (operation > client->highest && operation > client->unknown) {
        error = open_record(inside, client, operation, &record);
        return error ? error : RECORDS_FRESH;
    }
    record = (struct record *)records_table_find(&inside->records, client_number, operation);
    if (operation <= client->unknown && (!record || !record->version))
        return RECORDS_STALE;
    if (!record) {
        error = open_record(inside, client, operation, &record);
        return error ? error : RECORDS_AGAIN;
    }
    if (!record->version)
        return RECORDS_AGAIN;
    *version = record->version;
    return RECORDS_DONE;
}

int records_add(struct records *records, uint32_t client_number, uint32_t operation,
                uint64_t version)
{
    ASSERT(version);
    if (!is_number(client_number, operation))
        return 0;
    struct records_inside *inside = open_inside(records);
    struct records_client *client;
    if (!inside)
        return ROWAN_ENOMEM;
    struct record *record =
        version == RECORDS_UNKNOWN
            ? NULL
            : (struct record *)records_table_find(&inside->records, client_number, operation);
    if (!record) {
        int error = open_client(inside, client_number, &client);
        if (error || operation < client->lowest)
            return error;
        if (version == RECORDS_UNKNOWN || open_record(inside, client, operation, &record)) {
            client->unknown = operation > client->unknown ? operation : client->unknown;
            return 0;
        }
    }
    inside->count += record->version == 0;
    if (version > record->version)
        record->version = version;
    return 0;
}

/* The client, with its lowest number raised; NULL: it is not known, or has gone. */
static struct records_client *find_and_raise(struct records_inside *inside, uint32_t number,
                                             uint32_t lowest)
{
    struct records_client *client = inside ? find_client(inside, number) : NULL;
    if (!client || client->gone)
        return NULL;
    raise_lowest(inside, client, lowest);
    return client;
}

static void mark_gone(struct records_inside *inside, struct records_client *client)
{
    ASSERT(!client->oldest);
    mark_changed(inside, client);
    client->gone = true;
    inside->gone++;
}

void records_lowest(struct records *records, uint32_t client_number, uint32_t lowest)
{
    struct records_client *client = find_and_raise(records->inside, client_number, lowest);
    if (client && lowest == UINT32_MAX)
        mark_gone(records->inside, client);
}

static bool is_marked(const struct records_client *client)
{
    return client->unknown != 0 && client->unknown >= client->lowest;
}

void records_found_lowest(struct records *records, uint32_t client_number, uint32_t lowest)
{
    struct records_client *client = find_and_raise(records->inside, client_number, lowest);
    if (client && !client->oldest && !is_marked(client))
        mark_gone(records->inside, client);
}

/* --- walks and figures --- */

uint32_t records_highest(const struct records *records, uint32_t client_number)
{
    const struct records_client *client =
        records->inside ? find_client(records->inside, client_number) : NULL;
    return client ? client->highest : 0;
}

uint64_t records_count(const struct records *records)
{
    return records->inside ? records->inside->count : 0;
}

uint32_t records_clients(const struct records *records)
{
    const struct records_inside *inside = records->inside;
    return inside ? inside->clients.count - inside->gone : 0;
}

uint64_t records_bytes(const struct records *records)
{
    const struct records_inside *inside = records->inside;
    return inside ? sizeof *inside + records_table_bytes(&inside->clients) +
                        records_table_bytes(&inside->records)
                  : 0;
}

void records_changed(struct records *records, records_visit *visit, void *context)
{
    struct records_inside *inside = records->inside;
    struct records_client *client;
    while (inside && (client = inside->changed.first)) {
        visit(context, client->item.client, client->gone ? client->highest + 1 : client->lowest);
        if (client->gone)
            drop_gone(inside, client);
        else
            unmark_changed(inside, client);
    }
}

/* The rows of a bucket; UINT32_MAX: more than `max`. */
static uint32_t list_bucket(const struct records_item *item, bool clients, struct records_row *rows,
                            uint32_t max)
{
    uint32_t count = 0;
    for (; item; item = item->next) {
        const struct records_client *client = (const struct records_client *)item;
        const struct record *record = (const struct record *)item;
        if (clients ? client->gone : record->version == 0)
            continue;
        const bool marked = clients && is_marked(client);
        if (count + marked >= max)
            return UINT32_MAX;
        if (marked)
            rows[count++] = (struct records_row){
                .client = item->client, .operation = client->unknown, .version = RECORDS_UNKNOWN};
        rows[count++] =
            clients ? (struct records_row){.client = item->client, .operation = client->lowest}
                    : (struct records_row){.client = item->client,
                                           .operation = item->operation,
                                           .version = record->version};
    }
    return count;
}

/* A table that has become smaller has moved items to buckets that were told: it begins anew. One that grows moves them to
 * later ones. */
int records_list(const struct records *records, struct records_cursor *cursor,
                 struct records_row *rows, uint32_t max, bool *over)
{
    const struct records_inside *inside = records->inside;
    uint32_t count = 0, buckets = 0;
    *over = !inside;
    while (!*over && count < max && buckets++ < LIST_BUCKETS) {
        const struct records_table *table = cursor->clients ? &inside->clients : &inside->records;
        if (table->buckets < cursor->buckets)
            cursor->bucket = 0;
        cursor->buckets = table->buckets;
        if (cursor->bucket == table->buckets) {
            *over = cursor->clients;
            *cursor = (struct records_cursor){.clients = true};
            continue;
        }
        const uint32_t more = list_bucket(*records_bucket_at(table, cursor->bucket),
                                          cursor->clients, rows + count, max - count);
        if (more == UINT32_MAX)
            return count > 0 ? (int)count : ROWAN_EBUSY;
        count += more;
        cursor->bucket++;
    }
    return (int)count;
}

void records_each(const struct records *records, records_visit *visit, void *context)
{
    const struct records_inside *inside = records->inside;
    if (!inside)
        return;
    for (uint32_t bucket = 0; bucket < inside->clients.buckets; bucket++) {
        const struct records_item *item = *records_bucket_at(&inside->clients, bucket);
        for (; item; item = item->next) {
            const struct records_client *client = (const struct records_client *)item;
            if (!client->gone)
                visit(context, item->client, client->lowest);
        }
    }
}
