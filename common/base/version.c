/* version.c - see version.h. */
#include "common/base/version.h"

#include <stdio.h>

#define VERSION_IS_RANGE(name, text, lowest, highest)                                              \
    _Static_assert(0 < (lowest) && (lowest) <= (highest) && (highest) <= UINT16_MAX, text);
VERSION_TABLE(VERSION_IS_RANGE)

uint16_t version_common(struct version_range a, struct version_range b)
{
    uint16_t lowest = a.lowest > b.lowest ? a.lowest : b.lowest;
    uint16_t highest = a.highest < b.highest ? a.highest : b.highest;
    return lowest <= highest ? highest : 0;
}

const char *version_text(struct version_range range, char *out, size_t out_bytes)
{
    if (range.lowest == range.highest)
        snprintf(out, out_bytes, "%u", range.lowest);
    else
        snprintf(out, out_bytes, "%u to %u", range.lowest, range.highest);
    return out;
}

void version_print(const char *program, const char *release)
{
    static const struct {
        const char *name;
        struct version_range range;
    } formats[] = {
#define VERSION_ROW(name, text, lowest, highest) {text, {lowest, highest}},
        VERSION_TABLE(VERSION_ROW)};
    char text[24];

    printf("%s %s\nformats: ", program, release);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        printf("%s%s %s", i ? ", " : "", formats[i].name,
               version_text(formats[i].range, text, sizeof text));
    putchar('\n');
}
