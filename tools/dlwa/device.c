/* device.c - rowan-dlwa --ipmctl: the counters of the DIMMs themselves, asked from ipmctl, or as it once told them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/dlwa/dlwa.h"
#include "tools/dlwa/ipmctl.h"

#define IPMCTL "ipmctl show -o nvmxml -performance"

enum { MAX_BYTES = 1 << 20 };

/* All of it, for free. NULL: it could not be read, or has more than MAX_BYTES. */
static char *read_all(FILE *file, size_t *bytes)
{
    char *text = malloc(MAX_BYTES + 1);

    if (!text)
        return NULL;
    *bytes = fread(text, 1, MAX_BYTES + 1, file);
    if (ferror(file) || *bytes > MAX_BYTES) {
        free(text);
        return NULL;
    }
    return text;
}

static void fill(const struct dlwa_settings *settings, const struct ipmctl_reading *reading,
                 struct dlwa_sample *out)
{
    const bool lifetime = settings->counters == COUNTERS_LIFETIME;

    *out = (struct dlwa_sample){.unit = "dimm", .count = reading->count};
    for (uint32_t i = 0; i < reading->count; i++) {
        const uint64_t *counters = reading->dimms[i].counters;
        struct dlwa_row *row = &out->rows[i];

        strcpy(row->name, reading->dimms[i].id);
        row->dimms = 1;
        row->media_bytes = counters[lifetime ? IPMCTL_TOTAL_MEDIA_WRITES : IPMCTL_MEDIA_WRITES] *
                           IPMCTL_UNIT_BYTES;
        row->request_bytes =
            counters[lifetime ? IPMCTL_TOTAL_WRITE_REQUESTS : IPMCTL_WRITE_REQUESTS] *
            IPMCTL_UNIT_BYTES;
    }
}

static bool take(const struct dlwa_settings *settings, const char *from, const char *text,
                 size_t bytes, struct dlwa_sample *out)
{
    static struct ipmctl_reading reading; /* large */
    char why[IPMCTL_WHY_BYTES];

    if (!ipmctl_parse(text, bytes, &reading, why)) {
        tool_say("%s: %s", from, why);
        return false;
    }
    fill(settings, &reading, out);
    return true;
}

static bool look_file(const struct dlwa_settings *settings, const char *path,
                      struct dlwa_sample *out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t bytes;

    if (!file) {
        tool_say("cannot read %s: %m", path);
        return false;
    }
    char *text = read_all(file, &bytes);
    if (file != stdin)
        fclose(file);
    if (!text) {
        tool_say("cannot read %s, or it has more than 1 MiB", path);
        return false;
    }
    const bool is_right = take(settings, path, text, bytes, out);
    free(text);
    return is_right;
}

static bool look_device(void *source, struct dlwa_sample *out)
{
    const struct dlwa_settings *settings = source;
    FILE *pipe = popen(IPMCTL, "r");
    size_t bytes = 0;

    if (!pipe) {
        tool_say("cannot run ipmctl: %m");
        return false;
    }
    char *text = read_all(pipe, &bytes);
    const int status = pclose(pipe);
    bool is_right = text && status == 0;
    if (is_right)
        is_right = take(settings, "ipmctl", text, bytes, out);
    else
        tool_say("\"" IPMCTL
                 "\" failed (exit code %d): it needs the package ipmctl, root, and a host "
                 "with Optane DIMMs",
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    free(text);
    return is_right;
}

/* What was recorded: one reading, or the difference of two. */
static int show_files(const struct dlwa_settings *settings)
{
    static struct dlwa_sample before, after, difference; /* large */
    char why[DLWA_WHY_BYTES];

    if (!look_file(settings, settings->after, &after))
        return EXIT_FAILED;
    if (!*settings->before) {
        for (uint32_t i = 0; i < after.count; i++)
            after.rows[i].seconds = settings->seconds_s;
        return report_print(settings, &after);
    }
    if (!look_file(settings, settings->before, &before))
        return EXIT_FAILED;
    if (!report_difference(&before, &after, settings->seconds_s, &difference, why))
        return tool_say("%s", why);
    return report_print(settings, &difference);
}

int dlwa_device(const struct dlwa_settings *settings)
{
    if (*settings->after)
        return show_files(settings);
    return report_run(settings, look_device, (void *)(uintptr_t)settings);
}
