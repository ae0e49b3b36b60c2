/* counters.c - counts by conditional puts while connections break and servers die, for the cluster
 * tests. Every operation that took effect is told from one that did not, afterwards.
 *
 * Usage: counters DIRECTORY NUMBER TIMEOUT_MS PAUSE_US. Works until standard input ends, then waits for what
 * is outstanding and prints what it did. NUMBER names this process: others run beside it.
 * PAUSE_US lies between two rounds of posts, to leave the machine to others.
 *
 *  - SHARED counters are those of all processes. One more is put on the condition that the version is
 *    the one that was read. "Another version" is no error: another process was faster.
 *  - TOGGLES are this process's alone: made on the condition that there is none, then deleted. Here
 *    "another version" and "not found" are answers to a write that had already taken effect: errors,
 *    unless an "unknown" came before, since when one that was not waited for may still arrive.
 *
 * What is true at the end: each counter holds at least what all processes had acknowledged, and at
 * most that and what they had unknown. "Unknown" before the horizon is an error, and so is every other
 * status.
 *
 * Prints "counter I acknowledged=N unknown=N" for each, "errors=N ..." and, each second,
 * "progress N". Exit code 1 if there were errors. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/rowan.h"
#include "test/lib/log_in.h"

enum { SHARED = 32, TOGGLES = 32, SLOTS = SHARED + TOGGLES, KEY_BYTES = 48 };

enum action { READ, WRITE, REMOVE };

struct slot {
    char key[KEY_BYTES];
    enum action action;
    bool waiting, uncertain; /* uncertain: an unknown write of ours may still take effect */
    uint64_t version, value, read;
    unsigned long acknowledged, unknown;
    double began;
};

static struct slot slots[SLOTS];
static unsigned long operations, conflicts, errors, shown;
static double horizon_s;
static useconds_t pause_us;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_shared(const struct slot *slot)
{
    return slot < slots + SHARED;
}

static void wrong(const struct slot *slot, const struct rowan_completion *completion)
{
    static const char *const names[] = {"get", "put", "del"};
    errors++;
    if (shown++ < 10)
        printf("error %s %s after %.3f s: %s (value %llu, version %llx expected, %llx told)\n",
               names[slot->action], slot->key, now_s() - slot->began,
               rowan_error_name(completion->status), (unsigned long long)slot->value,
               (unsigned long long)slot->version, (unsigned long long)completion->version);
    fflush(stdout);
}

static void took_read(struct slot *slot, const struct rowan_completion *completion)
{
    bool found = completion->status == 0 && completion->value_bytes == sizeof slot->read;
    if (!found && completion->status != ROWAN_ENOTFOUND) {
        if (completion->status != ROWAN_ETIMEDOUT || now_s() - slot->began < horizon_s)
            wrong(slot, completion);
        return; /* read again */
    }
    slot->value = found ? slot->read : 0;
    slot->version = found ? completion->version : 0;
    slot->action = !is_shared(slot) && found ? REMOVE : WRITE;
}

static void took_write(struct slot *slot, const struct rowan_completion *completion)
{
    bool removed = slot->action == REMOVE;
    bool other = completion->status == (removed ? ROWAN_ENOTFOUND : ROWAN_EVERSION);
    if (completion->status == 0) {
        slot->acknowledged++;
        slot->value++;
        slot->version = completion->version;
        if (!is_shared(slot))
            slot->action = removed ? WRITE : REMOVE;
        if (removed)
            slot->version = 0;
        return;
    }
    slot->action = READ;
    if (other && is_shared(slot)) {
        conflicts++;
    } else if (completion->status == ROWAN_EUNKNOWN && now_s() - slot->began >= horizon_s) {
        slot->unknown++;
        slot->uncertain = true;
    } else if (completion->status == ROWAN_ETIMEDOUT && now_s() - slot->began >= horizon_s) {
        return; /* never sent */
    } else if (!other || !slot->uncertain) {
        slot->action = removed ? REMOVE : WRITE;
        wrong(slot, completion);
        slot->action = READ;
    }
}

static void completed(const struct rowan_completion *completion)
{
    struct slot *slot = completion->context;
    slot->waiting = false;
    operations++;
    if (slot->action == READ)
        took_read(slot, completion);
    else
        took_write(slot, completion);
}

/* The value that is written must stay: it is one more than what was read, kept in `read`. */
static int post(struct rowan *rowan, struct slot *slot)
{
    size_t bytes = strlen(slot->key);
    slot->began = now_s();
    if (slot->action == READ)
        return rowan_post_get(rowan, slot->key, bytes, &slot->read, sizeof slot->read, completed,
                              slot);
    if (slot->action == REMOVE)
        return rowan_post_del(rowan, slot->key, bytes, completed, slot);
    slot->read = slot->value + 1;
    return rowan_post_put_if_version(rowan, slot->key, bytes, &slot->read, sizeof slot->read,
                                     slot->version, completed, slot);
}

static bool told_to_end(void)
{
    char byte;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int work(struct rowan *rowan)
{
    double said = now_s();
    bool ending = false;
    while (!ending || rowan_outstanding(rowan)) {
        for (unsigned i = 0; i < SLOTS && !ending; i++) {
            if (slots[i].waiting)
                continue;
            int error = post(rowan, &slots[i]);
            if (error == ROWAN_EAGAIN)
                break;
            if (error)
                return error;
            slots[i].waiting = true;
        }
        int error = rowan_poll(rowan, NULL, 0, 20);
        if (error < 0)
            return error;
        if (now_s() - said >= 0.2) {
            said = now_s();
            printf("progress %lu\n", operations);
            fflush(stdout);
        }
        ending = ending || told_to_end();
        if (pause_us)
            usleep(pause_us);
    }
    return 0;
}

static void report(void)
{
    unsigned long toggled = 0, unknown = 0;
    for (unsigned i = 0; i < SHARED; i++)
        printf("counter %u acknowledged=%lu unknown=%lu\n", i, slots[i].acknowledged,
               slots[i].unknown);
    for (unsigned i = 0; i < SLOTS; i++) {
        toggled += i < SHARED ? 0 : slots[i].acknowledged;
        unknown += slots[i].unknown;
    }
    printf("errors=%lu operations=%lu conflicts=%lu toggled=%lu unknown=%lu\n", errors, operations,
           conflicts, toggled, unknown);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: counters DIRECTORY NUMBER TIMEOUT_MS PAUSE_US\n");
        return 2;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (i < SHARED)
            snprintf(slots[i].key, KEY_BYTES, "counter-%u", i);
        else
            snprintf(slots[i].key, KEY_BYTES, "toggle-%.16s-%u", argv[2], i);
    }
    struct rowan_options options;
    rowan_options_init(&options);
    options.directory = argv[1];
    log_in(&options);
    options.depth = SLOTS;
    options.timeout_ms = (uint32_t)strtoul(argv[3], NULL, 10);
    pause_us = (useconds_t)strtoul(argv[4], NULL, 10);
    horizon_s = options.timeout_ms / 1000.0 * 0.99;
    struct rowan *rowan;
    int error = rowan_open(&options, &rowan);
    if (!error) {
        error = work(rowan);
        rowan_close(rowan);
    }
    if (error)
        fprintf(stderr, "counters: %s\n", rowan_error_sentence(error));
    report();
    return error || errors ? 1 : 0;
}
