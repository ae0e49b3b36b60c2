/* wear.c - the buffer of wear.h: a small unordered array, searched from one end to the other.
 *
 * 1. open <= limit; the open lines are lines[0] to lines[open - 1], each once, and none has all its sectors.
 */
#include "common/pm/wear.h"

#include <string.h>

#include "common/base/assert.h"

enum { SECTORS = WEAR_LINE_BYTES / WEAR_REQUEST_BYTES, FULL = (1 << SECTORS) - 1 };

void wear_init(struct wear *wear, uint32_t dimms, uint64_t seed)
{
    ASSERT(dimms >= 1 && dimms <= WEAR_MAX_DIMMS);
    memset(wear, 0, sizeof *wear);
    wear->limit = dimms * WEAR_LINES_PER_DIMM;
    random_init(&wear->random, seed);
}

/* The line at `place` goes to the media. */
static void write_back(struct wear *wear, uint32_t place)
{
    const uint32_t last = --wear->open;

    wear->counts[wear->causes[place]].media_bytes += WEAR_LINE_BYTES;
    wear->lines[place] = wear->lines[last];
    wear->sectors[place] = wear->sectors[last];
    wear->causes[place] = wear->causes[last];
}

static uint32_t find_place(struct wear *wear, uint64_t line)
{
    for (uint32_t i = 0; i < wear->open; i++) {
        if (wear->lines[i] == line)
            return i;
    }
    if (wear->open == wear->limit)
        write_back(wear, (uint32_t)random_below(&wear->random, wear->open));
    wear->lines[wear->open] = line;
    wear->sectors[wear->open] = 0;
    return wear->open++;
}

void wear_write(struct wear *wear, uint64_t first, uint64_t count, enum wear_cause cause)
{
    wear->counts[cause].request_bytes += count * WEAR_REQUEST_BYTES;
    while (count > 0) {
        const uint32_t from = (uint32_t)(first % SECTORS);
        const uint32_t part = count < SECTORS - from ? (uint32_t)count : SECTORS - from;
        const uint32_t place = find_place(wear, first / SECTORS);

        wear->sectors[place] |= (uint8_t)(((1u << part) - 1) << from);
        wear->causes[place] = (uint8_t)cause;
        if (wear->sectors[place] == FULL)
            write_back(wear, place);
        first += part;
        count -= part;
    }
}

struct wear_count wear_total(const struct wear *wear)
{
    struct wear_count total = {0};

    for (unsigned i = 0; i < WEAR_CAUSES; i++) {
        total.request_bytes += wear->counts[i].request_bytes;
        total.media_bytes += wear->counts[i].media_bytes;
    }
    return total;
}

double wear_ratio(uint64_t request_bytes, uint64_t media_bytes)
{
    return request_bytes > 0 ? (double)media_bytes / (double)request_bytes : 0;
}

double wear_years(uint64_t media_bytes, double seconds, uint32_t dimms, double endurance_pbw)
{
    const double year_s = 365.25 * 24 * 3600;

    if (media_bytes == 0 || seconds <= 0)
        return 0;
    return endurance_pbw * 1e15 * dimms / ((double)media_bytes / seconds) / year_s;
}
