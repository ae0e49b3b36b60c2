/* What a backup keeps of its shards, live, for the next log reconciliation and for its own promotion: the uncommitted suffix
 * (suffix.h), and which operations may be asked for again (completed.h).
 *
 * Invariants:
 *  D7  Each entry that was applied is in the suffix, unless it is at or below `above`. That is the settled version, or the
 *      last that this server completed as the primary, if that is higher: those were on every replica then, and the index
 *      has what is asked for below (suffix_below.h). While the shard's epoch has no commit version it does not rise, so what
 *      one answer of a reconciliation tells stays true in the next.
 *  D8  An operation whose entry was applied is in the suffix or in `completed` as long as its client may ask for it again,
 *      as far as memory goes.
 */
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/digest/digest_state.h"
#include "server/shard/records_question.h"

void digest_tail_take(struct digest *digest, struct shard_state *shard)
{
    shard->completed.acknowledged = &digest->acknowledged;
    shard->suffix.completed = &shard->completed;
    apply_depose(shard);
}

/* D7: of an epoch that is reconciled, `settled` has not risen. */
void digest_tail_settled(struct shard_state *shard)
{
    if (version_epoch(atomic_load_explicit(&shard->commit, memory_order_relaxed)) == shard->epoch)
        suffix_drop(&shard->suffix, atomic_load_explicit(&shard->settled, memory_order_relaxed));
}

/* Without memory they look as if they were missing: another replica may show them, or nobody. */
void digest_tail_gone(struct shard_state *shard, const struct prefix_range *range)
{
    for (uint64_t version = range->first; version <= range->last; version++)
        (void)suffix_add(&shard->suffix, version, 0);
}

/* Two periods of running, not of time: a role that was stopped for long has what was asked meanwhile still to come. */
void digest_tail_age(struct digest *digest)
{
    if (digest->now_ns < digest->age_ns)
        return;
    if (digest->age_ns)
        for (struct shard_state *shard = digest->owned.first; shard; shard = shard->owned_link.next)
            completed_age(&shard->completed);
    digest->age_ns = digest->now_ns + CLIENTS_KEEP_NS;
}

/* D7: what is settled leaves the suffix for `completed` in the sort. */
static void list(struct digest *digest, struct records_question *question)
{
    struct shard_state *shard = digest->shards[question->shard];
    question->listed_count = ROWAN_EAGAIN;
    if (!shard)
        return;
    suffix_sort(&shard->suffix);
    question->listed_count =
        (int)completed_list(&shard->completed, &question->cursor, question->listed,
                            RECORDS_QUESTION_ROWS, &question->listed_all);
}

/* Some operation of that client may be asked for again. */
static void note_client(const struct digest *digest, struct records_question *question,
                        uint32_t client)
{
    const struct acknowledged_client *told =
        &digest->acknowledged.places[acknowledged_place(client)];
    for (uint32_t i = 0; i < question->count; i++) {
        if (question->rows[i].client == client)
            question->rows[i].lowest = told->client == client ? told->lowest : 0;
    }
}

/* D8: a client that has no operation there asks for none. One walk for all of them: first the place of each is marked. */
static void answer_rows(const struct digest *digest, struct records_question *question)
{
    bool places[ACKNOWLEDGED_PLACES] = {false};
    for (uint32_t i = 0; i < question->count; i++) {
        question->rows[i].lowest = UINT32_MAX;
        places[acknowledged_place(question->rows[i].client)] = true;
    }
    for (const struct shard_state *shard = digest->owned.first; shard;
         shard = shard->owned_link.next) {
        const struct suffix *suffix = &shard->suffix;
        const struct completed *completed = &shard->completed;
        for (uint32_t i = 0; i < suffix->count; i++) {
            if (places[acknowledged_place(suffix->items[i].client)])
                note_client(digest, question, suffix->items[i].client);
        }
        for (uint32_t i = 0; i < completed->count; i++) {
            if (places[acknowledged_place(completed->items[i].client)])
                note_client(digest, question, completed->items[i].client);
        }
    }
    for (uint32_t i = 0; i < question->count; i++) {
        if (!digest->has_all || !digest->shards[question->rows[i].shard])
            question->rows[i].lowest = 0;
    }
}

bool digest_tail_answer(struct digest *digest)
{
    struct records_question *question = inbox_pop(&digest->role.questions);
    if (!question)
        return false;
    if (question->lists)
        list(digest, question);
    else
        answer_rows(digest, question);
    records_answer(question);
    return true;
}

void digest_tail_leave(struct shard_state *shard)
{
    const uint64_t lost = apply_promote(shard);
    if (lost)
        log_event(LOG_WARN, "records_lost",
                  "shard=%u operations=%lu a retry of one of them would be carried out again",
                  shard->id, lost);
}
