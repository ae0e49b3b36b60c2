/* torn.h - places of a segment, ENTRY_ALIGN bytes each, that are neither zero nor part of a whole block.
 *
 * As long as somebody may write into a segment such a place may be unfinished. When nobody can any more it is torn, and
 * is made void: a pad is stored over it. That is done before a segment can become COMMITTED, by a start (recover.c) or by
 * the control role (control_zone.c); a log leaves nothing unfinished. So in a COMMITTED segment such a place is damage. In one
 * that has to wait, too, as its word says that it is closed (control_commit.c, G8).
 */
#ifndef SERVER_TORN_H
#define SERVER_TORN_H

#include "common/entry/entry.h"
#include "common/pm/pm.h"

typedef void torn_found(void *context, uint32_t position);

/* torn_step: calls `found` for each such place on the scan's way through the next `bytes` of its region, or somewhat
 * more; the region is that of a segment. True at its end. */
bool torn_step(struct entry_scan *scan, uint32_t bytes, torn_found *found, void *context);

/* torn_void_step: the same, and stores a pad over each such place, which adds to *voided. The region lies in the map. Not
 * fenced. */
bool torn_void_step(struct pm *pm, struct entry_scan *scan, uint32_t bytes, uint64_t *voided);

#endif
