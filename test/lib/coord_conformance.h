/* coord_conformance.h - what every backend of the coordination seam must do, as tests. A backend's own test
 * gives the few functions of struct coord_backend and runs them all.
 *
 * Two or three handles live in one thread; a case polls them in turn, until what it waits for is there or 60 s
 * of the backend's time have gone by. */
#ifndef TEST_COORD_CONFORMANCE_H
#define TEST_COORD_CONFORMANCE_H

#include <stdint.h>

#include "common/coord/coord.h"

struct coord_backend {
    const char *name; /* printed before each case */
    void *context;
    void (*start)(void *context); /* before each case: nothing is stored, nobody leads */
    void (*stop)(void *context);  /* after it; every handle was closed */
    struct coord *(*open)(void *context);
    uint64_t (*tick)(void *context); /* lets a little time go by: what it is now */
};

/* Runs all cases on each of them, as one cmocka group; how many failed. */
int coord_conformance_run(const char *group, const struct coord_backend *backends, unsigned count);

#endif
