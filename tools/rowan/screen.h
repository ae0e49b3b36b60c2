/* screen.h - frames of text, each in place of the one before where standard output is a terminal; elsewhere one after the
 * other, with a form feed between them. One at a time, one thread. */
#ifndef TOOLS_ROWAN_SCREEN_H
#define TOOLS_ROWAN_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* screen_open takes the terminal over, and catches SIGINT, SIGTERM and SIGHUP; screen_close gives it back as it was. */
void screen_open(void);
void screen_close(void);

/* screen_show: lines that end with a newline; what has no place on a terminal is cut off. Errors: ROWAN_EIO. */
int screen_show(const char *text, size_t bytes);

/* Has the person had enough? By q, Ctrl-C, or one of the signals. Does not wait. */
bool screen_is_left(void);

#endif
