/* What the endpoint answers over HTTP. The role's part is done by its wake-up, if `role_answers`. */
#define TEST_FIXTURE setup, teardown

#include "common/metrics/endpoint.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/error.h"
#include "test/lib/unit.h"

static const struct metric rows[] = {{"rowan_term", "Term.", "", METRIC_GAUGE, 0, 0}};

static struct metrics metrics;
static struct counter term;
static struct metrics_endpoint *endpoint;
static bool role_answers;
static const char *why_not;
static uint16_t port;
static char page[8192];

static void wake(void *context)
{
    (void)context;
    if (role_answers) {
        counter_add(&term, 1);
        metrics_answer(&metrics, why_not);
    }
}

/* A socket that listens at a free port of 127.0.0.1. */
static int listen_somewhere(uint16_t *found)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    *found = ntohs(at.sin_port);
    return fd;
}

static int setup(void **state)
{
    (void)state;
    char address[32];
    int error = ROWAN_EINUSE;
    memset(&metrics, 0, sizeof metrics);
    counter_set(&term, 41);
    metrics_add(&metrics, rows, 1, &term, "");
    role_answers = true;
    why_not = NULL;
    while (error == ROWAN_EINUSE) { /* somebody may take the port first */
        close(listen_somewhere(&port));
        snprintf(address, sizeof address, "%u", port);
        error = metrics_endpoint_open(address, &metrics, wake, NULL, &endpoint);
    }
    return error;
}

static int teardown(void **state)
{
    (void)state;
    metrics_endpoint_close(endpoint);
    return 0;
}

/* The whole answer to a request's first line, in `page`. */
static const char *ask(const char *line)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    char request[256];
    size_t got = 0;
    ssize_t bytes;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int length = snprintf(request, sizeof request,
                                "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", line);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(write(fd, request, (size_t)length), length);
    while ((bytes = read(fd, page + got, sizeof page - 1 - got)) > 0)
        got += (size_t)bytes;
    assert_int_equal(bytes, 0);
    close(fd);
    page[got] = '\0';
    return page;
}

static void expect(const char *line, const char *status, const char *said)
{
    const char *answer = ask(line);
    if (!strstr(answer, status) || !strstr(answer, said))
        fail_msg("%s: %s", line, answer);
}

TEST(figures_are_those_of_the_moment)
{
    expect("GET /metrics", " 200 ", "\nrowan_term 42\n");
    expect("GET /metrics", " 200 ", "\nrowan_term 43\n");
    expect("GET /metrics", "text/plain; version=0.0.4", "\nprocess_resident_memory_bytes ");
}

TEST(a_process_that_is_not_ready_says_why)
{
    expect("GET /readyz", " 200 ", "\r\n\r\nok\n");
    why_not = "not ready: it starts";
    expect("GET /readyz", " 503 ", "\r\n\r\nnot ready: it starts\n");
    expect("GET /healthz", " 200 ", "\r\n\r\nok\n");
}

TEST(a_role_that_does_not_answer_is_not_healthy)
{
    role_answers = false;
    expect("GET /healthz", " 503 ", "has not answered within 2 s");
    expect("GET /metrics", " 503 ", "has not answered within 2 s");
    role_answers = true; /* late, and to two questions at once */
    expect("GET /healthz", " 200 ", "ok\n");
}

/* Each has begun a request and never ends it. */
TEST(slow_connections_keep_nobody_from_being_answered)
{
    enum { SLOW = 300 };
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fds[SLOW];
    for (unsigned i = 0; i < SLOW; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds[i], (const struct sockaddr *)&at, sizeof at), 0);
        /* Who was closed already may be told so here. */
        (void)send(fds[i], "GET /healthz HTTP/1.1\r\nX: ", 26, MSG_NOSIGNAL);
        if (i % 50 == 49)
            expect("GET /healthz", " 200 ", "ok\n");
    }
    expect("GET /metrics", " 200 ", "\nrowan_term ");
    for (unsigned i = 0; i < SLOW; i++)
        close(fds[i]);
}

TEST(nothing_else_is_there)
{
    expect("POST /metrics", " 405 ", "Allow: GET, HEAD");
    expect("GET /", " 404 ", "there are /metrics, /healthz and /readyz");
    expect("GET /metrics/..", " 404 ", "there are");
    assert_null(strstr(ask("HEAD /metrics"), "rowan_term"));
}

TEST(an_address_that_is_none_or_not_free_is_refused)
{
    static const char *const wrong[] = {"x",   "localhost:1", ":1",          "1.2.3.4:", "[::1:1",
                                        "]:1", "1.2.3:x:",    "99999999999", "[]:1"};
    struct metrics_endpoint *other = endpoint;
    char address[32];
    uint16_t taken;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (metrics_endpoint_open(wrong[i], &metrics, wake, NULL, &other) != ROWAN_EADDRESS ||
            metrics_address_is_right(wrong[i]))
            fail_msg("%s", wrong[i]);
        assert_null(other);
    }
    const int fd = listen_somewhere(&taken);
    snprintf(address, sizeof address, "127.0.0.1:%u", taken);
    assert_int_equal(metrics_endpoint_open(address, &metrics, wake, NULL, &other), ROWAN_EINUSE);
    close(fd);
    assert_true(metrics_address_is_right(address) && metrics_address_is_right("[::1]:0"));
    assert_int_equal(metrics_endpoint_open("192.0.2.1:1", &metrics, wake, NULL, &other),
                     ROWAN_EADDRESS);
    assert_int_equal(metrics_endpoint_open("", &metrics, wake, NULL, &other), 0);
    assert_null(other);
}

UNIT_MAIN(NULL, NULL)
