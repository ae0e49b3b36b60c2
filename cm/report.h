/* report.h - what servers report, as the state gets it: a Join, and a Load. */
#ifndef CM_REPORT_H
#define CM_REPORT_H

#include "cm/join.h"
#include "cm/loads.h"
#include "control.pb-c.h"

/* Strings in `out` end with a NUL, all else is unchecked. Returns the configuration that the server brings, with one
 * reference; NULL: none that is whole. */
struct cluster_config *report_decode(const Rowan__Join *from, struct cm_join *out);

/* Servers to which its sends stay incomplete: there are not more other members. */
uint32_t report_cut_count(const Rowan__Renew *from);

/* `rows` has space for CLUSTER_MAX_SHARDS; the report points to them. */
void report_load(const Rowan__Load *from, struct load_row *rows, struct load_report *out);

#endif
