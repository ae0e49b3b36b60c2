/* Writes 10,000 keys and reads them back, with 64 operations outstanding from one thread: each
 * completion posts the next one. Usage: ./async DIRECTORY-OF-THE-CLUSTER */
#include <rowan.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 64, KEYS = 10000 };

static struct rowan *rowan;
static int reading, next_key, done, errors;

struct slot {
    char key[16];
    char value[16];
};

static void post_next(struct slot *slot);

static void completed(const struct rowan_completion *completion)
{
    struct slot *slot = completion->context;

    if (completion->status && errors++ == 0)
        fprintf(stderr, "%s: %s\n", slot->key, rowan_error_sentence(completion->status));
    done++;
    post_next(slot);
}

static void post_next(struct slot *slot)
{
    int key_bytes, value_bytes, error;

    if (next_key == KEYS)
        return;
    key_bytes = snprintf(slot->key, sizeof slot->key, "key-%d", next_key);
    if (reading) {
        error = rowan_post_get(rowan, slot->key, (size_t)key_bytes, slot->value, sizeof slot->value,
                               completed, slot);
    } else {
        value_bytes = snprintf(slot->value, sizeof slot->value, "value-%d", next_key);
        error = rowan_post_put(rowan, slot->key, (size_t)key_bytes, slot->value,
                               (size_t)value_bytes, completed, slot);
    }
    if (error) {
        fprintf(stderr, "post: %s\n", rowan_error_sentence(error));
        exit(1);
    }
    next_key++;
}

int main(int argc, char **argv)
{
    static struct slot slots[DEPTH];
    struct rowan_options options;
    int error;

    rowan_options_init(&options);
    options.directory = argc > 1 ? argv[1] : ".";
    options.depth = DEPTH;
    error = rowan_open(&options, &rowan);
    if (error) {
        fprintf(stderr, "open: %s\n", rowan_error_sentence(error));
        return 1;
    }
    for (reading = 0; reading < 2; reading++) {
        next_key = done = 0;
        for (int i = 0; i < DEPTH; i++)
            post_next(&slots[i]);
        error = rowan_wait_all(rowan);
        if (error)
            return 1;
        printf("%s %d of %d keys, %d errors\n", reading ? "read" : "wrote", done, KEYS, errors);
    }
    rowan_close(rowan);
    return errors ? 1 : 0;
}
