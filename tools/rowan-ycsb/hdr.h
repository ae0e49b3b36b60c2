/* hdr.h - latencies in the log format of HdrHistogram (version 1.3, histograms in encoding V2), for its
 * tools. Source: HdrHistogram's HistogramLogWriter and AbstractHistogram.encodeIntoByteBuffer.
 *
 * Histograms there have 2 significant digits: 128 buckets for each power of two. Two of them make one of
 * ours (common/base/histogram.h); a count goes to the upper, so that quantiles are the same as ours. */
#ifndef YCSB_HDR_H
#define YCSB_HDR_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/histogram.h"

enum {
    HDR_SUB_BITS = 7,
    HDR_COUNTS = (64 - HDR_SUB_BITS + 1) << HDR_SUB_BITS,
    HDR_HEADER_BYTES = 40,
    HDR_ENCODED_BYTES = HDR_HEADER_BYTES + 9 * HDR_COUNTS, /* at most */
};

/* The V2 encoding before compression into HDR_ENCODED_BYTES at `out`. Returns its bytes. */
size_t hdr_encode(const struct histogram *histogram, uint8_t *out);

struct hdr_log;

/* hdr_log_open: a new file, or the old one made empty. Errors: ROWAN_ENOMEM, or what the system said. */
int hdr_log_open(const char *path, struct hdr_log **out);

/* The lines in front: the log starts at `epoch_ms`, milliseconds since 1970. */
void hdr_log_start(struct hdr_log *log, uint64_t epoch_ms);

/* One line, unless the histogram is empty: what ended between `from_ns` and `to_ns`, counted from the
 * start. */
void hdr_log_interval(struct hdr_log *log, const char *tag, uint64_t from_ns, uint64_t to_ns,
                      const struct histogram *histogram);

/* Errors: ROWAN_EIO, when a line before was not written either. NULL: nothing. */
int hdr_log_close(struct hdr_log *log);

#endif
