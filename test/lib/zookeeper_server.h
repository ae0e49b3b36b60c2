/* zookeeper_server.h - a real ZooKeeper server for a test, from Debian's packages (tools/install-deps zookeeper). It
 * ends with the test. */
#ifndef TEST_ZOOKEEPER_SERVER_H
#define TEST_ZOOKEEPER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "test/lib/temp_dir.h"

struct zookeeper_server {
    struct temp_dir dir;
    unsigned port; /* of 127.0.0.1 */
    pid_t pid;     /* 0: it does not run */
};

/* NULL, or what is missing. */
const char *zookeeper_server_missing(void);

/* zookeeper_server_init: a directory and a port. zookeeper_server_start: on what the directory holds; it listens then.
 * A tick is 200 ms, so sessions last 400 ms at least. */
void zookeeper_server_init(struct zookeeper_server *server);
void zookeeper_server_start(struct zookeeper_server *server);

/* SIGKILL; what it has acknowledged stays. */
void zookeeper_server_kill(struct zookeeper_server *server);

/* Removes a node, as an operator would. */
void zookeeper_server_delete(const struct zookeeper_server *server, const char *path);

/* A node's access list, as an operator sees it: "'digest,'NAME:HASH : cdrwa", "'world,'anyone : cdrwa". `login`: of
 * coord_open_zookeeper. */
void zookeeper_server_acl(const struct zookeeper_server *server, const char *login,
                          const char *path, char *out, size_t out_bytes);

void zookeeper_server_fini(struct zookeeper_server *server);

#endif
