/* clients.h - which clients a worker knows: the connection that each has, and since when it has
 * none. A client's completion records are kept for CLIENTS_KEEP_NS after its last connection ended;
 * no client asks again that late (client/rowan.h, ROWAN_MAX_TIMEOUT_MS).
 *
 * Of each it also keeps the lowest unanswered number that was heard of, in whichever shard.
 *
 * 65 B a client and 8 B of hash table, in chunks; at most CLIENTS_MAX. One thread.
 */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/shard/completed.h"
#include "server/shard/records_table.h"

enum { CLIENTS_MAX = 1 << 17 };

#define CLIENTS_GRACE_NS NS_PER_S /* see clients_forget */

struct client_link;

struct clients_entry {
    struct records_item item; /* its client; the operation is 0 */
    struct client_link *link; /* NULL: no connection since left_ns */
    uint64_t left_ns;
    uint32_t lowest;
    struct {
        struct clients_entry *next, *prev;
    } idle; /* without connection: by left_ns */
};

struct clients {
    struct records_table entries;
    struct clients_entry *first, *last; /* without connection */
    uint64_t over_ns;                   /* when somebody's time was found to be over; 0: nobody's */
    bool incomplete; /* somebody who has records could not be entered, so is not known */
};

void clients_init(struct clients *clients);
void clients_fini(struct clients *clients);

static inline bool clients_full(const struct clients *clients)
{
    return clients->entries.count >= CLIENTS_MAX;
}

static inline bool clients_knows(const struct clients *clients, uint32_t client)
{
    return records_table_find(&clients->entries, client, 0);
}

/* clients_enter: `link` is the client's connection from now on; the one it had goes to *older, or
 * NULL. Errors: ROWAN_ETOOMANY ENOMEM. */
int clients_enter(struct clients *clients, uint32_t client, struct client_link *link,
                  struct client_link **older);

/* The connection has ended; nothing changes if the client has a newer one. */
void clients_leave(struct clients *clients, uint32_t client, const struct client_link *link,
                   uint64_t now_ns);

/* There are records of this client, which perhaps never connects. Nothing changes if it is known.
 * Errors: as clients_enter. */
int clients_note(struct clients *clients, uint32_t client, uint64_t now_ns);

/* The client's operations below `lowest` have their answers. Nothing changes if it is not known. */
void clients_raise(struct clients *clients, uint32_t client, uint32_t lowest);

/* The number below which nobody asks again for operations of this client. UINT32_MAX: for none, it was forgotten. */
uint32_t clients_lowest(const struct clients *clients, uint32_t client);

/* Calls `visit` for each client that is known. */
void clients_each(const struct clients *clients,
                  void (*visit)(void *context, uint32_t client, uint32_t lowest), void *context);

/* A client whose time was found to be over CLIENTS_GRACE_NS ago, which is not known any more; 0: none,
 * and *wake_ns is lowered to when there is one. By then a worker that was stopped for all that time
 * has seen the connections that were made meanwhile, and what a client asked on them again. */
uint32_t clients_forget(struct clients *clients, uint64_t now_ns, uint64_t *wake_ns);

#endif
