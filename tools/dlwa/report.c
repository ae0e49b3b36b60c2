/* report.c - what samples say: bytes, their ratio, and how long the DIMMs last at that rate. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/pm/wear.h"
#include "tools/dlwa/dlwa.h"

/* --- differences --- */

static bool row_difference(struct dlwa_row *row, const struct dlwa_row *before)
{
    bool is_less = true;

    for (unsigned i = 0; i < DLWA_COUNTS; i++) {
        is_less &= before->counts[i] <= row->counts[i];
        row->counts[i] -= before->counts[i];
    }
    return is_less;
}

static const struct dlwa_row *find_row(const struct dlwa_sample *sample, const char *name)
{
    for (uint32_t i = 0; i < sample->count; i++) {
        if (strcmp(sample->rows[i].name, name) == 0)
            return &sample->rows[i];
    }
    return NULL;
}

bool report_difference(const struct dlwa_sample *before, const struct dlwa_sample *after,
                       double seconds, struct dlwa_sample *out, char why[DLWA_WHY_BYTES])
{
    struct dlwa_sample result = *after;

    for (uint32_t i = 0; i < result.count; i++) {
        struct dlwa_row *row = &result.rows[i];
        const struct dlwa_row *old = find_row(before, row->name);

        row->seconds = seconds;
        if (!old && after->comes_and_goes) {
            row->note = row->off ? row->note : "came since: no difference yet";
            row->off = true;
            continue;
        }
        if (!old || (result.count != before->count && !after->comes_and_goes)) {
            snprintf(why, DLWA_WHY_BYTES,
                     "the two readings are not of the same %ss (%u and %u of them)", after->unit,
                     before->count, after->count);
            return false;
        }
        if (row->off || old->off || row->origin != old->origin) {
            row->note = row->off ? row->note : "counts began anew: no difference";
            row->off = true;
        } else if (!row_difference(row, old)) {
            snprintf(why, DLWA_WHY_BYTES,
                     "%s %s counts less in the second reading than in the first: they are in the "
                     "wrong order, or of other machines, or power was off between them",
                     after->unit, row->name);
            return false;
        }
    }
    *out = result;
    return true;
}

/* --- printing --- */

enum { RATE_SECONDS = 1 << 20 }; /* so that no small rate becomes 0 bytes */

static struct dlwa_row total(const struct dlwa_sample *sample)
{
    struct dlwa_row sum = {.name = "total", .off = true};

    for (uint32_t i = 0; i < sample->count; i++) {
        const struct dlwa_row *row = &sample->rows[i];

        if (row->off)
            continue;
        sum.off = false;
        for (unsigned j = 0; j < DLWA_COUNTS; j++)
            sum.counts[j] += row->counts[j];
        sum.dimms += row->dimms;
        sum.seconds = row->seconds > sum.seconds ? row->seconds : sum.seconds;
        sum.rate += row->seconds > 0 ? (double)row->counts[DLWA_MEDIA_BYTES] / row->seconds : 0;
    }
    return sum;
}

static double years(const struct dlwa_settings *settings, const struct dlwa_row *row)
{
    const double pbw = (double)settings->endurance_pbw;

    return row->rate > 0
               ? wear_years((uint64_t)(row->rate * RATE_SECONDS), RATE_SECONDS, row->dimms, pbw)
               : wear_years(row->counts[DLWA_MEDIA_BYTES], row->seconds, row->dimms, pbw);
}

static json_t *or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static double ratio_of(const struct dlwa_row *row)
{
    return wear_ratio(row->counts[DLWA_REQUEST_BYTES], row->counts[DLWA_MEDIA_BYTES]);
}

static json_t *row_json(const struct dlwa_settings *settings, const char *unit,
                        const struct dlwa_row *row)
{
    static const char *const names[DLWA_COUNTS] = {
        "request_bytes",       "media_bytes",       "clean_request_bytes", "clean_media_bytes",
        "table_request_bytes", "table_media_bytes", "lost_writes"};
    json_t *object = json_pack("{s:s, s:b}", unit, row->name, "counted", !row->off);

    if (row->note)
        json_object_set_new(object, "note", json_string(row->note));
    if (row->off)
        return object;
    for (unsigned i = 0; i < DLWA_COUNTS; i++)
        json_object_set_new(object, names[i], json_integer((json_int_t)row->counts[i]));
    json_object_set_new(object, "ratio", or_null(ratio_of(row)));
    json_object_set_new(object, "seconds", or_null(row->seconds));
    json_object_set_new(object, "years", or_null(years(settings, row)));
    return object;
}

static int print_json(const struct dlwa_settings *settings, const struct dlwa_sample *sample)
{
    const struct dlwa_row sum = total(sample);
    json_t *rows = json_array();

    for (uint32_t i = 0; i < sample->count; i++)
        json_array_append_new(rows, row_json(settings, sample->unit, &sample->rows[i]));
    return tool_print_json(
        json_pack("{s:o, s:o}", "rows", rows, "total", row_json(settings, sample->unit, &sum)));
}

static const char *ratio_text(uint64_t request_bytes, uint64_t media_bytes, char text[16])
{
    snprintf(text, 16, request_bytes ? "%.3f" : "-", wear_ratio(request_bytes, media_bytes));
    return text;
}

static void print_row(const struct dlwa_settings *settings, const struct dlwa_row *row)
{
    const uint64_t requests = row->counts[DLWA_REQUEST_BYTES],
                   media = row->counts[DLWA_MEDIA_BYTES];
    const uint64_t clean_requests = row->counts[DLWA_CLEAN_REQUEST_BYTES],
                   clean_media = row->counts[DLWA_CLEAN_MEDIA_BYTES];
    const double left = years(settings, row);
    char ratio[16], clean[16], last[16] = "-";

    if (row->off) {
        printf("%-10s  %s\n", row->name, row->note ? row->note : "nothing is counted");
        return;
    }
    if (left > 0)
        snprintf(last, sizeof last, left < 1000 ? "%.1f" : "%.0f", left);
    printf("%-10s %15" PRIu64 " %15" PRIu64 " %7s %15" PRIu64 " %15" PRIu64 " %13s %9s", row->name,
           requests, media, ratio_text(requests, media, ratio), clean_requests, clean_media,
           ratio_text(requests - clean_requests, media - clean_media, clean), last);
    if (row->counts[DLWA_LOST])
        printf("  %" PRIu64 " writes were missed", row->counts[DLWA_LOST]);
    printf("%s%s\n", row->note ? "  " : "", row->note ? row->note : "");
}

int report_print(const struct dlwa_settings *settings, const struct dlwa_sample *sample)
{
    const struct dlwa_row sum = total(sample);

    if (settings->json)
        return print_json(settings, sample);
    printf("%-10s %15s %15s %7s %15s %15s %13s %9s\n", sample->unit, "request bytes", "media bytes",
           "ratio", "clean: request", "clean: media", "without clean", "years");
    for (uint32_t i = 0; i < sample->count; i++)
        print_row(settings, &sample->rows[i]);
    print_row(settings, &sum);
    return EXIT_DONE;
}

/* --- over time --- */

static void sleep_s(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

int report_run(const struct dlwa_settings *settings, dlwa_look *look, void *source)
{
    static struct dlwa_sample before, now, difference; /* large */
    char why[DLWA_WHY_BYTES];
    int code = EXIT_DONE;

    if (look(source, &before))
        return EXIT_FAILED;
    if (settings->interval_s == 0)
        return report_print(settings, &before);
    for (uint64_t i = 0; code == EXIT_DONE && (settings->count == 0 || i < settings->count); i++) {
        const uint64_t begin_ns = clock_now_ns(clock_system());

        sleep_s(settings->interval_s);
        if (look(source, &now))
            return EXIT_FAILED;
        const double seconds = (double)(clock_now_ns(clock_system()) - begin_ns) / (double)NS_PER_S;
        if (!report_difference(&before, &now, seconds, &difference, why))
            return tool_say("%s", why);
        code = report_print(settings, &difference);
        if (fflush(stdout) != 0)
            return EXIT_FAILED; /* told by tool_main */
        before = now;
    }
    return code;
}
