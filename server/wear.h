/* wear.h - what this server's writes would cost a DIMM: reads the tap of its PM (common/pm/pm_tap.h) into the model of the
 * device (common/pm/wear.h), in the order in which the stores were made. Off, there is none of it.
 *
 * Causes: zeros and the clean role's log are cleaning; other entries are data; checkpoints and all in front of the
 * segments are tables. Until the first configuration the store is not open, and all is tables.
 *
 * log-per-sender changes one thing: what another server's worker stores in the landing zone is told to the model as if
 * it were the next bytes of a log of that worker's own, which is where replication by RDMA WRITE would put it (paper,
 * section 2.4). Where the fabric does not know the sender (verbs) it stays in the landing zone's place.
 *
 * On the control role's thread; the records and counts are lost with the process.
 */
#ifndef SERVER_WEAR_H
#define SERVER_WEAR_H

#include "common/reactor/reactor.h"
#include "proto/control.pb-c.h"
#include "server/common.h"

enum server_wear_mode { WEAR_OFF, WEAR_ON, WEAR_LOG_PER_SENDER };
#define SERVER_WEAR_MODES "off|on|log-per-sender"

struct server_wear;

/* `common->pm` is a tap, and outlives it. Errors: ROWAN_ENOMEM. */
int server_wear_create(const struct server_common *common, enum server_wear_mode mode,
                       struct server_wear **out);
void server_wear_destroy(struct server_wear *wear);

/* A poll_function: reads a bounded number of requests. */
enum poll_result server_wear_poll(void *wear, uint64_t now_ns, uint64_t *wake_ns);

/* server_wear_report: reads what is there, then fills the wear fields. NULL: they stay 0. */
void server_wear_report(struct server_wear *wear, Rowan__ServerStatus *status);

#endif
