/* top: the cluster as it is now, drawn again and again: throughput, latency, and for each server what it does. Nobody who
 * does not answer ends it: he is shown as silent, and asked again for the next frame. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/screen.h"
#include "tools/rowan/view.h"

enum {
    BUCKETS = 128, /* of latencies: more than servers tell are not taken */
    SHARDS_NAMED = 12,
    NUMBER_BYTES = 24,
};

#define ANSWER_NS (400 * NS_PER_MS) /* that a server has for its answer */
#define LOOK_NS   (100 * NS_PER_MS) /* how often keys are looked for */

/* A server's counters, as it told them last. They begin again with each of its incarnations. */
struct rates {
    uint64_t puts, gets, deletes;
};

struct seen {
    uint32_t server; /* 0: free */
    uint64_t incarnation, at_ns, latencies_of;
    struct rates counters, rates; /* a second, between the last two answers */
    uint64_t get_counts[BUCKETS], write_counts[BUCKETS]; /* how many, by bucket */
};

struct times {
    size_t buckets;
    uint64_t bounds[BUCKETS], count[BUCKETS], all;
};

struct top {
    struct view view;
    struct admin_status slow;
    uint64_t interval_ns, frames; /* 0: without end */
    struct seen seen[CLUSTER_MAX_MEMBERS];
    struct times gets, writes; /* of this frame */
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

static uint64_t rate(uint64_t now, uint64_t before, uint64_t ns)
{
    const uint64_t more = now >= before ? now - before : now;
    return ns ? (uint64_t)((double)more * (double)NS_PER_S / (double)ns) : 0;
}

static void note_counters(struct seen *seen, const Rowan__ServerStatus *status, uint64_t now_ns)
{
    const struct rates now = {status->puts, status->gets, status->deletes};
    const bool again = seen->incarnation == status->incarnation;
    const struct rates before = again ? seen->counters : (struct rates){0};
    const uint64_t ns =
        seen->at_ns ? now_ns - seen->at_ns : 0; /* 0: there is nothing to compare with */
    seen->rates = (struct rates){rate(now.puts, before.puts, ns), rate(now.gets, before.gets, ns),
                                 rate(now.deletes, before.deletes, ns)};
    seen->counters = now;
    seen->incarnation = status->incarnation;
    seen->at_ns = now_ns;
}

/* Adds what is new in `now` to `sum`, and keeps it; the first time nothing is. */
static void note_times(struct times *sum, uint64_t *before, const uint64_t *now, bool first)
{
    for (size_t i = 0; i < sum->buckets; i++) {
        const uint64_t more = first ? 0 : now[i] >= before[i] ? now[i] - before[i] : now[i];
        sum->count[i] += more;
        sum->all += more;
        before[i] = now[i];
    }
}

static void note_all_times(struct top *top, struct seen *seen, const Rowan__SlowAre *are)
{
    const size_t count = are->n_latency_ns < BUCKETS ? are->n_latency_ns : BUCKETS;
    const bool first = seen->latencies_of == 0;
    if (are->n_gets < count || are->n_writes < count)
        return;
    if (!first && seen->latencies_of != seen->incarnation) {
        memset(seen->get_counts, 0, sizeof seen->get_counts);
        memset(seen->write_counts, 0, sizeof seen->write_counts);
    }
    seen->latencies_of = seen->incarnation;
    top->gets.buckets = top->writes.buckets = count;
    memcpy(top->gets.bounds, are->latency_ns, count * sizeof *are->latency_ns);
    memcpy(top->writes.bounds, are->latency_ns, count * sizeof *are->latency_ns);
    note_times(&top->gets, seen->get_counts, are->gets, first);
    note_times(&top->writes, seen->write_counts, are->writes, first);
}

static void note_answers(struct top *top, uint64_t now_ns)
{
    const struct cluster_config *config = top->view.status.config;
    top->gets = top->writes = (struct times){0};
    for (uint32_t i = 0; i < config->member_count; i++) {
        struct seen *seen = find_seen(top, config->members[i].server);
        seen->rates = (struct rates){0};
        if (!top->view.status.calls[i].error)
            note_counters(seen, top->view.status.calls[i].reply->server_status, now_ns);
        if (!top->view.status.calls[i].error && !top->slow.calls[i].error)
            note_all_times(top, seen, top->slow.calls[i].reply->slow_are);
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

static double quantile_us(const struct times *latencies, double quantile)
{
    uint64_t below = 0;
    size_t i = 0;
    while (i + 1 < latencies->buckets &&
           (double)(below += latencies->count[i]) < quantile * (double)latencies->all)
        i++;
    return latencies->buckets ? (double)latencies->bounds[i] / (double)NS_PER_US : 0;
}

static void draw_latency(FILE *out, const char *what, const struct times *latencies)
{
    if (latencies->all == 0)
        fprintf(out, "  %s -", what);
    else
        fprintf(out, "  %s p50 %.0f us, p99 %.0f, most %.0f (%" PRIu64 ")", what,
                quantile_us(latencies, 0.5), quantile_us(latencies, 0.99),
                quantile_us(latencies, 1), latencies->all);
}

static void draw_head(FILE *out, struct top *top)
{
    const struct cluster_config *config = top->view.status.config;
    const char *leader = admin_leader(top->view.admin);
    struct rates sum = {0};
    char clock[16] = "", puts[NUMBER_BYTES], gets[NUMBER_BYTES], deletes[NUMBER_BYTES];
    const time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct rates *rates = &find_seen(top, config->members[i].server)->rates;
        sum.puts += rates->puts;
        sum.gets += rates->gets;
        sum.deletes += rates->deletes;
    }
    fprintf(out, "rowan top  %s  term %" PRIu64 ", %u servers, %u shards, %u replicas; %s%s\n",
            clock, config->term, config->member_count, config->shard_count, config->replicas,
            leader ? "manager " : "no manager answers", leader ? leader : "");
    fprintf(out, "A second: puts %s, gets %s, deletes %s\n", short_number(sum.puts, puts),
            short_number(sum.gets, gets), short_number(sum.deletes, deletes));
    fprintf(out, "Latency:");
    draw_latency(out, "get", &top->gets);
    draw_latency(out, "write", &top->writes);
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
    const struct rates *rates = &find_seen(top, server)->rates;
    fprintf(out,
            "%4u  %-8s  %5.2f %6s %6s  %4u %4u %4u %6s  %5" PRIu64 " %5" PRIu64 " %5" PRIu64
            "  %4" PRIu64 "\n",
            server, state_of(&top->view, status, state), view_load(status),
            short_number(rates->puts + rates->deletes, writes), short_number(rates->gets, gets),
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
