/* One session reads the records of an acked file, `depth` at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/runs.h"
#include "tools/tool.h"

enum { SHOWN = 10 };

enum verdict { RIGHT, NEWER, MISSING, OLDER, DIFFERENT, UNREADABLE, VERDICTS };

static const char *const verdicts[VERDICTS] = {"right", "newer",     "missing",
                                               "older", "different", "unreadable"};

struct checker {
    struct acked_table table;
    struct profile *profile;
    struct rowan *rowan;
    struct rowan_op *ops; /* read side by side */
    struct {
        uint64_t record;
        char key[WORKLOAD_MAX_KEY_BYTES];
    } * of; /* each */
    uint8_t *values, *expected;
    uint64_t found[VERDICTS], shown;
};

static enum verdict judge(struct checker *checker, const struct rowan_op *op, uint64_t record)
{
    const struct acked_last *acked = &checker->table.last[record];

    if (op->status == ROWAN_ENOTFOUND)
        return MISSING;
    if (op->status != 0 && op->status != ROWAN_EBUFFER)
        return UNREADABLE;
    if (op->version != acked->version)
        return op->version > acked->version ? NEWER : OLDER;
    uint32_t bytes = workload_value_bytes(checker->profile, record, acked->seed);
    workload_value(record, acked->seed, checker->expected, bytes);
    return op->value_bytes == bytes && memcmp(op->value, checker->expected, bytes) == 0 ? RIGHT
                                                                                        : DIFFERENT;
}

static void count(struct checker *checker, const struct rowan_op *op, uint64_t record)
{
    enum verdict verdict = judge(checker, op, record);

    checker->found[verdict]++;
    if (verdict >= MISSING && checker->shown++ < SHOWN)
        fprintf(stderr, "record %llu: %s: acknowledged version %llx, found %llx (%s)\n",
                (unsigned long long)record, verdicts[verdict],
                (unsigned long long)checker->table.last[record].version,
                (unsigned long long)op->version, rowan_error_name(op->status));
}

static void read_all(struct checker *checker, uint32_t depth)
{
    const uint32_t value_bytes = checker->profile->max_value_bytes;

    for (uint64_t record = 0; record < checker->table.count;) {
        uint32_t ops = 0;

        for (; record < checker->table.count && ops < depth; record++) {
            if (!checker->table.last[record].version)
                continue;
            checker->of[ops].record = record;
            checker->ops[ops] = (struct rowan_op){
                .key = checker->of[ops].key,
                .key_bytes = workload_key(checker->profile, record, checker->of[ops].key),
                .value = checker->values + (size_t)ops * value_bytes,
                .value_room = value_bytes};
            ops++;
        }
        (void)rowan_multi_get(checker->rowan, checker->ops, ops); /* each tells its own status */
        for (uint32_t i = 0; i < ops; i++)
            count(checker, &checker->ops[i], checker->of[i].record);
        if (progress_due(clock_now_ns(clock_system())))
            progress_line("check: %.0f %%", 100 * (double)record / (double)checker->table.count);
    }
    progress_end();
}

/* Errors are told. */
static int checker_open(struct checker *checker, const struct rowan_options *session,
                        const char *path)
{
    int error = acked_load(path, &checker->table);

    if (error)
        return tool_failed(path, error);
    error = profile_create(checker->table.profile, &checker->profile);
    if (error)
        return tool_failed("check", error);
    const uint32_t value_bytes = checker->profile->max_value_bytes + 1;

    checker->ops = calloc(session->depth, sizeof *checker->ops);
    checker->of = calloc(session->depth, sizeof *checker->of);
    checker->values = calloc(session->depth, value_bytes);
    checker->expected = malloc(value_bytes);
    if (!checker->ops || !checker->of || !checker->values || !checker->expected)
        return tool_failed("check", ROWAN_ENOMEM);
    error = rowan_open(session, &checker->rowan);
    return error ? tool_failed(session->cm, error) : EXIT_DONE;
}

static void checker_close(struct checker *checker)
{
    rowan_close(checker->rowan);
    free(checker->expected);
    free(checker->values);
    free(checker->of);
    free(checker->ops);
    free(checker->profile);
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
        putchar('\n'); /* tool_main says if nobody took it */
        return EXIT_DONE;
    }
    json_t *object = json_pack("{s:I, s:I}", "writes", (json_int_t)checker->table.writes, "records",
                               (json_int_t)checker->table.records);

    for (int i = 0; i < VERDICTS; i++)
        json_object_set_new(object, verdicts[i], json_integer((json_int_t)checker->found[i]));
    return tool_print_json(object);
}

int check_run(const struct rowan_options *session, const char *path, bool json)
{
    struct checker checker = {0};
    int code = checker_open(&checker, session, path);

    if (code == EXIT_DONE) {
        read_all(&checker, session->depth);
        code = print_found(&checker, json);
    }
    if (checker.found[RIGHT] + checker.found[NEWER] != checker.table.records)
        code = EXIT_FAILED;
    checker_close(&checker);
    return code;
}
