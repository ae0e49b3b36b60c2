/* version.h - the formats that programs exchange or leave behind, each with the lowest and the highest
 * number that this version reads. It writes the highest that both sides understand.
 *
 * `highest` rises with each change that an older version cannot read, `lowest` when this version stops
 * reading what older ones wrote.
 */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

/* X(name, what --version calls it, lowest, highest) */
#define VERSION_TABLE(X)                                                                           \
    X(MESSAGES, "messages", MESSAGE_LAYOUT_LOWEST, MESSAGE_LAYOUT)                                 \
    X(CONFIGURATION, "configuration", 1, 5)                                                        \
    X(COORDINATION, "coordination file", 1, 1)                                                     \
    X(PM, "PM", 8, 8)                                                                              \
    X(SHM, "shm", 5, 7)                                                                            \
    X(TCP, "tcp", 2, 3)                                                                            \
    X(VERBS, "verbs", 3, 3)

#define VERSION_ENUMERATORS(name, text, lowest, highest)                                           \
    VERSION_##name##_LOWEST = (lowest), VERSION_##name##_HIGHEST = (highest),
enum { VERSION_TABLE(VERSION_ENUMERATORS) };
#undef VERSION_ENUMERATORS

/* The first that knows a tap of the PM; that rings over the socket. */
enum { VERSION_SHM_TAP = 6, VERSION_SHM_RING = 7 };

/* The first whose proofs name both ends of a connection. */
enum { VERSION_TCP_ENDS = 3 };

/* The first that know leases; users; a shard of whose full replicas some are kept, and others run; keys apart from the secret. */
enum {
    VERSION_CONFIGURATION_LEASES = 2,
    VERSION_CONFIGURATION_USERS = 3,
    VERSION_CONFIGURATION_MIXED = 4,
    VERSION_CONFIGURATION_KEYS = 5,
};

#define VERSION_RANGE(name)                                                                        \
    ((struct version_range){VERSION_##name##_LOWEST, VERSION_##name##_HIGHEST})

struct version_range {
    uint16_t lowest, highest;
};

/* The highest number in both ranges; 0: there is none. */
uint16_t version_common(struct version_range a, struct version_range b);

/* "2" or "2 to 4". Returns `out`. */
const char *version_text(struct version_range range, char *out, size_t out_bytes);

/* What --version prints: the program, its release, and the formats it reads. */
void version_print(const char *program, const char *release);

#endif
