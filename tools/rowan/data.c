/* get, put and del, through the SDK. With --json the outcome is one object: key, status (the error's
 * name), and where there is one version and value (as text, or as hexadecimal digits where it is no
 * UTF-8). */
#include "client/rowan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/error.h"
#include "tools/rowan/rowan.h"

static int failed(const char *command, const char *key, int error)
{
    return tool_say("%s: \"%s\": %s", command, key, error_sentence(error));
}

/* A session tries until its time is over. command_connect says at once that nobody is there, or who is missing. */
static int open_session(const struct rowan_settings *settings, const char *command,
                        struct rowan **out)
{
    struct admin *admin;
    int error = command_connect(settings, command, &admin, NULL);
    if (error)
        return error;
    admin_close(admin);
    struct rowan_options options;
    rowan_options_init(&options);
    options.cm = settings->access.managers;
    options.user = settings->access.user;
    options.secret_file = settings->access.secret_file;
    options.depth = 1;
    options.timeout_ms = (uint32_t)settings->timeout_ms;
    options.open_timeout_ms = (uint32_t)command_open_ms(settings);
    error = rowan_open(&options, out);
    if (error)
        tool_failed(settings->access.managers, error);
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

/* `value` may be NULL. Returns an exit code. */
static int print_outcome(const char *key, int error, uint64_t version, const char *value,
                         size_t value_bytes)
{
    json_t *object = json_object();
    int bad = set_bytes(object, "key", key, strlen(key)) |
              json_object_set_new(object, "status", json_string(error_name(error)));
    if (version)
        bad |= json_object_set_new(object, "version", json_integer((json_int_t)version));
    if (value)
        bad |= set_bytes(object, "value", value, value_bytes);
    return tool_print_json(bad ? NULL : object);
}

/* Prints the outcome, and returns the exit code. `value` is NULL where the command has none. What standard output does not
 * take tool_main tells. */
static int finish(const struct rowan_settings *settings, char **words, int error, uint64_t version,
                  const char *value, size_t bytes)
{
    int code = EXIT_DONE;
    if (settings->json)
        code = print_outcome(words[1], error, version, value, bytes);
    else if (value && fwrite(value, 1, bytes, stdout) == bytes && isatty(STDOUT_FILENO))
        putchar('\n');
    return error ? failed(words[0], words[1], error) : code;
}

int command_get(const struct rowan_settings *settings, char **words)
{
    struct rowan *rowan;
    char *value = malloc(ROWAN_MAX_VALUE_BYTES);
    int code = EXIT_FAILED;
    if (!value)
        return failed("get", words[1], ROWAN_ENOMEM);
    if (!open_session(settings, "get", &rowan)) {
        size_t bytes = 0;
        uint64_t version = 0;
        int error = rowan_get(rowan, words[1], strlen(words[1]), value, ROWAN_MAX_VALUE_BYTES,
                              &bytes, &version);
        code = finish(settings, words, error, version, error ? NULL : value, bytes);
        rowan_close(rowan);
    }
    free(value);
    return code;
}

/* From that file, NULL: standard input. Reads up to one byte more than a value may have, so that a longer one is
 * noticed. */
static int read_value(const char *path, char *value, size_t *bytes)
{
    FILE *stream = path ? fopen(path, "rb") : stdin;
    if (!stream) {
        perror(path);
        return ROWAN_EIO;
    }
    *bytes = fread(value, 1, ROWAN_MAX_VALUE_BYTES + 1, stream);
    int error = ferror(stream) ? ROWAN_EIO : *bytes > ROWAN_MAX_VALUE_BYTES ? ROWAN_EVALUESIZE : 0;
    if (path)
        fclose(stream);
    return error;
}

static int put_value(const struct rowan_settings *settings, char **words, const char *value,
                     size_t bytes)
{
    struct rowan *rowan;
    if (open_session(settings, "put", &rowan))
        return EXIT_FAILED;
    uint64_t version = 0;
    int error = rowan_put(rowan, words[1], strlen(words[1]), value, bytes, &version);
    rowan_close(rowan);
    return finish(settings, words, error, version, NULL, 0);
}

/* Without a third word the value is in value_file; a third word "-": on standard input. */
int command_put(const struct rowan_settings *settings, char **words)
{
    if (words[2] && strcmp(words[2], "-") != 0)
        return put_value(settings, words, words[2], strlen(words[2]));
    size_t bytes;
    char *buffer = malloc(ROWAN_MAX_VALUE_BYTES + 1);
    int error =
        buffer ? read_value(words[2] ? NULL : settings->value_file, buffer, &bytes) : ROWAN_ENOMEM;
    int code = error ? failed("put", words[1], error) : put_value(settings, words, buffer, bytes);
    free(buffer);
    return code;
}

int command_del(const struct rowan_settings *settings, char **words)
{
    struct rowan *rowan;
    if (open_session(settings, "del", &rowan))
        return EXIT_FAILED;
    int error = rowan_del(rowan, words[1], strlen(words[1]));
    rowan_close(rowan);
    return finish(settings, words, error, 0, NULL, 0);
}
