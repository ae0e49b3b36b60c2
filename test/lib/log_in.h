/* log_in.h - who a client of the tests logs in as: whom its environment names, else nobody. */
#ifndef TEST_LOG_IN_H
#define TEST_LOG_IN_H

#include <stdlib.h>

#include "client/rowan.h"

static inline void log_in(struct rowan_options *options)
{
    options->user = getenv("ROWAN_TEST_USER");
    options->secret_file = getenv("ROWAN_TEST_SECRET_FILE");
}

#endif
