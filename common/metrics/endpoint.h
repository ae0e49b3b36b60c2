/* endpoint.h - what Prometheus and load balancers ask a process over HTTP: /metrics, /healthz, /readyz.
 *
 * It runs on a thread of its own, which libmicrohttpd makes, outside the roles: a scrape costs them one look, and a client
 * that reads slowly costs them nothing. Who may connect sees counts, and neither keys nor values; there is no login. So the
 * address is one of the loopback device, unless it is told otherwise.
 */
#ifndef METRICS_ENDPOINT_H
#define METRICS_ENDPOINT_H

#include "common/base/config.h"
#include "common/metrics/metrics.h"

struct metrics_endpoint;

#define METRICS_KEY(field)                                                                         \
    {                                                                                              \
        "metrics", CONFIG_STRING, (field), "", 0, 0, NULL,                                         \
            "answer Prometheus over HTTP at this address (/metrics, /healthz, /readyz): PORT, of " \
            "127.0.0.1, or IP:PORT; anybody who reaches it may read; empty: nowhere"               \
    }

/* metrics_address_is_right: is it one of METRICS_KEY's? Whether this host has it says metrics_endpoint_open. */
#define METRICS_ADDRESS_IS                                                                         \
    "PORT (of 127.0.0.1), IP:PORT or [IP]:PORT, the IP being one of this host"
bool metrics_address_is_right(const char *address);

/* metrics_why: the sentence of an error of metrics_endpoint_open. */
const char *metrics_why(int error);

/* metrics_endpoint_open: answers at `address` (METRICS_KEY's; port 0: any free one, which the log tells) until it is closed.
 * `metrics`, complete by now, outlives it; `wake` wakes the role that looks after it: from the endpoint's thread. "": *out is
 * NULL. Errors: ROWAN_EADDRESS (that is no such address), ROWAN_EINUSE, ROWAN_EPERMISSION, ROWAN_ENOMEM, ROWAN_EIO. */
int metrics_endpoint_open(const char *address, struct metrics *metrics, void (*wake)(void *context),
                          void *context, struct metrics_endpoint **out);

/* Ends its thread. The role must not be polled any more. NULL is fine. */
void metrics_endpoint_close(struct metrics_endpoint *endpoint);

#endif
