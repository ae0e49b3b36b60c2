#include "common/base/address.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"

unsigned address_split(const char *text, char host[ADDRESS_HOST_BYTES], bool *bracketed)
{
    char digits[6];
    int bytes = 0;

    *bracketed = *text == '[';
    if (sscanf(text, *bracketed ? "[%253[^]]]:%5[0-9]%n" : "%253[^:]:%5[0-9]%n", host, digits,
               &bytes) != 2 ||
        text[bytes] != '\0')
        return 0;
    const unsigned long port = strtoul(digits, NULL, 10);
    return port <= UINT16_MAX ? (unsigned)port : 0;
}

/* What has a letter is a name; of numbers four make an IPv4 address, which the C library would read more of. */
static bool is_host(const char *host, bool bracketed)
{
    const char *const others = bracketed ? ":." : "-_.";
    unsigned part[4];
    bool named = bracketed && strchr(host, ':');
    int bytes = 0;

    if (!bracketed &&
        sscanf(host, "%3u.%3u.%3u.%3u%n", &part[0], &part[1], &part[2], &part[3], &bytes) == 4 &&
        host[bytes] == '\0')
        return part[0] <= 255 && part[1] <= 255 && part[2] <= 255 && part[3] <= 255;
    for (; *host; host++) {
        const unsigned char c = (unsigned char)*host;
        if (!(bracketed ? isxdigit(c) : isalnum(c)) && !strchr(others, c))
            return false;
        named |= !bracketed && isalpha(c);
    }
    return named;
}

const char *address_wrong(const char *address)
{
    const char *rest = strchr(address, ':');
    char host[ADDRESS_HOST_BYTES];
    bool bracketed;

    if (!rest || rest == address)
        return error_sentence(ROWAN_EADDRESS);
    if (strncmp(address, "shm:", 4) == 0)
        return rest[1] == '/' ? NULL : "behind shm: stands /DIRECTORY/NAME";
    if (strncmp(address, "tcp:", 4) != 0 && strncmp(address, "verbs:", 6) != 0)
        return NULL;
    if (address_split(rest + 1, host, &bracketed) == 0)
        return "behind its fabric stands HOST:PORT, with a port of 1 to 65535 and an IPv6 address "
               "in [ ]";
    return is_host(host, bracketed) ? NULL
                                    : "its host is neither a name nor an IPv4 or [IPv6] address";
}

bool address_is_local(const char *address)
{
    const char *rest = strchr(address, ':');
    char host[ADDRESS_HOST_BYTES];
    bool bracketed;

    if (strncmp(address, "shm:", 4) == 0)
        return true;
    if (!rest || address_split(rest + 1, host, &bracketed) == 0)
        return false;
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

const char *address_why(int error)
{
    if (error == ROWAN_EUNREACHABLE)
        return "its host name cannot be looked up: see DNS and /etc/hosts";
    if (error == ROWAN_EINVALID)
        return "it is none that others reach this host at (`ip address` lists those), or its ports "
               "go beyond 65535; the log "
               "above says which";
    return error_sentence(error);
}
