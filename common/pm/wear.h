/* wear.h - a model of how many bytes an Optane DIMM writes to its media for the bytes it is asked to write.
 *
 * The DIMM's write-combining buffer (XPBuffer) holds a bounded number of open 256-byte lines. A write touches 64-byte
 * sectors of lines. In an open line it merges. A line whose four sectors are all written goes to the media at once, in one
 * write, and frees its place. A line that is not open takes a place, and if there is none, an open line, chosen at random,
 * goes to the media as it is: 256 bytes by a read-modify-write. Random replacement is what measurements found (Xiang et al.,
 * EuroSys 2022: the hit ratio of partial writes falls gradually, not at once), and that full lines leave first.
 *
 * WEAR_LINES_PER_DIMM is calibrated: with three DIMMs, 144 streams in turn, all at the beginning of a line, must give the
 * amplification of the paper's Figure 2, 2.48 for writes of 64 B and 1.58 for 128 B, and fewer than 90 next to none. 38 lines
 * (9.5 KiB) give 2.59 and 1.52. That is less than the 16 KiB that Yang et al. (FAST 2020) and the 12 KiB that Xiang et al.
 * found by probing: where streams are remote, writes arrive out of turn, and part of the buffer may serve reads. Lines of
 * several DIMMs are one pool here: streams are interleaved over the DIMMs 4 KiB by 4 KiB, and the model knows of no
 * imbalance that this leaves. It knows nothing of time, of wear levelling, nor of the caches of the processor: it
 * is told what reaches the memory bus, as 64-byte requests.
 *
 * Deterministic: the same writes and seed give the same numbers. One thread per model.
 */
#ifndef PM_WEAR_H
#define PM_WEAR_H

#include <stdint.h>

#include "common/base/random.h"

enum {
    WEAR_REQUEST_BYTES = 64, /* a sector: what the processor writes at a time */
    WEAR_LINE_BYTES = 256,
    WEAR_LINES_PER_DIMM = 38,
    WEAR_DIMMS = 3, /* of the paper's servers */
    WEAR_MAX_DIMMS = 24,
    WEAR_MAX_LINES = WEAR_LINES_PER_DIMM * WEAR_MAX_DIMMS,
};

/* On whose account a write goes. */
enum wear_cause {
    WEAR_DATA,     /* entries: of workers, of the landing zone, fetched ones */
    WEAR_CLEANING, /* copies of live entries, and zeros over what they left */
    WEAR_TABLES,   /* everything else: superblock, meta words, configuration, checkpoints */
    WEAR_CAUSES,
};

struct wear_count {
    uint64_t request_bytes; /* whole requests */
    uint64_t media_bytes;   /* whole lines, of those that have left the buffer */
};

struct wear {
    struct random random;
    uint32_t open, limit;
    uint64_t lines[WEAR_MAX_LINES];  /* numbers of the open ones */
    uint8_t sectors[WEAR_MAX_LINES]; /* a bit for each that is written */
    uint8_t causes[WEAR_MAX_LINES];  /* of the last write */
    struct wear_count counts[WEAR_CAUSES];
};

/* `dimms`: 1 to WEAR_MAX_DIMMS. */
void wear_init(struct wear *wear, uint32_t dimms, uint64_t seed);

/* wear_write: `count` requests, one after the other, from request `first` on (byte offset / WEAR_REQUEST_BYTES). */
void wear_write(struct wear *wear, uint64_t first, uint64_t count, enum wear_cause cause);

/* Of all causes. */
struct wear_count wear_total(const struct wear *wear);

/* wear_ratio: media bytes for each request byte; 0: nothing was asked. */
double wear_ratio(uint64_t request_bytes, uint64_t media_bytes);

/* wear_years: how long `dimms` DIMMs last if each may take `endurance_pbw` (10^15 bytes) to its media and all together
 * write `media_bytes` in `seconds`; 0: nothing was written. Rated for 256-byte writes, where requests and media are the
 * same (Intel, product brief of Optane DC persistent memory: 292, 363 and 300 PBW for 128, 256 and 512 GB). */
double wear_years(uint64_t media_bytes, double seconds, uint32_t dimms, double endurance_pbw);

#endif
