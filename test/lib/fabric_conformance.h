/* fabric_conformance.h - what every fabric backend must do, as tests. A backend's own test gives
 * the few functions of struct fabric_backend and runs them all.
 *
 * Both ends live in one thread: the cases poll them in turn. Each case names the rule (F1 to F12,
 * see fabric.h) it stands for.
 */
#ifndef TEST_FABRIC_CONFORMANCE_H
#define TEST_FABRIC_CONFORMANCE_H

#include "test/lib/fabric_world.h"

/* Runs all cases as one cmocka group; how many failed. */
int fabric_conformance_run(const char *group, const struct fabric_backend *backend);

/* For the files of cases: three sides, new for each case. */
enum { CONFORMANCE_PM_BYTES = 32 << 20 };
struct unit_case; /* unit.h */
extern struct world world;
int open_three(void **state);
int close_three(void **state);
const struct unit_case *conformance_zone_cases(void);

#endif
