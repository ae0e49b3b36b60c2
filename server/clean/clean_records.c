/* Record stubs: of a put or delete that goes, what a retry of it may still ask for (design, section 6, exactly once).
 *
 * The shard's owner knows: the worker that leads it, or the digest role. It is asked for many clients at a time: at the first
 * entry of which nothing is known the blocks behind it are looked at for further ones. What it answered is kept, by client: a
 * lowest unanswered number only rises, so it can be too low, never too high. That a client is not known to the owner counts for
 * the present victim only, and as long as no shard changes its owner: it may come back, and what it writes then is not in there.
 *
 *  K5  An entry that goes leaves a stub, unless its operation is below the lowest that its client may ask for, as the
 *      shard's owner told since the victim was begun.
 *  K8  Of what lies in segments of before this run no operation gets a second stub of the same shard in this one: a crash
 *      leaves both a victim and what was copied out of it, and nothing else would tell one stub from the other. So a crash adds
 *      one stub of an operation at most, until both segments are cleaned in one run; it does not double them. After a split
 *      each child has inherited the record, and needs a stub of its own: which of them is asked, the key decides.
 */
#include "server/clean/clean_state.h"

enum { CLEAN_LOOKS_AHEAD = 256 }; /* blocks */

/* `owner`: its number, not its address, by which every run of the simulator would differ. */
static struct clean_client *place_of(struct clean *clean, uint32_t owner, uint32_t client)
{
    return &clean->clients[(client + owner * 61) % CLEAN_CLIENTS];
}

/* Is somebody asked for it who has not said for this victim? */
static bool is_open(struct clean *clean, const struct entry_header *header)
{
    const uint32_t owner = clean->numbers[header->shard];
    const struct clean_client *known = place_of(clean, owner, header->client_id);
    return known->client != header->client_id || known->owner != owner ||
           ((header->operation >= known->lowest || known->lowest == UINT32_MAX) &&
            known->victims != clean->victims_begun);
}

/* An entry or stub of the victim whose record the owner of a shard of this server may have. Of what the replica had before it
 * filled it may be that nobody else ever had it: in a new segment a stub would say that it took effect. */
static bool has_record(const struct clean *clean, const struct victim *victim,
                       const struct entry_header *header)
{
    const struct shard_state *shard = clean->shards[header->shard];
    return (header->type == ENTRY_PUT || header->type == ENTRY_DELETE ||
            header->type == ENTRY_RECORD) &&
           header->client_id != 0 && header->operation != 0 && shard &&
           shard_counts(shard, header->version, clean->common->store, victim->segment);
}

static void add_row(struct clean *clean, const struct entry_header *header)
{
    struct records_question *question = &clean->question;
    for (uint32_t i = 0; i < question->count; i++) {
        if (question->rows[i].client == header->client_id)
            return;
    }
    question->rows[question->count++] =
        (struct records_question_row){.shard = header->shard, .client = header->client_id};
}

/* Asks for the client of that entry, and for those of others behind it. */
static void ask(struct clean *clean, const struct victim *victim, const struct entry_header *first)
{
    struct records_question *question = &clean->question;
    const uint32_t owner = clean->numbers[first->shard];
    struct entry_scan ahead = clean->scan;
    struct entry_header header;
    uint32_t offset, bytes;
    question->count = 0;
    add_row(clean, first);
    for (unsigned i = 0; i < CLEAN_LOOKS_AHEAD && question->count < RECORDS_QUESTION_ROWS; i++) {
        const enum entry_scan_result result =
            entry_scan_next(&ahead, false, &header, &offset, &bytes);
        if (result == ENTRY_SCAN_END)
            break;
        if (result == ENTRY_SCAN_BLOCK && has_record(clean, victim, &header) &&
            clean->numbers[header.shard] == owner && is_open(clean, &header))
            add_row(clean, &header);
    }
    question->wake = &clean->role.inbox;
    atomic_store_explicit(&question->answered, false, memory_order_relaxed);
    clean->asked = owner;
    clean->asking = records_ask(clean->questions[first->shard], question);
}

bool clean_records_poll(struct clean *clean)
{
    const struct records_question *question = &clean->question;
    if (!clean->asking)
        return true;
    if (!atomic_load_explicit(&question->answered, memory_order_acquire))
        return false;
    clean->asking = false;
    /* The first last: it is the one that is waited for, and others may have the same place. */
    for (uint32_t i = question->count; i-- > 0;)
        *place_of(clean, clean->asked, question->rows[i].client) =
            (struct clean_client){.client = question->rows[i].client,
                                  .lowest = question->rows[i].lowest,
                                  .owner = clean->asked,
                                  .victims = clean->victims_begun};
    return true;
}

enum clean_record clean_record(struct clean *clean, const struct victim *victim,
                               const struct entry_header *header)
{
    if (!has_record(clean, victim, header))
        return CLEAN_RECORD_NONE;
    if (is_open(clean, header)) {
        ask(clean, victim, header);
        return CLEAN_RECORD_ASKED;
    }
    const uint32_t lowest =
        place_of(clean, clean->numbers[header->shard], header->client_id)->lowest;
    return header->operation < lowest ? CLEAN_RECORD_NONE : CLEAN_RECORD_NEEDED;
}

/* A mark (RECORDS_UNKNOWN) has the number of an operation that may have a stub of its own. */
static bool is_of_before(const struct clean *clean, const struct victim *victim,
                         const struct entry_header *header)
{
    return header->version != RECORDS_UNKNOWN &&
           store_meta(clean->common->store, victim->segment).allocation <= clean->run;
}

bool clean_record_is_copied(const struct clean *clean, const struct victim *victim,
                            const struct entry_header *header)
{
    if (clean->stubs.count == 0 || !is_of_before(clean, victim, header))
        return false;
    const struct records_item *item =
        *records_bucket(&clean->stubs, header->client_id, header->operation);
    while (item && !(item->client == header->client_id && item->operation == header->operation &&
                     ((const struct clean_stub *)item)->shard == header->shard))
        item = item->next;
    return item;
}

/* Without memory, and beyond so many, there may be two. */
void clean_record_copied(struct clean *clean, const struct victim *victim,
                         const struct entry_header *header)
{
    if (!is_of_before(clean, victim, header) || clean->stubs.count >= RECORDS_MAX)
        return;
    struct clean_stub *stub = (struct clean_stub *)records_table_take(
        &clean->stubs, header->client_id, header->operation);
    if (stub)
        stub->shard = header->shard;
}
