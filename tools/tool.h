/* tool.h - what the C programs have in common: how they begin and end, and what they say to a person. */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/config.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* tool_main: reads the settings into `settings` and calls `run` with them and the other words. Returns the exit
 * code: that of `run`, or EXIT_FAILED if standard output did not take everything. */
typedef int tool_run(void *settings, int argc, char **argv);
int tool_main(const struct config_spec *spec, int argc, char **argv, void *settings, tool_run *run);

/* A sentence on standard error behind the program's name. tool_usage points to --help, and returns EXIT_USAGE; the
 * others return EXIT_FAILED. */
int tool_usage(const char *sentence);
int tool_failed(const char *what, int error);
int tool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "2.5" to a number of that range. */
bool tool_parse_number(const char *text, double least, double most, double *out);

/* The one object of --json on standard output, with a newline, not flushed; ends the caller's reference. NULL: it
 * could not be made. Returns an exit code, EXIT_FAILED after a sentence. */
int tool_print_json(json_t *object);

/* The progress line on standard error: overwritten in place on a terminal, else printed now and then.
 * progress_due: true when it is time for one; the first call, and that after progress_end, begins the wait for it. */
bool progress_due(uint64_t now_ns);
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

#endif
