/* zookeeper_session.h - a session with a ZooKeeper ensemble: opened, connected, driven a step in each poll, opened anew
 * when it has expired. Internal to common/coord. */
#ifndef COORD_ZOOKEEPER_SESSION_H
#define COORD_ZOOKEEPER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

#include "common/reactor/reactor.h"

struct zookeeper_session {
    zhandle_t *handle; /* NULL: there is none now */
    bool connected;    /* requests may be handed over */
    bool closing;      /* completions that come now are of requests that are dropped */

    /* zookeeper_session.c */
    char *hosts;        /* "HOST:PORT,HOST:PORT" */
    char *login;        /* "NAME:SECRET"; NULL: none */
    char servers[1024]; /* their numbers, as the client was told last; "": none is known yet */
    uint32_t session_ms;
    uint64_t open_ns;        /* when the handle was opened; without one, when to open it */
    uint64_t begun_ns;       /* of the first poll */
    uint64_t look_ns;        /* when to look whether the servers' numbers have changed */
    uint64_t try_ns;         /* the client is not asked before */
    bool told_lost;          /* the log has said that it is not connected */
    int epoll_fd, client_fd; /* the client's socket, as last told to epoll; -1: none */
    uint32_t client_events;
};

enum zookeeper_news {
    SESSION_NO_NEWS,
    SESSION_CONNECTED, /* for the first time, or again */
    SESSION_EXPIRED, /* what was handed over and not completed is lost; there will be another session */
};

void zookeeper_session_init(struct zookeeper_session *session);

/* The first `bytes` of `hosts`. Names that cannot be looked up are waited for. Errors: ROWAN_EUNREACHABLE EIO ENOMEM. */
int zookeeper_session_open(struct zookeeper_session *session, const char *hosts, size_t bytes,
                           const char *login, uint32_t session_ms, struct reactor *reactor);

/* One step, in which completions and watchers are called. */
enum zookeeper_news zookeeper_session_poll(struct zookeeper_session *session, uint64_t now_ns,
                                           uint64_t *wake_ns);

/* Ends it, in the ensemble as well if that is reached within a moment. After zookeeper_session_init too. */
void zookeeper_session_close(struct zookeeper_session *session);

#endif
