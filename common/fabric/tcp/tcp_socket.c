/* tcp_socket.c - addresses, sockets and their options. errno stops here.
 *
 * 1. A host name is looked up on a thread of its own (reactor/names.h), because that may take seconds: until its address is
 *    known who connects is told to try again, as he does anyway.
 * 2. A peer whose host has vanished is noticed 5 s after it was last heard: with nothing under way by
 *    three keep-alive probes, else by TCP_USER_TIMEOUT. That closes a connection, too, whose peer
 *    leaves its window shut for so long. It does not hold for the socket for blocks, whose window is
 *    shut while the landing zone is dry (F8): that lives and dies with its connection.
 */
#include "common/fabric/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/address.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/reactor/names.h"

enum {
    BACKLOG = 4096,
    IDLE_S = 2,
    PROBE_S = 1,
    PROBES = 3,
    VANISHED_MS = 5000,
};

/* --- addresses --- */

static int refuse_address(const char *text, const char *reason)
{
    log_event(LOG_WARN, "address_refused", "address=\"%s\" reason=\"%s\"", text, reason);
    return ROWAN_EINVALID;
}

static bool is_nobody(const union tcp_address *address)
{
    if (address->any.sa_family == AF_INET)
        return address->v4.sin_addr.s_addr == htonl(INADDR_ANY) ||
               IN_MULTICAST(ntohl(address->v4.sin_addr.s_addr));
    return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr) ||
           IN6_IS_ADDR_MULTICAST(&address->v6.sin6_addr);
}

int tcp_address_parse(const char *text, uint32_t index, union tcp_address *out)
{
    static const char scheme[] = "tcp:";
    union tcp_address address = {0};
    char host[ADDRESS_HOST_BYTES], number[NAMES_NUMBER_BYTES];
    bool bracketed;
    unsigned port;
    int error;

    if (strncmp(text, scheme, sizeof scheme - 1) != 0)
        return refuse_address(text, "not tcp:HOST:PORT");
    port = address_split(text + sizeof scheme - 1, host, &bracketed);
    if (port == 0)
        return refuse_address(text, "not tcp:HOST:PORT with a port of 1 to 65535");
    if (!bracketed && strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (address_wrong(text))
        return refuse_address(text, address_wrong(text));
    error = names_look(host, number);
    if (error)
        return error;
    if (inet_pton(AF_INET, number, &address.v4.sin_addr) == 1)
        address.v4.sin_family = AF_INET;
    else if (inet_pton(AF_INET6, number, &address.v6.sin6_addr) == 1)
        address.v6.sin6_family = AF_INET6;
    else
        return refuse_address(text,
                              "the host is neither an IPv4 nor an [IPv6] address, and no name");
    address.v4.sin_port = htons((uint16_t)port);
    if (is_nobody(&address))
        return refuse_address(text, "no peer can connect to this address: name one of this host's");
    if (tcp_address_index(&address, index))
        return refuse_address(text, "the ports of its endpoints go beyond 65535");
    *out = address;
    return 0;
}

/* The port lies at the same place in both. */
static_assert(offsetof(union tcp_address, v4.sin_port) == offsetof(union tcp_address, v6.sin6_port),
              "one way to it");

int tcp_address_index(union tcp_address *address, uint32_t index)
{
    const uint64_t port = (uint64_t)ntohs(address->v4.sin_port) + index;

    if (port > UINT16_MAX)
        return ROWAN_EINVALID;
    address->v4.sin_port = htons((uint16_t)port);
    return 0;
}

void tcp_address_bytes(const union tcp_address *address, uint8_t host[16], uint16_t *port)
{
    const bool v4 = address->any.sa_family == AF_INET;

    memset(host, 0, 16);
    memset(host + 10, v4 ? 0xff : 0, 2);
    if (v4)
        memcpy(host + 12, &address->v4.sin_addr, 4);
    else
        memcpy(host, &address->v6.sin6_addr, 16);
    *port = ntohs(address->v4.sin_port);
}

static socklen_t address_bytes(const union tcp_address *address)
{
    return address->any.sa_family == AF_INET ? sizeof address->v4 : sizeof address->v6;
}

/* --- sockets --- */

/* Options are there for speed and for 2; a kernel that lacks one serves all the same. */
static void set_option(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

static void set_buffers(int fd, int bytes)
{
    set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes);
}

void tcp_set_options(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S); /* 2 */
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, VANISHED_MS);
}

uint64_t tcp_source(int fd)
{
    union tcp_address address = {0};
    socklen_t bytes = sizeof address;
    uint64_t network = 0;

    if (getpeername(fd, &address.any, &bytes) < 0)
        return 0;
    if (address.any.sa_family == AF_INET)
        return address.v4.sin_addr.s_addr;
    memcpy(&network, &address.v6.sin6_addr, sizeof network);
    return network ? network : 1; /* its own host's */
}

void tcp_widen(int fd, enum tcp_socket_kind kind)
{
    set_buffers(fd, TCP_WIDE_SOCKET_BYTES);
    if (kind != SOCKET_MESSAGES)
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0); /* 2 */
}

/* A descriptor, or an error. */
static int open_socket(const union tcp_address *address)
{
    const int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return error_from_errno(errno);
    set_buffers(fd, TCP_SOCKET_BYTES); /* before it connects: the window's scale follows from it */
    return fd;
}

int tcp_listen(const union tcp_address *address, int *out_fd)
{
    const int fd = open_socket(address);
    int error;

    if (fd < 0)
        return fd;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, &address->any, address_bytes(address)) < 0 || listen(fd, BACKLOG) < 0) {
        error = errno == EADDRNOTAVAIL ? ROWAN_EINVALID : error_from_errno(errno);
        log_event(LOG_WARN, "listen_failed", "port=%u reason=\"%s\"", ntohs(address->v4.sin_port),
                  strerror(errno));
        close(fd);
        return error;
    }
    *out_fd = fd;
    return 0;
}

int tcp_start_connect(const union tcp_address *address, int *out_fd)
{
    const int fd = open_socket(address);

    if (fd < 0)
        return fd;
    tcp_set_options(fd);
    if (connect(fd, &address->any, address_bytes(address)) < 0 && errno != EINPROGRESS) {
        close(fd);
        return ROWAN_EUNREACHABLE;
    }
    *out_fd = fd;
    return 0;
}

static ssize_t finish(ssize_t bytes)
{
    if (bytes > 0)
        return bytes;
    return bytes < 0 && errno == EAGAIN ? ROWAN_EAGAIN : ROWAN_ECLOSED;
}

ssize_t tcp_read(int fd, const struct iovec *iov, unsigned count)
{
    ssize_t got;

    do
        got = count == 1 ? recv(fd, iov->iov_base, iov->iov_len, 0) : readv(fd, iov, (int)count);
    while (got < 0 && errno == EINTR);
    return finish(got);
}

ssize_t tcp_write(int fd, const struct iovec *iov, unsigned count)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = count};
    ssize_t sent;

    do
        sent = count == 1 ? send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL)
                          : sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    const ssize_t result = finish(sent);
    if (result == ROWAN_ECLOSED)
        shutdown(fd,
                 SHUT_RDWR); /* so that its end comes, also where it was the system that failed */
    return result;
}
