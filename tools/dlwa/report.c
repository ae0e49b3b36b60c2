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

static bool subtract(uint64_t *from, uint64_t what)
{
    const bool is_less = what <= *from;

    *from -= is_less ? what : 0;
    return is_less;
}

static bool row_difference(struct dlwa_row *row, const struct dlwa_row *before)
{
    return subtract(&row->request_bytes, before->request_bytes) &&
           subtract(&row->media_bytes, before->media_bytes) &&
           subtract(&row->clean_request_bytes, before->clean_request_bytes) &&
           subtract(&row->clean_media_bytes, before->clean_media_bytes) &&
           subtract(&row->table_request_bytes, before->table_request_bytes) &&
           subtract(&row->table_media_bytes, before->table_media_bytes) &&
           subtract(&row->lost, before->lost);
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
        sum.request_bytes += row->request_bytes;
        sum.media_bytes += row->media_bytes;
        sum.clean_request_bytes += row->clean_request_bytes;
        sum.clean_media_bytes += row->clean_media_bytes;
        sum.table_request_bytes += row->table_request_bytes;
        sum.table_media_bytes += row->table_media_bytes;
        sum.lost += row->lost;
        sum.dimms += row->dimms;
        sum.seconds = row->seconds > sum.seconds ? row->seconds : sum.seconds;
        sum.rate += row->seconds > 0 ? (double)row->media_bytes / row->seconds : 0;
    }
    return sum;
}

static double years(const struct dlwa_settings *settings, const struct dlwa_row *row)
{
    const double pbw = (double)settings->endurance_pbw;

    return row->rate > 0
               ? wear_years((uint64_t)(row->rate * RATE_SECONDS), RATE_SECONDS, row->dimms, pbw)
               : wear_years(row->media_bytes, row->seconds, row->dimms, pbw);
}

static json_t *or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *row_json(const struct dlwa_settings *settings, const char *unit,
                        const struct dlwa_row *row)
{
    json_t *object = json_pack("{s:s, s:b}", unit, row->name, "counted", !row->off);

    if (row->note)
        json_object_set_new(object, "note", json_string(row->note));
    if (row->off)
        return object;
    json_t *more =
        json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "request_bytes",
                  (json_int_t)row->request_bytes, "media_bytes", (json_int_t)row->media_bytes,
                  "ratio", or_null(wear_ratio(row->request_bytes, row->media_bytes)),
                  "clean_request_bytes", (json_int_t)row->clean_request_bytes, "clean_media_bytes",
                  (json_int_t)row->clean_media_bytes, "table_request_bytes",
                  (json_int_t)row->table_request_bytes, "table_media_bytes",
                  (json_int_t)row->table_media_bytes, "lost_writes", (json_int_t)row->lost,
                  "seconds", or_null(row->seconds), "years", or_null(years(settings, row)));
    json_object_update(object, more);
    json_decref(more);
    return object;
}

static int print_json(const struct dlwa_settings *settings, const struct dlwa_sample *sample)
{
    const struct dlwa_row sum = total(sample);
    json_t *rows = json_array();

    for (uint32_t i = 0; i < sample->count; i++)
        json_array_append_new(rows, row_json(settings, sample->unit, &sample->rows[i]));
    const int error = tool_print_json(
        json_pack("{s:o, s:o}", "rows", rows, "total", row_json(settings, sample->unit, &sum)));
    return error ? tool_failed("standard output", error) : EXIT_DONE;
}

static void show_ratio(char out[16], uint64_t request_bytes, uint64_t media_bytes)
{
    if (request_bytes)
        snprintf(out, 16, "%.3f", wear_ratio(request_bytes, media_bytes));
    else
        snprintf(out, 16, "-");
}

static void print_row(const struct dlwa_settings *settings, const struct dlwa_row *row)
{
    const double left = years(settings, row);
    char ratio[16], clean[16], last[16] = "-";

    if (row->off) {
        printf("%-10s  %s\n", row->name, row->note ? row->note : "nothing is counted");
        return;
    }
    show_ratio(ratio, row->request_bytes, row->media_bytes);
    show_ratio(clean, row->request_bytes - row->clean_request_bytes,
               row->media_bytes - row->clean_media_bytes);
    if (left > 0)
        snprintf(last, sizeof last, left < 1000 ? "%.1f" : "%.0f", left);
    printf("%-10s %15" PRIu64 " %15" PRIu64 " %7s %15" PRIu64 " %15" PRIu64 " %13s %9s", row->name,
           row->request_bytes, row->media_bytes, ratio, row->clean_request_bytes,
           row->clean_media_bytes, clean, last);
    if (row->lost)
        printf("  %" PRIu64 " writes were missed", row->lost);
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

    if (!look(source, &before))
        return EXIT_FAILED;
    if (settings->interval_s == 0)
        return report_print(settings, &before);
    for (uint64_t i = 0; code == EXIT_DONE && (settings->count == 0 || i < settings->count); i++) {
        const uint64_t begin_ns = clock_now_ns(clock_system());

        sleep_s(settings->interval_s);
        if (!look(source, &now))
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
