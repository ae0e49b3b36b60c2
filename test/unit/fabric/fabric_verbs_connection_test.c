/* fabric_verbs_connection_test.c - verbs, slots of each connection's own queue. */
#define VERBS_RECEIVE "connection"
#include "test/unit/fabric/fabric_verbs_test.c"
