/* onesided.c - puts that one stopped server backs but does not lead, for the cluster tests.
 *
 * Usage: onesided DIRECTORY COUNT FIRST-LAST,FIRST-LAST,... where the ranges are the slots that the
 * stopped server leads: keys in them are passed over. Prints "ready" once the session is open and a
 * put of each other shard's server was answered, then waits for a line on standard input, then
 * puts. Progress goes to standard output, one line each time something changed or 100 ms have
 * passed: progress acknowledged=N failed=N outstanding=N and at the end "done acknowledged=N
 * failed=N". Exit code 1 if any failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rowan.h"
#include "common/cluster/slot.h"

enum { DEPTH = 256, VALUE_BYTES = 43, TIMEOUT_MS = 60000, WARM_UP = 64 };

struct counts {
    unsigned long acknowledged, failed;
    int first_error;
};

static unsigned char skipped[SLOT_COUNT];

static void completed(const struct rowan_completion *completion)
{
    struct counts *counts = completion->context;
    if (completion->status == 0) {
        counts->acknowledged++;
        return;
    }
    counts->failed++;
    if (!counts->first_error)
        counts->first_error = completion->status;
}

static int parse_ranges(char *text)
{
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        unsigned first, last;
        if (sscanf(part, "%u-%u", &first, &last) != 2 || first > last || last >= SLOT_COUNT)
            return -1;
        memset(skipped + first, 1, last - first + 1);
    }
    return 0;
}

/* The next key whose slot is not passed over. */
static int next_key(unsigned long *number, char *key, size_t room)
{
    for (;;) {
        int bytes = snprintf(key, room, "one-sided-%037lu", (*number)++);
        if (!skipped[slot_of_key(key, (uint32_t)bytes)])
            return bytes;
    }
}

static void print_progress(const struct counts *counts, struct rowan *rowan)
{
    printf("progress acknowledged=%lu failed=%lu outstanding=%u\n", counts->acknowledged,
           counts->failed, rowan_outstanding(rowan));
    fflush(stdout);
}

/* Posts `count` puts, DEPTH at a time, and waits for all. Returns a session's error or 0. */
static int put_all(struct rowan *rowan, unsigned long count, unsigned long *number,
                   struct counts *counts)
{
    char key[64];
    static const char value[VALUE_BYTES] = "the value of every object of this test.....";
    unsigned long posted = 0;
    while (posted < count || rowan_outstanding(rowan)) {
        while (posted < count && rowan_outstanding(rowan) < DEPTH) {
            int bytes = next_key(number, key, sizeof(key));
            int error =
                rowan_post_put(rowan, key, (size_t)bytes, value, sizeof(value), completed, counts);
            if (error)
                return error;
            posted++;
        }
        unsigned long before = counts->acknowledged;
        int error = rowan_poll(rowan, NULL, 0, 100);
        if (error < 0)
            return error;
        if (counts->acknowledged / 5000 != before / 5000 || counts->acknowledged == before)
            print_progress(counts, rowan);
    }
    return 0;
}

static int run(struct rowan *rowan, unsigned long count)
{
    struct counts counts = {0};
    unsigned long number = 0;
    char line[16];
    int error = put_all(rowan, WARM_UP, &number, &counts);
    if (error || counts.failed)
        return error ? error : counts.first_error;
    counts = (struct counts){0};
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return ROWAN_EINVALID;
    error = put_all(rowan, count, &number, &counts);
    printf("done acknowledged=%lu failed=%lu\n", counts.acknowledged, counts.failed);
    fflush(stdout);
    return error ? error : counts.first_error;
}

int main(int argc, char **argv)
{
    if (argc != 4 || parse_ranges(argv[3])) {
        fprintf(stderr, "usage: onesided DIRECTORY COUNT FIRST-LAST,FIRST-LAST,...\n");
        return 2;
    }
    struct rowan_options options;
    rowan_options_init(&options);
    options.directory = argv[1];
    options.depth = DEPTH;
    options.timeout_ms = TIMEOUT_MS;
    struct rowan *rowan;
    int error = rowan_open(&options, &rowan);
    if (!error) {
        error = run(rowan, strtoul(argv[2], NULL, 10));
        rowan_close(rowan);
    }
    if (error)
        fprintf(stderr, "onesided: %s\n", rowan_error_sentence(error));
    return error ? 1 : 0;
}
