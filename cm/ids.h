/* ids.h - series of client ids. Pure.
 *
 * So that no id is given twice though nobody knows how many of them were reserved (recovery.h), ids come in series: such a
 * manager begins the next one. Each has half of what the ones before have left: the first all below 2^31. The first block of
 * a series waits until every server has stored a configuration that is in it (proposal_may_reserve): so once one of its
 * ids is given, no server brings an earlier series any more.
 */
#ifndef CM_IDS_H
#define CM_IDS_H

#include <stdbool.h>
#include <stdint.h>

enum { CM_CLIENT_ID_BLOCK = 1024 /* ids reserved by one change of the configuration */ };

/* ids_series_end: the id behind the series that `next`, the first one not reserved, is in; at last UINT32_MAX. No block
 * reaches it. ids_series_is_new: none of that series is reserved. */
uint32_t ids_series_end(uint32_t next);
bool ids_series_is_new(uint32_t next);

#endif
