/* get, put and del, through the SDK. */
#include "client/rowan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/rowan/rowan.h"

enum { OPEN_TIMEOUT_MS = 5000, TIMEOUT_MS = 10000 };

static int open_session(const struct settings *settings, const char *cm, struct rowan **out)
{
    struct rowan_options options;

    rowan_options_init(&options);
    options.cm = cm;
    options.depth = 1;
    options.timeout_ms = settings->timeout_ms ? (uint32_t)settings->timeout_ms : TIMEOUT_MS;
    options.open_timeout_ms =
        options.timeout_ms < OPEN_TIMEOUT_MS ? options.timeout_ms : OPEN_TIMEOUT_MS;
    int error = rowan_open(&options, out);

    if (error)
        fprintf(stderr, "rowan: %s: %s\n", cm, rowan_error_sentence(error));
    return error;
}

static int print_value(const char *value, size_t bytes)
{
    if (fwrite(value, 1, bytes, stdout) != bytes ||
        (isatty(STDOUT_FILENO) && fputc('\n', stdout) == EOF))
        return ROWAN_EIO;
    return 0;
}

int command_get(const struct settings *settings, const char *cm, const char *key)
{
    struct rowan *rowan;
    size_t bytes;
    char *value = malloc(ROWAN_MAX_VALUE_BYTES);

    if (!value)
        return command_failed("get", key, ROWAN_ENOMEM);
    if (open_session(settings, cm, &rowan)) {
        free(value);
        return EXIT_FAILED;
    }
    int error = rowan_get(rowan, key, strlen(key), value, ROWAN_MAX_VALUE_BYTES, &bytes, NULL);

    if (!error)
        error = print_value(value, bytes);
    rowan_close(rowan);
    free(value);
    return error ? command_failed("get", key, error) : EXIT_DONE;
}

/* Reads up to one byte more than a value may have, so that a longer one is seen. */
static int read_stream(FILE *stream, char *value, size_t *bytes)
{
    *bytes = fread(value, 1, ROWAN_MAX_VALUE_BYTES + 1, stream);
    if (ferror(stream))
        return ROWAN_EIO;
    return *bytes > ROWAN_MAX_VALUE_BYTES ? ROWAN_EVALUESIZE : 0;
}

static int read_value(const char *path, char *value, size_t *bytes)
{
    FILE *stream = path ? fopen(path, "rb") : stdin;

    if (!stream) {
        perror(path);
        return ROWAN_EIO;
    }
    int error = read_stream(stream, value, bytes);

    if (path)
        fclose(stream);
    return error;
}

static int put_value(const struct settings *settings, const char *cm, const char *key,
                     const char *value, size_t bytes)
{
    struct rowan *rowan;

    if (open_session(settings, cm, &rowan))
        return EXIT_FAILED;
    int error = rowan_put(rowan, key, strlen(key), value, bytes, NULL);

    rowan_close(rowan);
    return error ? command_failed("put", key, error) : EXIT_DONE;
}

int command_put(const struct settings *settings, const char *cm, const char *key, const char *value)
{
    size_t bytes;

    if (value && strcmp(value, "-") != 0)
        return put_value(settings, cm, key, value, strlen(value));
    char *buffer = malloc(ROWAN_MAX_VALUE_BYTES + 1);

    if (!buffer)
        return command_failed("put", key, ROWAN_ENOMEM);
    int error = read_value(value ? NULL : settings->value_file, buffer, &bytes);
    int code =
        error ? command_failed("put", key, error) : put_value(settings, cm, key, buffer, bytes);

    free(buffer);
    return code;
}

int command_del(const struct settings *settings, const char *cm, const char *key)
{
    struct rowan *rowan;

    if (open_session(settings, cm, &rowan))
        return EXIT_FAILED;
    int error = rowan_del(rowan, key, strlen(key));

    rowan_close(rowan);
    return error ? command_failed("del", key, error) : EXIT_DONE;
}
