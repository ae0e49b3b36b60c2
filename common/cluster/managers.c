/* managers.c - see managers.h. */
#include "common/cluster/managers.h"

#include <stdio.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/error.h"

_Static_assert(MANAGERS_MAX == 8 && CLUSTER_MAX_ADDRESS_BYTES == 255, "the sentences say so");

static int mistake(int error, const char *sentence, const char **why)
{
    if (why)
        *why = sentence;
    return error;
}

static int check_address(const char *list, const char *address, size_t bytes, const char **why)
{
    const size_t scheme_bytes = strcspn(address, ":");
    if (bytes == 0)
        return mistake(ROWAN_EADDRESS, "an address is missing in front of a comma or at the end",
                       why);
    if (scheme_bytes == 0 || scheme_bytes >= bytes)
        return mistake(ROWAN_EADDRESS, error_sentence(ROWAN_EADDRESS), why);
    if (bytes > CLUSTER_MAX_ADDRESS_BYTES)
        return mistake(ROWAN_EINVALID, "an address has more than 255 bytes", why);
    if (strncmp(list, address, scheme_bytes + 1) != 0)
        return mistake(ROWAN_EINVALID, "all addresses must be of one fabric", why);
    char one[CLUSTER_MAX_ADDRESS_BYTES + 1];
    snprintf(one, sizeof one, "%.*s", (int)bytes, address);
    const char *wrong = address_wrong(one);
    return wrong ? mistake(ROWAN_EADDRESS, wrong, why) : 0;
}

int managers_parse(const char *list, struct managers *out, const char **why)
{
    struct managers found = {0};
    for (const char *at = list;; at++) {
        const size_t bytes = strcspn(at, ",");
        if (found.count == MANAGERS_MAX)
            return mistake(ROWAN_ETOOMANY, "these are more than 8 addresses", why);
        int error = check_address(list, at, bytes, why);
        if (error)
            return error;
        memcpy(found.addresses[found.count++], at, bytes);
        at += bytes;
        if (*at == '\0')
            break;
    }
    *out = found;
    return 0;
}

void managers_replace(struct managers *managers, const struct managers *by)
{
    struct managers next = *by;
    for (uint32_t i = 0; i < next.count; i++) {
        if (strcmp(next.addresses[i], managers_address(managers)) == 0)
            next.current = i;
    }
    *managers = next;
}

const char *managers_address(const struct managers *managers)
{
    return managers->addresses[managers->current];
}

bool managers_passes_over(const struct managers *managers, uint64_t now_ns)
{
    return now_ns < managers->passed_ns && managers->count > 1;
}

void managers_pass_over(struct managers *managers, uint64_t until_ns)
{
    managers->passed = managers->current;
    managers->passed_ns = until_ns;
}

bool managers_next(struct managers *managers, uint64_t now_ns)
{
    bool at_once = true;
    do {
        managers->current = (managers->current + 1) % managers->count;
        managers->tried = (managers->tried + 1) % managers->count;
        managers->rounds += managers->tried == 0;
        at_once = at_once && managers->tried != 0;
    } while (managers->current == managers->passed && managers_passes_over(managers, now_ns));
    return at_once;
}

void managers_found(struct managers *managers)
{
    managers->tried = managers->rounds = 0;
    managers->passed_ns = 0;
}
