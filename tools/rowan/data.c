/* get, put and del, through the SDK. With --json the outcome is one object: key, status (the error's
 * name), and where there is one version and value (as text, or as hexadecimal digits where it is no
 * UTF-8). */
#include "client/rowan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tools/json_print.h"
#include "tools/rowan/rowan.h"

enum { OPEN_TIMEOUT_MS = 5000, TIMEOUT_MS = 10000 };

/* A session tries until its time is over. This says at once that nobody is there, or who is missing. */
static int check_cluster(const char *cm, const char *what, uint64_t timeout_ns)
{
    struct admin_missing missing;
    struct admin *admin;
    int error = admin_open(cm, timeout_ns, &admin, &missing);

    if (error)
        admin_print_open("rowan", what, cm, error, &missing);
    else
        admin_close(admin);
    return error;
}

static int open_session(const struct rowan_settings *settings, const char *cm, const char *what,
                        struct rowan **out)
{
    struct rowan_options options;

    rowan_options_init(&options);
    options.cm = cm;
    options.depth = 1;
    options.timeout_ms = settings->timeout_ms ? (uint32_t)settings->timeout_ms : TIMEOUT_MS;
    options.open_timeout_ms =
        options.timeout_ms < OPEN_TIMEOUT_MS ? options.timeout_ms : OPEN_TIMEOUT_MS;
    int error = check_cluster(cm, what, options.open_timeout_ms * NS_PER_MS);

    if (error)
        return error;
    error = rowan_open(&options, out);
    if (error)
        fprintf(stderr, "rowan: %s: %s\n", cm, rowan_error_sentence(error));
    return error;
}

static json_t *hexadecimal(const uint8_t *bytes, size_t count)
{
    char *digits = malloc(2 * count + 1);

    if (!digits)
        return NULL;
    for (size_t i = 0; i < count; i++)
        snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
    json_t *text = json_stringn(digits, 2 * count);

    free(digits);
    return text;
}

/* Text where the bytes are UTF-8, else under NAME_hex. */
static int set_bytes(json_t *object, const char *name, const char *bytes, size_t count)
{
    char hex_name[32];
    json_t *text = json_stringn(bytes, count);

    if (text)
        return json_object_set_new(object, name, text);
    snprintf(hex_name, sizeof hex_name, "%s_hex", name);
    return json_object_set_new(object, hex_name, hexadecimal((const uint8_t *)bytes, count));
}

/* `value` may be NULL. Returns 0 or ROWAN_EIO. */
static int print_outcome(const char *key, int error, uint64_t version, const char *value,
                         size_t value_bytes)
{
    json_t *object = json_object();
    int bad = set_bytes(object, "key", key, strlen(key)) |
              json_object_set_new(object, "status", json_string(rowan_error_name(error)));

    if (version)
        bad |= json_object_set_new(object, "version", json_integer((json_int_t)version));
    if (value)
        bad |= set_bytes(object, "value", value, value_bytes);
    if (!bad)
        return json_print(object);
    json_decref(object);
    return ROWAN_EIO;
}

/* Prints the outcome, and returns the exit code. */
static int finish(const struct rowan_settings *settings, const char *what, const char *key,
                  int error, uint64_t version)
{
    if (settings->json && print_outcome(key, error, version, NULL, 0))
        error = ROWAN_EIO;
    return error ? command_failed(what, key, error) : EXIT_DONE;
}

static int print_value(const char *value, size_t bytes)
{
    if (fwrite(value, 1, bytes, stdout) != bytes ||
        (isatty(STDOUT_FILENO) && fputc('\n', stdout) == EOF))
        return ROWAN_EIO;
    return 0;
}

int command_get(const struct rowan_settings *settings, const char *cm, const char *key)
{
    struct rowan *rowan;
    size_t bytes;
    char *value = malloc(ROWAN_MAX_VALUE_BYTES);

    if (!value)
        return command_failed("get", key, ROWAN_ENOMEM);
    if (open_session(settings, cm, "get", &rowan)) {
        free(value);
        return EXIT_FAILED;
    }
    uint64_t version;
    int error = rowan_get(rowan, key, strlen(key), value, ROWAN_MAX_VALUE_BYTES, &bytes, &version);
    int code;

    if (error)
        code = finish(settings, "get", key, error, 0);
    else if (settings->json ? print_outcome(key, 0, version, value, bytes)
                            : print_value(value, bytes))
        code = command_failed("get", key, ROWAN_EIO);
    else
        code = EXIT_DONE;
    rowan_close(rowan);
    free(value);
    return code;
}

/* Reads up to one byte more than a value may have, so that a longer one is noticed. */
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

static int put_value(const struct rowan_settings *settings, const char *cm, const char *key,
                     const char *value, size_t bytes)
{
    struct rowan *rowan;

    if (open_session(settings, cm, "put", &rowan))
        return EXIT_FAILED;
    uint64_t version = 0;
    int error = rowan_put(rowan, key, strlen(key), value, bytes, &version);

    rowan_close(rowan);
    return finish(settings, "put", key, error, error ? 0 : version);
}

int command_put(const struct rowan_settings *settings, const char *cm, const char *key,
                const char *value)
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

int command_del(const struct rowan_settings *settings, const char *cm, const char *key)
{
    struct rowan *rowan;

    if (open_session(settings, cm, "del", &rowan))
        return EXIT_FAILED;
    int error = rowan_del(rowan, key, strlen(key));

    rowan_close(rowan);
    return finish(settings, "del", key, error, 0);
}
