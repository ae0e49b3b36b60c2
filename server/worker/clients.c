/* The clients of a worker. All are kept equally long, so the list of those without connection is in
 * the order in which their time is over. */
#include "server/worker/clients.h"

#include "common/base/assert.h"
#include "common/base/error.h"

void clients_init(struct clients *clients)
{
    *clients = (struct clients){0};
    records_table_init(&clients->seats, sizeof(struct clients_seat));
}

void clients_fini(struct clients *clients)
{
    records_table_fini(&clients->seats);
}

static struct clients_seat *find_seat(const struct clients *clients, uint32_t client)
{
    return (struct clients_seat *)records_table_find(&clients->seats, client, 0);
}

static int open_seat(struct clients *clients, uint32_t client, struct clients_seat **out)
{
    ASSERT(client);
    if (clients_full(clients))
        return ROWAN_ETOOMANY;
    struct clients_seat *seat =
        (struct clients_seat *)records_table_take(&clients->seats, client, 0);
    if (!seat)
        return ROWAN_ENOMEM;
    *seat = (struct clients_seat){.item = seat->item};
    *out = seat;
    return 0;
}

static void idle_push(struct clients *clients, struct clients_seat *seat, uint64_t now_ns)
{
    seat->link = NULL;
    seat->left_ns = now_ns;
    seat->later = NULL;
    seat->earlier = clients->last;
    if (clients->last)
        clients->last->later = seat;
    else
        clients->first = seat;
    clients->last = seat;
}

static void idle_remove(struct clients *clients, struct clients_seat *seat)
{
    if (seat->earlier)
        seat->earlier->later = seat->later;
    else
        clients->first = seat->later;
    if (seat->later)
        seat->later->earlier = seat->earlier;
    else
        clients->last = seat->earlier;
}

int clients_enter(struct clients *clients, uint32_t client, struct client_link *link,
                  struct client_link **older)
{
    struct clients_seat *seat = find_seat(clients, client);
    if (!seat) {
        int error = open_seat(clients, client, &seat);
        if (error)
            return error;
    } else if (!seat->link) {
        idle_remove(clients, seat);
    }
    *older = seat->link;
    seat->link = link;
    return 0;
}

void clients_leave(struct clients *clients, uint32_t client, const struct client_link *link,
                   uint64_t now_ns)
{
    struct clients_seat *seat = find_seat(clients, client);
    if (seat && seat->link == link)
        idle_push(clients, seat, now_ns);
}

int clients_note(struct clients *clients, uint32_t client, uint64_t now_ns)
{
    struct clients_seat *seat = find_seat(clients, client);
    if (seat)
        return 0;
    int error = open_seat(clients, client, &seat);
    if (!error)
        idle_push(clients, seat, now_ns);
    return error;
}

/* False: not yet. */
static bool is_over(struct clients *clients, const struct clients_seat *seat, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    uint64_t over_ns = seat->left_ns + CLIENTS_KEEP_NS, next_ns = over_ns;
    if (now_ns < over_ns) {
        clients->over_ns = 0;
    } else {
        if (clients->over_ns < over_ns)
            clients->over_ns = now_ns;
        next_ns = clients->over_ns + CLIENTS_GRACE_NS;
    }
    if (now_ns < next_ns && next_ns < *wake_ns)
        *wake_ns = next_ns;
    return now_ns >= next_ns;
}

uint32_t clients_forget(struct clients *clients, uint64_t now_ns, uint64_t *wake_ns)
{
    struct clients_seat *seat = clients->first;
    if (!seat)
        clients->over_ns = 0;
    if (!seat || !is_over(clients, seat, now_ns, wake_ns))
        return 0;
    uint32_t client = seat->item.client;
    idle_remove(clients, seat);
    records_table_give(&clients->seats, &seat->item);
    return client;
}
