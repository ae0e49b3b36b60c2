/* json_print.h - the one JSON object that a program prints with --json. */
#ifndef TOOLS_JSON_PRINT_H
#define TOOLS_JSON_PRINT_H

#include <jansson.h>
#include <stdio.h>

#include "common/base/error.h"

/* On standard output, with a newline, not flushed; ends the caller's reference. NULL: it could not be
 * made. Errors: ROWAN_ENOMEM, ROWAN_EIO. */
static inline int json_print(json_t *object)
{
    if (!object)
        return ROWAN_ENOMEM;
    const int failed = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) != 0 ||
                       putchar('\n') == EOF;
    json_decref(object);
    return failed ? ROWAN_EIO : 0;
}

#endif
