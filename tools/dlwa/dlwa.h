/* dlwa.h - rowan-dlwa: how many bytes persistent memory writes to its media for those it is asked to write. One sample is
 * what a source counts for each of its units (DIMM or server), since some beginning or between two looks; report.c
 * shows it.
 */
#ifndef DLWA_DLWA_H
#define DLWA_DLWA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/admin.h"

enum { DLWA_MAX_ROWS = 256, DLWA_WHY_BYTES = 200 };

struct dlwa_settings {
    bool model, ipmctl, json;
    const char *before, *after; /* files with what ipmctl printed */
    uint64_t counters;          /* enum dlwa_counters */
    struct admin_access access;
    uint64_t timeout_ms, count, dimms, endurance_pbw;
    const char *interval, *seconds, *svg;
    double interval_s, seconds_s; /* of the texts; 0: not given */
};

enum dlwa_counters { COUNTERS_POWER_CYCLE, COUNTERS_LIFETIME };

enum dlwa_count {
    DLWA_REQUEST_BYTES,
    DLWA_MEDIA_BYTES,
    DLWA_CLEAN_REQUEST_BYTES, /* of these, by cleaning */
    DLWA_CLEAN_MEDIA_BYTES,
    DLWA_TABLE_REQUEST_BYTES, /* and for tables */
    DLWA_TABLE_MEDIA_BYTES,
    DLWA_LOST, /* writes that the model missed */
    DLWA_COUNTS,
};

struct dlwa_row {
    char name[32];
    bool off;         /* does not answer, or has no model: nothing else counts */
    const char *note; /* why, or what more there is to say; static; NULL: nothing */
    uint64_t origin;  /* of the counts: of two rows with other ones no difference can be told */
    uint64_t counts[DLWA_COUNTS];
    double seconds; /* that these took; 0: not known */
    double rate;    /* of the total: media bytes a second, those of all rows; 0: as above */
    uint32_t dimms; /* that they went to */
};

struct dlwa_sample {
    const char *unit;    /* "dimm" | "server" */
    bool comes_and_goes; /* units may, between two samples */
    uint32_t count;
    struct dlwa_row rows[DLWA_MAX_ROWS];
};

/* A source fills a sample with counts since its beginning. Returns an exit code. */
typedef int dlwa_look(void *source, struct dlwa_sample *out);

/* report_run: shows one sample, or with an interval the differences between samples, `count` of them (0: until standard
 * output ends, or a signal). Returns the exit code. */
int report_run(const struct dlwa_settings *settings, dlwa_look *look, void *source);

/* report_difference: `after` less `before`, which took `seconds` (0: not known). False, and `why`: they are not of the same
 * units, or counts went back. A unit whose counts began anew between the two has no difference and says so. */
bool report_difference(const struct dlwa_sample *before, const struct dlwa_sample *after,
                       double seconds, struct dlwa_sample *out, char why[DLWA_WHY_BYTES]);

int report_print(const struct dlwa_settings *settings, const struct dlwa_sample *sample);

/* The commands. Each returns the exit code. */
int dlwa_model(const struct dlwa_settings *settings);
int dlwa_device(const struct dlwa_settings *settings);
int dlwa_cluster(struct dlwa_settings *settings);

#endif
