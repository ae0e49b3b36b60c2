/* clock.c - the host's clock: CLOCK_BOOTTIME, because a lease runs on while the host is suspended;
 * and the number of its boot. */
#include "common/base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

static uint64_t system_now_ns(struct clock *clock)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_BOOTTIME, &now);

    (void)clock;
    ASSERT(failed == 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

struct clock *clock_system(void)
{
    static struct clock system = {.now_ns = system_now_ns};

    return &system;
}

static unsigned digit_value(char digit)
{
    if (digit <= '9')
        return (unsigned)(digit - '0');
    return (unsigned)(tolower((unsigned char)digit) - 'a' + 10);
}

/* RFC 9562, section 4: 8-4-4-4-12 hexadecimal digits. */
int clock_boot_id_decode(const char *text, uint8_t out[16])
{
    static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    uint8_t id[16] = {0};
    unsigned digits = 0;

    for (unsigned i = 0; i < sizeof shape - 1; i++) {
        if (shape[i] == '-' ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return ROWAN_EIO;
        if (shape[i] == '-')
            continue;
        id[digits / 2] = (uint8_t)((unsigned)id[digits / 2] << 4 | digit_value(text[i]));
        digits++;
    }
    text += sizeof shape - 1;
    if (strcmp(text, "") != 0 && strcmp(text, "\n") != 0)
        return ROWAN_EIO;
    memcpy(out, id, sizeof id);
    return 0;
}

int clock_boot_id(uint8_t out[16])
{
    char text[64] = "";
    FILE *file = fopen(BOOT_ID_PATH, "re");
    int error = ROWAN_EIO;

    if (file && fgets(text, sizeof text, file))
        error = clock_boot_id_decode(text, out);
    if (error)
        log_event(LOG_WARN, "boot_id_unknown", "path=%s text=\"%s\" reason=\"%s\"", BOOT_ID_PATH,
                  text, file ? "no boot id in it" : strerror(errno));
    if (file)
        fclose(file);
    return error;
}
