/* Sizes come from tables: a distribution is cut into WORKLOAD_SIZES steps of equal weight, and a
 * hash of the record picks the step, so that an object costs no floating-point arithmetic. */
#include "tools/rowan-ycsb/workload.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/config.h"
#include "common/base/error.h"

enum { SALT_KEY = 1, SALT_VALUE = 2, MAX_VALUE_BYTES = 1 << 20 };

struct sizes {
    double mean, deviation;
};

static const struct {
    const char *name;
    struct sizes key, value;
} known[] = {
    {"zippydb", {47.9, 3.7}, {42.9, 26.1}},
    {"up2x", {10.45, 1.4}, {46.8, 11.6}},
    {"udb", {27.1, 2.6}, {126.7, 22.1}},
};

static double normal_below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

/* The size at quantile `step`, the normal distribution being around `centre` and cut at `least`. */
static double fill_sizes(uint32_t *table, double centre, double deviation, uint32_t least)
{
    uint32_t step = 0;
    double sum = 0;

    for (uint32_t size = least; step < WORKLOAD_SIZES; size++) {
        double below = normal_below((size + 0.5 - centre) / deviation);

        while (step < WORKLOAD_SIZES && (step + 0.5) / WORKLOAD_SIZES <= below) {
            table[step++] = size;
            sum += size;
        }
    }
    return sum / WORKLOAD_SIZES;
}

/* Cutting sizes off at `least` raises the mean; the centre is moved until the mean is right again. */
static void fit_sizes(uint32_t *table, const struct sizes *sizes, uint32_t least)
{
    double low = sizes->mean - 2 * sizes->deviation, high = sizes->mean + sizes->deviation;

    for (int i = 0; i < 40; i++) {
        double centre = (low + high) / 2;

        if (fill_sizes(table, centre, sizes->deviation, least) < sizes->mean)
            low = centre;
        else
            high = centre;
    }
}

static bool parse_fixed(const char *name, struct profile *profile)
{
    uint64_t bytes;

    if (strncmp(name, "fixed:", 6) != 0 || config_parse_u64(name + 6, &bytes) != 0 ||
        bytes > MAX_VALUE_BYTES)
        return false;
    profile->max_value_bytes = (uint32_t)bytes;
    for (uint32_t i = 0; i < WORKLOAD_SIZES; i++) {
        profile->key_bytes[i] = WORKLOAD_FIXED_KEY_BYTES;
        profile->value_bytes[i] = (uint32_t)bytes;
    }
    return true;
}

static bool parse_known(const char *name, struct profile *profile)
{
    uint32_t keys[WORKLOAD_SIZES];

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) != 0)
            continue;
        fit_sizes(keys, &known[i].key, WORKLOAD_KEY_DIGITS);
        fit_sizes(profile->value_bytes, &known[i].value, 0);
        for (uint32_t j = 0; j < WORKLOAD_SIZES; j++)
            profile->key_bytes[j] = (uint16_t)keys[j];
        profile->max_value_bytes = profile->value_bytes[WORKLOAD_SIZES - 1];
        return true;
    }
    return false;
}

int profile_create(const char *name, struct profile **out)
{
    struct profile *profile = calloc(1, sizeof *profile);

    if (!profile)
        return ROWAN_ENOMEM;
    if (strlen(name) >= sizeof profile->name ||
        (!parse_known(name, profile) && !parse_fixed(name, profile))) {
        free(profile);
        return ROWAN_EINVALID;
    }
    snprintf(profile->name, sizeof profile->name, "%s", name);
    *out = profile;
    return 0;
}

uint32_t workload_key(const struct profile *profile, uint64_t record, char *out)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    static const char filling[WORKLOAD_MAX_KEY_BYTES + 1] =
        ".rowan.aucuparia.sorbus.quicken.mountain.ash.berry.leaflet.corymb.pome"
        ".rowan.aucuparia.sorbus.quicken.mountain.ash.berry.leafl";
    uint32_t bytes = profile->key_bytes[workload_mix(record, SALT_KEY) % WORKLOAD_SIZES];

    for (int i = WORKLOAD_KEY_DIGITS; i-- > 0; record >>= 5)
        out[i] = digits[record & 31];
    memcpy(out + WORKLOAD_KEY_DIGITS, filling, bytes - WORKLOAD_KEY_DIGITS);
    return bytes;
}

uint32_t workload_value_bytes(const struct profile *profile, uint64_t record, uint64_t seed)
{
    return profile->value_bytes[workload_mix(record ^ seed, SALT_VALUE) % WORKLOAD_SIZES];
}

void workload_value(uint64_t record, uint64_t seed, void *out, uint32_t bytes)
{
    uint64_t word = workload_mix(record, seed);
    uint8_t *at = out;

    for (; bytes >= sizeof word; bytes -= (uint32_t)sizeof word, at += sizeof word) {
        memcpy(at, &word, sizeof word);
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    }
    memcpy(at, &word, bytes);
}
