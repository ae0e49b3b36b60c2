/* queue.c - a queue of unique keys, for test/bench/tombstones: puts q0, q1, ..., and of each the delete when LENGTH more were
 * put, as fast as they are answered (or so many puts a second). What is live stays small; each key leaves a tombstone. Where
 * LENGTH is 0 nothing is deleted, and it ends at the first put that is refused because a memory is full.
 *
 *   queue DIRECTORY SECONDS LENGTH VALUE_BYTES [RATE]
 *
 * A line each second: seconds, puts and deletes answered, refused because a memory is full, other failures, and the longest
 * time in ms in which no put was answered. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rowan.h"
#include "common/base/clock.h"

enum { DEPTH = 256, KEY_BYTES = 24 };

struct figures {
    uint64_t puts, deletes, full, failed, longest_ns;
};

static struct {
    struct rowan *rowan;
    char *value;
    size_t value_bytes;
    uint64_t now_ns, put_ns;
    struct figures is;
} queue;

static void fail(const char *what, int error)
{
    fprintf(stderr, "queue: %s: %s\n", what, rowan_error_name(error));
    exit(1);
}

static void count(const struct rowan_completion *completion, uint64_t *answered)
{
    if (completion->status == 0 || completion->status == ROWAN_ENOTFOUND)
        (*answered)++;
    else if (completion->status == ROWAN_EFULL)
        queue.is.full++;
    else
        queue.is.failed++;
}

static void put_is_over(const struct rowan_completion *completion)
{
    const uint64_t before = queue.is.puts;
    count(completion, &queue.is.puts);
    if (queue.is.puts == before)
        return;
    const uint64_t now_ns = clock_now_ns(clock_system());
    if (now_ns - queue.put_ns > queue.is.longest_ns)
        queue.is.longest_ns = now_ns - queue.put_ns;
    queue.put_ns = now_ns;
}

static void delete_is_over(const struct rowan_completion *completion)
{
    count(completion, &queue.is.deletes);
}

/* False: so many are on the way already. */
static bool post(uint64_t number, bool is_put)
{
    char key[KEY_BYTES];
    const size_t bytes = (size_t)snprintf(key, sizeof key, "q%" PRIu64, number);
    const int error = is_put ? rowan_post_put(queue.rowan, key, bytes, queue.value,
                                              queue.value_bytes, put_is_over, NULL)
                             : rowan_post_del(queue.rowan, key, bytes, delete_is_over, NULL);
    if (error && error != ROWAN_EAGAIN)
        fail("an operation was refused", error);
    return !error;
}

static void tell(uint64_t second)
{
    const struct figures *is = &queue.is;
    if (queue.now_ns > queue.put_ns + is->longest_ns)
        queue.is.longest_ns = queue.now_ns - queue.put_ns;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", second,
           is->puts, is->deletes, is->full, is->failed, is->longest_ns / NS_PER_MS);
    fflush(stdout);
    queue.is = (struct figures){.puts = 0};
}

static void run(uint64_t seconds, uint64_t length, uint64_t rate)
{
    const uint64_t start_ns = clock_now_ns(clock_system());
    uint64_t put = 0, deleted = 0, told = 0;
    queue.put_ns = start_ns;
    while (told < seconds && (length || !queue.is.full)) {
        queue.now_ns = clock_now_ns(clock_system());
        const uint64_t ran_ns = queue.now_ns - start_ns;
        bool more = true;
        for (unsigned i = 0; more && i < DEPTH; i++) {
            if (length && put > deleted + length)
                deleted += more = post(deleted, false);
            else if ((more = rate == 0 || put * NS_PER_S < rate * ran_ns))
                put += more = post(put, true);
        }
        const int polled = rowan_poll(queue.rowan, NULL, 0, 1);
        if (polled < 0)
            fail("the session has ended", polled);
        if (ran_ns >= (told + 1) * NS_PER_S)
            tell(++told);
    }
}

int main(int argc, char **argv)
{
    struct rowan_options options;
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "queue DIRECTORY SECONDS LENGTH VALUE_BYTES [RATE]\n");
        return 2;
    }
    rowan_options_init(&options);
    options.directory = argv[1];
    options.depth = DEPTH;
    const int error = rowan_open(&options, &queue.rowan);
    if (error)
        fail("the cluster cannot be reached", error);
    queue.value_bytes = strtoul(argv[4], NULL, 10);
    if (!(queue.value = calloc(1, queue.value_bytes + 1)))
        fail("no memory", ROWAN_ENOMEM);
    run(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
        argc > 5 ? strtoull(argv[5], NULL, 10) : 0);
    rowan_close(queue.rowan);
    free(queue.value);
    return 0;
}
