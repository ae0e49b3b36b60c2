/* The questions that the control role answers: about the server by itself; those about a shard (query.h) it hands
 * from their connection to the shard's owner, and sends the answer back. What cannot be sent now is kept: a worker that
 * reconciles asks one question about a shard at a time, and waits for its answer. */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

#define QUERY_RETRY_NS NS_PER_MS

/* --- questions --- */

/* The question, with the blocks that came with it, or room for those of the answer; NULL: no memory. */
static struct query *copy(const struct query *question, const Rowan__StoreEntries *entries)
{
    size_t bytes =
        entries ? question->store.bytes + question->store.gone * sizeof(struct prefix_range) : 0;
    if (question->kind == QUERY_SUFFIX && question->suffix.after != QUERY_SUFFIX_NONE)
        bytes = BLOCK_LIST_BYTES;
    struct query *query = malloc(sizeof *query + bytes);
    if (!query)
        return NULL;
    *query = *question;
    uint8_t *at = query->data;
    for (size_t i = 0; entries && i < entries->n_blocks; at += entries->blocks[i++].len)
        memcpy(at, entries->blocks[i].data, entries->blocks[i].len);
    struct prefix_range *gone = (void *)at; /* blocks are multiples of ENTRY_ALIGN */
    for (size_t i = 0; entries && i < entries->n_gone; i++)
        gone[i] = (struct prefix_range){entries->gone[i]->first, entries->gone[i]->last};
    return query;
}

/* Errors: ROWAN_EBUSY (too many), ROWAN_ENOMEM, those of command_push. */
static int ask(struct control *control, struct control_link *link, uint32_t tag,
               const struct shard *row, const struct query *question,
               const Rowan__StoreEntries *entries)
{
    const bool looks = question->kind == QUERY_CHECKSUM || question->kind == QUERY_TRACE;
    const uint32_t end = looks ? CONTROL_MAX_CHECKSUMS : CONTROL_MAX_QUERIES;
    uint32_t slot = looks ? 0 : CONTROL_MAX_CHECKSUMS;
    while (slot < end && control->queries[slot])
        slot++;
    if (slot == end)
        return ROWAN_EBUSY;
    struct query *query = copy(question, entries);
    if (!query)
        return ROWAN_ENOMEM;
    query->link = link;
    query->tag = tag;
    query->shard = row->id;
    control_zone_note_begun(control);
    int error = command_push(&control_owner(control, row)->inbox,
                             &(struct command){.kind = COMMAND_QUERY, .query = query});
    if (error)
        free(query);
    else
        control->queries[slot] = query;
    return error;
}

static int ask_checksum(struct control *control, struct control_link *link, uint32_t tag,
                        const Rowan__GetChecksum *question)
{
    const struct shard *row = control_row(control, question->shard);
    if (!row)
        return ROWAN_ENOTMINE;
    return ask(control, link, tag, row,
               &(struct query){.kind = QUERY_CHECKSUM, .checksum.is = ROWAN__CHECKSUM_IS__INIT},
               NULL);
}

static int ask_trace(struct control *control, struct control_link *link, uint32_t tag,
                     const Rowan__GetTrace *question)
{
    struct query query;
    const int error = control_trace_question(control, link, question, &query);
    if (error)
        return error;
    const struct shard *row = control_row(control, question->shard);
    return row ? ask(control, link, tag, row, &query, NULL) : ROWAN_ENOTMINE;
}

/* Every error of it is ROWAN_EAGAIN: the worker asks again. */
static int ask_suffix(struct control *control, struct control_link *link, uint32_t tag,
                      const Rowan__GetSuffix *question)
{
    const struct shard *row = link->peer ? control_row(control, question->shard) : NULL;
    if (!row || row->epoch != question->epoch || row->primary == control->common->server)
        return ROWAN_EAGAIN;
    const struct query query = {.kind = QUERY_SUFFIX,
                                .suffix = {.epoch = question->epoch,
                                           .asked_commit = question->commit,
                                           .after = question->after,
                                           .cursor = question->cursor,
                                           .block = question->block}};
    return ask(control, link, tag, row, &query, NULL) ? ROWAN_EAGAIN : 0;
}

/* False: likewise, or no ranges. */
static bool measure_gone(const Rowan__StoreEntries *entries)
{
    uint64_t left = QUERY_GONE_VERSIONS;
    if (entries->n_gone > QUERY_GONE_RANGES)
        return false;
    for (size_t i = 0; i < entries->n_gone; i++) {
        const Rowan__VersionRange *range = entries->gone[i];
        if (range->first > range->last || range->last - range->first >= left)
            return false;
        left -= range->last - range->first + 1;
    }
    return true;
}

/* False: more than a sender puts into one message, or no whole blocks. What they are is the owner's to check. */
static bool measure(const Rowan__StoreEntries *entries, uint32_t *bytes)
{
    *bytes = 0;
    if ((entries->n_blocks + entries->n_gone == 0 && !entries->last) ||
        entries->n_blocks > BLOCK_LIST_BLOCKS)
        return false;
    for (size_t i = 0; i < entries->n_blocks; i++) {
        const size_t more = entries->blocks[i].len;
        if (more == 0 || more % ENTRY_ALIGN || more > BLOCK_LIST_BYTES - *bytes)
            return false;
        *bytes += (uint32_t)more;
    }
    return true;
}

/* Only the worker that leads the shard brings entries of it. Errors: ROWAN_EFORMAT; all others: it is to be sent again. */
static int ask_store(struct control *control, struct control_link *link, uint32_t tag,
                     const Rowan__StoreEntries *entries)
{
    uint32_t bytes;
    if (!link->peer)
        return ROWAN_EAGAIN;
    const struct shard *row = control_row(control, entries->shard);
    if (!measure(entries, &bytes) || !measure_gone(entries)) {
        log_event(LOG_WARN, "entries_refused", "shard=%u server=%u blocks=%zu gone=%zu",
                  entries->shard, link->server, entries->n_blocks, entries->n_gone);
        return ROWAN_EFORMAT;
    }
    if (!row || row->epoch != entries->epoch || row->primary == control->common->server ||
        row->primary != link->server || row->worker != link->worker)
        return ROWAN_EAGAIN;
    const struct query query = {.kind = QUERY_STORE,
                                .store = {.epoch = entries->epoch,
                                          .bytes = bytes,
                                          .gone = (uint32_t)entries->n_gone,
                                          .last = entries->last}};
    return ask(control, link, tag, row, &query, entries);
}

void control_query_refuse(struct control *control, struct control_link *link, uint32_t tag,
                          int error)
{
    if (link->refusal_count == CONTROL_MAX_REFUSALS) {
        log_event(LOG_WARN, "answer_dropped", "error=%s", error_name(error));
        return;
    }
    link->refusals[link->refusal_count++] = (struct refusal){.tag = tag, .error = error};
    control->refusal_count++;
}

void control_query_ask(struct control *control, struct control_link *link, uint32_t tag,
                       const Rowan__ControlMessage *message)
{
    int error = ROWAN_EUNSUPPORTED;
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_SUFFIX)
        error = ask_suffix(control, link, tag, message->get_suffix);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_STORE_ENTRIES)
        error = ask_store(control, link, tag, message->store_entries);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_CHECKSUM)
        error = ask_checksum(control, link, tag, message->get_checksum);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_TRACE)
        error = ask_trace(control, link, tag, message->get_trace);
    if (error)
        control_query_refuse(control, link, tag, error);
}

/* --- answers --- */

static bool waits_for_space(int error)
{
    return error == ROWAN_EAGAIN || error == ROWAN_ENOMEM;
}

static bool send_refusals(struct control *control)
{
    bool any = false;
    for (struct control_link *link = control->links.first; link && control->refusal_count;
         link = link->place.next) {
        while (link->refusal_count) {
            const struct refusal *refusal = &link->refusals[link->refusal_count - 1];
            if (waits_for_space(control_failure_send(link->conn, refusal->tag, refusal->error)))
                break;
            link->refusal_count--;
            control->refusal_count--;
            any = true;
        }
    }
    return any;
}

static int send_suffix(const struct control *control, const struct query *query)
{
    const struct query_suffix *suffix = &query->suffix;
    ProtobufCBinaryData blocks[BLOCK_LIST_BLOCKS];
    Rowan__SuffixIs body = ROWAN__SUFFIX_IS__INIT;
    uint8_t *at = suffix->blocks.data;
    for (uint32_t i = 0; i < suffix->blocks.count; at += blocks[i++].len) {
        struct entry_header header;
        entry_peek(at, &header);
        blocks[i].data = at;
        blocks[i].len = entry_block_bytes(&control->common->format, header.key_bytes,
                                          header.value_bytes, header.block);
    }
    body.shard = query->shard;
    body.epoch = suffix->epoch;
    body.commit = suffix->commit;
    body.prefix = suffix->prefix;
    body.settled = suffix->settled;
    body.cursor = suffix->next_cursor;
    body.block = suffix->next_block;
    body.n_blocks = suffix->blocks.count;
    body.blocks = blocks;
    return control_message_send(query->link->conn, query->tag,
                                &CONTROL_MESSAGE(SUFFIX_IS, suffix_is, &body));
}

/* The key of a damaged entry as a terminal can print it. */
static void show_key(const struct query_checksum *checksum, char shown[QUERY_KEY_BYTES + 1])
{
    for (uint32_t i = 0; i < checksum->key_bytes; i++)
        shown[i] =
            checksum->key[i] >= ' ' && checksum->key[i] < 0x7f ? (char)checksum->key[i] : '?';
    shown[checksum->key_bytes] = '\0';
}

bool control_may_see_keys(const struct control *control, const struct control_link *link)
{
    const struct user *user =
        control->config ? login_user(link->login, control->config->users) : NULL;
    return !user || user->prefix_bytes == 0;
}

static int send_checksum(const struct control *control, const struct query *query)
{
    const struct query_checksum *checksum = &query->checksum;
    char key[QUERY_KEY_BYTES + 1];
    Rowan__ChecksumIs body = checksum->is;
    body.shard = query->shard;
    body.server = control->common->server;
    if (body.damaged && control_may_see_keys(control, query->link)) {
        show_key(checksum, key);
        body.damaged_key = key;
    }
    return control_message_send(query->link->conn, query->tag,
                                &CONTROL_MESSAGE(CHECKSUM_IS, checksum_is, &body));
}

static int send_stored(const struct query *query)
{
    Rowan__EntriesStored body = ROWAN__ENTRIES_STORED__INIT;
    body.shard = query->shard;
    body.epoch = query->store.epoch;
    return control_message_send(query->link->conn, query->tag,
                                &CONTROL_MESSAGE(ENTRIES_STORED, entries_stored, &body));
}

static int send_answer(const struct control *control, const struct query *query)
{
    if (!query->link)
        return 0;
    if (query->error)
        return control_failure_send(query->link->conn, query->tag, query->error);
    if (query->kind == QUERY_STORE)
        return send_stored(query);
    if (query->kind == QUERY_TRACE)
        return control_trace_send(control, query);
    return query->kind == QUERY_SUFFIX ? send_suffix(control, query)
                                       : send_checksum(control, query);
}

/* A replica that filled has all: its row says so, durably, before its primary hears it. */
static bool is_full(struct control *control, const struct query *query)
{
    struct store *store = control->common->store;
    if (query->kind != QUERY_STORE || !query->store.last || query->error)
        return true;
    struct replica_row row = store_replica(store, query->shard);
    if (row.state == REPLICA_FILLING &&
        query->store.epoch >= row.first_epoch) { /* not of an earlier one, that has left */
        row.state = REPLICA_FULL;
        store_replica_set(store, query->shard, &row);
    }
    return server_done(control->common, store_replica_sync(store));
}

bool control_query_poll(struct control *control, uint64_t *wake_ns)
{
    bool any = send_refusals(control), waiting = control->refusal_count > 0;
    for (uint32_t i = 0; i < CONTROL_MAX_QUERIES; i++) {
        struct query *query = control->queries[i];
        if (!query || !query->returned)
            continue;
        if (!is_full(control, query) || waits_for_space(send_answer(control, query))) {
            waiting = true;
            continue;
        }
        free(query); /* any other error: the connection is gone, and its end comes as an event */
        control->queries[i] = NULL;
        any = true;
    }
    if (waiting)
        wake_at(wake_ns, control->now_ns + QUERY_RETRY_NS);
    return any;
}

void control_query_forget(struct control *control, struct control_link *link)
{
    control->refusal_count -= link->refusal_count;
    link->refusal_count = 0;
    for (uint32_t i = 0; i < CONTROL_MAX_QUERIES; i++) {
        if (control->queries[i] && control->queries[i]->link == link)
            control->queries[i]->link = NULL;
    }
}

void control_query_close(struct control *control)
{
    for (uint32_t i = 0; i < CONTROL_MAX_QUERIES; i++) {
        if (control->queries[i] && control->queries[i]->returned)
            free(control->queries[i]); /* the others are their owners' */
    }
}
