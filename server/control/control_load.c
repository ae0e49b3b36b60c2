/* What each shard costs this server, for the manager (cm/loads.h). The time for which a role was busy is divided among its
 * shards by the work that they were (work.h). A shard that changed its epoch, and so perhaps its owner, since the last
 * report is left out of this one.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "server/control/control_state.h"

#define LOAD_EVERY_NS (500 * NS_PER_MS)

enum { LOAD_CORE = 1000000 };

struct owner {
    uint64_t busy_ns, work; /* since the last report */
};

struct owners {
    struct owner roles[CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS]; /* workers, then digest roles */
    uint64_t passed_ns;
};

static struct owner *owner_of(const struct control *control, struct owners *owners,
                              const struct shard_state *shard)
{
    const uint32_t role =
        shard->primary ? shard->worker : control->options->workers + shard->digest;
    return &owners->roles[role];
}

static uint64_t work_since(const struct shard_state *shard)
{
    return atomic_load_explicit(&shard->work.done, memory_order_relaxed) - shard->work.told;
}

static void measure_owners(struct control *control, struct owners *owners)
{
    struct control_load *load = &control->load;
    *owners = (struct owners){.passed_ns = control->now_ns - load->told_ns};
    load->told_ns = control->now_ns;
    for (uint32_t i = 0; i < control->role_count - 1; i++) { /* all but the clean role */
        const uint64_t busy_ns = counter_get(&control->roles[i]->busy_ns);
        owners->roles[i].busy_ns = busy_ns - load->busy_ns[i];
        load->busy_ns[i] = busy_ns;
    }
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        if (control->shards[i])
            owner_of(control, owners, control->shards[i])->work += work_since(control->shards[i]);
    }
}

static uint64_t count_live(const struct store *store)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < store_segments(store); i++)
        bytes += live_bytes(store_live(store), i);
    return bytes;
}

/* Of these, those that an index item stands for, on average. */
static uint64_t bytes_of_item(const struct control *control, uint64_t bytes)
{
    uint64_t items = 0;
    for (uint32_t i = 0; i < control->config->shard_count; i++)
        items += control->shards[i] ? index_items(control->shards[i]->index) : 0;
    return items ? (bytes + items - 1) / items : 0;
}

/* False: nothing is to be said of it. */
static bool measure(struct control *control, struct owners *owners, struct shard_state *shard,
                    Rowan__ShardLoad *row)
{
    struct work *work = &shard->work;
    const struct owner *owner = owner_of(control, owners, shard);
    const uint32_t epoch = shard->epoch;
    const uint64_t since = work_since(shard);
    const bool changed = work->told_epoch != epoch;
    work->told += since;
    work->told_epoch = epoch;
    work->load = 0;
    if (changed || owners->passed_ns == 0)
        return false;
    if (owner->work > 0)
        work->load = (uint32_t)((double)owner->busy_ns / (double)owners->passed_ns * (double)since /
                                (double)owner->work * LOAD_CORE);
    rowan__shard_load__init(row);
    row->shard = shard->id;
    row->epoch = epoch;
    row->load = work->load;
    row->bytes = index_items(shard->index) * control->load.item_bytes;
    if (!shard->primary)
        return true;
    work_look(work);
    row->split = work->spread.split;
    return true;
}

/* Of so many segments. */
static uint64_t above_reserve(const struct control *control, uint64_t segments)
{
    const uint64_t reserve = atomic_load_explicit(&control->common->reserve, memory_order_relaxed);
    return segments > reserve ? (segments - reserve) * STORE_SEGMENT_BYTES : 0;
}

static void report(struct control *control)
{
    const struct store *store = control->common->store;
    const uint32_t count = control->config->shard_count;
    struct owners owners;
    Rowan__ShardLoad *rows = calloc(count, sizeof *rows),
                     **pointers = calloc(count, sizeof *pointers);
    Rowan__Load body = ROWAN__LOAD__INIT;
    measure_owners(control, &owners);
    body.live_bytes = count_live(store);
    control->load.item_bytes = bytes_of_item(control, body.live_bytes);
    for (uint32_t i = 0; rows && pointers && i < count; i++) {
        if (!control->shards[i] ||
            !measure(control, &owners, control->shards[i], &rows[body.n_shards]))
            continue;
        pointers[body.n_shards] = &rows[body.n_shards];
        body.n_shards++;
    }
    body.shards = pointers;
    body.cores = control->options->reactors;
    body.free_bytes = above_reserve(control, store_segments_free(store));
    body.all_bytes = above_reserve(control, store_segments(store));
    body.full = atomic_load_explicit(&control->common->full, memory_order_relaxed);
    if (rows && pointers) /* else the manager waits for the next */
        (void)control_message_send(control->cm_conn, 0, &CONTROL_MESSAGE(LOAD, load, &body));
    free(rows);
    free(pointers);
}

void control_load_poll(struct control *control, uint64_t *wake_ns)
{
    if (!control->shards || !control->zone || control->config->lease_ms == 0 ||
        !control->cm_connected || !control->cm_leads || control_lease_left_ms(control) == 0)
        return;
    struct control_load *load = &control->load;
    if (control->now_ns >= load->told_ns + LOAD_EVERY_NS)
        report(control);
    wake_at(wake_ns, load->told_ns + LOAD_EVERY_NS);
}
