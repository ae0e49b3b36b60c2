/* sim_log.h - where the lines of common/base/log.h go in the simulator: into the journal, under the
 * process that is being polled. One run at a time in a process.
 */
#ifndef SIM_LOG_H
#define SIM_LOG_H

#include "test/sim/journal.h"

/* NULL: nowhere. With none an error's line goes to standard error. */
void sim_log_journal(struct journal *journal);

/* Whose lines the next ones are; not copied. NULL: nobody's. */
void sim_log_node(const char *name);

/* "": nobody's. */
const char *sim_log_node_now(void);

/* Is told of every line, after the journal; NULL: nobody is. One run at a time in a process. */
typedef void sim_log_observer(void *context, const char *node, const char *event, const char *line);
void sim_log_observe(sim_log_observer *observer, void *context);

#endif
