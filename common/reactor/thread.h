/* thread.h - starts a helper thread of a seam. Signals are for the program's own threads. */
#ifndef REACTOR_THREAD_H
#define REACTOR_THREAD_H

#include <pthread.h>

/* `name`: at most 15 bytes. Errors: ROWAN_ENOMEM. */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);

#endif
