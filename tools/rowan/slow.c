/* slow: the slowest of the operations that the servers have followed, and how long each step of them took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "proto/message.h"
#include "tools/rowan/rowan.h"

enum { SHOWN_ROWS = 20, KEY_BYTES = 32, STEPS_BYTES = 96 };

struct row {
    uint32_t server;
    const Rowan__SlowOperation *operation;
};

static int slower_first(const void *a, const void *b)
{
    const uint64_t left = ((const struct row *)a)->operation->total_ns,
                   right = ((const struct row *)b)->operation->total_ns;
    return (left < right) - (left > right);
}

static const char *name_of(uint32_t type)
{
    return type == MESSAGE_GET      ? "get"
           : type == MESSAGE_PUT    ? "put"
           : type == MESSAGE_PUT_IF ? "put_if"
           : type == MESSAGE_DELETE ? "del"
                                    : "?";
}

/* What came may be longer than a server makes it. */
static const char *key_of(const Rowan__SlowOperation *operation, char text[KEY_BYTES + 4])
{
    if (operation->key.len == 0)
        return "(hidden)";
    view_key(operation->key.data, operation->key.len, KEY_BYTES, text);
    return strlen(text) < operation->key_bytes ? strcat(text, "...") : text;
}

static double in_us(uint64_t ns)
{
    return (double)ns / (double)NS_PER_US;
}

static const char *time_text(uint64_t ns, char text[24])
{
    snprintf(text, 24, ns ? "%.1f" : "-", in_us(ns));
    return text;
}

static const char *backups_text(const Rowan__SlowOperation *operation, char text[STEPS_BYTES])
{
    size_t at = 0;
    char time[24];
    snprintf(text, STEPS_BYTES, "-");
    for (size_t i = 0; i < operation->n_backups && at < STEPS_BYTES; i++) {
        const Rowan__SlowBackup *backup = operation->backups[i];
        at += (size_t)snprintf(text + at, STEPS_BYTES - at, "%s%u: %s", i ? ", " : "",
                               backup->server, time_text(backup->landed_ns, time));
    }
    return text;
}

static int print_rows(const struct row *rows, size_t count)
{
    char queue[24], log[24], index[24], backups[STEPS_BYTES], key[KEY_BYTES + 4];
    if (count == 0) {
        puts("No operation was followed yet.");
        return EXIT_DONE;
    }
    printf("%9s  %-6s  %5s  %-13s  %8s  %6s  %8s  %8s  %-22s  %8s  %-12s  %s\n", "total us", "kind",
           "shard", "server:worker", "bytes", "age s", "queue", "log", "backups", "index", "status",
           "key");
    for (size_t i = 0; i < count && i < SHOWN_ROWS; i++) {
        const Rowan__SlowOperation *operation = rows[i].operation;
        char where[24];
        snprintf(where, sizeof where, "%u:%u", rows[i].server, operation->worker);
        printf("%9.1f  %-6s  %5u  %-13s  %8u  %6llu  %8s  %8s  %-22s  %8s  %-12s  %s\n",
               in_us(operation->total_ns), name_of(operation->type), operation->shard, where,
               operation->value_bytes, (unsigned long long)(operation->age_ns / NS_PER_S),
               time_text(operation->queue_ns, queue), time_text(operation->log_ns, log),
               backups_text(operation, backups), time_text(operation->index_ns, index),
               operation->status ? error_name(operation->status) + sizeof "ROWAN_" - 1 : "done",
               key_of(operation, key));
    }
    printf("\nAll times count from when a server took the request, in microseconds. Queue: until "
           "it was begun; log: until it was durable there; backups: until it had landed at that "
           "server; index: until it was visible; total: until it was answered. Of each worker the "
           "slowest of this minute and the one before.\n");
    return EXIT_DONE;
}

static json_t *operation_json(const struct row *row)
{
    const Rowan__SlowOperation *operation = row->operation;
    char key[KEY_BYTES + 4];
    json_t *backups = json_array();
    for (size_t i = 0; i < operation->n_backups; i++)
        json_array_append_new(backups,
                              json_pack("{s:i, s:I}", "server", operation->backups[i]->server,
                                        "landed_ns", (json_int_t)operation->backups[i]->landed_ns));
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:I, s:I, s:I, s:o, s:I, s:I}",
                     "kind", name_of(operation->type), "key",
                     operation->key.len ? json_string(view_key(operation->key.data,
                                                               operation->key.len, KEY_BYTES, key))
                                        : json_null(),
                     "key_bytes", operation->key_bytes, "value_bytes", operation->value_bytes,
                     "shard", operation->shard, "server", row->server, "worker", operation->worker,
                     "status", error_name(operation->status), "age_ns",
                     (json_int_t)operation->age_ns, "queue_ns", (json_int_t)operation->queue_ns,
                     "log_ns", (json_int_t)operation->log_ns, "backups", backups, "index_ns",
                     (json_int_t)operation->index_ns, "total_ns", (json_int_t)operation->total_ns);
}

static int print_json(const struct admin_status *slow, const struct row *rows, size_t count)
{
    json_t *operations = json_array(), *servers = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(operations, operation_json(&rows[i]));
    for (uint32_t i = 0; i < slow->config->member_count; i++) {
        const struct admin_call *call = &slow->calls[i];
        json_array_append_new(
            servers, call->error
                         ? json_pack("{s:i, s:s}", "server", slow->config->members[i].server,
                                     "error", error_name(call->error))
                         : json_pack("{s:i, s:i, s:I}", "server", slow->config->members[i].server,
                                     "one_in", call->reply->slow_are->one_in, "followed",
                                     (json_int_t)call->reply->slow_are->followed));
    }
    return tool_print_json(json_pack("{s:o, s:o}", "servers", servers, "operations", operations));
}

/* NULL: no memory. */
static struct row *gather(const struct admin_status *slow, size_t *count)
{
    size_t most = 0;
    for (uint32_t i = 0; i < slow->config->member_count; i++)
        most += slow->calls[i].error ? 0 : slow->calls[i].reply->slow_are->n_operations;
    struct row *rows = calloc(most + 1, sizeof *rows);
    for (uint32_t i = 0; rows && i < slow->config->member_count; i++) {
        const Rowan__SlowAre *are = slow->calls[i].error ? NULL : slow->calls[i].reply->slow_are;
        for (size_t at = 0; are && at < are->n_operations; at++)
            rows[(*count)++] = (struct row){slow->config->members[i].server, are->operations[at]};
    }
    if (rows)
        qsort(rows, *count, sizeof *rows, slower_first);
    return rows;
}

static int show(const struct rowan_settings *settings, const struct admin_status *slow)
{
    size_t count = 0;
    struct row *rows = gather(slow, &count);
    if (!rows)
        return tool_failed("slow", ROWAN_ENOMEM);
    int code = settings->json ? print_json(slow, rows, count) : print_rows(rows, count);
    free(rows);
    for (uint32_t i = 0; i < slow->config->member_count; i++) {
        const struct admin_call *call = &slow->calls[i];
        if (call->error)
            code = tool_say("slow: server %u: %s", slow->config->members[i].server, view_why(call));
        else if (call->reply->slow_are->one_in == 0)
            fprintf(stderr, "slow: server %u follows none: rowan set trace-one-in=1024\n",
                    slow->config->members[i].server);
    }
    return code;
}

int command_slow(const struct rowan_settings *settings, char **words)
{
    struct admin *admin;
    struct admin_status slow;
    Rowan__GetSlow get = ROWAN__GET_SLOW__INIT;
    const Rowan__ControlMessage question = CONTROL_MESSAGE(GET_SLOW, get_slow, &get);
    if (command_connect(settings, words[0], &admin, NULL))
        return EXIT_FAILED;
    const int error =
        admin_ask_members(admin, &question, 1, settings->timeout_ms * NS_PER_MS, &slow);
    int code = error ? tool_failed(words[0], error) : show(settings, &slow);
    if (!error)
        admin_status_free(&slow);
    admin_close(admin);
    return code;
}
