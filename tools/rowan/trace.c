/* trace: where a key lies: its slot and shard, and what each replica has of it. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/cluster/slot.h"
#include "common/entry/entry.h"
#include "tools/rowan/rowan.h"

enum { VERSION_BYTES = 24, LOG_BYTES = 32 };

struct trace {
    struct admin *admin;
    struct cluster_config *config;
    const struct shard *shard;
    const char *key;
    uint16_t slot;
    uint32_t count;
    uint32_t
        servers[CLUSTER_MAX_REPLICAS]; /* the primary first, then backups, then those that fill */
    struct admin_call calls[CLUSTER_MAX_REPLICAS];
    uint64_t newest; /* version of the key; 0: no replica has it */
    bool deleted;    /* the newest is a tombstone */
};

enum verdict { SAME, GONE, BEHIND, DIFFERS, DAMAGED, NO_ANSWER };

static const Rowan__TraceIs *answer_of(const struct trace *trace, uint32_t replica)
{
    const struct admin_call *call = &trace->calls[replica];
    return call->error ? NULL : call->reply->trace_is;
}

/* Each server drops a tombstone by itself, once all have it: then it is as good as none. */
static enum verdict judge(const struct trace *trace, uint32_t replica)
{
    const Rowan__TraceIs *is = answer_of(trace, replica);
    if (!is)
        return NO_ANSWER;
    if (is->damaged)
        return DAMAGED;
    if (is->version == trace->newest && (is->found || !is->incomplete))
        return SAME;
    if (is->upto < trace->newest || is->incomplete)
        return BEHIND;
    return !is->found && trace->deleted ? GONE : DIFFERS;
}

static uint32_t count(const struct trace *trace, enum verdict verdict)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < trace->count; i++)
        found += judge(trace, i) == verdict;
    return found;
}

static const char *verdict_text(enum verdict verdict, const Rowan__TraceIs *is)
{
    if (verdict == SAME)
        return is->found ? "newest" : "none";
    if (verdict == BEHIND)
        return is->primary ? "not completed yet" : "not digested yet";
    return verdict == GONE ? "tombstone is gone" : verdict == DAMAGED ? "damaged" : "differs";
}

/* --- asking --- */

static void find_replicas(struct trace *trace)
{
    const struct shard *shard = trace->shard;
    const uint32_t replicas = 1 + shard->backup_count + shard->filling_count;
    trace->count = replicas < CLUSTER_MAX_REPLICAS ? replicas : CLUSTER_MAX_REPLICAS;
    for (uint32_t i = 0; i < trace->count; i++)
        trace->servers[i] = i == 0 ? shard->primary
                            : i <= shard->backup_count
                                ? shard->backups[i - 1]
                                : shard->filling[i - 1 - shard->backup_count];
}

static void forget(struct trace *trace)
{
    for (uint32_t i = 0; i < trace->count; i++)
        admin_call_free(&trace->calls[i]);
}

static int ask(struct trace *trace, uint64_t timeout_ns)
{
    Rowan__GetTrace get = ROWAN__GET_TRACE__INIT;
    const Rowan__ControlMessage question = CONTROL_MESSAGE(GET_TRACE, get_trace, &get);
    get.shard = trace->shard->id;
    get.key.data = (uint8_t *)(uintptr_t)trace->key;
    get.key.len = strlen(trace->key);
    for (uint32_t i = 0; i < trace->count; i++)
        admin_post(trace->admin, &trace->calls[i], trace->servers[i], &question, timeout_ns);
    const int error = admin_wait_all(trace->admin);
    trace->newest = 0;
    for (uint32_t i = 0; i < trace->count; i++) {
        const Rowan__TraceIs *is = answer_of(trace, i);
        if (!is || is->version <= trace->newest)
            continue;
        trace->newest = is->version;
        trace->deleted = is->tombstone;
    }
    return error;
}

/* Nothing wakes a backup's digest role when an entry lands, but the question does: the next answer knows more. */
static int ask_all(struct trace *trace, uint64_t timeout_ns)
{
    const int error = ask(trace, timeout_ns);
    if (error || count(trace, BEHIND) == 0)
        return error;
    forget(trace);
    return ask(trace, timeout_ns);
}

/* --- telling --- */

static const char *role_of(const struct trace *trace, uint32_t replica)
{
    return replica == 0 ? "primary" : replica <= trace->shard->backup_count ? "backup" : "fills";
}

static void print_replica(const struct trace *trace, uint32_t replica)
{
    const Rowan__TraceIs *is = answer_of(trace, replica);
    const uint32_t server = trace->servers[replica];
    const char *role = role_of(trace, replica);
    char version[VERSION_BYTES], value[VERSION_BYTES], log[LOG_BYTES];
    if (!is) {
        printf("%6u  %-7s  does not tell: %s\n", server, role, view_why(&trace->calls[replica]));
        return;
    }
    const char *verdict = verdict_text(judge(trace, replica), is);
    if (!is->found) {
        printf("%6u  %-7s  %12s  %13s  %7s  %8s  %-14s  %-9s  %s\n", server, role, "-", "-", "-",
               "-", "-", "-", verdict);
        return;
    }
    snprintf(value, sizeof value, is->tombstone ? "tombstone" : "%llu bytes",
             (unsigned long long)is->value_bytes);
    snprintf(log, sizeof log, "%.20s %u", is->log, is->log_number);
    printf("%6u  %-7s  %12s  %13s  %7llu  %8llu  %-14s  %-9s  %s\n", server, role,
           view_version(is->version, version, sizeof version), is->damaged ? "?" : value,
           (unsigned long long)is->segment, (unsigned long long)is->segment_offset, log,
           is->segment_state, verdict);
}

static int print_text(const struct trace *trace)
{
    const struct shard *shard = trace->shard;
    char backups[64], filling[64];
    view_servers(shard->backups, shard->backup_count, backups, sizeof backups);
    view_servers(shard->filling, shard->filling_count, filling, sizeof filling);
    printf("key %s: slot %u, shard %u (slots %u-%u), epoch %u\n"
           "primary %u, worker %u; backups %s; filling %s\n\n",
           trace->key, trace->slot, shard->id, shard->first_slot, shard->last_slot, shard->epoch,
           shard->primary, shard->worker, backups, filling);
    printf("%6s  %-7s  %12s  %13s  %7s  %8s  %-14s  %-9s  %s\n", "server", "role", "version",
           "value", "segment", "at", "log", "state", "here is");
    for (uint32_t i = 0; i < trace->count; i++)
        print_replica(trace, i);
    return EXIT_DONE;
}

static json_t *replica_json(const struct trace *trace, uint32_t replica)
{
    const Rowan__TraceIs *is = answer_of(trace, replica);
    json_t *object = json_pack("{s:i, s:s, s:b}", "server", trace->servers[replica], "role",
                               role_of(trace, replica), "reachable", is != NULL);
    if (!is)
        json_object_set_new(object, "error", json_string(error_name(trace->calls[replica].error)));
    else
        json_object_update_new(object, json_pack("{s:b, s:s, s:I, s:b, s:I}", "found", is->found,
                                                 "verdict", verdict_text(judge(trace, replica), is),
                                                 "upto", (json_int_t)is->upto, "damaged",
                                                 is->damaged, "epoch", (json_int_t)is->epoch));
    if (is && is->found)
        json_object_update_new(
            object, json_pack("{s:I, s:b, s:I, s:I, s:I, s:I, s:s, s:i, s:s}", "version",
                              (json_int_t)is->version, "tombstone", is->tombstone, "value_bytes",
                              (json_int_t)is->value_bytes, "offset", (json_int_t)is->offset,
                              "segment", (json_int_t)is->segment, "segment_offset",
                              (json_int_t)is->segment_offset, "log", is->log, "log_number",
                              is->log_number, "segment_state", is->segment_state));
    return object;
}

static int print_json(const struct trace *trace)
{
    const struct shard *shard = trace->shard;
    json_t *replicas = json_array();
    for (uint32_t i = 0; i < trace->count; i++)
        json_array_append_new(replicas, replica_json(trace, i));
    char text[ENTRY_MAX_KEY_BYTES + 1];
    return tool_print_json(
        json_pack("{s:s, s:i, s:i, s:I, s:i, s:i, s:o, s:o, s:o}", "key",
                  view_key(trace->key, strlen(trace->key), ENTRY_MAX_KEY_BYTES, text), "slot",
                  (int)trace->slot, "shard", (int)shard->id, "epoch", (json_int_t)shard->epoch,
                  "primary", (int)shard->primary, "worker", (int)shard->worker, "backups",
                  view_servers_json(shard->backups, shard->backup_count), "filling",
                  view_servers_json(shard->filling, shard->filling_count), "replicas", replicas));
}

/* A sentence for what is not well. */
static int conclude(const struct trace *trace)
{
    for (uint32_t i = 0; i < trace->count; i++) {
        if (judge(trace, i) == NO_ANSWER)
            return tool_say("trace: server %u: %s", trace->servers[i], view_why(&trace->calls[i]));
    }
    if (count(trace, DAMAGED) > 0)
        return tool_say("trace: an entry of the key is damaged");
    if (count(trace, DIFFERS) > 0)
        return tool_say("trace: the replicas differ: rowan verify compares all of them");
    if (trace->newest == 0 && count(trace, BEHIND) > 0)
        return tool_say(
            "trace: \"%s\": not found, but something is still on its way to the shard: ask "
            "again",
            trace->key);
    if (trace->newest == 0)
        return tool_say("trace: \"%s\": %s", trace->key, error_sentence(ROWAN_ENOTFOUND));
    return EXIT_DONE;
}

static int run(const struct rowan_settings *settings, struct trace *trace)
{
    trace->slot = slot_of_key(trace->key, (uint32_t)strlen(trace->key));
    trace->shard = cluster_shard_of_slot(trace->config, trace->slot);
    find_replicas(trace);
    const int error = ask_all(trace, settings->timeout_ms * NS_PER_MS);
    int code;
    if (error)
        code = tool_failed("trace", error);
    else if (trace->calls[0].error == ROWAN_EACCESS)
        code =
            tool_failed("trace", ROWAN_EACCESS); /* who may not ask hears that, and nothing else */
    else
        code = settings->json ? print_json(trace) : print_text(trace);
    if (code == EXIT_DONE)
        code = conclude(trace);
    forget(trace);
    return code;
}

int command_trace(const struct rowan_settings *settings, char **words)
{
    struct trace trace = {.key = words[1]};
    const size_t bytes = strlen(words[1]);
    if (bytes == 0 || bytes > ENTRY_MAX_KEY_BYTES)
        return tool_usage(error_sentence(ROWAN_EKEYSIZE));
    if (command_connect(settings, words[0], &trace.admin, NULL))
        return EXIT_FAILED;
    trace.config = cluster_hold(admin_config(trace.admin));
    const int code = run(settings, &trace);
    cluster_release(trace.config);
    admin_close(trace.admin);
    return code;
}
