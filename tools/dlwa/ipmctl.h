/* ipmctl.h - reads what `ipmctl show -performance` prints, as text or as nvmxml (-o nvmxml), of any length, from anybody.
 *
 *   ---DimmID=0x0011---                                     <DimmPerformanceList>
 *      MediaReads=0x00000000000000000000001580458028          <DimmPerformance>
 *      MediaWrites=0x0000000000000000000000115d003898           <DimmID>0x0011</DimmID>
 *      ...                                                      <MediaReads>0x0000...</MediaReads>
 *
 * Counters have 128 bits in 32 hexadecimal digits. Media writes count 64 B each, though the media is written 256 B at a
 * time; requests are DDRT transactions of 64 B. Those without "Total" count since power came (AC cycle), the others since the
 * module was made. (ipmctl's manual, ipmctl-show-performance(1); its source, src/cli/ShowPerformanceCommand.c, and
 * Printer.c for nvmxml.)
 *
 * What is not known and has the form of a counter is skipped: another version may have more. All else is refused.
 */
#ifndef DLWA_IPMCTL_H
#define DLWA_IPMCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IPMCTL_MAX_DIMMS = 96,
    IPMCTL_ID_BYTES = 32,
    IPMCTL_UNIT_BYTES = 64,
    IPMCTL_WHY_BYTES = 200
};

enum ipmctl_counter {
    IPMCTL_MEDIA_WRITES,
    IPMCTL_WRITE_REQUESTS,
    IPMCTL_TOTAL_MEDIA_WRITES,
    IPMCTL_TOTAL_WRITE_REQUESTS,
    IPMCTL_COUNTERS,
};

struct ipmctl_dimm {
    char id[IPMCTL_ID_BYTES];
    unsigned found; /* a bit for each counter */
    uint64_t counters[IPMCTL_COUNTERS];
};

struct ipmctl_reading {
    uint32_t count; /* 1 or more */
    struct ipmctl_dimm dimms[IPMCTL_MAX_DIMMS];
};

/* ipmctl_parse: false: `why` is a sentence's end ("line 3: ..."), and `out` is of no use. */
bool ipmctl_parse(const char *text, size_t bytes, struct ipmctl_reading *out,
                  char why[IPMCTL_WHY_BYTES]);

#endif
