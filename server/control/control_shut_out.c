/* Servers that are shut out of the landing zone, and what is void there (fabric.h, F12).
 *
 * The fabric calls a range void when it no longer waits for its sender, who may stand still anywhere in its stores. The
 * digest roles scan the open segment, so they may have applied blocks of it, and an index, an uncommitted suffix or a
 * join may lead there. That is right, because a block that is whole stays as it is: whoever stores there can only store
 * the same bytes again. It has landed, as some blocks of a connection that broke have (F3). So nothing is taken back
 * or copied; it is decided once what of the range is whole, and only the rest is void:
 *
 *  1. The whole range is published as undecided: digest roles wait in front of its blocks.
 *  2. What lies between whole blocks of it is published as void. Whoever found a block whole, and did not see 1, had read
 *     it before: it is whole here, too (O2).
 *  3. That is noted in the PM (store_void.c), and what is whole is flushed, for its sender may never do it. The fabric's
 *     fence makes both durable before it says SHUT_OUT.
 *
 * A range ends when the segment is quiet and all digest roles have left it: it is zeroed, that is fenced, and the table
 * forgets it. After a crash the next open zeroes it.
 *
 *  O2 Publishing and a digest role's look at what is published are read-modify-writes of one word: so one of the two is
 *     first, and who is second sees what the first read or stored before.
 *  O3 All that is void in a segment is decided before the segment is sealed, and so before its last scan.
 *  O4 Between 1 and the end nobody reads, and after a crash nobody finds, what became whole in a range after 2.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

/* --- shutting out --- */

int control_zone_shut_out(struct control *control, uint32_t server, uint64_t incarnation)
{
    return control->zone ? fabric_shut_out(control->zone, server, incarnation, server) : 0;
}

bool control_zone_is_shutting_out(const struct control *control)
{
    return control->shut_out_failed || (control->zone && control->zone->shut_out_waiting > 0);
}

void control_zone_readmit(struct control *control, uint32_t server)
{
    if (control->zone)
        fabric_readmit(control->zone, server);
}

/* --- what is void --- */

static void add_range(struct blog_voids *voids, uint32_t begin, uint32_t end)
{
    voids->ranges[voids->count++] = (struct blog_void){begin, end};
}

/* What was published, with space for `more` ranges. NULL without memory. */
static struct blog_voids *copy_voids(struct blog_voids *former, uint32_t more)
{
    const uint32_t count = former ? former->count : 0;
    struct blog_voids *voids = malloc(sizeof *voids + (count + more) * sizeof voids->ranges[0]);
    if (!voids)
        return NULL;
    *voids = (struct blog_voids){.former = former, .count = count};
    if (count > 0)
        memcpy(voids->ranges, former->ranges, count * sizeof voids->ranges[0]);
    return voids;
}

/* O2 */
static void publish(struct blog_segment *segment, struct blog_voids *voids)
{
    atomic_exchange_explicit(&segment->voids, voids, memory_order_acq_rel);
}

/* What is not whole in the range, STORE_VOIDS pieces at most; returns their number. */
static uint32_t find_gaps(const struct server_common *common, const struct blog_segment *segment,
                          struct blog_void range, struct blog_void *gaps)
{
    struct entry_scan scan;
    enum entry_scan_result result;
    uint32_t from = range.begin, count = 0;
    entry_scan_init(&scan, &common->format, pm_at(common->pm, segment->offset), range.end,
                    range.begin);
    entry_scan_stride(&scan, fabric_caps(common->fabric)->landing_stride);
    do {
        struct entry_header header;
        uint32_t offset = range.end, bytes;
        result = entry_scan_next(&scan, false, &header, &offset, &bytes);
        if (result == ENTRY_SCAN_STOPPED)
            continue;
        const uint32_t to = result == ENTRY_SCAN_BLOCK ? offset : range.end;
        if (to > from && count < STORE_VOIDS)
            gaps[count++] = (struct blog_void){from, to};
        from = scan.position;
    } while (result != ENTRY_SCAN_END);
    return count;
}

/* Steps 1 to 3. */
static int note_void(struct control *control, struct blog_segment *segment, struct blog_void range)
{
    struct server_common *common = control->common;
    struct blog_voids *former = atomic_load_explicit(&segment->voids, memory_order_relaxed);
    struct blog_void gaps[STORE_VOIDS];
    int error = 0;
    struct blog_voids *undecided = copy_voids(former, 1);
    if (!undecided)
        return ROWAN_ENOMEM;
    undecided->undecided = true;
    add_range(undecided, range.begin, range.end);
    publish(segment, undecided);
    const uint32_t count = find_gaps(common, segment, range, gaps);
    struct blog_voids *voids = copy_voids(former, count);
    if (!voids || count == STORE_VOIDS) {
        free(voids);
        return voids ? ROWAN_ETOOMANY : ROWAN_ENOMEM; /* digest roles wait until the server ends */
    }
    voids->former = undecided;
    for (uint32_t i = 0; i < count && !error; i++) {
        add_range(voids, gaps[i].begin, gaps[i].end);
        error = store_void_add(common->store, segment->segment, gaps[i].begin,
                               gaps[i].end - gaps[i].begin);
    }
    pm_flush(common->pm, segment->offset + range.begin, range.end - range.begin);
    log_event(LOG_WARN, "landing_void", "segment=%lu from=%u bytes=%u ranges=%u", segment->segment,
              range.begin, range.end - range.begin, count);
    if (error)
        free(voids);
    else
        publish(segment, voids);
    return error;
}

void control_zone_event(struct control *control, const struct fabric_event *event)
{
    if (event->kind == FABRIC_SHUT_OUT) {
        control->shut_out_failed |= event->error != 0;
        if (event->error)
            server_fail(control->common, event->error, SYNC_FAILED);
        log_event(LOG_INFO, "shut_out", "server=%lu error=%s", event->context,
                  error_name(event->error));
        return;
    }
    struct blog_segment *segment = (struct blog_segment *)(uintptr_t)event->context;
    const uint8_t *base = pm_at(control->common->pm, segment->offset);
    const uint32_t begin = (uint32_t)((const uint8_t *)event->data - base);
    ASSERT(begin <= STORE_SEGMENT_BYTES && event->bytes <= STORE_SEGMENT_BYTES - begin);
    if (event->bytes == 0)
        return;
    const int error = note_void(control, segment, (struct blog_void){begin, begin + event->bytes});
    control->shut_out_failed |= error != 0;
    if (error)
        server_fail(control->common, error,
                    error == ROWAN_ENOMEM
                        ? "no memory for what of the landing zone is void"
                        : "more of the landing zone is void than the PM can note");
}

/* --- its end --- */

bool control_zone_end_voids(struct control *control, struct blog_segment *segment)
{
    struct server_common *common = control->common;
    struct blog_voids *voids = atomic_load_explicit(&segment->voids, memory_order_relaxed);
    if (!voids)
        return true;
    if (!segment->zeroed) {
        for (uint32_t i = 0; i < voids->count; i++)
            pm_zero(common->pm, segment->offset + voids->ranges[i].begin,
                    voids->ranges[i].end - voids->ranges[i].begin);
        segment->zeroed = true;
        segment->zeroed_ticket = pm_fence_start(common->pm);
    }
    if (!server_fenced(common, segment->zeroed_ticket))
        return false;
    store_void_drop(common->store, segment->segment);
    control_zone_free_voids(segment);
    return true;
}

void control_zone_free_voids(struct blog_segment *segment)
{
    struct blog_voids *voids = atomic_load_explicit(&segment->voids, memory_order_relaxed);
    while (voids) {
        struct blog_voids *former = voids->former;
        free(voids);
        voids = former;
    }
    atomic_store_explicit(&segment->voids, NULL, memory_order_relaxed);
}
