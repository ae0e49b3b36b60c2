/* tool.c - begin, end and messages of the C programs. */
#include "tools/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"

#define LIVE_LINE_NS   (1 * NS_PER_S)
#define SPARSE_LINE_NS (10 * NS_PER_S)

static const char *program;
static bool told; /* a sentence, on standard error */

int tool_main(const struct config_spec *spec, int argc, char **argv, void *settings, tool_run *run)
{
    struct config_rest rest;
    enum config_outcome outcome = config_parse(spec, argc, argv, settings, &rest);
    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? EXIT_DONE : EXIT_USAGE;
    program = spec->program;
    int code = run(settings, rest.argc, rest.argv);
    config_free(&rest);
    if ((fflush(stdout) != 0 || ferror(stdout)) && !told)
        code = tool_failed("standard output", ROWAN_EIO);
    return code;
}

int tool_usage(const char *sentence)
{
    tool_say("%s; see %s --help", sentence, program);
    return EXIT_USAGE;
}

int tool_failed(const char *what, int error)
{
    return tool_say("%s: %s", what, error_sentence(error));
}

int tool_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    told = true;
    return EXIT_FAILED;
}

bool tool_parse_number(const char *text, double least, double most, double *out)
{
    char *end;
    const double value = strtod(text, &end);
    if (!*text || *end || !(value >= least && value <= most))
        return false;
    *out = value;
    return true;
}

int tool_print_json(json_t *object)
{
    if (!object)
        return tool_failed("standard output", ROWAN_ENOMEM);
    const bool failed = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) != 0 ||
                        putchar('\n') == EOF;
    json_decref(object);
    return failed ? tool_failed("standard output", ROWAN_EIO) : EXIT_DONE;
}

/* --- progress --- */

static uint64_t next_ns; /* 0: nobody has asked yet */

bool progress_due(uint64_t now_ns)
{
    const bool due = next_ns > 0 && now_ns >= next_ns;

    if (due || next_ns == 0)
        next_ns = now_ns + (isatty(STDERR_FILENO) ? LIVE_LINE_NS : SPARSE_LINE_NS);
    return due;
}

static void erase_line(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
}

void progress_line(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    erase_line();
    vfprintf(stderr, format, arguments);
    if (!isatty(STDERR_FILENO))
        fputc('\n', stderr);
    va_end(arguments);
}

void progress_end(void)
{
    erase_line();
    next_ns = 0;
}
