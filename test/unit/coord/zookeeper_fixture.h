/* zookeeper_fixture.h - a ZooKeeper server for a test program, and handles on a path that is each case's own. Include
 * once. */
#ifndef COORD_ZOOKEEPER_FIXTURE_H
#define COORD_ZOOKEEPER_FIXTURE_H

#include <sys/stat.h>

#include "common/coord/coord.h"
#include "test/lib/asserts.h"
#include "test/lib/wait.h"
#include "test/lib/zookeeper_server.h"

/* The shorter one is for sessions that are to end; the other outlives each pause of a slow machine. */
enum { SHORT_SESSION_MS = 1000, SESSION_MS = 20000 };

static struct zookeeper_server server;
static unsigned path_number; /* of the present case */

/* `login`: of coord_open_zookeeper. */
static inline struct coord *open_handle_as(const char *login, uint32_t session_ms)
{
    char ensemble[128];
    struct coord *coord;
    snprintf(ensemble, sizeof ensemble, "127.0.0.1:%u/a/case/%u", server.port, path_number);
    assert_int_equal(coord_open_zookeeper(ensemble, login, session_ms, NULL, &coord), 0);
    return coord;
}

static inline struct coord *open_handle(uint32_t session_ms)
{
    return open_handle_as(NULL, session_ms);
}

/* False: the program's output says that it is skipped. */
static inline bool start_server(void)
{
    const char *missing = zookeeper_server_missing();
    if (missing) {
        printf("1..0 # SKIP %s\n", missing);
        return false;
    }
    zookeeper_server_init(&server);
    zookeeper_server_start(&server);
    return true;
}

#endif
