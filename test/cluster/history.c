/* history.c - clients that write, read and delete a few keys while servers fail, for the cluster tests. What they asked and
 * what they were told is judged afterwards: was every key one register (test/sim/linear.h)? A stale read is found, a lost
 * write, one that took effect twice, a deleted value that is back.
 *
 * Usage: history record FILE DIRECTORY NAME FIRST KEYS TIMEOUT_MS PAUSE_MS. Works until standard input ends, then waits for
 * what is outstanding, reads each key once more and writes all operations to FILE. NAME makes the keys those of this run: its
 * history has to be that of their whole life. Processes of one run have numbers FIRST that are THREADS apart. PAUSE_MS: about
 * as long each client of a key rests between two operations. Prints "progress N" now and then, and in the end
 * "operations=N unknown=N rejected=N errors=N". Exit code 1: an answer that the SDK never promises.
 *
 *        history judge|stale FILE... All files of a run; with `stale` the last read of each key is made one of its first
 * value, which must not pass. Exit code 1: a key is not linearizable; its history around the place is printed.
 *
 * Each thread has one operation at a time on each key, so a key whose server is away holds up no other. The first only reads:
 * a server that is cut off could not end a write, but go on answering reads. CLOCK_BOOTTIME, the
 * same for all processes, is read before an operation is posted and after its answer was here. A write with unknown outcome
 * stays so: it may take effect until the end. */
#include "client/rowan.h" /* first: before common/base/error.h */

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "test/lib/log_in.h"
#include "test/sim/linear.h"

/* Key, client, kind, outcome, called and answered in ns, value, version, expected. */
#define LINE_OUT                                                                                   \
    "%" PRIu32 ",%" PRIu32 ",%u,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
#define LINE_IN                                                                                    \
    "%" SCNu32 ",%" SCNu32 ",%u,%u,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 "\n"

enum { LINE_FIELDS = 9, THREADS = 3, MOST_KEYS = 256, KEY_BYTES = 64, WAIT_MS = 20, SHOWN = 40 };

/* A thread's client of a key. */
struct slot {
    struct client *client;
    uint32_t key;
    bool waiting;
    enum history_kind kind;
    size_t number; /* in the history */
    uint64_t value, read, seen, next_ns;
};

struct client {
    pthread_t thread;
    uint32_t index;
    struct rowan *rowan;
    struct random random;
    struct slot slots[MOST_KEYS];
    int error;
};

static struct client clients[THREADS];
static struct history history;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ending;
static _Atomic unsigned long answers, errors;
static const char *name;
static uint32_t keys, first_client;
static uint64_t pause_ns;

static size_t key_of(uint32_t key, char *out)
{
    return (size_t)snprintf(out, KEY_BYTES, "history-%.32s-%u", name, key);
}

/* --- one operation --- */

static size_t call(const struct history_op *op)
{
    pthread_mutex_lock(&lock);
    size_t number = history_call(&history, op);
    history.ops[number].called_ns = clock_now_ns(clock_system());
    pthread_mutex_unlock(&lock);
    return number;
}

static void answer(size_t number, enum history_outcome outcome, uint64_t value, uint64_t version)
{
    pthread_mutex_lock(&lock);
    history_answer(&history, number, outcome, value, version, clock_now_ns(clock_system()));
    pthread_mutex_unlock(&lock);
}

/* What client/rowan.h promises of a status; HISTORY_OPEN: never this one, for this kind. */
static enum history_outcome outcome_of(enum history_kind kind, int status)
{
    const bool get = kind == HISTORY_GET;
    switch (status) {
    case ROWAN_OK:
        return HISTORY_DONE;
    case ROWAN_ENOTFOUND:
        return get || kind == HISTORY_DELETE ? HISTORY_ABSENT : HISTORY_OPEN;
    case ROWAN_EVERSION:
        return kind == HISTORY_PUT_IF ? HISTORY_MISMATCH : HISTORY_OPEN;
    case ROWAN_ETIMEDOUT:
        return HISTORY_REJECTED;
    case ROWAN_EUNKNOWN:
        return get ? HISTORY_OPEN : HISTORY_UNKNOWN;
    default:
        return HISTORY_OPEN;
    }
}

static void settle(struct slot *slot, int status, uint64_t value, uint64_t version)
{
    enum history_outcome outcome = outcome_of(slot->kind, status);
    if (outcome == HISTORY_OPEN) {
        errors++;
        printf("error key=%u kind=%u: %s\n", slot->key, slot->kind, rowan_error_name(status));
        outcome = slot->kind == HISTORY_GET ? HISTORY_REJECTED : HISTORY_UNKNOWN;
    }
    const bool told = outcome == HISTORY_DONE || outcome == HISTORY_MISMATCH;
    answer(slot->number, outcome, outcome == HISTORY_DONE ? value : 0, told ? version : 0);
    if (told)
        slot->seen = version;
    else if (outcome == HISTORY_ABSENT)
        slot->seen = 0;
    slot->next_ns =
        clock_now_ns(clock_system()) + random_below(&slot->client->random, 2 * pause_ns);
    slot->waiting = false;
    answers++;
}

static void completed(const struct rowan_completion *completion)
{
    struct slot *slot = completion->context;
    settle(slot, completion->status, slot->read, completion->version);
}

static void post(struct slot *slot)
{
    enum { KINDS = 5 };
    static const enum history_kind kinds[KINDS] = {HISTORY_GET, HISTORY_GET, HISTORY_PUT,
                                                   HISTORY_PUT_IF, HISTORY_DELETE};
    struct client *client = slot->client;
    char key[KEY_BYTES];
    const size_t bytes = key_of(slot->key, key);
    slot->kind = kinds[client->index % THREADS ? random_below(&client->random, KINDS) : 0];
    slot->value = (slot->value ? slot->value : (client->index + UINT64_C(1)) << 48) + 1;
    slot->waiting = true;
    slot->number = call(&(struct history_op){
        .kind = slot->kind,
        .client = client->index,
        .key = slot->key,
        .value = slot->kind == HISTORY_PUT || slot->kind == HISTORY_PUT_IF ? slot->value : 0,
        .expected = slot->kind == HISTORY_PUT_IF ? slot->seen : 0});
    int error;
    if (slot->kind == HISTORY_GET)
        error = rowan_post_get(client->rowan, key, bytes, &slot->read, sizeof slot->read, completed,
                               slot);
    else if (slot->kind == HISTORY_PUT)
        error = rowan_post_put(client->rowan, key, bytes, &slot->value, sizeof slot->value,
                               completed, slot);
    else if (slot->kind == HISTORY_PUT_IF)
        error = rowan_post_put_if_version(client->rowan, key, bytes, &slot->value,
                                          sizeof slot->value, slot->seen, completed, slot);
    else
        error = rowan_post_del(client->rowan, key, bytes, completed, slot);
    if (error)
        settle(slot, error == ROWAN_EAGAIN ? ROWAN_ETIMEDOUT : error, 0, 0);
}

/* Posts what is due. Returns for how many ms nothing will be. */
static int post_due(struct client *client)
{
    const uint64_t now_ns = clock_now_ns(clock_system());
    uint64_t next_ns = now_ns + WAIT_MS * NS_PER_MS;
    for (uint32_t key = 0; key < keys; key++) {
        struct slot *slot = &client->slots[key];
        if (!slot->waiting && slot->next_ns <= now_ns)
            post(slot);
        if (!slot->waiting && slot->next_ns < next_ns)
            next_ns = slot->next_ns;
    }
    return next_ns <= now_ns ? 1 : (int)((next_ns - now_ns) / NS_PER_MS) + 1;
}

static void *work(void *argument)
{
    struct client *client = argument;
    while (client->error >= 0 && (!ending || rowan_outstanding(client->rowan))) {
        const int wait_ms = ending ? WAIT_MS : post_due(client);
        if (!rowan_outstanding(client->rowan))
            poll(NULL, 0, wait_ms);
        client->error = rowan_poll(client->rowan, NULL, 0, wait_ms);
    }
    return NULL;
}

static void last_reads(struct client *client)
{
    for (uint32_t key = 0; key < keys; key++) {
        struct slot *slot = &client->slots[key];
        char text[KEY_BYTES];
        size_t found;
        uint64_t version = 0;
        slot->kind = HISTORY_GET;
        slot->number =
            call(&(struct history_op){.kind = HISTORY_GET, .client = client->index, .key = key});
        int status = rowan_get(client->rowan, text, key_of(key, text), &slot->read,
                               sizeof slot->read, &found, &version);
        if (status == ROWAN_ETIMEDOUT) {
            errors++;
            printf("error: the last read of key %u has no answer\n", key);
        }
        settle(slot, status, slot->read, version);
    }
}

/* A line for each operation. */
static int write_all(const char *path)
{
    FILE *file = fopen(path, "we");
    for (size_t i = 0; file && i < history.count; i++) {
        const struct history_op *op = &history.ops[i];
        fprintf(file, LINE_OUT "\n", op->key, op->client, op->kind, op->outcome, op->called_ns,
                op->answered_ns, op->value, op->version, op->expected);
    }
    return file && fclose(file) == 0 ? 0 : ROWAN_EIO;
}

static int start(struct client *client, uint32_t index, const char *directory, uint32_t timeout_ms)
{
    struct rowan_options options;
    rowan_options_init(&options);
    options.directory = directory;
    log_in(&options);
    options.depth = keys;
    options.timeout_ms = timeout_ms;
    client->index = first_client + index;
    uint64_t seed;
    random_entropy(&seed, sizeof seed);
    random_init(&client->random, seed);
    for (uint32_t key = 0; key < keys; key++)
        client->slots[key] = (struct slot){.client = client, .key = key};
    int error = rowan_open(&options, &client->rowan);
    if (!error && pthread_create(&client->thread, NULL, work, client) != 0)
        error = ROWAN_ENOMEM;
    return error;
}

static void wait_for_end_of_input(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    while (poll(&in, 1, 200) == 0 || read(STDIN_FILENO, &byte, 1) > 0) {
        printf("progress %lu\n", answers);
        fflush(stdout);
    }
}

static int record(char **argv)
{
    name = argv[4];
    first_client = (uint32_t)strtoul(argv[5], NULL, 10);
    keys = (uint32_t)strtoul(argv[6], NULL, 10) % (MOST_KEYS + 1);
    pause_ns = strtoul(argv[8], NULL, 10) * NS_PER_MS + 1;
    int error = 0;
    uint32_t started = 0;
    while (!error && started < THREADS) {
        error = start(&clients[started], started, argv[3], (uint32_t)strtoul(argv[7], NULL, 10));
        started += !error;
    }
    if (!error)
        wait_for_end_of_input();
    ending = true;
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(clients[i].thread, NULL);
        error = error ? error : clients[i].error < 0 ? clients[i].error : 0;
    }
    if (!error)
        last_reads(&clients[0]);
    for (uint32_t i = 0; i < THREADS; i++)
        rowan_close(clients[i].rowan);
    if (!error)
        error = write_all(argv[2]);
    if (error)
        printf("history: %s\n", rowan_error_sentence(error));
    unsigned long of[HISTORY_UNKNOWN + 1] = {0};
    for (size_t i = 0; i < history.count; i++)
        of[history.ops[i].outcome]++;
    printf("operations=%zu unknown=%lu rejected=%lu errors=%lu\n", history.count,
           of[HISTORY_UNKNOWN], of[HISTORY_REJECTED], errors);
    return error || errors ? 1 : 0;
}

/* --- the verdict --- */

static bool read_all(const char *path)
{
    FILE *file = fopen(path, "re");
    struct history_op op;
    int got = EOF;
    while (file &&
           (got = fscanf(file, LINE_IN, &op.key, &op.client, &op.kind, &op.outcome, &op.called_ns,
                         &op.answered_ns, &op.value, &op.version, &op.expected)) == LINE_FIELDS) {
        const size_t number = history_call(&history, &op);
        history.ops[number] = op;
    }
    return file && fclose(file) == 0 && got == EOF;
}

/* In the order of their calls, with the calls and answers of all numbered by time. Where two times are the same, the call is
 * first: that allows more. */
struct moment {
    uint64_t ns, *number;
    bool is_answer;
};

static int compare(const void *a, const void *b)
{
    const struct moment *left = a, *right = b;
    if (left->ns != right->ns)
        return left->ns < right->ns ? -1 : 1;
    return (int)left->is_answer - (int)right->is_answer;
}

static int by_call(const void *a, const void *b)
{
    const struct history_op *left = a, *right = b;
    return left->called < right->called ? -1 : left->called > right->called;
}

static void number_all(struct moment *moments)
{
    size_t count = 0;
    for (size_t i = 0; i < history.count; i++) {
        struct history_op *op = &history.ops[i];
        moments[count++] = (struct moment){op->called_ns, &op->called, false};
        if (op->answered_ns)
            moments[count++] = (struct moment){op->answered_ns, &op->answered, true};
        op->answered = 0;
    }
    qsort(moments, count, sizeof *moments, compare);
    for (size_t i = 0; i < count; i++)
        *moments[i].number = i + 1;
    qsort(history.ops, history.count, sizeof *history.ops, by_call);
}

static void show(const struct history_op *op, uint64_t start_ns)
{
    static const char *const kinds[] = {"get", "put", "put_if", "delete"};
    static const char *const outcomes[] = {"open",     "done",     "absent",
                                           "mismatch", "rejected", "unknown"};
    printf("  client=%u %s %s value=%" PRIx64 " version=%" PRIx64 " expected=%" PRIx64
           " called=%.6f answered=%.6f\n",
           op->client, kinds[op->kind], outcomes[op->outcome], op->value, op->version, op->expected,
           (double)(op->called_ns - start_ns) / 1e9,
           op->answered ? (double)(op->answered_ns - start_ns) / 1e9 : 0);
}

/* The last read of a key comes when its clients have ended. */
static void plant_stale_read(struct history_op *ops, size_t count)
{
    size_t last = count;
    while (last > 0 &&
           (ops[last - 1].kind != HISTORY_GET || ops[last - 1].outcome == HISTORY_REJECTED))
        last--;
    for (size_t i = 0; last > 0 && i < count; i++) {
        if (ops[i].kind != HISTORY_PUT || ops[i].outcome != HISTORY_DONE)
            continue;
        ops[last - 1].outcome = HISTORY_DONE;
        ops[last - 1].value = ops[i].value;
        ops[last - 1].version = ops[i].version;
        return;
    }
}

/* Of one key. `ops` has room for all. */
static bool judge(uint32_t key, struct history_op *ops, bool stale)
{
    size_t count = 0;
    for (size_t i = 0; i < history.count; i++) {
        if (history.ops[i].key == key)
            ops[count++] = history.ops[i];
    }
    if (stale)
        plant_stale_read(ops, count);
    struct linear_result result;
    linear_check(ops, count, 0, &result);
    if (result.verdict == LINEAR_YES)
        return true;
    printf("key %u: %s: %s; %zu of %zu operations placed, then:\n", key,
           result.verdict == LINEAR_NO ? "not linearizable" : "no verdict", result.why,
           result.placed, count);
    for (size_t i = result.stuck > SHOWN ? result.stuck - SHOWN : 0;
         i < count && i < result.stuck + SHOWN; i++) {
        if (i == result.stuck)
            printf("fits nowhere:\n");
        show(&ops[i], history.ops[0].called_ns);
    }
    return false;
}

static int judge_files(char **paths, bool stale)
{
    bool good = true;
    for (; good && *paths; paths++) {
        good = read_all(*paths);
        if (!good)
            printf("history: %s cannot be read\n", *paths);
    }
    struct moment *moments = malloc((2 * history.count + 1) * sizeof *moments);
    struct history_op *ops = malloc((history.count + 1) * sizeof *ops);
    good = good && moments && ops && history.count > 0;
    if (good)
        number_all(moments);
    for (uint32_t key = 0; good && key < MOST_KEYS; key++)
        good = judge(key, ops, stale);
    free(ops);
    free(moments);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    int code = 2;
    if (argc == 9 && strcmp(argv[1], "record") == 0)
        code = record(argv);
    else if (argc > 2 && (strcmp(argv[1], "judge") == 0 || strcmp(argv[1], "stale") == 0))
        code = judge_files(argv + 2, strcmp(argv[1], "stale") == 0);
    else
        fprintf(stderr, "usage: see history.c\n");
    history_fini(&history);
    return code;
}
