/* What backups show in a log reconciliation, and is not here, is stored in this worker's log (worker_reconcile.c, U3). */
#include "server/worker/worker_reconcile_take.h"

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/apply.h"

/* All blocks of an entry that was not here lie in the t-log. Errors: ROWAN_ENOMEM. */
static int take_entry(struct worker *worker, struct reconciliation *it, const struct part *part)
{
    struct shard_state *shard = it->shard;
    const struct entry_header *header = &part->incoming.header;
    const uint64_t start = part->incoming.start;
    const struct apply_entry entry =
        apply_describe(worker->common->pm, &worker->common->format, header, start, worker->key);
    const int applied = apply_entry(shard, &entry);
    const int error = applied < 0 ? applied : suffix_add(&it->extra, header->version, start);
    if (error)
        return error;
    if (records_add(&shard->records, header->client_id, header->operation, header->version))
        log_event(LOG_WARN, "record_lost",
                  "shard=%u client=%u operation=%u a retry of it would be carried out again",
                  shard->id, header->client_id, header->operation);
    it->taken++;
    it->holes += header->version <= it->commit;
    return 0;
}

/* U3. */
static bool is_expected(const struct reconciliation *it, const struct entry_header *header)
{
    return header->shard == it->shard->id && header->version > it->from &&
           version_epoch(header->version) < it->shard->epoch &&
           (header->type == ENTRY_PUT || header->type == ENTRY_DELETE);
}

int worker_reconcile_take(struct worker *worker, struct reconciliation *it, struct part *part,
                          const ProtobufCBinaryData *block)
{
    const struct entry_format *format = &worker->common->format;
    struct incoming *incoming = &part->incoming;
    struct entry_header header;
    uint32_t bytes;
    int error = entry_decode(format, block->data, block->len, &header, &bytes);
    if (!error && (bytes != block->len || !is_expected(it, &header)))
        error = ROWAN_EFORMAT;
    if (error)
        return error;
    const bool here =
        suffix_has(&it->shard->suffix, header.version) ||
        header.version <= atomic_load_explicit(&it->shard->settled, memory_order_relaxed); /* U7 */
    const uint64_t segments = worker->log.segments;
    const int whole = incoming_take(incoming, &worker->log, format, &header, block->data, here);
    if (worker->log.segments != segments)
        inbox_wake(&worker->role.outbox); /* the control role says "full" in time */
    if (whole >= 0 && !incoming->skipped) {
        worker->stored = true;
        it->local_batch = worker->batch;
    }
    if (whole != 1)
        return whole;
    error = incoming->skipped ? 0 : take_entry(worker, it, part);
    return error ? error : suffix_add(&part->has, header.version, 0);
}
