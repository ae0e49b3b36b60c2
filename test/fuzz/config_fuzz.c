/* config_fuzz.c - any bytes as an INI file: either settings within their ranges, or a sentence. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/config.h"
#include "common/base/error.h"

struct settings {
    const char *cm;
    uint64_t workers;
    bool json;
    uint64_t durability;
};

static const struct config_key keys[] = {
    {"cm", CONFIG_STRING, offsetof(struct settings, cm), "", 0, 0, NULL, "address"},
    {"workers", CONFIG_U64, offsetof(struct settings, workers), "2", 1, 64, NULL, "workers"},
    {"json", CONFIG_BOOL, offsetof(struct settings, json), "no", 0, 0, NULL, "JSON"},
    {"durability", CONFIG_CHOICE, offsetof(struct settings, durability), "async", 0, 0,
     "fence|async|none", "durability"},
};

static const struct config_spec spec = {
    .program = "p",
    .summary = "s",
    .keys = keys,
    .key_count = sizeof(keys) / sizeof(keys[0]),
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct settings settings;
    struct config_rest rest;
    char name[64], why[200] = "";
    char *argv[] = {"p", "--config", name, NULL};
    const int fd = memfd_create("ini", MFD_CLOEXEC);
    int error;

    ASSERT(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    error = config_parse_why(&spec, 3, argv, &settings, &rest, why, sizeof(why));
    close(fd);
    if (error != 0) {
        ASSERT(error == ROWAN_ECONFIG);
        ASSERT(why[0] != '\0' && memchr(why, '\0', sizeof(why)) != NULL);
        return 0;
    }
    ASSERT(settings.cm != NULL && strlen(settings.cm) < 200);
    ASSERT(settings.workers >= 1 && settings.workers <= 64);
    ASSERT(settings.durability <= 2);
    config_free(&rest);
    return 0;
}
