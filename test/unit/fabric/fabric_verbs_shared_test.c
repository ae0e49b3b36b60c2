/* fabric_verbs_shared_test.c - verbs, slots of a shared receive queue. */
#define VERBS_RECEIVE "shared"
#include "test/unit/fabric/fabric_verbs_test.c"
