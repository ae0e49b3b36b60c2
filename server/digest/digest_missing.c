/* What never arrived: a commit version covers it, and no scan of all places where it may be has met it (D4). The primary is
 * asked for it, ever more seldom. */
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/digest/digest_state.h"

/* How soon to ask again for versions that are missing; twice as long each time, up to the second. */
#define DIGEST_ASK_MIN_NS NS_PER_S
#define DIGEST_ASK_MAX_NS (32 * NS_PER_S)

/* After a question for [first, last]; those in front of it came meanwhile, if any. */
static void plan_question(struct shard_state *shard, uint64_t first, uint64_t last, uint64_t now_ns)
{
    bool moved = shard->asked_last == 0 || first > shard->asked_first;
    shard->ask_after_ns = moved ? DIGEST_ASK_MIN_NS : 2 * shard->ask_after_ns;
    if (shard->ask_after_ns > DIGEST_ASK_MAX_NS)
        shard->ask_after_ns = DIGEST_ASK_MAX_NS;
    shard->ask_ns = now_ns + shard->ask_after_ns;
    shard->asked_first = first;
    shard->asked_last = last;
    shard->sought = 0; /* in front of the next question, too, is a scan */
}

void digest_ask_soon(struct digest *digest, struct shard_state *shard)
{
    const uint64_t soon_ns = digest->now_ns + DIGEST_ASK_MIN_NS;
    shard->ask_after_ns = DIGEST_ASK_MIN_NS;
    shard->ask_ns = shard->ask_ns < soon_ns ? shard->ask_ns : soon_ns;
}

/* When the next question is due; shards that lack nothing any more leave the list. */
static uint64_t next_question_ns(struct digest *digest)
{
    uint64_t next_ns = WAKE_NEVER;
    struct shard_state *shard = digest->missing.first;
    for (; shard; shard = shard->missing_link.next) {
        uint64_t first, last;
        uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
        if (!prefix_hole(&shard->prefix, commit, &first, &last)) {
            atomic_store_explicit(&shard->missing, false, memory_order_relaxed);
            digest_settle(digest, shard);
            LIST_REMOVE(&digest->missing, shard, missing_link);
            continue;
        }
        uint64_t due_ns = first > shard->asked_last ? 0 : shard->ask_ns;
        if (due_ns < next_ns)
            next_ns = due_ns;
    }
    return next_ns;
}

/* Asks for what was sought, once its time has come. True if it asked: nobody wakes this role for the answer. */
static bool ask_for_missing(struct digest *digest)
{
    bool any = false;
    for (struct shard_state *shard = digest->missing.first; shard;
         shard = shard->missing_link.next) {
        uint64_t first, last;
        if (!prefix_hole(&shard->prefix, shard->sought, &first, &last) ||
            (first <= shard->asked_last && digest->now_ns < shard->ask_ns))
            continue;
        const struct command command = {
            .kind = COMMAND_FETCH, .fetch = {.shard = shard->id, .first = first, .last = last}};
        /* One that finds no room or memory is as good as one that was lost. */
        if (!command_push(&digest->role.outbox, &command))
            log_event(LOG_WARN, "versions_missing", "shard=%u first=%lx last=%lx", shard->id, first,
                      last);
        plan_question(shard, first, last, digest->now_ns);
        counter_add(&digest->fetches, 1);
        any = true;
    }
    return any;
}

void digest_seek(struct digest *digest)
{
    for (struct shard_state *shard = digest->missing.first; shard; shard = shard->missing_link.next)
        shard->sought = atomic_load_explicit(&shard->commit, memory_order_relaxed);
}

/* Asks for what is missing, after a scan of all places where it may be (D4). True if there is more to do at once. */
bool digest_seek_missing(struct digest *digest, uint64_t *wake_ns)
{
    if (digest_is_behind(digest))
        return false; /* what is missing may lie in front of the scan */
    if (digest->gap == DIGEST_NOWHERE)
        digest_seek(digest);
    const bool asked = ask_for_missing(digest);
    uint64_t next_ns = next_question_ns(digest);
    if (digest->gap != DIGEST_NOWHERE) {
        if (next_ns < digest->again_ns + DIGEST_PATIENCE_NS)
            next_ns = digest->again_ns + DIGEST_PATIENCE_NS;
        if (next_ns > digest->again_ns + digest->again_after_ns)
            next_ns = digest->again_ns + digest->again_after_ns;
        if (next_ns <= digest->now_ns) {
            digest_scan_again(digest);
            return true;
        }
    }
    wake_at(wake_ns, next_ns);
    return asked;
}
