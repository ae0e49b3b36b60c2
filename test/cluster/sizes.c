/* sizes.c - round trips of the smallest and largest keys and values through the SDK, for the
 * cluster tests. Usage: sizes DIRECTORY. Prints TAP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rowan.h"

static const size_t value_sizes[] = {0, 1, 1000, 65536, 1048576};
static const size_t key_sizes[] = {1, 1024};

enum { VALUE_SIZES = 5, KEY_SIZES = 2 };

static unsigned cases;
static int failures;

static void report(int good, const char *what, size_t key_bytes, size_t value_bytes, int error)
{
    cases++;
    if (!good)
        failures++;
    printf("%sok %u - %s_key_%zu_value_%zu%s%s\n", good ? "" : "not ", cases, what, key_bytes,
           value_bytes, good ? "" : ": ", good ? "" : rowan_error_sentence(error));
    fflush(stdout);
}

static void fill(uint8_t *bytes, size_t count, unsigned salt)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)((i * 131 + i / 251 + salt) & 0xff);
}

/* Every size of value under a key of this size: put, get, a buffer one byte too small, delete. */
static void round_trips(struct rowan *rowan, size_t key_bytes, uint8_t *value, uint8_t *back)
{
    uint8_t key[ROWAN_MAX_KEY_BYTES];
    for (unsigned i = 0; i < VALUE_SIZES; i++) {
        size_t bytes = value_sizes[i], found = 77;
        fill(key, key_bytes, i);
        fill(value, bytes, i + 1);
        int error = rowan_put(rowan, key, key_bytes, value, bytes, NULL);
        report(error == 0, "put", key_bytes, bytes, error);
        memset(back, 0xee, bytes + 1);
        error = rowan_get(rowan, key, key_bytes, back, ROWAN_MAX_VALUE_BYTES, &found, NULL);
        report(error == 0 && found == bytes && memcmp(value, back, bytes) == 0 &&
                   back[bytes] == 0xee,
               "get", key_bytes, bytes, error);
        if (bytes) {
            error = rowan_get(rowan, key, key_bytes, back, bytes - 1, &found, NULL);
            report(error == ROWAN_EBUFFER && found == bytes, "short_buffer", key_bytes, bytes,
                   error);
        }
        error = rowan_del(rowan, key, key_bytes);
        report(error == 0, "del", key_bytes, bytes, error);
        error = rowan_get(rowan, key, key_bytes, back, ROWAN_MAX_VALUE_BYTES, &found, NULL);
        report(error == ROWAN_ENOTFOUND, "get_after_del", key_bytes, bytes, error);
    }
}

static void refusals(struct rowan *rowan, uint8_t *value)
{
    uint8_t key[ROWAN_MAX_KEY_BYTES + 1] = "k";
    int error = rowan_put(rowan, key, 0, value, 1, NULL);
    report(error == ROWAN_EKEYSIZE, "refused", 0, 1, error);
    error = rowan_put(rowan, key, sizeof(key), value, 1, NULL);
    report(error == ROWAN_EKEYSIZE, "refused", sizeof(key), 1, error);
    error = rowan_put(rowan, key, 1, value, ROWAN_MAX_VALUE_BYTES + 1, NULL);
    report(error == ROWAN_EVALUESIZE, "refused", 1, ROWAN_MAX_VALUE_BYTES + 1, error);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: sizes DIRECTORY\n");
        return 2;
    }
    struct rowan_options options;
    rowan_options_init(&options);
    options.directory = argv[1];
    struct rowan *rowan;
    int error = rowan_open(&options, &rowan);
    uint8_t *value = malloc(ROWAN_MAX_VALUE_BYTES + 1);
    uint8_t *back = malloc(ROWAN_MAX_VALUE_BYTES + 1);
    if (error || !value || !back) {
        fprintf(stderr, "sizes: %s\n", rowan_error_sentence(error));
        free(value);
        free(back);
        return 1;
    }
    for (unsigned i = 0; i < KEY_SIZES; i++)
        round_trips(rowan, key_sizes[i], value, back);
    refusals(rowan, value);
    rowan_close(rowan);
    free(value);
    free(back);
    printf("1..%u\n", cases);
    return failures ? 1 : 0;
}
