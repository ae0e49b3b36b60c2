#include "common/reactor/thread.h"

#include <signal.h>

#include "common/base/error.h"

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, argument);

    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return ROWAN_ENOMEM;
    pthread_setname_np(*thread, name);
    return 0;
}
