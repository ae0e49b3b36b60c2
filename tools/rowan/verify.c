/* verify: compares the checksums of all replicas of every shard.
 *
 * A shard is asked for in rounds: one checksum from the primary and each full backup. A round counts
 * when none was `busy` and all are of the same version. Otherwise writes were under way, or a backup
 * has not digested up to the primary, or fetches versions that never arrived; the next round begins
 * after a pause. At most MAX_WALKS walks run at a time, because each reads a whole shard.
 *
 * A server that cannot be reached, or did not answer for a whole timeout, is not asked again: each of
 * its shards would wait that long.
 *
 *   WAITING --start_round--> ASKED --all answered--> JUDGED
 *      ^                       |
 *      +------- unsettled -----+
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"

enum { MAX_WALKS = 4, DAMAGED_KEY_SHOWN = 80 };

#define ROUND_PAUSE_NS (50 * NS_PER_MS)

enum check_state { CHECK_WAITING, CHECK_ASKED, CHECK_JUDGED };

/* One shard. */
struct shard_check {
    const struct shard *shard;
    enum check_state state;
    uint64_t deadline_ns; /* 0: no round yet */
    uint64_t next_round_ns;
    uint32_t replicas;
    Rowan__GetChecksum get;
    Rowan__ControlMessage question;
    struct admin_call calls[CLUSTER_MAX_REPLICAS]; /* the primary's first */
};

struct verify {
    struct admin *admin;
    struct cluster_config *config;
    struct shard_check *checks;
    int lost[CLUSTER_MAX_SERVER + 1]; /* why that server is not asked any more; 0: it is */
    uint64_t timeout_ns;              /* of each answer; no round of a shard begins later */
    uint32_t judged;
    uint32_t walks;       /* under way */
    uint32_t least, most; /* replicas of a shard */
    uint64_t objects;
    uint32_t problems;
    json_t *list; /* of problems; NULL without --json */
};

static uint32_t server_of(const struct shard_check *check, uint32_t replica)
{
    return replica == 0 ? check->shard->primary : check->shard->backups[replica - 1];
}

static const Rowan__ChecksumIs *checksum_of(const struct shard_check *check, uint32_t replica)
{
    return check->calls[replica].reply->checksum_is;
}

/* --- problems --- */

__attribute__((format(printf, 5, 6))) static void report(struct verify *verify,
                                                         const struct shard_check *check,
                                                         uint32_t replica, const char *kind,
                                                         const char *format, ...)
{
    uint32_t server = server_of(check, replica);
    char sentence[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    verify->problems++;
    if (verify->list)
        json_array_append_new(verify->list,
                              json_pack("{s:i, s:i, s:s, s:s}", "shard", check->shard->id, "server",
                                        server, "problem", kind, "sentence", sentence));
    else
        printf("shard %u on server %u: %s\n", check->shard->id, server, sentence);
}

static void report_damage(struct verify *verify, const struct shard_check *check, uint32_t replica)
{
    const Rowan__ChecksumIs *found = checksum_of(check, replica);
    char key[DAMAGED_KEY_SHOWN + 8] = "";

    if (found->damaged_key[0]) /* empty: the damage is in the entry's header */
        snprintf(key, sizeof key, " key \"%.*s\"", DAMAGED_KEY_SHOWN, found->damaged_key);
    report(verify, check, replica, "damaged",
           "%llu damaged object%s, first%s at offset %llu of its PM file",
           (unsigned long long)found->damaged, found->damaged == 1 ? "" : "s", key,
           (unsigned long long)found->damaged_offset);
}

/* The round cannot be compared, and there is no time for another. */
static void report_unsettled(struct verify *verify, const struct shard_check *check,
                             uint32_t replica)
{
    const struct admin_call *call = &check->calls[replica];
    const Rowan__ChecksumIs *found = call->error ? NULL : checksum_of(check, replica);

    if (!found)
        report(verify, check, replica, "unanswered", "%s", error_sentence(call->error));
    else if (found->missing)
        report(verify, check, replica, "missing",
               "never got some versions that are committed, and is still fetching them from the "
               "primary");
    else if (found->busy)
        report(verify, check, replica, "busy",
               "writes were under way all the time; verify when they have stopped");
    else if (!check->calls[0].error && found->version != checksum_of(check, 0)->version)
        report(
            verify, check, replica, "behind", "digested up to version %llx, the primary wrote %llx",
            (unsigned long long)found->version, (unsigned long long)checksum_of(check, 0)->version);
}

static void report_difference(struct verify *verify, const struct shard_check *check,
                              uint32_t replica, uint32_t reference)
{
    const Rowan__ChecksumIs *found = checksum_of(check, replica);
    const Rowan__ChecksumIs *other = checksum_of(check, reference);

    report(verify, check, replica, "different",
           "differs from server %u: %llu objects, checksum %016llx, against %llu, %016llx",
           server_of(check, reference), (unsigned long long)found->objects,
           (unsigned long long)found->checksum, (unsigned long long)other->objects,
           (unsigned long long)other->checksum);
}

/* --- one shard --- */

static void start_round(struct verify *verify, struct shard_check *check, uint64_t now_ns)
{
    if (!check->deadline_ns)
        check->deadline_ns = now_ns + verify->timeout_ns;
    for (uint32_t i = 0; i < check->replicas; i++) {
        uint32_t server = server_of(check, i);

        if (verify->lost[server])
            check->calls[i] = (struct admin_call){.done = true, .error = verify->lost[server]};
        else
            admin_post(verify->admin, &check->calls[i], server, &check->question,
                       verify->timeout_ns);
    }
    check->state = CHECK_ASKED;
    verify->walks += check->replicas;
}

static bool round_answered(const struct shard_check *check)
{
    for (uint32_t i = 0; i < check->replicas; i++) {
        if (!check->calls[i].done)
            return false;
    }
    return true;
}

/* True if all replicas answered about the same, quiet state. */
static bool round_settled(struct shard_check *check)
{
    for (uint32_t i = 0; i < check->replicas; i++) {
        struct admin_call *call = &check->calls[i];

        if (!call->error && call->reply->checksum_is->shard != check->shard->id)
            call->error = ROWAN_EFORMAT;
        if (call->error || checksum_of(check, i)->busy ||
            checksum_of(check, i)->version != checksum_of(check, 0)->version)
            return false;
    }
    return true;
}

static void judge_round(struct verify *verify, struct shard_check *check)
{
    uint32_t reference = 0;

    while (reference + 1 < check->replicas && checksum_of(check, reference)->damaged)
        reference++;
    for (uint32_t i = 0; i < check->replicas; i++) {
        const Rowan__ChecksumIs *found = checksum_of(check, i);

        if (found->damaged)
            report_damage(verify, check, i);
        else if (found->checksum != checksum_of(check, reference)->checksum ||
                 found->objects != checksum_of(check, reference)->objects)
            report_difference(verify, check, i, reference);
    }
    verify->objects += checksum_of(check, reference)->objects;
}

/* An error that the server itself answered: it may be asked again. */
static bool is_passing(int error)
{
    return error == ROWAN_EBUSY || error == ROWAN_EAGAIN || error == ROWAN_ENOTMINE ||
           error == ROWAN_ENOMEM;
}

/* Remembers the servers that gave no answer. True if there is one. */
static bool mark_lost(struct verify *verify, const struct shard_check *check)
{
    bool any = false;

    for (uint32_t i = 0; i < check->replicas; i++) {
        int error = check->calls[i].error;

        if (!error || is_passing(error))
            continue;
        verify->lost[server_of(check, i)] = error;
        any = true;
    }
    return any;
}

static void end_round(struct verify *verify, struct shard_check *check, uint64_t now_ns)
{
    bool settled = round_settled(check);
    bool last = mark_lost(verify, check) || now_ns + ROUND_PAUSE_NS >= check->deadline_ns;

    verify->walks -= check->replicas;
    if (settled) {
        judge_round(verify, check);
    } else if (last) {
        for (uint32_t i = 0; i < check->replicas; i++)
            report_unsettled(verify, check, i);
    }
    check->state = settled || last ? CHECK_JUDGED : CHECK_WAITING;
    verify->judged += check->state == CHECK_JUDGED;
    check->next_round_ns = now_ns + ROUND_PAUSE_NS;
    for (uint32_t i = 0; i < check->replicas; i++)
        admin_call_free(&check->calls[i]);
}

/* --- all shards --- */

/* Returns until when to wait for events, at most. */
static uint64_t step(struct verify *verify, uint64_t now_ns)
{
    uint64_t until_ns = now_ns + NS_PER_S;

    for (uint32_t i = 0; i < verify->config->served_count; i++) {
        struct shard_check *check = &verify->checks[i];

        if (check->state == CHECK_ASKED && round_answered(check))
            end_round(verify, check, now_ns);
        if (check->state != CHECK_WAITING)
            continue;
        if (now_ns < check->next_round_ns) {
            until_ns = check->next_round_ns < until_ns ? check->next_round_ns : until_ns;
            continue;
        }
        if (verify->walks == 0 || verify->walks + check->replicas <= MAX_WALKS)
            start_round(verify, check, now_ns);
    }
    return until_ns;
}

static int run_checks(struct verify *verify)
{
    int error = 0;
    while (!error && verify->judged < verify->config->served_count) {
        uint64_t now_ns = clock_now_ns(clock_system());
        uint64_t until_ns = step(verify, now_ns);
        if (progress_due(now_ns))
            progress_line("verify: %u of %u shards, %llu objects", verify->judged,
                          verify->config->served_count, (unsigned long long)verify->objects);
        if (verify->judged < verify->config->served_count)
            error = admin_wait(verify->admin, until_ns);
    }
    progress_end();
    return error;
}

static int prepare(struct verify *verify)
{
    const struct cluster_config *config = verify->config;

    verify->checks = calloc(config->served_count, sizeof *verify->checks);
    if (!verify->checks)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < config->served_count; i++) {
        struct shard_check *check = &verify->checks[i];
        check->shard = &config->shards[i];
        check->replicas = 1 + check->shard->backup_count;
        verify->least = i && verify->least < check->replicas ? verify->least : check->replicas;
        verify->most = verify->most > check->replicas ? verify->most : check->replicas;
        check->get = (Rowan__GetChecksum)ROWAN__GET_CHECKSUM__INIT;
        check->get.shard = check->shard->id;
        check->question = CONTROL_MESSAGE(GET_CHECKSUM, get_checksum, &check->get);
    }
    return 0;
}

static int print_outcome(struct verify *verify)
{
    const uint32_t least = verify->least, most = verify->most;
    char replicas[32];

    snprintf(replicas, sizeof replicas, least == most ? "%u" : "%u to %u", least, most);
    if (verify->list)
        return tool_print_json(
            json_pack("{s:b, s:i, s:i, s:i, s:I, s:O}", "equal", verify->problems == 0, "shards",
                      verify->config->served_count, "replicas_least", least, "replicas_most", most,
                      "objects", (json_int_t)verify->objects, "problems", verify->list));
    printf("verify: %u shards, %s replicas each, %llu objects compared: ",
           verify->config->served_count, replicas, (unsigned long long)verify->objects);
    if (verify->problems)
        printf("%u problem%s\n", verify->problems, verify->problems == 1 ? "" : "s");
    else
        printf("equal\n");
    return EXIT_DONE;
}

int command_verify(const struct rowan_settings *settings, char **words)
{
    static struct verify verify;
    int error = command_connect(settings, words[0], &verify.admin, NULL);
    if (error)
        return EXIT_FAILED;
    verify.list = settings->json ? json_array() : NULL;
    verify.config = cluster_hold(admin_config(verify.admin));
    verify.timeout_ns = settings->timeout_ms * NS_PER_MS;
    error = prepare(&verify);
    if (!error)
        error = run_checks(&verify);
    int code =
        error ? tool_say("verify: \"%s\": %s", settings->access.managers, error_sentence(error))
              : print_outcome(&verify);
    free(verify.checks);
    cluster_release(verify.config);
    admin_close(verify.admin);
    json_decref(verify.list);
    return verify.problems ? EXIT_FAILED : code;
}
