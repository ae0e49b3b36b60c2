/* zookeeper_session.c - the single-threaded form of Apache ZooKeeper's C client, driven from a poll: no thread, and
 * nothing blocks but its end. Host names are looked up elsewhere (reactor/names.h): the client is given numbers, those of the names
 * that are known, and others when these change while it is not connected.
 *
 * The client's socket lies in an epoll of our own, whose fd the reactor sleeps on: the socket changes with each
 * connection, the fd does not.
 */
#include "common/coord/zookeeper_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/address.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/reactor/names.h"

#define OPEN_AGAIN_NS NS_PER_S
#define TRY_NS        (50 * NS_PER_MS) /* from one server that is not reached to the next, at most */

static void session_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)type;
    (void)state; /* zoo_state is asked in each poll */
    (void)path;
    (void)context;
}

static void say(const char *text)
{
    log_event(LOG_DEBUG, "zookeeper_client", "said=\"%s\"", text);
}

/* Appends "NUMBER:PORT" for the first `bytes` of `server`. */
static int add_server(const char *server, size_t bytes, char *out, size_t out_bytes)
{
    char text[ADDRESS_HOST_BYTES + 8], host[ADDRESS_HOST_BYTES], number[NAMES_NUMBER_BYTES];
    bool bracketed;
    snprintf(text, sizeof text, "%.*s", (int)bytes, server);
    const unsigned port = address_split(text, host, &bracketed);
    const int error = port ? names_look(host, number) : ROWAN_EINVALID;
    const size_t begun = strlen(out);
    if (!error)
        snprintf(out + begun, out_bytes - begun, strchr(number, ':') ? "%s[%s]:%u" : "%s%s:%u",
                 begun ? "," : "", number, port);
    return error;
}

/* True: the servers' numbers are known, at least one, and others than before. */
static bool find_servers(struct zookeeper_session *session)
{
    char found[sizeof session->servers] = "";
    bool pending = false;
    for (const char *at = session->hosts; *at; at += *at == ',') {
        const size_t bytes = strcspn(at, ",");
        pending |= add_server(at, bytes, found, sizeof found) == ROWAN_EAGAIN;
        at += bytes;
    }
    if (pending || !*found || strcmp(found, session->servers) == 0)
        return false;
    memcpy(session->servers, found, sizeof found);
    return true;
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
/* The library loses 24 bytes with each answer to a login. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:zookeeper_process";
}
#endif
#endif

static void close_handle(struct zookeeper_session *session)
{
    if (!session->handle)
        return;
    session->closing = true;
    (void)zookeeper_close(session->handle); /* what the ensemble did not hear ends by itself */
    session->closing = session->connected = false;
    session->handle = NULL;
    session->client_fd = -1;
}

/* Errors: ROWAN_EAGAIN: no server's number is known yet. It says who we are on each connection to come. */
static int open_handle(struct zookeeper_session *session)
{
    (void)find_servers(session);
    if (!*session->servers)
        return ROWAN_EAGAIN;
    session->handle = zookeeper_init2(session->servers, session_event, (int)session->session_ms,
                                      NULL, NULL, 0, say);
    if (!session->handle)
        return errno == ENOMEM ? ROWAN_ENOMEM : ROWAN_EUNREACHABLE;
    (void)zoo_set_servers_resolution_delay(session->handle, -1); /* numbers stay what they are */
    if (session->login && zoo_add_auth(session->handle, "digest", session->login,
                                       (int)strlen(session->login), NULL, NULL) != ZOK) {
        close_handle(session);
        return ROWAN_ENOMEM;
    }
    return 0;
}

static void open_again(struct zookeeper_session *session, uint64_t now_ns, uint64_t *wake_ns)
{
    if (session->handle)
        return;
    if (now_ns >= session->open_ns) {
        const int error = open_handle(session);
        if (error && error != ROWAN_EAGAIN)
            log_event(LOG_ERROR, "zookeeper_open_failed", "hosts=%s error=%s", session->hosts,
                      error_name(error));
        session->open_ns = !error                  ? now_ns
                           : error == ROWAN_EAGAIN ? now_ns + TRY_NS
                                                   : now_ns + OPEN_AGAIN_NS;
    }
    if (!session->handle)
        wake_at(wake_ns, session->open_ns);
}

/* The number of the socket may be that of the one before: unless connected, epoll is told each time. */
static void watch_socket(struct zookeeper_session *session, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    if (session->connected && fd == session->client_fd && events == session->client_events)
        return;
    if (session->client_fd >= 0 && session->client_fd != fd)
        (void)epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, session->client_fd, NULL);
    if (fd >= 0 && epoll_ctl(session->epoll_fd, EPOLL_CTL_MOD, fd, &event) &&
        epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        log_event(LOG_ERROR, "zookeeper_epoll_failed", "error=%s",
                  error_name(error_from_errno(errno)));
    session->client_fd = fd;
    session->client_events = events;
}

static int client_events_of(uint32_t events)
{
    const bool failed = events & (EPOLLERR | EPOLLHUP);
    return (failed || events & EPOLLIN ? ZOOKEEPER_READ : 0) |
           (failed || events & EPOLLOUT ? ZOOKEEPER_WRITE : 0);
}

/* What the client wants to do next, and a step of it. What its calls answer, its state tells as well. Asked without a
 * pause, a client whose servers are unreachable would try one after the other, and ask to be asked again at once. */
static void drive_client(struct zookeeper_session *session, uint64_t now_ns, uint64_t *wake_ns)
{
    struct timeval patience = {0};
    struct epoll_event event;
    int fd = -1, interest = 0;
    if (now_ns < session->try_ns) {
        wake_at(wake_ns, session->try_ns);
        return;
    }
    if (!session->connected && now_ns >= session->look_ns) {
        session->look_ns = now_ns + OPEN_AGAIN_NS;
        if (find_servers(session))
            (void)zoo_set_servers(session->handle, session->servers);
    }
    (void)zookeeper_interest(session->handle, &fd, &interest, &patience);
    const uint64_t pause_ns =
        (uint64_t)patience.tv_sec * NS_PER_S + (uint64_t)patience.tv_usec * NS_PER_US;
    if (interest == 0) { /* it may have closed the socket, and name it still */
        fd = -1;
        session->try_ns = now_ns + (pause_ns > 0 && pause_ns < TRY_NS ? pause_ns : TRY_NS);
        wake_at(wake_ns, session->try_ns);
    }
    watch_socket(session, fd,
                 (interest & ZOOKEEPER_READ ? EPOLLIN : 0U) |
                     (interest & ZOOKEEPER_WRITE ? EPOLLOUT : 0U));
    if (fd < 0)
        return;
    wake_at(wake_ns, now_ns + pause_ns);
    if (epoll_wait(session->epoll_fd, &event, 1, 0) != 1)
        return;
    const int done = zookeeper_process(session->handle, client_events_of(event.events) & interest);
    if (done != ZOK && done != ZNOTHING) /* the socket is closed: on to the next server */
        wake_at(wake_ns, now_ns);
}

/* An ensemble that is not there when the session is opened gets some time. */
static void tell_if_lost(struct zookeeper_session *session, bool was_connected, uint64_t now_ns)
{
    const bool late = now_ns >= session->begun_ns + session->session_ms * NS_PER_MS;
    if (session->connected || session->told_lost || !(was_connected || late))
        return;
    session->told_lost = true;
    log_event(LOG_WARN, was_connected ? "zookeeper_lost" : "zookeeper_unreachable",
              "hosts=%s reason=\"the configuration cannot be read or changed until it is there\"",
              session->hosts);
}

static enum zookeeper_news look_at_state(struct zookeeper_session *session, uint64_t now_ns)
{
    const bool was_connected = session->connected;
    session->connected = session->handle && zoo_state(session->handle) == ZOO_CONNECTED_STATE;
    if (session->connected && !was_connected) {
        log_event(LOG_INFO, "zookeeper_connected", "server=%s session=%llx",
                  zoo_get_current_server(session->handle),
                  (unsigned long long)zoo_client_id(session->handle)->client_id);
        session->told_lost = false;
        return SESSION_CONNECTED;
    }
    tell_if_lost(session, was_connected, now_ns);
    if (!session->handle || is_unrecoverable(session->handle) == ZOK)
        return SESSION_NO_NEWS;
    log_event(LOG_WARN, "zookeeper_session_expired", "hosts=%s", session->hosts);
    close_handle(session);
    return SESSION_EXPIRED;
}

enum zookeeper_news zookeeper_session_poll(struct zookeeper_session *session, uint64_t now_ns,
                                           uint64_t *wake_ns)
{
    if (session->open_ns == 0)
        session->open_ns = session->begun_ns = now_ns;
    open_again(session, now_ns, wake_ns);
    if (session->handle)
        drive_client(session, now_ns, wake_ns);
    const enum zookeeper_news news = look_at_state(session, now_ns);
    if (news == SESSION_EXPIRED)
        wake_at(wake_ns, now_ns);
    return news;
}

/* The fd is readable for as long as the client has something to do. */
static void no_arming(void *context)
{
    (void)context;
}

void zookeeper_session_init(struct zookeeper_session *session)
{
    *session = (struct zookeeper_session){.epoll_fd = -1, .client_fd = -1};
}

int zookeeper_session_open(struct zookeeper_session *session, const char *hosts, size_t bytes,
                           const char *login, uint32_t session_ms, struct reactor *reactor)
{
    session->session_ms = session_ms;
    session->hosts = strndup(hosts, bytes);
    session->login = login ? strdup(login) : NULL;
    session->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (session->epoll_fd < 0)
        return error_from_errno(errno);
    if (!session->hosts || (login && !session->login))
        return ROWAN_ENOMEM;
    const int error = open_handle(session);
    if (error && error != ROWAN_EAGAIN)
        return error;
    return !reactor
               ? 0
               : reactor_add_source(reactor, &(struct event_source){session->epoll_fd, no_arming,
                                                                    no_arming, session});
}

void zookeeper_session_close(struct zookeeper_session *session)
{
    close_handle(session);
    if (session->epoll_fd >= 0)
        close(session->epoll_fd);
    if (session->login)
        explicit_bzero(session->login, strlen(session->login));
    free(session->login);
    free(session->hosts);
    zookeeper_session_init(session);
}
