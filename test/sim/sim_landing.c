/* Landing zones of the simulated network: who stores where, piece by piece, and when a segment is sealed.
 *
 *  1. A lander has space in one segment, and stores its blocks there one after another, each at a multiple
 *     of the landing stride. Space that was given up stays taken, with what is there.
 *  2. A segment is sealed when nothing more goes into it and nobody who is waited for stores into it; in the
 *     order of posting.
 *  3. one_sided: who is not done void_ns after the owner began to wait, or is shut out, is void: waited for no longer.
 *     He may store on, and so the segment is quiet only when he has ended (F7), and VOID tells where (F12).
 *
 *   segment: posted -- sealed > it --> closed -- open == 0 --> reported, quiet or, after the last void lander, QUIET
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/entry/entry.h"
#include "test/sim/sim_fabric_state.h"

enum {
    MIN_DEPTH = 2,
    MAX_DEPTH = 1024,
    PIECES_IN = 6, /* one block of so many is stored in pieces */
};

#define VOID_NS (20 * NS_PER_MS)

static struct sim_network *network_of(const struct sim_zone *zone)
{
    return zone->endpoint->fabric->network;
}

static struct sim_posted *slot_of(const struct sim_zone *zone, uint64_t segment)
{
    return &zone->posted[segment % zone->depth];
}

/* --- open, post, close --- */

int sim_zone_open(struct fabric_endpoint *head, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    if (depth < MIN_DEPTH || depth > MAX_DEPTH || endpoint->zone ||
        !sim_fabric_registered(endpoint->fabric, pm->base, pm->bytes))
        return ROWAN_EINVALID;
    struct sim_zone *zone = calloc(1, sizeof *zone);
    ASSERT(zone);
    zone->posted = calloc(depth, sizeof *zone->posted);
    ASSERT(zone->posted);
    zone->head.ops = head->ops;
    zone->endpoint = endpoint;
    zone->pm = pm;
    zone->depth = depth;
    endpoint->zone = zone;
    *out = &zone->head;
    return 0;
}

static void wake_zone(struct sim_zone *zone)
{
    zone->endpoint->due_ns = 0;
    network_of(zone)->progress++;
}

/* Who is in the middle of a store gets some way with it before the memory has another owner. */
void sim_zone_close(struct fabric_zone *head)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    while (zone->landers.first) {
        struct sim_lander *lander = zone->landers.first;
        uint32_t left = lander->limit - lander->stored;
        sim_lander_store(lander, (uint32_t)random_below(&network_of(zone)->random, left + 1));
        sim_lander_end(lander);
    }
    while (zone->unquiet) {
        struct sim_unquiet *old = zone->unquiet;
        zone->unquiet = old->next;
        free(old);
    }
    zone->endpoint->zone = NULL;
    free(zone->posted);
    free(zone);
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

int sim_zone_post(struct fabric_zone *head, uint64_t offset, uint64_t context)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    if (offset % FABRIC_STRIDE || offset > zone->pm->bytes ||
        FABRIC_SEGMENT_BYTES > zone->pm->bytes - offset)
        return ROWAN_EINVALID;
    if (zone->count - zone->reported == zone->depth)
        return ROWAN_EAGAIN;
    ASSERT(is_zero(zone->pm->base + offset, FABRIC_SEGMENT_BYTES));
    zone->posted[zone->count++ % zone->depth] =
        (struct sim_posted){.offset = offset, .context = context};
    wake_zone(zone);
    return 0;
}

uint64_t sim_zone_begun(const struct fabric_zone *head)
{
    const struct sim_zone *zone = (const struct sim_zone *)head;
    return zone->sealed + (zone->tail > 0);
}

/* --- sealing --- */

static uint64_t void_ns(const struct sim_zone *zone)
{
    uint64_t ns = network_of(zone)->options.void_ns;
    return ns ? ns : VOID_NS;
}

static void void_lander(struct sim_zone *zone, struct sim_lander *lander)
{
    if (lander->is_void || lander->ends_with_conn)
        return;
    lander->is_void = true;
    slot_of(zone, lander->segment)->open--;
    network_of(zone)->counts.voided++;
}

static void void_landers(struct sim_zone *zone)
{
    for (struct sim_lander *lander = zone->landers.first; lander; lander = lander->link.next) {
        if (lander->segment == zone->reported)
            void_lander(zone, lander);
    }
}

/* 3. Whether the oldest segment is closed and nobody is waited for. */
static bool is_sealed(struct sim_zone *zone)
{
    struct sim_network *network = network_of(zone);
    struct sim_posted *slot = slot_of(zone, zone->reported);
    uint64_t now_ns = sim_network_now(network);
    if (zone->reported == zone->sealed)
        return false;
    if (slot->open == 0 || !network->options.one_sided)
        return slot->open == 0;
    if (!slot->stuck_ns) {
        slot->stuck_ns = now_ns;
        sim_alarm(network, now_ns + void_ns(zone));
    }
    if (now_ns - slot->stuck_ns >= void_ns(zone))
        void_landers(zone);
    return slot->open == 0;
}

void sim_zone_awake(struct sim_zone *zone)
{
    for (uint64_t segment = zone->reported; segment < zone->sealed; segment++)
        slot_of(zone, segment)->stuck_ns = 0;
}

static bool has_lander(const struct sim_zone *zone, uint64_t segment)
{
    const struct sim_lander *lander = zone->landers.first;
    while (lander && lander->segment != segment)
        lander = lander->link.next;
    return lander;
}

static bool next_quiet(struct sim_zone *zone, struct fabric_event *event)
{
    struct sim_unquiet **link = &zone->unquiet;
    while (*link && has_lander(zone, (*link)->segment))
        link = &(*link)->next;
    if (!*link)
        return false;
    struct sim_unquiet *old = *link;
    *event = (struct fabric_event){.kind = FABRIC_QUIET, .quiet = true, .context = old->context};
    *link = old->next;
    free(old);
    return true;
}

/* Of the oldest segment, that is sealed: who is left there is void. */
static bool next_void(struct sim_zone *zone, struct fabric_event *event)
{
    struct sim_lander *lander = zone->landers.first;
    while (lander && (lander->segment != zone->reported || lander->is_told))
        lander = lander->link.next;
    if (!lander)
        return false;
    const uint64_t at = lander->at - lander->stored;
    *event = (struct fabric_event){.kind = FABRIC_VOID,
                                   .context = slot_of(zone, zone->reported)->context,
                                   .data = pm_at(zone->pm, at),
                                   .bytes = (uint32_t)(lander->end - at)};
    lander->is_told = true;
    return true;
}

static void add_unquiet(struct sim_zone *zone, uint64_t context)
{
    struct sim_unquiet **link = &zone->unquiet;
    while (*link)
        link = &(*link)->next;
    *link = calloc(1, sizeof **link);
    ASSERT(*link);
    **link = (struct sim_unquiet){.segment = zone->reported, .context = context};
    network_of(zone)->counts.unquiet++;
}

bool sim_zone_next(struct sim_zone *zone, struct fabric_event *event)
{
    if (zone->unquiet && next_quiet(zone, event))
        return true;
    if (!is_sealed(zone))
        return false;
    if (next_void(zone, event))
        return true;
    uint64_t context = slot_of(zone, zone->reported)->context;
    bool quiet = !has_lander(zone, zone->reported);
    if (!quiet)
        add_unquiet(zone, context);
    *event = (struct fabric_event){.kind = FABRIC_SEALED, .quiet = quiet, .context = context};
    zone->reported++;
    return true;
}

static uint64_t seal_due_ns(const struct sim_zone *zone)
{
    const struct sim_posted *slot = slot_of(zone, zone->reported);
    if (zone->reported == zone->sealed || !network_of(zone)->options.one_sided)
        return WAKE_NEVER;
    return slot->open ? slot->stuck_ns + void_ns(zone) : 0;
}

uint64_t sim_zone_due_ns(const struct sim_zone *zone)
{
    return zone->head.shut_out_waiting ? 0 : seal_due_ns(zone);
}

/* Would sim_shut_out_events get on? */
static bool shut_out_gets_on(const struct sim_zone *zone)
{
    for (uint32_t i = 0; zone->head.shut_out_waiting && i < FABRIC_MAX_SHUT_OUT; i++) {
        const struct fabric_shut_out *out = &zone->head.shut_outs[i];
        if ((out->state == SHUT_OUT_ENDING && zone->reported >= out->sealed) ||
            (out->state == SHUT_OUT_FENCING && pm_fence_done(zone->pm, out->ticket)))
            return true;
    }
    return false;
}

bool sim_zone_has_work(const struct sim_zone *zone)
{
    const struct sim_unquiet *unquiet = zone->unquiet;
    while (unquiet && has_lander(zone, unquiet->segment))
        unquiet = unquiet->next;
    return unquiet || seal_due_ns(zone) <= sim_network_now(network_of(zone)) ||
           shut_out_gets_on(zone);
}

/* --- space --- */

bool sim_zone_is_dry(const struct sim_zone *zone)
{
    return zone->sealed == zone->count;
}

void sim_zone_seal_early(struct sim_zone *zone)
{
    if (zone->sealed == zone->count || zone->tail == 0)
        return;
    zone->sealed++;
    zone->tail = 0;
    wake_zone(zone);
}

void sim_close_segment(struct fabric_zone *head)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    if (zone->reported != zone->sealed || zone->sealed == zone->count)
        return;
    zone->sealed++;
    zone->tail = 0;
    wake_zone(zone);
}

uint32_t sim_zone_slot(const struct sim_zone *zone, uint32_t bytes)
{
    const uint32_t stride = network_of(zone)->options.landing_stride;
    return (bytes + stride - 1) & ~(stride - 1);
}

uint32_t sim_zone_room(const struct sim_zone *zone)
{
    return zone->sealed == zone->count ? 0 : FABRIC_SEGMENT_BYTES - zone->tail;
}

static void begin_lander(struct sim_zone *zone, struct sim_lander *lander, uint32_t bytes)
{
    struct sim_posted *slot = slot_of(zone, zone->sealed);
    lander->zone = zone;
    lander->is_void = lander->is_told = false;
    lander->segment = zone->sealed;
    lander->at = slot->offset + zone->tail;
    lander->end = lander->at + bytes;
    lander->since_ns = sim_network_now(network_of(zone));
    lander->resume_ns = 0;
    lander->bytes = lander->stored = lander->limit = 0;
    LIST_APPEND(&zone->landers, lander, link);
    slot->open++;
}

bool sim_zone_claim(struct sim_zone *zone, struct sim_lander *lander, uint32_t bytes,
                    uint32_t first)
{
    struct sim_network *network = network_of(zone);
    uint32_t early = network->options.early_seal;
    if (zone->tail > 0 && early && random_below(&network->random, early) == 0)
        sim_zone_seal_early(zone);
    if (first > sim_zone_room(zone))
        sim_zone_seal_early(zone);
    if (zone->sealed == zone->count)
        return false;
    ASSERT(bytes <= sim_zone_room(zone));
    begin_lander(zone, lander, bytes);
    zone->tail += bytes;
    if (zone->tail == FABRIC_SEGMENT_BYTES && network->options.landing_stride > FABRIC_STRIDE)
        sim_zone_seal_early(zone);
    return true;
}

void sim_lander_moved(struct sim_lander *lander)
{
    if (!lander->zone)
        return;
    if (lander->link.prev)
        lander->link.prev->link.next = lander;
    else
        lander->zone->landers.first = lander;
    if (lander->link.next)
        lander->link.next->link.prev = lander;
    else
        lander->zone->landers.last = lander;
}

/* --- F12 --- */

int sim_shut_out(struct fabric_zone *head, uint32_t server, uint64_t incarnation, uint64_t context)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    struct fabric_shut_out *out =
        shut_out_begin(&zone->endpoint->head, head, server, incarnation, context);
    if (!out)
        return ROWAN_ETOOMANY;
    for (struct sim_conn *at = zone->endpoint->conns.first; at; at = at->link.next) {
        if (shut_out_is_of(out, &at->identity))
            sim_conn_supersede(at);
    }
    for (struct sim_lander *at = zone->landers.first; at; at = at->link.next) {
        if (!shut_out_is_of(out, &at->who))
            continue;
        if (at->segment == zone->sealed)
            sim_zone_seal_early(zone);
        void_lander(zone, at);
        if (out->sealed <= at->segment)
            out->sealed = at->segment + 1;
    }
    wake_zone(zone);
    return 0;
}

unsigned sim_shut_out_events(struct sim_zone *zone, struct fabric_event *events, unsigned max)
{
    if (zone->head.shut_out_waiting == 0)
        return 0;
    return shut_out_events(&zone->head, zone->pm, zone->reported, events, max);
}

/* --- stores --- */

void sim_lander_begin(struct sim_lander *lander, const struct sim_block *block, uint32_t limit)
{
    lander->data = block->data;
    lander->bytes = block->bytes;
    lander->stored = 0;
    lander->limit = limit;
}

void sim_lander_store(struct sim_lander *lander, uint32_t bytes)
{
    struct sim_network *network = network_of(lander->zone);
    if (bytes == 0)
        return;
    ASSERT(bytes <= lander->limit - lander->stored && bytes <= lander->end - lander->at);
    pm_store(lander->zone->pm, lander->at, lander->data + lander->stored, bytes);
    const uint64_t words[] = {sim_network_now(network), lander->zone->endpoint->fabric->number,
                              lander->fabric, lander->at, bytes};
    sim_network_mix(network, words, sizeof words);
    sim_network_mix(network, lander->data + lander->stored, bytes);
    lander->at += bytes;
    lander->stored += bytes;
    if (lander->stored == lander->bytes)
        lander->at += sim_zone_slot(lander->zone, lander->bytes) - lander->bytes;
    network->counts.stray += lander->is_void;
    network->progress++;
}

static void count_landed(struct sim_lander *lander)
{
    struct sim_zone *zone = lander->zone;
    struct sim_network_counts *counts = &network_of(zone)->counts;
    counts->blocks++;
    counts->mixed +=
        zone->last_conn && zone->last_conn != lander->conn_number && zone->last_in_batch;
    zone->last_conn = lander->conn_number;
    zone->last_in_batch = true;
}

enum sim_landing sim_lander_step(struct sim_lander *lander)
{
    struct sim_network *network = network_of(lander->zone);
    uint64_t now_ns = sim_network_now(network);
    uint32_t left = lander->limit - lander->stored;
    if (lander->resume_ns > now_ns || (left == 0 && lander->limit < lander->bytes))
        return LANDING_WAITS;
    lander->resume_ns = 0;
    if (left > 1 && random_below(&network->random, PIECES_IN) == 0) {
        sim_lander_store(lander, 1 + (uint32_t)random_below(&network->random, left - 1));
        if (random_below(&network->random, 2))
            lander->resume_ns = now_ns + sim_network_delay(network);
        sim_alarm(network, lander->resume_ns);
        return LANDING_WAITS;
    }
    sim_lander_store(lander, left);
    if (lander->stored < lander->bytes)
        return LANDING_WAITS;
    if (!lander->is_void)
        count_landed(lander);
    if (lander->at < lander->end)
        return LANDING_DONE;
    bool was_void = lander->is_void;
    sim_lander_end(lander);
    return was_void ? LANDING_VOID : LANDING_DONE;
}

/* What the block says of itself, if it is the first of an entry. */
static void describe_block(const struct sim_lander *lander, struct journal_event *event)
{
    const struct entry_format format = {.block_limit =
                                            network_of(lander->zone)->options.block_limit};
    struct entry_header header;
    const uint8_t *key;
    uint32_t bytes;
    if (!entry_guess(&format, lander->data, lander->bytes, &header, &key, &bytes))
        return;
    event->shard = header.shard;
    event->version = header.version;
}

static void tell_torn(const struct sim_lander *lander)
{
    struct sim_network *network = network_of(lander->zone);
    const char *address = lander->zone->endpoint->fabric->address;
    struct journal_event event = {
        .kind = JOURNAL_TORN, .key = JOURNAL_NO_KEY, .shard = JOURNAL_NO_SHARD};
    network->counts.torn++;
    if (!network->options.journal)
        return;
    describe_block(lander, &event);
    snprintf(event.node, sizeof event.node, "%s", *address ? address + strlen("sim:") : "");
    snprintf(event.text, sizeof event.text, "%u of %u bytes landed, at %llu", lander->stored,
             lander->bytes, (unsigned long long)(lander->at - lander->stored));
    journal_add(network->options.journal, &event);
}

void sim_lander_end(struct sim_lander *lander)
{
    struct sim_zone *zone = lander->zone;
    if (!zone)
        return;
    if (lander->stored > 0 && lander->stored < lander->bytes)
        tell_torn(lander);
    LIST_REMOVE(&zone->landers, lander, link);
    if (!lander->is_void) {
        slot_of(zone, lander->segment)->open--;
        if (lander->at < lander->end && network_of(zone)->options.one_sided &&
            !lander->ends_with_conn)
            network_of(zone)->counts.voided++;
    }
    lander->zone = NULL;
    if (lander->is_void || lander->segment < zone->sealed)
        wake_zone(zone);
}
