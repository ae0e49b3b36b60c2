/* device.c - rowan-dlwa --ipmctl: the counters of the DIMMs themselves, asked from ipmctl, or as it once told them. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/dlwa/dlwa.h"
#include "tools/dlwa/ipmctl.h"

#define IPMCTL "ipmctl show -o nvmxml -performance"

enum { MAX_BYTES = 1 << 20 };

static char text[MAX_BYTES + 1];

/* All of it into `text`. False: it could not be read, or has more than MAX_BYTES. */
static bool read_all(FILE *file, size_t *bytes)
{
    *bytes = fread(text, 1, sizeof text, file);
    return !ferror(file) && *bytes <= MAX_BYTES;
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
        row->counts[DLWA_MEDIA_BYTES] =
            counters[lifetime ? IPMCTL_TOTAL_MEDIA_WRITES : IPMCTL_MEDIA_WRITES] *
            IPMCTL_UNIT_BYTES;
        row->counts[DLWA_REQUEST_BYTES] =
            counters[lifetime ? IPMCTL_TOTAL_WRITE_REQUESTS : IPMCTL_WRITE_REQUESTS] *
            IPMCTL_UNIT_BYTES;
    }
}

static int take(const struct dlwa_settings *settings, const char *from, size_t bytes,
                struct dlwa_sample *out)
{
    static struct ipmctl_reading reading; /* large */
    char why[IPMCTL_WHY_BYTES];

    if (!ipmctl_parse(text, bytes, &reading, why))
        return tool_say("%s: %s", from, why);
    fill(settings, &reading, out);
    return EXIT_DONE;
}

static int look_file(const struct dlwa_settings *settings, const char *path,
                     struct dlwa_sample *out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t bytes;

    if (!file)
        return tool_say("cannot read %s: %m", path);
    const bool is_read = read_all(file, &bytes);
    if (file != stdin)
        fclose(file);
    return is_read ? take(settings, path, bytes, out)
                   : tool_say("cannot read %s, or it has more than 1 MiB", path);
}

static int look_device(void *source, struct dlwa_sample *out)
{
    FILE *pipe = popen(IPMCTL, "r");
    size_t bytes;

    if (!pipe)
        return tool_say("cannot run ipmctl: %m");
    const bool is_read = read_all(pipe, &bytes);
    const int status = pclose(pipe);
    if (is_read && status == 0)
        return take(source, "ipmctl", bytes, out);
    return tool_say("\"" IPMCTL
                    "\" failed (exit code %d): it needs the package ipmctl, root, and a host "
                    "with Optane DIMMs",
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* What was recorded: one reading, or the difference of two. */
static int show_files(const struct dlwa_settings *settings)
{
    static struct dlwa_sample before, after, difference; /* large */
    char why[DLWA_WHY_BYTES];

    if (look_file(settings, settings->after, &after))
        return EXIT_FAILED;
    if (!*settings->before) {
        for (uint32_t i = 0; i < after.count; i++)
            after.rows[i].seconds = settings->seconds_s;
        return report_print(settings, &after);
    }
    if (look_file(settings, settings->before, &before))
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
