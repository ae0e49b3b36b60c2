/* SIGHUP asks for a new log file and the settings to be read again, and wakes who does that. */
#include "common/reactor/reload.h"

#include <errno.h>
#include <signal.h>

#include "common/base/error.h"

/* What others send to make a program rotate or tell something, and what comes when nobody reads the log any more. */
static const int ignored[] = {SIGPIPE, SIGUSR1, SIGUSR2};

static struct config_live *reload_live;
static struct reactor *_Atomic reload_reactor; /* NULL: there is none yet */

static void on_signal(int number)
{
    const int errno_before = errno;
    struct reactor *reactor;

    (void)number;
    config_live_ask(reload_live);
    reactor = atomic_load(&reload_reactor);
    if (reactor)
        reactor_wake(reactor);
    errno = errno_before;
}

static enum poll_result poll_reload(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)now_ns;
    (void)wake_ns;
    return config_live_poll(role) ? POLL_BUSY : POLL_IDLE;
}

int reload_catch(struct config_live *live)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    reload_live = live;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    return sigaction(SIGHUP, &action, NULL) ? error_from_errno(errno) : 0;
}

int reload_attach(struct reactor *reactor)
{
    const int error =
        reactor_add_poller(reactor, &(struct poller){"reload", poll_reload, reload_live, NULL});
    if (!error)
        atomic_store(&reload_reactor, reactor);
    return error;
}

void reload_ignore(void)
{
    signal(SIGHUP, SIG_IGN);
    atomic_store(&reload_reactor, NULL);
}
