/* report.h - a server's Join as the state gets it. */
#ifndef CM_REPORT_H
#define CM_REPORT_H

#include "cm/join.h"
#include "control.pb-c.h"

/* Strings in `out` end with a NUL, all else is unchecked. Returns the configuration that the server brings, with one
 * reference; NULL: none that is whole. */
struct cluster_config *report_decode(const Rowan__Join *from, struct cm_join *out);

#endif
