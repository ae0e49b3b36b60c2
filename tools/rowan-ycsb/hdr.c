/* Encodes histograms, and writes the lines of the log: tag, start, length, maximum, and the histogram
 * compressed by zlib, in base64. Numbers are big-endian. */
#include "tools/rowan-ycsb/hdr.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/error.h"
#include "release.h"

enum {
    COOKIE = 0x1c849313,
    COMPRESSED_COOKIE = 0x1c849314,
    DIGITS = 2,
    PREFIX_BYTES = 8, /* in front of what is compressed */
};

#define LEAST_HIGHEST ((UINT64_C(1) << 44) - 1) /* five hours: readers make room for so much */

enum {
    /* zlib.h leaves the bound to compressBound(), which is not a constant; zlib's is lower than this. */
    COMPRESSED_BYTES = PREFIX_BYTES + HDR_ENCODED_BYTES + HDR_ENCODED_BYTES / 1000 + 64,
};

struct hdr_log {
    FILE *file;
    bool failed; /* to compress */
    uint8_t encoded[HDR_ENCODED_BYTES];
    uint8_t compressed[COMPRESSED_BYTES];
    uint8_t text[COMPRESSED_BYTES / 3 * 4 + 5];
};

static uint8_t *put_number(uint8_t *out, unsigned bytes, uint64_t value)
{
    while (bytes-- > 0)
        *out++ = (uint8_t)(value >> 8 * bytes);
    return out;
}

/* ZigZag, then LEB128 whose ninth byte has eight bits. */
static uint8_t *put_zigzag(uint8_t *out, int64_t value)
{
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int bytes = 1;

    for (; rest >= 0x80 && bytes < 9; bytes++, rest >>= 7)
        *out++ = (uint8_t)(rest | 0x80);
    *out++ = (uint8_t)rest;
    return out;
}

static unsigned index_of(uint64_t value)
{
    if (value < 1 << HDR_SUB_BITS)
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HDR_SUB_BITS;

    return (shift << HDR_SUB_BITS) + (unsigned)(value >> shift);
}

/* Zeros in a row are their negative number. */
static uint8_t *put_counts(uint8_t *out, const struct histogram *histogram)
{
    unsigned next = 0; /* index that is not written yet */

    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        if (histogram->buckets[bucket] == 0)
            continue;
        uint64_t last = histogram_bucket_last(bucket);
        unsigned index = index_of(last < histogram->max ? last : histogram->max);

        if (index > next)
            out = put_zigzag(out, -(int64_t)(index - next));
        out = put_zigzag(out, (int64_t)histogram->buckets[bucket]);
        next = index + 1;
    }
    return out;
}

size_t hdr_encode(const struct histogram *histogram, uint8_t *out)
{
    uint8_t *counts = out + HDR_HEADER_BYTES, *end = put_counts(counts, histogram), *at = out;
    const double ratio = 1;
    uint64_t ratio_bits;

    memcpy(&ratio_bits, &ratio, sizeof ratio_bits);
    at = put_number(at, 4, COOKIE);
    at = put_number(at, 4, (uint64_t)(end - counts));
    at = put_number(at, 4, 0); /* normalizing index offset */
    at = put_number(at, 4, DIGITS);
    at = put_number(at, 8, 1); /* lowest discernible value */
    at = put_number(at, 8, histogram->max > LEAST_HIGHEST ? histogram->max : LEAST_HIGHEST);
    put_number(at, 8, ratio_bits);
    return (size_t)(end - out);
}

/* --- the log --- */

int hdr_log_open(const char *path, struct hdr_log **out)
{
    struct hdr_log *log = malloc(sizeof *log);

    if (!log)
        return ROWAN_ENOMEM;
    log->failed = false;
    log->file = fopen(path, "we");
    if (!log->file) {
        int error = error_from_errno(errno);

        free(log);
        return error;
    }
    *out = log;
    return 0;
}

void hdr_log_start(struct hdr_log *log, uint64_t epoch_ms)
{
    fprintf(log->file,
            "#[Logged with rowan-ycsb %s; nanoseconds]\n#[Histogram log format version 1.3]\n"
            "#[StartTime: %llu.%03llu (seconds since epoch)]\n"
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_"
            "Histogram\"\n",
            ROWAN_RELEASE, (unsigned long long)epoch_ms / 1000,
            (unsigned long long)epoch_ms % 1000);
}

void hdr_log_interval(struct hdr_log *log, const char *tag, uint64_t from_ns, uint64_t to_ns,
                      const struct histogram *histogram)
{
    uLongf bytes = COMPRESSED_BYTES - PREFIX_BYTES;

    if (histogram->count == 0)
        return;
    int error = compress(log->compressed + PREFIX_BYTES, &bytes, log->encoded,
                         hdr_encode(histogram, log->encoded));

    log->failed |= error != Z_OK;
    put_number(put_number(log->compressed, 4, COMPRESSED_COOKIE), 4, bytes);
    EVP_EncodeBlock(log->text, log->compressed, (int)(PREFIX_BYTES + bytes));
    fprintf(log->file, "Tag=%s,%.3f,%.3f,%.3f,%s\n", tag, (double)from_ns / 1e9,
            (double)(to_ns - from_ns) / 1e9, (double)histogram->max / 1e6, log->text);
    fflush(log->file);
}

int hdr_log_close(struct hdr_log *log)
{
    if (!log)
        return 0;
    bool failed = log->failed || ferror(log->file) != 0;

    failed |= fclose(log->file) != 0;
    free(log);
    return failed ? ROWAN_EIO : 0;
}
