/* fabric_verbs_test.c - the verbs backend against the conformance cases, for one way to receive:
 *
 *   fabric_verbs_test shared|multi-packet|auto [SLOT_BYTES]
 *
 * Linked with soft_verbs it runs anywhere; without it (fabric_verbs_rxe), on the device that has the address
 * ROWAN_VERBS_HOST.
 */
#include "test/lib/asserts.h"
#include "test/lib/fabric_conformance.h"
#include "test/unit/fabric/fabric_host.h"
#ifdef VERBS_FAULTS
#include "test/lib/soft_verbs.h"
#endif

#ifndef VERBS_RECEIVE /* what is tested without an argument */
#define VERBS_RECEIVE "auto"
#endif

static const struct {
    const char *name;
    enum fabric_receive receive;
} ways[] = {
    {"auto", FABRIC_RECEIVE_AUTO},
    {"multi-packet", FABRIC_RECEIVE_MULTI_PACKET},
    {"shared", FABRIC_RECEIVE_SHARED},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : VERBS_RECEIVE;
    const unsigned long slot_bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct fabric_host host;
    char group[64];
    int failed;

    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(ways[i].name, name) != 0)
            continue;
        host_init_verbs(&host, ways[i].receive, (uint32_t)slot_bytes);
#ifdef VERBS_FAULTS
        soft_verbs_faults(&(struct soft_faults)VERBS_FAULTS);
#endif
        snprintf(group, sizeof group, "fabric_verbs_%s", name);
        failed = fabric_conformance_run(group, &host.backend);
        host_fini(&host);
        return failed;
    }
    fprintf(stderr, "fabric_verbs: \"%s\" is no way to receive\n", name);
    return 2;
}
