/* letter.h - a control message that is encoded and ready to go. The configuration's is shared by
 * all connections that get it, so its tag is filled in when it is sent. */
#ifndef CM_LETTER_H
#define CM_LETTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/fabric/fabric.h"

struct letter;

/* Each makes one with one reference. NULL: no memory. */
struct letter *letter_configuration(const struct cluster_config *config, bool with_secret,
                                    const uint32_t *waiting_for, uint32_t waiting_count);
struct letter *letter_waiting(const uint32_t *servers, uint32_t count, uint64_t round);
struct letter *letter_client_id(uint32_t client_id);
struct letter *letter_failure(int error, const char *detail);

/* A second reference, and the end of one (NULL is fine). One thread. */
struct letter *letter_hold(struct letter *letter);
void letter_release(struct letter *letter);

/* As fabric_send, whose errors it gives; the bytes are copied. */
int letter_send(const struct letter *letter, uint32_t tag, struct fabric_conn *conn);

#endif
