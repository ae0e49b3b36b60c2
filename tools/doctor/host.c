/* host.c - reads facts of the host below a root. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"

bool host_is_real(const struct doctor *doctor)
{
    return *doctor->root == '\0';
}

const char *host_path(const struct doctor *doctor, const char *path, ...)
{
    static char full[PATH_MAX];
    const int length = snprintf(full, sizeof full, "%s", doctor->root);
    va_list args;
    if (length >= PATH_MAX)
        return "";
    va_start(args, path);
    const int more = vsnprintf(full + length, (size_t)(PATH_MAX - length), path, args);
    va_end(args);
    return more < PATH_MAX - length ? full : "";
}

bool host_read(const char *path, char *out, size_t out_bytes)
{
    return host_line(path, "", out, out_bytes);
}

bool host_line(const char *path, const char *prefix, char *out, size_t out_bytes)
{
    FILE *file = fopen(path, "re");
    char line[8192];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, prefix, strlen(prefix)) == 0;
    if (file)
        fclose(file);
    if (found)
        snprintf(out, out_bytes, "%.*s", (int)strcspn(line, "\n"), line);
    return found;
}

bool host_number(const char *path, int64_t *out)
{
    char line[64], *end;
    if (!host_read(path, line, sizeof line))
        return false;
    errno = 0;
    const long long number = strtoll(line, &end, 0);
    if (end == line || errno)
        return false;
    *out = number;
    return true;
}

void host_list(const char *folder, const char *prefix, struct host_names *out)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, versionsort);
    out->count = 0;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (*name != '.' && strncmp(name, prefix, strlen(prefix)) == 0 && out->count < MAX_NAMES)
            strcpy(out->names[out->count++], name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

bool host_find(const struct doctor *doctor, const char *folder, const char *prefix,
               const char *file, const char *line, char out[NAME_MAX + 1])
{
    struct host_names names;
    char found[128];
    host_list(host_path(doctor, "%s", folder), prefix, &names);
    for (uint32_t i = 0; i < names.count; i++) {
        if (host_read(host_path(doctor, "%s/%s/%s", folder, names.names[i], file), found,
                      sizeof found) &&
            strcmp(found, line) == 0) {
            strcpy(out, names.names[i]);
            return true;
        }
    }
    return false;
}

bool host_resolve(const struct doctor *doctor, const char *path, char out[PATH_MAX])
{
    char root[PATH_MAX] = "", found[PATH_MAX];
    if (!realpath(path, found) || (!host_is_real(doctor) && !realpath(doctor->root, root)))
        return false;
    const size_t length = strlen(root);
    if (strncmp(found, root, length) != 0)
        return false; /* a link that leads out */
    memmove(out, found + length, strlen(found + length) + 1);
    return true;
}

bool host_has_word(const char *text, const char *word)
{
    for (text += strspn(text, " ,"); *text; text += strspn(text, " ,")) {
        const size_t length = strcspn(text, " ,");
        if (strlen(word) == length && strncmp(text, word, length) == 0)
            return true;
        text += length;
    }
    return false;
}
