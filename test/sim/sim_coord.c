/* One value in memory. Each handle answers what was asked of it in its next poll. The oldest handle
 * that stands for election leads.
 */
#include "test/sim/sim_coord.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

struct sim_coord {
    struct coord head; /* first */
    struct sim_registry *registry;
    struct sim_coord *next;
    uint64_t known_version; /* that the owner was last told */

    coord_read_done *read;
    void *read_context;

    coord_cas_done *cas;
    void *cas_context;
    uint64_t cas_expected;
    void *cas_value;
    size_t cas_bytes;

    coord_changed *watch;
    void *watch_context;

    coord_leader *elect;
    void *elect_context;
    bool leads;
};

struct sim_registry {
    void *value;
    size_t bytes;
    uint64_t version;        /* 0: no value */
    struct sim_coord *first; /* oldest first */
};

struct sim_registry *sim_registry_create(const struct sim_registry_options *options)
{
    (void)options;
    struct sim_registry *registry = calloc(1, sizeof *registry);
    ASSERT(registry);
    return registry;
}

void sim_registry_destroy(struct sim_registry *registry)
{
    if (!registry)
        return;
    ASSERT(!registry->first);
    free(registry->value);
    free(registry);
}

static void sim_close(struct coord *head)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    struct sim_coord **link = &coord->registry->first;
    while (*link != coord)
        link = &(*link)->next;
    *link = coord->next;
    free(coord->cas_value);
    free(coord);
}

static int sim_read(struct coord *head, coord_read_done *done, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    if (coord->read)
        return ROWAN_EAGAIN;
    coord->read = done;
    coord->read_context = context;
    return 0;
}

static int sim_cas(struct coord *head, uint64_t expected_version, const void *value, size_t bytes,
                   coord_cas_done *done, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    if (bytes > COORD_MAX_VALUE_BYTES)
        return ROWAN_EINVALID;
    if (coord->cas)
        return ROWAN_EAGAIN;
    coord->cas_value = malloc(bytes + 1);
    ASSERT(coord->cas_value);
    memcpy(coord->cas_value, value, bytes);
    coord->cas_bytes = bytes;
    coord->cas_expected = expected_version;
    coord->cas = done;
    coord->cas_context = context;
    return 0;
}

static int sim_watch(struct coord *head, coord_changed *changed, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    if (coord->watch)
        return ROWAN_EAGAIN;
    coord->watch = changed;
    coord->watch_context = context;
    return 0;
}

static int sim_elect(struct coord *head, coord_leader *leader, void *context)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    if (coord->elect)
        return ROWAN_EAGAIN;
    coord->elect = leader;
    coord->elect_context = context;
    return 0;
}

static void answer_read(struct sim_coord *coord)
{
    const struct sim_registry *registry = coord->registry;
    coord_read_done *done = coord->read;
    coord->read = NULL;
    coord->known_version = registry->version;
    done(coord->read_context, 0, registry->value, registry->bytes, registry->version);
}

static void answer_cas(struct sim_coord *coord)
{
    struct sim_registry *registry = coord->registry;
    coord_cas_done *done = coord->cas;
    coord->cas = NULL;
    if (coord->cas_expected != registry->version) {
        free(coord->cas_value);
        coord->cas_value = NULL;
        done(coord->cas_context, ROWAN_EVERSION, 0);
        return;
    }
    free(registry->value);
    registry->value = coord->cas_value;
    registry->bytes = coord->cas_bytes;
    registry->version++;
    coord->cas_value = NULL;
    coord->known_version = registry->version;
    done(coord->cas_context, 0, registry->version);
}

static bool is_leader(const struct sim_coord *coord)
{
    const struct sim_coord *at = coord->registry->first;
    while (at && !at->elect)
        at = at->next;
    return at == coord;
}

static enum poll_result sim_poll(struct coord *head, uint64_t now_ns, uint64_t *wake_ns)
{
    struct sim_coord *coord = (struct sim_coord *)head;
    (void)now_ns;
    (void)wake_ns;
    enum poll_result result = POLL_IDLE;
    if (!coord->leads && is_leader(coord)) {
        coord->leads = true;
        coord->elect(coord->elect_context, true);
        result = POLL_BUSY;
    }
    if (coord->read) {
        answer_read(coord);
        result = POLL_BUSY;
    }
    if (coord->cas) {
        answer_cas(coord);
        result = POLL_BUSY;
    }
    if (coord->watch && coord->registry->version != coord->known_version) {
        coord_changed *changed = coord->watch;
        coord->watch = NULL;
        changed(coord->watch_context);
        result = POLL_BUSY;
    }
    return result;
}

static const struct coord_ops SIM_COORD_OPS = {
    .close = sim_close,
    .read = sim_read,
    .cas = sim_cas,
    .watch = sim_watch,
    .elect = sim_elect,
    .poll = sim_poll,
};

struct coord *sim_coord_open(struct sim_registry *registry)
{
    struct sim_coord *coord = calloc(1, sizeof *coord);
    ASSERT(coord);
    coord->head.ops = &SIM_COORD_OPS;
    coord->registry = registry;
    struct sim_coord **link = &registry->first;
    while (*link)
        link = &(*link)->next;
    *link = coord;
    return &coord->head;
}
