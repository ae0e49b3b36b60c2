/* What replicas have settled, durably (SettledIs): a backup tells the worker that leads the shard, over the connection that
 * the worker sends entries on, and hears from it what all replicas have. worker/worker_settled.h says why a figure that was
 * told stays right. */
#include "common/base/error.h"
#include "server/control/control_state.h"

enum { SETTLED_ROWS = 128 }; /* of a message */

#define SETTLED_RETRY_NS NS_PER_MS

void control_settled_changed(struct control *control)
{
    for (struct control_link *link = control->links.first; link; link = link->place.next)
        link->settled_next = 0;
    /* One that finds no memory: at the next period. */
    for (uint32_t i = 0; i < control->options->workers; i++)
        (void)command_push(&worker_role(control->workers[i])->inbox,
                           &(struct command){.kind = COMMAND_SETTLED});
}

/* The epoch of a shard has begun, says its primary: its digest role has to know. */
static void tell_digest(struct control *control, const struct shard_state *shard, uint64_t commit)
{
    if (commit != version_make(shard->epoch, 0) || shard->primary ||
        commit <= atomic_load_explicit(&shard->commit, memory_order_relaxed))
        return;
    /* If there is no memory: the primary is asked again. */
    (void)command_push(&digest_role(control->digests[shard->digest])->inbox,
                       &(struct command){.kind = COMMAND_BEGUN,
                                         .begun = {.shard = shard->id, .epoch = shard->epoch}});
}

void control_settled_told(struct control *control, const struct control_link *link,
                          const Rowan__SettledIs *told)
{
    for (size_t i = 0; i < told->n_shards; i++) {
        const Rowan__ShardSettled *is = told->shards[i];
        const struct shard *row = control_row(control, is->shard);
        if (!row || !link->peer || row->epoch != is->epoch || row->primary != link->server ||
            row->worker != link->worker)
            continue;
        struct shard_state *shard = control->shards[row - control->config->shards];
        tell_digest(control, shard, is->commit);
        if (version_epoch(is->settled) == row->epoch &&
            is->settled > atomic_load_explicit(&shard->everywhere, memory_order_relaxed))
            atomic_store_explicit(&shard->everywhere, is->settled, memory_order_release);
    }
}

/* False: there is nothing to tell of this shard. */
static bool fill(const struct control *control, uint32_t position, Rowan__ShardSettled *row)
{
    const struct shard_state *shard = control->shards[position];
    const uint64_t settled = atomic_load_explicit(&shard->dur_settled, memory_order_relaxed);
    const uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    rowan__shard_settled__init(row);
    row->shard = shard->id;
    row->epoch = shard->epoch;
    row->settled = version_epoch(settled) == shard->epoch ? settled : 0;
    if (control->commit_step == COMMIT_WAIT &&
        commit < control->adoption.shards[position].commit_needs)
        row->commit = commit;
    return row->settled || row->commit;
}

/* The next shards. Errors: those of control_message_send. */
static int tell(const struct control *control, struct control_link *link)
{
    Rowan__SettledIs body = ROWAN__SETTLED_IS__INIT;
    Rowan__ShardSettled rows[SETTLED_ROWS], *pointers[SETTLED_ROWS];
    uint32_t next = link->settled_next;
    for (; next < control->config->shard_count && body.n_shards < SETTLED_ROWS; next++) {
        const struct shard *row = &control->config->shards[next];
        pointers[body.n_shards] = &rows[body.n_shards];
        if (control->shards[next] && row->primary == link->server && row->worker == link->worker &&
            fill(control, next, &rows[body.n_shards]))
            body.n_shards++;
    }
    body.shards = pointers;
    const int error =
        body.n_shards
            ? control_message_send(link->conn, 0, &CONTROL_MESSAGE(SETTLED_IS, settled_is, &body))
            : 0;
    if (!error)
        link->settled_next = next;
    return error;
}

bool control_settled_poll(struct control *control, uint64_t *wake_ns)
{
    bool any = false;
    for (struct control_link *link = control->links.first; link; link = link->place.next) {
        if (!link->peer || link->settled_next >= control->config->shard_count)
            continue;
        const int error = tell(control, link);
        any |= !error;
        if (error == ROWAN_EAGAIN || error == ROWAN_ENOMEM)
            wake_at(wake_ns, control->now_ns + SETTLED_RETRY_NS);
    }
    return any;
}
