/* Reads and writes the file of acknowledged writes: a header, then records. A last record that is not
 * whole, because the process was killed, is ignored. */
#include "tools/rowan-ycsb/acked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/error.h"

enum { ACKED_LAYOUT = 1 };

static const char magic[8] = {'R', 'O', 'W', 'A', 'N', 'A', 'C', 'K'};

struct acked_header {
    char magic[8];
    uint32_t layout;
    uint32_t zero;
    char profile[WORKLOAD_NAME_BYTES];
};

_Static_assert(sizeof(struct acked_header) == 48, "file format");
_Static_assert(sizeof(struct acked_record) == 24, "file format");

static int read_header(int fd, struct acked_header *header)
{
    ssize_t got = pread(fd, header, sizeof *header, 0);

    if (got < 0)
        return error_from_errno(errno);
    if (got != (ssize_t)sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0 ||
        header->layout != ACKED_LAYOUT || !memchr(header->profile, 0, sizeof header->profile))
        return ROWAN_EFORMAT;
    return 0;
}

static int write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_from_errno(errno);
        at += written;
        bytes -= (size_t)written;
    }
    return 0;
}

/* Writes the header of an empty file; else checks it, and removes a last record that is not whole. */
static int prepare_file(int fd, const char *profile)
{
    struct acked_header header = {.layout = ACKED_LAYOUT};
    struct stat status;

    if (fstat(fd, &status) != 0)
        return error_from_errno(errno);
    if (status.st_size == 0) {
        memcpy(header.magic, magic, sizeof magic);
        snprintf(header.profile, sizeof header.profile, "%s", profile);
        return write_all(fd, &header, sizeof header);
    }
    int error = read_header(fd, &header);

    if (error)
        return error;
    if (strcmp(header.profile, profile) != 0)
        return ROWAN_EINVALID;
    off_t cut = (status.st_size - (off_t)sizeof header) % (off_t)sizeof(struct acked_record);

    return ftruncate(fd, status.st_size - cut) == 0 ? 0 : error_from_errno(errno);
}

int acked_open(const char *path, const char *profile, int *out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int error = fd < 0 ? error_from_errno(errno) : prepare_file(fd, profile);

    if (!error)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return error;
}

int acked_append(int fd, const struct acked_record *records, uint32_t count)
{
    return write_all(fd, records, count * sizeof *records);
}

/* --- load --- */

static int grow(struct acked_table *table, uint64_t record)
{
    if (record < table->count)
        return 0;
    if (record >= WORKLOAD_MAX_RECORDS)
        return ROWAN_EFORMAT;
    uint64_t count = table->count ? table->count : 1024;

    while (count <= record)
        count *= 2;
    struct acked_last *last = realloc(table->last, count * sizeof *last);
    if (!last)
        return ROWAN_ENOMEM;
    memset(last + table->count, 0, (count - table->count) * sizeof *last);
    table->last = last;
    table->count = count;
    return 0;
}

static int apply_record(struct acked_table *table, const struct acked_record *one)
{
    int error = grow(table, one->record);
    if (error)
        return error;
    struct acked_last *last = &table->last[one->record];
    table->writes++;
    table->records += last->version == 0;
    if (one->version > last->version)
        *last = (struct acked_last){.version = one->version, .seed = one->seed};
    return 0;
}

int acked_load(const char *path, struct acked_table *out)
{
    struct acked_table table = {0};
    struct acked_header header;
    struct acked_record record;
    FILE *file = fopen(path, "rbe");

    if (!file)
        return errno == ENOENT ? ROWAN_ENOTFOUND : error_from_errno(errno);
    int error = read_header(fileno(file), &header);

    if (!error && fseek(file, sizeof header, SEEK_SET) != 0)
        error = ROWAN_EIO;
    while (!error && fread(&record, sizeof record, 1, file) == 1)
        error = apply_record(&table, &record);
    if (!error && ferror(file))
        error = ROWAN_EIO;
    fclose(file);
    if (error) {
        acked_free(&table);
        return error;
    }
    memcpy(table.profile, header.profile, sizeof table.profile);
    *out = table;
    return 0;
}

void acked_free(struct acked_table *table)
{
    free(table->last);
    *table = (struct acked_table){0};
}
