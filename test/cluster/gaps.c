/* gaps.c - one client that puts the same keys again and again, for the cluster tests: for how long did each go without?
 *
 * Usage: gaps DIRECTORY PAUSE_MS LEAST_MS TIMEOUT_MS KEY... Each key has one put at a time, PAUSE_MS after the last answer.
 * Works until standard input ends. Lines, times in ms of CLOCK_BOOTTIME:
 *
 *   gap INDEX FROM TO ERROR     the key was put at FROM, and next at TO, at least LEAST_MS later; ERROR: the last refusal between
 *   open INDEX FROM NOW ERROR   with each progress: a gap that is not over
 *   late FROM TO                this process itself did not run in between, though it asked for 10 ms of sleep
 *   progress N NOW              now and then, in the end of what is told: puts that were acknowledged
 *
 * `late` is of a thread of its own that does nothing else: by it a reader tells a machine that stood still from a cluster that
 * did. In the end "operations=N errors=N": refusals, which are no failure here. */
#include "client/rowan.h" /* first: before common/base/error.h */

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { MOST_KEYS = 512, POLL_MS = 2, NAP_MS = 10, LATE_MS = 20, TELL_MS = 200 };

struct key {
    const char *name;
    uint64_t put_ms, next_ms,
        value; /* last acknowledged; not before; of the put that is under way, or was last */
    bool waiting;
    int error;
};

static struct key keys[MOST_KEYS];
static int count;
static uint64_t pause_ms, least_ms;
static unsigned long puts_done, refusals;

static uint64_t now_ms(void)
{
    return clock_now_ns(clock_system()) / NS_PER_MS;
}

static void tell(const char *what, const struct key *key, uint64_t to_ms)
{
    printf("%s %td %" PRIu64 " %" PRIu64 " %s\n", what, key - keys, key->put_ms, to_ms,
           key->error ? rowan_error_name(key->error) : "-");
}

static void completed(const struct rowan_completion *completion)
{
    struct key *key = completion->context;
    const uint64_t now = now_ms();
    key->waiting = false;
    key->next_ms = now + pause_ms;
    if (completion->status) {
        key->error = completion->status;
        refusals++;
        return;
    }
    if (now - key->put_ms >= least_ms)
        tell("gap", key, now);
    key->put_ms = now;
    key->error = 0;
    puts_done++;
}

static void post_due(struct rowan *rowan, uint64_t now)
{
    for (struct key *key = keys; key < keys + count; key++) {
        if (key->waiting || key->next_ms > now)
            continue;
        key->value++;
        const int error = rowan_post_put(rowan, key->name, strlen(key->name), &key->value,
                                         sizeof key->value, completed, key);
        key->waiting = !error;
        if (error)
            completed(&(struct rowan_completion){.context = key, .status = error});
    }
}

static void tell_progress(uint64_t now)
{
    for (const struct key *key = keys; key < keys + count; key++) {
        if (now - key->put_ms >= least_ms)
            tell("open", key, now);
    }
    printf("progress %lu %" PRIu64 "\n", puts_done, now);
    fflush(stdout);
}

static void *watch(void *unused)
{
    for (uint64_t before = now_ms();;) {
        poll(NULL, 0, NAP_MS);
        const uint64_t now = now_ms();
        if (now - before > LATE_MS)
            printf("late %" PRIu64 " %" PRIu64 "\n", before, now);
        before = now;
    }
    return unused;
}

static bool input_has_ended(int wait_ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&in, 1, wait_ms) > 0 && read(STDIN_FILENO, &byte, 1) == 0;
}

int main(int argc, char **argv)
{
    struct rowan_options options;
    rowan_options_init(&options);
    count = argc - 5;
    if (count < 1 || count > MOST_KEYS) {
        fprintf(stderr, "usage: see gaps.c\n");
        return 2;
    }
    pause_ms = strtoul(argv[2], NULL, 10);
    least_ms = strtoul(argv[3], NULL, 10);
    options.directory = argv[1];
    options.timeout_ms = (uint32_t)strtoul(argv[4], NULL, 10);
    options.depth = (uint32_t)count;
    struct rowan *rowan = NULL;
    pthread_t watcher;
    int error = rowan_open(&options, &rowan);
    if (!error && pthread_create(&watcher, NULL, watch, NULL) != 0)
        error = ROWAN_ENOMEM;
    for (int i = 0; i < count; i++)
        keys[i] = (struct key){.name = argv[5 + i], .put_ms = now_ms()};
    for (uint64_t told = 0; error >= 0;) {
        const uint64_t now = now_ms();
        post_due(rowan, now);
        if (now - told >= TELL_MS) {
            tell_progress(now);
            told = now;
        }
        const bool waits = rowan_outstanding(rowan) > 0;
        if (input_has_ended(waits ? 0 : POLL_MS))
            break;
        error = rowan_poll(rowan, NULL, 0, POLL_MS);
    }
    if (error < 0)
        printf("gaps: %s\n", rowan_error_sentence(error));
    printf("operations=%lu errors=%lu\n", puts_done, refusals);
    fflush(stdout);
    rowan_close(rowan);
    return error < 0 ? 1 : 0;
}
