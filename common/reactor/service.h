/* service.h - a process under a service manager (systemd): tells it when the process serves and that its threads go on
 * (sd_notify(3), sd_watchdog_enabled(3)). Without one this does nothing, and costs nothing.
 */
#ifndef REACTOR_SERVICE_H
#define REACTOR_SERVICE_H

#include "common/reactor/reactor.h"

struct service;

/* service_attach: adds a poller to each of these reactors, before they run. READY=1 is sent when `serves`, which the first of them
 * asks ten times a second, is true; NULL: in its first poll. Then, if the service manager wants that, WATCHDOG=1 four times in the
 * time that it gives, as long as each reactor has polled in the half of it. *out is NULL without a service manager. Errors:
 * ROWAN_ENOMEM. */
int service_attach(struct reactor **reactors, uint32_t count, bool (*serves)(const void *context),
                   const void *context, struct service **out);

/* The reactors must not run any more. NULL is fine. */
void service_detach(struct service *service);

#endif
