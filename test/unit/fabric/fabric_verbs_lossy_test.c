/* fabric_verbs_lossy_test.c - verbs, slots of a shared receive queue; datagrams are lost, doubled and late,
 * and receivers stand still now and then. */
#define VERBS_RECEIVE "shared"
#define VERBS_FAULTS                                                                               \
    {                                                                                              \
        .drop = 10, .duplicate = 10, .reorder = 50, .delay_polls = 4, .rc_delay_polls = 8,         \
        .receive_pause = 5                                                                         \
    }
#include "test/unit/fabric/fabric_verbs_test.c"
