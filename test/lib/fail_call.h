/* fail_call.h - a sweep that fails the 1st, 2nd, 3rd ... call to the allocator or the system in turn. A test that has
 * dep_fail_call in unit_deps makes all its calls through this, its own and its libraries'.
 */
#ifndef TEST_LIB_FAIL_CALL_H
#define TEST_LIB_FAIL_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* The nth call from now on fails, in whichever thread. */
void fail_call(uint32_t nth);

/* Before each call `called` is called, too; NULL: no more. What it calls itself is not followed. */
void fail_watch(void (*called)(void));

/* No call fails any more. Whether one did since fail_call: if not, the sweep is over. */
bool fail_stop(void);

#endif
