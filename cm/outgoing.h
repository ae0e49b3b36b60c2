/* outgoing.h - a control message that is encoded and waits to be sent. The configuration's is shared by
 * all connections that get it, so its tag is filled in when it is sent. */
#ifndef CM_OUTGOING_H
#define CM_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/state.h"
#include "common/cluster/settings.h"
#include "common/fabric/fabric.h"

struct outgoing;

/* Each makes one with one reference. NULL: no memory. */
struct outgoing *outgoing_configuration(const struct cm_action *action,
                                        const struct cm_output *output);
/* With its ticket, if `user` is not NULL. */
struct outgoing *outgoing_client_id(uint32_t client_id, const struct cluster_config *config,
                                    const char *user);
struct outgoing *outgoing_lease(uint64_t manager, uint64_t manager_ns, bool granted);
struct outgoing *outgoing_users(const struct cluster_config *config); /* NULL: none */
struct outgoing *outgoing_committed(uint64_t term);
struct outgoing *outgoing_failure(int error, const char *detail);
struct outgoing *outgoing_settings(struct config_live *live, const Rowan__SetSetting *question);

/* A second reference, and the end of one (NULL is fine). One thread. */
struct outgoing *outgoing_hold(struct outgoing *outgoing);
void outgoing_release(struct outgoing *outgoing);

/* As fabric_send, whose errors it gives; the bytes are copied. */
int outgoing_send(const struct outgoing *outgoing, uint32_t tag, struct fabric_conn *conn);

#endif
