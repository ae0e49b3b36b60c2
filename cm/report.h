/* report.h - what servers report, as the state gets it: a Join, and a Load. */
#ifndef CM_REPORT_H
#define CM_REPORT_H

#include "cm/join.h"
#include "cm/loads.h"
#include "cm/state.h"
#include "control.pb-c.h"

/* Strings in `out` end with a NUL, all else is unchecked. *stored: the configuration that the server brings, with one
 * reference; NULL: none that is whole. Errors: ROWAN_EINCOMPATIBLE (it brings one in a format that is not read here). */
int report_decode(const Rowan__Join *from, struct cm_join *out, struct cluster_config **stored);

/* Of every other kind of request, the event that it is; the caller sets connection and tag. It points into `from`. False: it
 * is of none that this version knows. */
bool report_event(const Rowan__ControlMessage *from, struct cm_event *out);

/* `rows` has space for CLUSTER_MAX_SHARDS; the report points to them. */
void report_load(const Rowan__Load *from, struct load_row *rows, struct load_report *out);

#endif
