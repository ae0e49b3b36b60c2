/* offload.h - one helper thread that runs blocking system calls for a seam (a sync of a file), so
 * that no poll function blocks. Jobs run one after another, in the order they were posted. */
#ifndef REACTOR_OFFLOAD_H
#define REACTOR_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

struct offload;
struct reactor;

/* Runs on the helper thread. */
typedef void offload_function(void *argument);

/* `name`: thread name, at most 15 bytes. Errors: ROWAN_ENOMEM. */
int offload_create(const char *name, struct offload **out);

/* Waits for the jobs that were posted. NULL is fine. */
void offload_destroy(struct offload *offload);

/* Whom to wake when a job is done; NULL: nobody. Before the first post. */
void offload_set_reactor(struct offload *offload, struct reactor *reactor);

/* One owner thread posts and asks. *job counts from 1. Errors: ROWAN_EAGAIN (256 jobs waiting). */
int offload_post(struct offload *offload, offload_function *run, void *argument, uint64_t *job);

/* The highest job such that it and all before it are done. What a job wrote is visible then. */
uint64_t offload_done(const struct offload *offload);

#endif
