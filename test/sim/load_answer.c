/* What an answer means is said by client/rowan.h: ROWAN_EUNKNOWN alone leaves open whether a write took
 * effect; every other error says that it did not. An answer that is not promised there is a failure, and so is
 * one that cannot be true whatever went before. */
#include "test/sim/load_state.h" /* first: it brings client/rowan.h, before common/base/error.h */

#include <stdio.h>
#include <string.h>

#include "common/base/error.h"
#include "test/sim/load_value.h"
#include "test/sim/sim_fault.h"

static const char GAVE_UP_EARLY[] = "its timeout is not over";
static const char FALSELY_FULL[] = "PM is not full, and no segment was refused";

static void fail(const struct load_slot *slot, const struct rowan_completion *completion,
                 enum failure_kind kind, const char *what)
{
    static const char *const KINDS[] = {"get", "put", "put_if", "delete"};
    struct load *load = slot->load;
    const struct shard *shard = load_shard(load, slot->client, slot->key);
    failure_set(load->failure, kind, "load", load->cluster->clock.now_ns, slot->key,
                shard ? shard->id : JOURNAL_NO_SHARD,
                "%s: a %s was answered %s, version %lx, %zu B: %s", load->client[slot->client].name,
                KINDS[slot->kind], error_name(completion->status), completion->version,
                completion->value_bytes, what);
}

/* What the SDK says of a status, for this kind of operation; false: it promises never to give it. */
static bool judge_status(const struct load_slot *slot, int status, enum history_outcome *outcome)
{
    bool get = slot->kind == HISTORY_GET;
    switch (status) {
    case ROWAN_OK:
        *outcome = HISTORY_DONE;
        return true;
    case ROWAN_ENOTFOUND:
        *outcome = HISTORY_ABSENT;
        return get || slot->kind == HISTORY_DELETE;
    case ROWAN_EVERSION:
        *outcome = HISTORY_MISMATCH;
        return slot->kind == HISTORY_PUT_IF;
    case ROWAN_EBUFFER: /* its version is told; its value nobody saw */
        *outcome = HISTORY_DONE;
        return get;
    case ROWAN_ETIMEDOUT:
        *outcome = HISTORY_REJECTED;
        return true;
    case ROWAN_EFULL:
        *outcome = HISTORY_REJECTED;
        return !get;
    case ROWAN_EUNKNOWN:
        *outcome = HISTORY_UNKNOWN;
        return !get;
    default:
        *outcome = get ? HISTORY_REJECTED : HISTORY_UNKNOWN;
        return false;
    }
}

/* Rooms too small are short ones. */
static bool is_poison(const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < LOAD_SHORT_BYTES; i++) {
        if (bytes[i] != LOAD_POISON)
            return false;
    }
    return true;
}

/* Right under faults, and once they are over the sign that something does not get well again. */
static bool is_no_answer(int status)
{
    return status == ROWAN_ETIMEDOUT || status == ROWAN_EUNKNOWN || status == ROWAN_EFULL;
}

/* The client asks again until the timeout is over, by its own clock from the first poll after the post; or is told that its
 * write is forgotten. */
static bool gave_up_early(const struct load_slot *slot, int status)
{
    if (status == ROWAN_EUNKNOWN && sim_fault_count(FAULT_NO_RECORD) > 0)
        return false;
    uint64_t lasted_ns = load_client_now_ns(slot->load, slot->client) - slot->called_ns;
    return (status == ROWAN_ETIMEDOUT || status == ROWAN_EUNKNOWN) && lasted_ns < slot->timeout_ns;
}

bool load_may_fill(const struct load *load)
{
    return load->options.may_fill;
}

/* There is PM for all that a run writes, and where a segment is refused the client asks again. */
static bool is_falsely_full(const struct load_slot *slot, int status)
{
    return status == ROWAN_EFULL && !load_may_fill(slot->load);
}

/* What is wrong with the answer by itself; NULL: nothing. */
static const char *find_wrong(const struct load_slot *slot,
                              const struct rowan_completion *completion)
{
    const struct load_options *options = &slot->load->options;
    size_t bytes = completion->value_bytes;
    bool seen = completion->status == 0, told = seen || completion->status == ROWAN_EBUFFER;
    if (slot->kind == HISTORY_GET && seen) {
        if (bytes > slot->room_bytes)
            return "the value is longer than its room";
        if (load_value_is_false(slot->buffer, (uint32_t)bytes))
            return "it is the value of a false entry inside another value";
    }
    if (completion->status == ROWAN_EBUFFER) {
        if (bytes <= slot->room_bytes)
            return "the room is large enough";
        if (bytes > options->max_value_bytes)
            return "nobody wrote a value as long";
        if (!is_poison(slot->buffer, slot->room_bytes))
            return "the room was written to";
    }
    if (told && slot->kind != HISTORY_DELETE && completion->version == 0)
        return "no version";
    if (completion->status == ROWAN_EVERSION && completion->version == slot->expected)
        return "that version was expected";
    if (gave_up_early(slot, completion->status))
        return GAVE_UP_EARLY;
    if (is_falsely_full(slot, completion->status))
        return FALSELY_FULL;
    if (slot->last && is_no_answer(completion->status))
        return slot->kind == HISTORY_GET ? "the last read of a key gets no answer"
                                         : "a write long after the last fault is not done";
    return NULL;
}

/* What the client knows of the key now. */
static void note_version(struct load *load, const struct load_slot *slot,
                         enum history_outcome outcome, uint64_t version)
{
    uint64_t *seen = &load->client[slot->client].seen[slot->key];
    if (outcome == HISTORY_ABSENT || (outcome == HISTORY_DONE && slot->kind == HISTORY_DELETE))
        *seen = 0;
    else if (outcome == HISTORY_DONE || outcome == HISTORY_MISMATCH)
        *seen = version;
    bool told = outcome == HISTORY_DONE || outcome == HISTORY_MISMATCH;
    if (told && version > load->highest[slot->key])
        load->highest[slot->key] = version;
}

static void tell_answer(const struct load_slot *slot, const struct rowan_completion *completion,
                        enum history_outcome outcome)
{
    static const char *const OUTCOMES[] = {"open",     "done",     "absent",
                                           "mismatch", "rejected", "unknown"};
    struct journal *journal = slot->load->cluster->options.journal;
    if (!journal)
        return;
    struct journal_event event = load_event(slot, JOURNAL_ANSWER);
    if (outcome == HISTORY_DONE || outcome == HISTORY_MISMATCH)
        event.version = completion->version;
    if (outcome == HISTORY_DONE && slot->kind == HISTORY_GET)
        snprintf(event.text, sizeof event.text, "%zu: %zu B%s", slot->number,
                 completion->value_bytes, completion->status ? ", too long for the room" : "");
    else
        snprintf(event.text, sizeof event.text, "%zu: %s%s%s", slot->number, OUTCOMES[outcome],
                 outcome == HISTORY_REJECTED ? " " : "",
                 outcome == HISTORY_REJECTED ? error_name(completion->status) : "");
    journal_add(journal, &event);
}

void load_give_up(struct load_slot *slot)
{
    struct load *load = slot->load;
    bool get = slot->kind == HISTORY_GET;
    const struct rowan_completion none = {.status = get ? ROWAN_ETIMEDOUT : ROWAN_EUNKNOWN};
    enum history_outcome outcome = get ? HISTORY_REJECTED : HISTORY_UNKNOWN;
    history_answer(load->history, slot->number, outcome, 0, 0, load->cluster->clock.now_ns);
    tell_answer(slot, &none, outcome);
    load->rejected += get;
    load_give_slot(slot);
}

void load_on_completion(const struct rowan_completion *completion)
{
    struct load_slot *slot = completion->context;
    struct load *load = slot->load;
    enum history_outcome outcome;
    if (!judge_status(slot, completion->status, &outcome))
        fail(slot, completion, FAILURE_CORRECTNESS, "the SDK promises never to say that");
    const char *wrong = find_wrong(slot, completion);
    bool late = is_no_answer(completion->status) && wrong != GAVE_UP_EARLY && wrong != FALSELY_FULL;
    if (wrong)
        fail(slot, completion, late ? FAILURE_LIVENESS : FAILURE_CORRECTNESS, wrong);
    bool write = slot->kind != HISTORY_GET, done = outcome == HISTORY_DONE;
    uint64_t value = 0, version = 0;
    if (completion->status == 0 && !write)
        value =
            load_value_hash(slot->buffer, load_at_most(completion->value_bytes, slot->room_bytes));
    if (done || outcome == HISTORY_MISMATCH)
        version = completion->version;
    history_answer(load->history, slot->number, outcome, value, version,
                   load->cluster->clock.now_ns);
    load->rejected += outcome == HISTORY_REJECTED;
    journal_mix(load->cluster->options.journal, &value, sizeof value);
    tell_answer(slot, completion, outcome);
    note_version(load, slot, outcome, completion->version);
    if (completion->status == ROWAN_EBUFFER)
        load->client[slot->client].again_key = slot->key;
    if (done && write && load->acknowledged)
        load->acknowledged(load->acknowledged_context, slot->key, completion->version);
    else if (version && load->seen)
        load->seen(load->seen_context, slot->key, version);
    load_give_slot(slot);
}
