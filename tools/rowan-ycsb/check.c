/* One session reads the records of an acked file, `depth` at a time. */
#include "client/rowan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/check.h"
#include "tools/tool.h"

enum { SHOWN = 10 };

enum verdict { RIGHT, NEWER, MISSING, OLDER, DIFFERENT, UNREADABLE, VERDICTS };

static const char *const verdicts[VERDICTS] = {"right", "newer",     "missing",
                                               "older", "different", "unreadable"};

struct checker;

struct check_slot {
    struct checker *checker;
    uint64_t record;
    uint8_t *value;
    struct check_slot *next;
};

struct checker {
    struct acked_table table;
    struct profile *profile;
    struct rowan *rowan;
    struct check_slot *slots, *idle;
    uint8_t *values, *expected;
    uint64_t found[VERDICTS];
    uint64_t shown;
};

static enum verdict judge(struct checker *checker, const struct check_slot *slot,
                          const struct rowan_completion *completion)
{
    const struct acked_last *acked = &checker->table.last[slot->record];

    if (completion->status == ROWAN_ENOTFOUND)
        return MISSING;
    if (completion->status == 0 || completion->status == ROWAN_EBUFFER) {
        if (completion->version != acked->version)
            return completion->version > acked->version ? NEWER : OLDER;
        uint32_t bytes = workload_value_bytes(checker->profile, slot->record, acked->seed);
        workload_value(slot->record, acked->seed, checker->expected, bytes);
        return completion->value_bytes == bytes &&
                       memcmp(slot->value, checker->expected, bytes) == 0
                   ? RIGHT
                   : DIFFERENT;
    }
    return UNREADABLE;
}

static void on_completion(const struct rowan_completion *completion)
{
    struct check_slot *slot = completion->context;
    struct checker *checker = slot->checker;
    enum verdict verdict = judge(checker, slot, completion);

    checker->found[verdict]++;
    if (verdict >= MISSING && checker->shown++ < SHOWN)
        fprintf(stderr, "record %llu: %s: acknowledged version %llx, found %llx (%s)\n",
                (unsigned long long)slot->record, verdicts[verdict],
                (unsigned long long)checker->table.last[slot->record].version,
                (unsigned long long)completion->version, rowan_error_name(completion->status));
    slot->next = checker->idle;
    checker->idle = slot;
}

static int post(struct checker *checker, uint64_t record)
{
    struct check_slot *slot = checker->idle;
    char key[WORKLOAD_MAX_KEY_BYTES];

    slot->record = record;
    int error = rowan_post_get(checker->rowan, key, workload_key(checker->profile, record, key),
                               slot->value, checker->profile->max_value_bytes, on_completion, slot);

    if (!error)
        checker->idle = slot->next;
    return error;
}

static int read_all(struct checker *checker)
{
    struct clock *clock = clock_system();
    struct progress progress;
    uint64_t record = 0;

    progress_init(&progress, clock_now_ns(clock));
    while (record < checker->table.count || rowan_outstanding(checker->rowan) > 0) {
        while (checker->idle && record < checker->table.count) {
            if (checker->table.last[record].version) {
                int error = post(checker, record);

                if (error == ROWAN_EAGAIN)
                    break;
                if (error)
                    return error;
            }
            record++;
        }
        int error = rowan_poll(checker->rowan, NULL, 0, 1000);

        if (error < 0)
            return error;
        if (progress_due(&progress, clock_now_ns(clock)))
            progress_line(&progress, "check: %.0f %%",
                          100 * (double)record / (double)checker->table.count);
    }
    progress_end(&progress);
    return 0;
}

static int checker_open(struct checker *checker, const struct check_options *options)
{
    struct rowan_options rowan_options;
    int error = acked_load(options->path, &checker->table);

    if (error) {
        tool_failed(options->path, error);
        return error;
    }
    error = profile_create(checker->table.profile, &checker->profile);
    if (error)
        return error;
    uint32_t value_bytes = checker->profile->max_value_bytes + 1;

    checker->slots = calloc(options->depth, sizeof *checker->slots);
    checker->values = calloc(options->depth, value_bytes);
    checker->expected = malloc(value_bytes);
    if (!checker->slots || !checker->values || !checker->expected)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < options->depth; i++) {
        checker->slots[i] = (struct check_slot){.checker = checker,
                                                .value = checker->values + (size_t)i * value_bytes,
                                                .next = checker->idle};
        checker->idle = &checker->slots[i];
    }
    rowan_options_init(&rowan_options);
    rowan_options.cm = options->cm;
    rowan_options.user = options->user;
    rowan_options.secret_file = options->secret_file;
    rowan_options.depth = options->depth;
    rowan_options.timeout_ms = options->timeout_ms;
    error = rowan_open(&rowan_options, &checker->rowan);
    if (error)
        tool_failed(options->cm, error);
    return error;
}

static void checker_close(struct checker *checker)
{
    rowan_close(checker->rowan);
    free(checker->expected);
    free(checker->values);
    free(checker->slots);
    profile_destroy(checker->profile);
    acked_free(&checker->table);
}

static int print_found(const struct checker *checker, bool json)
{
    if (!json) {
        printf("check: %llu acknowledged writes of %llu records:",
               (unsigned long long)checker->table.writes,
               (unsigned long long)checker->table.records);
        for (int i = 0; i < VERDICTS; i++)
            printf("%s %llu %s", i ? "," : "", (unsigned long long)checker->found[i], verdicts[i]);
        return putchar('\n') == EOF ? ROWAN_EIO : 0;
    }
    json_t *object = json_pack("{s:I, s:I}", "writes", (json_int_t)checker->table.writes, "records",
                               (json_int_t)checker->table.records);

    for (int i = 0; i < VERDICTS; i++)
        json_object_set_new(object, verdicts[i], json_integer((json_int_t)checker->found[i]));
    return tool_print_json(object);
}

int check_run(const struct check_options *options)
{
    struct checker checker = {0};
    int error = checker_open(&checker, options);

    if (!error) {
        error = read_all(&checker);
        if (!error)
            error = print_found(&checker, options->json);
        if (error)
            tool_failed("check", error);
    }
    bool right = !error && checker.found[RIGHT] + checker.found[NEWER] == checker.table.records;

    checker_close(&checker);
    return right ? 0 : 1;
}
