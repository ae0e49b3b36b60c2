/* pm_thread.h - starts a thread of this seam. Signals are for the program's own threads. */
#ifndef PM_THREAD_H
#define PM_THREAD_H

#include <pthread.h>

/* Errors: ROWAN_ENOMEM. */
int pm_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

#endif
