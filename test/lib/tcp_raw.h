/* tcp_raw.h - a peer of the tcp fabric that sends whatever bytes a test wants: plain sockets and the
 * layout of the wire, no fabric. */
#ifndef TEST_TCP_RAW_H
#define TEST_TCP_RAW_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fabric/fabric.h"
#include "common/fabric/tcp/tcp_wire.h"

/* A connected socket, or -1. Closing it leaves nothing behind: thousands may follow each other. */
static inline int raw_connect(const struct sockaddr_in *address)
{
    const struct linger none = {.l_onoff = 1};
    const int one = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline bool raw_send(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* 1: all is there, 0: not yet all, -1: the peer has closed. Nothing is taken unless all is there. */
static inline int raw_receive(int fd, void *data, size_t bytes)
{
    const ssize_t got = recv(fd, data, bytes, MSG_PEEK | MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN))
        return -1;
    if (got < (ssize_t)bytes)
        return 0;
    return recv(fd, data, bytes, MSG_DONTWAIT) == (ssize_t)bytes ? 1 : -1;
}

static inline bool raw_is_closed(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN);
}

static inline struct tcp_greeting raw_hello(uint32_t id, uint64_t token)
{
    return (struct tcp_greeting){
        .magic = TCP_MAGIC,
        .layouts = {VERSION_TCP_LOWEST, VERSION_TCP_HIGHEST},
        .kind = token ? GREETING_BLOCKS : GREETING_MESSAGES,
        .token = token,
        .identity = {
            .cluster = 7, .id = id, .kind = FABRIC_SERVER, .messages = VERSION_RANGE(MESSAGES)}};
}

/* Writes a message with its head; the bytes it took. */
static inline uint32_t raw_message(uint8_t *to, uint64_t number, const void *data, uint32_t bytes)
{
    const struct tcp_message_head head = {
        .magic = TCP_MESSAGE_MAGIC, .bytes = bytes, .number = number};

    memset(to, 0, message_wire_bytes(bytes));
    memcpy(to, &head, sizeof head);
    if (bytes > 0)
        memcpy(to + sizeof head, data, bytes);
    return message_wire_bytes(bytes);
}

/* Writes the head of a frame of blocks with these lengths; the bytes it took. */
static inline uint32_t raw_frame_head(uint8_t *to, const uint32_t *block_bytes, uint32_t blocks)
{
    const struct tcp_frame_head head = {.magic = TCP_FRAME_MAGIC, .blocks = (uint16_t)blocks};

    memset(to, 0, frame_head_bytes(blocks));
    memcpy(to, &head, sizeof head);
    for (uint32_t i = 0; i < blocks; i++) {
        const uint16_t strides = (uint16_t)(block_bytes[i] / FABRIC_STRIDE);

        memcpy(to + sizeof head + i * sizeof strides, &strides, sizeof strides);
    }
    return frame_head_bytes(blocks);
}

#endif
