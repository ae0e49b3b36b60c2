/* reload.h - SIGHUP: a process reads its settings again (common/base/config_live.h), on the thread of one of its reactors, and
 * writes to a new log file where the old one was renamed. There is one set of settings for a process.
 */
#ifndef REACTOR_RELOAD_H
#define REACTOR_RELOAD_H

#include "common/base/config_live.h"
#include "common/reactor/reactor.h"

/* reload_catch: from now on SIGHUP does that, once there is a reactor: as early as it may come. `live` outlives it. SIGPIPE, SIGUSR1
 * and SIGUSR2 do nothing from now on. Errors: ROWAN_EIO. */
int reload_catch(struct config_live *live);

/* reload_attach: before the reactor runs, whose thread then owns the settings. Errors: ROWAN_ENOMEM. */
int reload_attach(struct reactor *reactor);

/* SIGHUP is ignored from now on, by a program that this process executes too. Before the reactor is destroyed. */
void reload_ignore(void);

#endif
