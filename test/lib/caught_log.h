/* caught_log.h - what is logged between log_catch and log_caught, which a test then reads. */
#ifndef TEST_LIB_CAUGHT_LOG_H
#define TEST_LIB_CAUGHT_LOG_H

#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"
#include "test/lib/unit.h"

static FILE *log_catching;
static int log_real_stderr;

static inline void log_catch(void)
{
    log_set_level(LOG_INFO);
    log_catching = tmpfile();
    log_real_stderr = dup(STDERR_FILENO);
    assert_true(log_catching && log_real_stderr >= 0 &&
                dup2(fileno(log_catching), STDERR_FILENO) >= 0);
}

/* Valid until the next one. */
static inline const char *log_caught(void)
{
    static char text[65536];
    dup2(log_real_stderr, STDERR_FILENO);
    close(log_real_stderr);
    rewind(log_catching);
    text[fread(text, 1, sizeof text - 1, log_catching)] = '\0';
    fclose(log_catching);
    return text;
}

#endif
