/* worker.h - a worker: serves the clients of the shards it owns, appends to its t-log, replicates
 * to the backups by Rowan sends. A poller. */
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include <stdint.h>

#include "common/fabric/fabric.h"
#include "common/reactor/reactor.h"
#include "server/role.h"
#include "server/worker/worker_counts.h"

struct worker;
struct records_question;
struct traces;

/* Errors: ROWAN_ENOMEM and those of fabric_endpoint_open. `common` outlives the worker. */
int worker_create(struct server_common *common, uint32_t number, struct worker **out);
void worker_destroy(struct worker *worker);

poll_function worker_poll;

struct fabric_endpoint *worker_endpoint(struct worker *worker);
struct role *worker_role(struct worker *worker);

const struct worker_counts *worker_counts(const struct worker *worker);

/* Any thread, by traces_read (trace.h). */
const struct traces *worker_traces(const struct worker *worker);

/* Any thread. Some server to which its sends have stayed incomplete for WORKER_INCOMPLETE_LEASES; 0: none at this place, up to
 * CLUSTER_MAX_MEMBERS. */
uint32_t worker_incomplete(const struct worker *worker, uint32_t place);

/* Any thread. Segments of its log from that allocation number on may hold what is on its way to peers by pointer. Of one
 * that is USED no more is sent later, but writes in flight. */
#define WORKER_SENDS_NOTHING UINT64_MAX
uint64_t worker_sends_from(const struct worker *worker);

#endif
