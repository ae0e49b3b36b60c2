/* The clients of a worker. All are kept equally long, so the list of those without connection is in
 * the order in which their time is over. */
#include "server/worker/clients.h"

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/list.h"
#include "common/reactor/reactor.h"

void clients_init(struct clients *clients)
{
    *clients = (struct clients){0};
    records_table_init(&clients->entries, sizeof(struct clients_entry));
}

void clients_fini(struct clients *clients)
{
    records_table_fini(&clients->entries);
}

static struct clients_entry *find_entry(const struct clients *clients, uint32_t client)
{
    return (struct clients_entry *)records_table_find(&clients->entries, client, 0);
}

static int open_entry(struct clients *clients, uint32_t client, struct clients_entry **out)
{
    ASSERT(client);
    if (clients_full(clients))
        return ROWAN_ETOOMANY;
    struct clients_entry *entry =
        (struct clients_entry *)records_table_take(&clients->entries, client, 0);
    if (!entry)
        return ROWAN_ENOMEM;
    *entry = (struct clients_entry){.item = entry->item};
    *out = entry;
    return 0;
}

static void leave(struct clients *clients, struct clients_entry *entry, uint64_t now_ns)
{
    entry->link = NULL;
    entry->left_ns = now_ns;
    LIST_APPEND(clients, entry, idle);
}

int clients_enter(struct clients *clients, uint32_t client, struct client_link *link,
                  struct client_link **older)
{
    struct clients_entry *entry = find_entry(clients, client);
    if (!entry) {
        int error = open_entry(clients, client, &entry);
        if (error)
            return error;
    } else if (!entry->link) {
        LIST_REMOVE(clients, entry, idle);
    }
    *older = entry->link;
    entry->link = link;
    return 0;
}

void clients_leave(struct clients *clients, uint32_t client, const struct client_link *link,
                   uint64_t now_ns)
{
    struct clients_entry *entry = find_entry(clients, client);
    if (entry && entry->link == link)
        leave(clients, entry, now_ns);
}

int clients_note(struct clients *clients, uint32_t client, uint64_t now_ns)
{
    struct clients_entry *entry = find_entry(clients, client);
    if (entry)
        return 0;
    int error = open_entry(clients, client, &entry);
    if (error)
        clients->incomplete = true;
    else
        leave(clients, entry, now_ns);
    return error;
}

void clients_raise(struct clients *clients, uint32_t client, uint32_t lowest)
{
    struct clients_entry *entry = find_entry(clients, client);
    if (entry && lowest > entry->lowest)
        entry->lowest = lowest;
}

uint32_t clients_lowest(const struct clients *clients, uint32_t client)
{
    const struct clients_entry *entry = find_entry(clients, client);
    if (entry)
        return entry->lowest;
    return clients->incomplete && client ? 0 : UINT32_MAX;
}

void clients_each(const struct clients *clients,
                  void (*visit)(void *context, uint32_t client, uint32_t lowest), void *context)
{
    for (uint32_t bucket = 0; clients->entries.count && bucket < clients->entries.buckets;
         bucket++) {
        const struct records_item *item = *records_bucket_at(&clients->entries, bucket);
        for (; item; item = item->next)
            visit(context, item->client, ((const struct clients_entry *)item)->lowest);
    }
}

/* False: not yet. */
static bool is_over(struct clients *clients, const struct clients_entry *entry, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    uint64_t over_ns = entry->left_ns + CLIENTS_KEEP_NS, next_ns = over_ns;
    if (now_ns < over_ns) {
        clients->over_ns = 0;
    } else {
        if (clients->over_ns < over_ns)
            clients->over_ns = now_ns;
        next_ns = clients->over_ns + CLIENTS_GRACE_NS;
    }
    if (now_ns < next_ns)
        wake_at(wake_ns, next_ns);
    return now_ns >= next_ns;
}

uint32_t clients_forget(struct clients *clients, uint64_t now_ns, uint64_t *wake_ns)
{
    struct clients_entry *entry = clients->first;
    if (!entry)
        clients->over_ns = 0;
    if (!entry || !is_over(clients, entry, now_ns, wake_ns))
        return 0;
    uint32_t client = entry->item.client;
    LIST_REMOVE(clients, entry, idle);
    records_table_give(&clients->entries, &entry->item);
    return client;
}
