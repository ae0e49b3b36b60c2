/* host.c - reads facts of the host below a root. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

bool host_is_real(const struct doctor *doctor)
{
    return *doctor->root == '\0';
}

static bool path_of(const struct doctor *doctor, char out[PATH_MAX], const char *path, va_list args)
{
    const int length = snprintf(out, PATH_MAX, "%s", doctor->root);

    if (length < 0 || length >= PATH_MAX)
        return false;
    const int more = vsnprintf(out + length, (size_t)(PATH_MAX - length), path, args);

    return more >= 0 && more < PATH_MAX - length;
}

static bool read_line(const char *path, char *out, size_t out_bytes)
{
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    const bool done = fgets(out, (int)out_bytes, file) != NULL;

    fclose(file);
    if (done)
        out[strcspn(out, "\n")] = '\0';
    return done;
}

bool host_read(const struct doctor *doctor, char *out, size_t out_bytes, const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    const bool fits = path_of(doctor, full, path, args);

    va_end(args);
    return fits && read_line(full, out, out_bytes);
}

bool host_number(const struct doctor *doctor, int64_t *out, const char *path, ...)
{
    char full[PATH_MAX], line[64], *end;
    va_list args;

    va_start(args, path);
    const bool fits = path_of(doctor, full, path, args);

    va_end(args);
    if (!fits || !read_line(full, line, sizeof line))
        return false;
    errno = 0;
    const long long number = strtoll(line, &end, 0);

    if (end == line || errno)
        return false;
    *out = number;
    return true;
}

FILE *host_open(const struct doctor *doctor, const char *path)
{
    char full[PATH_MAX];
    const int length = snprintf(full, sizeof full, "%s%s", doctor->root, path);

    return length > 0 && length < PATH_MAX ? fopen(full, "re") : NULL;
}

void host_list(const struct doctor *doctor, const char *folder, const char *prefix,
               struct host_names *out)
{
    char full[PATH_MAX];
    struct dirent **entries;

    out->count = 0;
    if (snprintf(full, sizeof full, "%s%s", doctor->root, folder) >= PATH_MAX)
        return;
    const int count = scandir(full, &entries, NULL, versionsort);

    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;

        if (*name != '.' && strncmp(name, prefix, strlen(prefix)) == 0 && out->count < MAX_NAMES)
            strcpy(out->names[out->count++], name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

int host_access(const struct doctor *doctor, int mode, const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    const bool fits = path_of(doctor, full, path, args);

    va_end(args);
    if (!fits)
        return ENAMETOOLONG;
    return access(full, mode) ? errno : 0;
}

bool host_resolve(const struct doctor *doctor, char out[PATH_MAX], const char *path, ...)
{
    char full[PATH_MAX], root[PATH_MAX], found[PATH_MAX];
    va_list args;

    va_start(args, path);
    const bool fits = path_of(doctor, full, path, args);

    va_end(args);
    if (!fits || !realpath(full, found))
        return false;
    root[0] = '\0';
    if (!host_is_real(doctor) && !realpath(doctor->root, root))
        return false;
    const size_t length = strlen(root);

    if (strncmp(found, root, length) != 0)
        return false; /* a link that leads out */
    memmove(out, found + length, strlen(found + length) + 1);
    return true;
}
