/* top: the cluster as it is now, drawn again and again: throughput, latency, and for each server what it does. Nobody who
 * does not answer ends it: he is shown as silent, and asked again for the next frame. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"
#include "tools/rowan/screen.h"

enum {
    BUCKETS = 128, /* of latencies: more than servers tell are not taken */
    SHARDS_NAMED = 12,
    NUMBER_BYTES = 24,
};

#define ANSWER_NS (400 * NS_PER_MS) /* that a server has for its answer */
#define LOOK_NS   (100 * NS_PER_MS) /* how often keys are looked for */

enum rate { PUTS, GETS, DELETES, RATES };
enum timed { OF_GETS, OF_WRITES, TIMED }; /* operations whose latencies are told */

/* Of a server, as it told last. Its counters begin again with each of its incarnations. */
struct seen {
    uint32_t server; /* 0: free */
    uint64_t incarnation, at_ns, latencies_of;
    uint64_t counters[RATES], rates[RATES]; /* a second, between the last two answers */
    uint64_t counts[TIMED][BUCKETS];        /* how many, by bucket */
};

struct top {
    struct view view;
    struct admin_status slow;
    uint64_t interval_ns, frames; /* 0: without end */
    struct seen seen[CLUSTER_MAX_MEMBERS];
    /* Latencies of this frame. */
    size_t buckets;
    uint64_t bounds[BUCKETS], counts[TIMED][BUCKETS], all[TIMED];
};

/* --- what changed since the last frame --- */

static struct seen *find_seen(struct top *top, uint32_t server)
{
    struct seen *oldest = &top->seen[0];
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        struct seen *seen = &top->seen[i];
        if (seen->server == server)
            return seen;
        if (seen->at_ns < oldest->at_ns)
            oldest = seen;
    }
    *oldest = (struct seen){.server = server};
    return oldest;
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

static void note_counters(struct seen *seen, const Rowan__ServerStatus *status, uint64_t now_ns)
{
    const uint64_t now[RATES] = {status->puts, status->gets, status->deletes};
    const bool again = seen->incarnation == status->incarnation;
    const double seconds = (double)(now_ns - seen->at_ns) / (double)NS_PER_S;
    for (int i = 0; i < RATES; i++) {
        if (seen->at_ns) /* else there is nothing to compare with */
            seen->rates[i] =
                (uint64_t)((double)grown(now[i], again ? seen->counters[i] : 0) / seconds);
        seen->counters[i] = now[i];
    }
    seen->incarnation = status->incarnation;
    seen->at_ns = now_ns;
}

/* Adds what is new to this frame's; the first time nothing is. */
static void note_latencies(struct top *top, struct seen *seen, const Rowan__SlowAre *are)
{
    const uint64_t *const now[TIMED] = {are->gets, are->writes};
    const size_t count = are->n_latency_ns < BUCKETS ? are->n_latency_ns : BUCKETS;
    const bool first = seen->latencies_of == 0;
    if (are->n_gets < count || are->n_writes < count)
        return;
    if (seen->latencies_of != seen->incarnation)
        memset(seen->counts, 0, sizeof seen->counts);
    seen->latencies_of = seen->incarnation;
    top->buckets = count;
    memcpy(top->bounds, are->latency_ns, count * sizeof *are->latency_ns);
    for (int kind = 0; kind < TIMED; kind++) {
        for (size_t i = 0; i < count; i++) {
            const uint64_t more = first ? 0 : grown(now[kind][i], seen->counts[kind][i]);
            top->counts[kind][i] += more;
            top->all[kind] += more;
            seen->counts[kind][i] = now[kind][i];
        }
    }
}

static void note_answers(struct top *top, uint64_t now_ns)
{
    const struct cluster_config *config = top->view.status.config;
    memset(top->counts, 0, sizeof top->counts);
    memset(top->all, 0, sizeof top->all);
    for (uint32_t i = 0; i < config->member_count; i++) {
        struct seen *seen = find_seen(top, config->members[i].server);
        memset(seen->rates, 0, sizeof seen->rates);
        if (top->view.status.calls[i].error)
            continue;
        note_counters(seen, top->view.status.calls[i].reply->server_status, now_ns);
        if (!top->slow.calls[i].error)
            note_latencies(top, seen, top->slow.calls[i].reply->slow_are);
    }
}

/* --- drawing --- */

static const char *short_number(uint64_t number, char text[NUMBER_BYTES])
{
    if (number < 100000)
        snprintf(text, NUMBER_BYTES, "%" PRIu64, number);
    else if (number < 10000000)
        snprintf(text, NUMBER_BYTES, "%" PRIu64 "k", number / 1000);
    else
        snprintf(text, NUMBER_BYTES, "%" PRIu64 "M", number / 1000000);
    return text;
}

static double quantile_us(const struct top *top, enum timed kind, double quantile)
{
    uint64_t below = 0;
    size_t i = 0;
    while (i + 1 < top->buckets &&
           (double)(below += top->counts[kind][i]) < quantile * (double)top->all[kind])
        i++;
    return (double)top->bounds[i] / (double)NS_PER_US;
}

static void draw_latency(FILE *out, const char *what, const struct top *top, enum timed kind)
{
    if (top->all[kind] == 0)
        fprintf(out, "  %s -", what);
    else
        fprintf(out, "  %s p50 %.0f us, p99 %.0f, most %.0f (%" PRIu64 ")", what,
                quantile_us(top, kind, 0.5), quantile_us(top, kind, 0.99),
                quantile_us(top, kind, 1), top->all[kind]);
}

static void draw_head(FILE *out, struct top *top)
{
    const struct cluster_config *config = top->view.status.config;
    const char *leader = admin_leader(top->view.admin);
    uint64_t sum[RATES] = {0};
    char clock[16] = "", puts[NUMBER_BYTES], gets[NUMBER_BYTES], deletes[NUMBER_BYTES];
    const time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    for (uint32_t i = 0; i < config->member_count; i++) {
        for (int j = 0; j < RATES; j++)
            sum[j] += find_seen(top, config->members[i].server)->rates[j];
    }
    fprintf(out, "rowan top  %s  term %" PRIu64 ", %u servers, %u shards, %u replicas; %s%s\n",
            clock, config->term, config->member_count, config->shard_count, config->replicas,
            leader ? "manager " : "no manager answers", leader ? leader : "");
    fprintf(out, "A second: puts %s, gets %s, deletes %s\n", short_number(sum[PUTS], puts),
            short_number(sum[GETS], gets), short_number(sum[DELETES], deletes));
    fprintf(out, "Latency:");
    draw_latency(out, "get", top, OF_GETS);
    draw_latency(out, "write", top, OF_WRITES);
    fprintf(out, "\n");
}

static void draw_not_served(FILE *out, const struct view *view, const struct counts *counts)
{
    const struct cluster_config *config = view->status.config;
    uint32_t named = 0;
    fprintf(out, "Not served: %u of %u shards:", counts->recovering, config->shard_count);
    for (uint32_t i = 0; i < config->shard_count && named < SHARDS_NAMED; i++) {
        if (view_is_recovering(view, &config->shards[i]))
            fprintf(out, "%s %u", named++ ? "," : "", config->shards[i].id);
    }
    fprintf(out, "%s\n", counts->recovering > named ? ", ..." : "");
}

/* What the cluster is doing. */
static void draw_state(FILE *out, const struct view *view)
{
    const struct counts counts = view_count(view);
    const uint32_t replicas = view->status.config->replicas;
    char left[NUMBER_BYTES], second[NUMBER_BYTES];
    if (counts.recovering > 0)
        draw_not_served(out, view, &counts);
    if (counts.under_replicated > 0)
        fprintf(out, "Replicas: %u shards have fewer than %u\n", counts.under_replicated, replicas);
    if (counts.filling > 0)
        fprintf(out, "Filling: %u shards, %s objects are left, %s a second", counts.filling,
                short_number(counts.fill_left, left), short_number(counts.fill_rate, second));
    if (counts.filling > 0 && counts.fill_s > 0)
        fprintf(out, ": about %" PRIu64 " s", counts.fill_s);
    if (counts.filling > 0)
        fprintf(out, "%s\n", counts.fill_waits ? "; some wait for memory or space" : "");
    if (counts.incomplete > 0)
        fprintf(out, "Possible loss: %u shards (rowan shards)\n", counts.incomplete);
    if (counts.recovering + counts.under_replicated + counts.filling + counts.silent == 0)
        fprintf(out, "Well: each shard is served, and has %u replicas\n", replicas);
}

static bool recovers_any(const struct view *view, uint32_t server)
{
    const struct cluster_config *config = view->status.config;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        if (config->shards[i].primary == server && view_is_recovering(view, &config->shards[i]))
            return true;
    }
    return false;
}

static const char *state_of(const struct view *view, const Rowan__ServerStatus *status,
                            char text[NUMBER_BYTES])
{
    const struct cluster_config *config = view->status.config;
    if (status->start_segments > 0) {
        snprintf(text, NUMBER_BYTES, "scan %2u%%",
                 (unsigned)(99 * status->start_scanned / status->start_segments));
        return text;
    }
    return config->lease_ms > 0 && status->lease_left_ms == 0 ? "no lease"
           : recovers_any(view, status->server)               ? "recovers"
           : status->full                                     ? "full"
           : !cluster_wants(config, status->server)           ? "drains"
                                                              : "serves";
}

static void draw_server(FILE *out, struct top *top, uint32_t position)
{
    const struct cluster_config *config = top->view.status.config;
    const struct admin_call *call = &top->view.status.calls[position];
    const uint32_t server = config->members[position].server;
    const struct share share = share_of(config, server);
    char state[NUMBER_BYTES], writes[NUMBER_BYTES], gets[NUMBER_BYTES], left[NUMBER_BYTES];
    if (call->error) {
        fprintf(out, "%4u  %-8s  %5s %6s %6s  %4u %4u %4u  %.60s\n", server, "silent", "-", "-",
                "-", share.leads, share.backs, share.fills, error_sentence(call->error));
        return;
    }
    const Rowan__ServerStatus *status = call->reply->server_status;
    const uint64_t *rates = find_seen(top, server)->rates;
    fprintf(out,
            "%4u  %-8s  %5.2f %6s %6s  %4u %4u %4u %6s  %5" PRIu64 " %5" PRIu64 " %5" PRIu64
            "  %4" PRIu64 "\n",
            server, state_of(&top->view, status, state), view_load(status),
            short_number(rates[PUTS] + rates[DELETES], writes), short_number(rates[GETS], gets),
            share.leads, share.backs, share.fills, short_number(status->fill_left, left),
            status->segments_free, status->segments_open + status->segments_used,
            status->segments_committed, status->lease_left_ms);
}

static void draw(FILE *out, struct top *top)
{
    const struct cluster_config *config = top->view.status.config;
    draw_head(out, top);
    draw_state(out, &top->view);
    fprintf(out, "\n%4s  %-8s  %5s %6s %6s  %4s %4s %4s %6s  %5s %5s %5s  %4s\n", "id", "state",
            "load", "writes", "gets", "lead", "back", "fill", "left", "free", "used", "comm.",
            "lease");
    for (uint32_t i = 0; i < config->member_count; i++)
        draw_server(out, top, i);
    for (uint32_t i = 0; i < config->wanted_count; i++) {
        if (!cluster_member(config, config->wanted[i]))
            fprintf(out, "%4u  absent\n", config->wanted[i]);
    }
}

/* --- the loop --- */

static int show(struct top *top)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return ROWAN_ENOMEM;
    draw(out, top);
    const int error = fclose(out) ? ROWAN_ENOMEM : screen_show(text, bytes);
    free(text);
    return error;
}

static int frame(struct top *top)
{
    Rowan__GetStatus get_status = ROWAN__GET_STATUS__INIT;
    Rowan__GetSlow get_slow = ROWAN__GET_SLOW__INIT;
    const Rowan__ControlMessage questions[] = {CONTROL_MESSAGE(GET_STATUS, get_status, &get_status),
                                               CONTROL_MESSAGE(GET_SLOW, get_slow, &get_slow)};
    struct admin_status answers[2];
    int error = admin_ask_members(top->view.admin, questions, 2, ANSWER_NS, answers);
    if (error)
        return error;
    top->view.status = answers[0];
    top->slow = answers[1];
    note_answers(top, clock_now_ns(clock_system()));
    error = show(top);
    admin_status_free(&answers[0]);
    admin_status_free(&answers[1]);
    return error;
}

/* The connections go on meanwhile: a manager that leads is looked for, and tells of new configurations. */
static int pause_until(struct top *top, uint64_t until_ns)
{
    uint64_t now_ns;
    int error = 0;
    while (!error && !screen_is_left() && (now_ns = clock_now_ns(clock_system())) < until_ns)
        error =
            admin_wait(top->view.admin, now_ns + LOOK_NS < until_ns ? now_ns + LOOK_NS : until_ns);
    return error;
}

static int run(struct top *top)
{
    int error = 0;
    for (uint64_t shown = 0; !error && !screen_is_left();) {
        const uint64_t next_ns = clock_now_ns(clock_system()) + top->interval_ns;
        error = frame(top);
        if (++shown == top->frames)
            break;
        if (!error)
            error = pause_until(top, next_ns);
    }
    return error;
}

int command_top(const struct rowan_settings *settings, char **words)
{
    if (settings->json)
        return tool_usage(
            "top draws for a person; a program asks for --json status and --json slow");
    double interval;
    if (!tool_parse_number(settings->interval, 0.1, 3600, &interval))
        return tool_usage("--interval must be a number of seconds from 0.1 to 3600");
    struct top *top = calloc(1, sizeof *top);
    if (!top)
        return tool_failed(words[0], ROWAN_ENOMEM);
    top->interval_ns = (uint64_t)(interval * (double)NS_PER_S);
    top->frames = settings->frames;
    if (command_connect(settings, words[0], &top->view.admin, NULL)) {
        free(top);
        return EXIT_FAILED;
    }
    screen_open();
    const int error = run(top);
    screen_close();
    admin_close(top->view.admin);
    free(top);
    return error ? tool_failed(words[0], error) : EXIT_DONE;
}
