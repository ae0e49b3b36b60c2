/* One request after another, on the one thread that libmicrohttpd has here: metrics_ask allows one asker. A role that does not
 * answer within ANSWER_MS is not healthy, and that is the answer.
 */
#include "common/metrics/endpoint.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"

enum {
    ANSWER_MS = 2000,
    MAX_CONNECTIONS =
        64, /* one more, and the oldest is closed: who asks now is answered, whoever is slow */
    MAX_AT_ONCE = MAX_CONNECTIONS + 64, /* until those that are closed are gone */
    IDLE_SECONDS = 10,
    BACKLOG = 16,
    PAGE_BYTES = 256
};

struct metrics_endpoint {
    struct metrics *metrics;
    void (*wake)(void *context);
    void *context;
    sem_t answered;
    _Atomic bool closing;
    struct MHD_Daemon *daemon;
    int open[MAX_AT_ONCE]; /* their descriptors, oldest first; of the daemon's thread */
    unsigned open_count;
};

/* --- connections --- */

static void on_connection(void *of, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    (void)state;
    struct metrics_endpoint *endpoint = of;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    unsigned at = 0;
    if (!info)
        return;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        ASSERT(endpoint->open_count < MAX_AT_ONCE); /* MHD_OPTION_CONNECTION_LIMIT */
        endpoint->open[endpoint->open_count++] = info->connect_fd;
        if (endpoint->open_count > MAX_CONNECTIONS)
            shutdown(endpoint->open[endpoint->open_count - MAX_CONNECTIONS - 1], SHUT_RDWR);
        return;
    }
    while (at < endpoint->open_count && endpoint->open[at] != info->connect_fd)
        at++;
    if (at == endpoint->open_count)
        return;
    endpoint->open_count--;
    memmove(endpoint->open + at, endpoint->open + at + 1,
            (endpoint->open_count - at) * sizeof endpoint->open[0]);
}

/* --- the role's part --- */

static void on_answer(void *context)
{
    struct metrics_endpoint *endpoint = context;
    sem_post(&endpoint->answered);
}

/* False: the role has not answered in time. */
static bool refresh(struct metrics_endpoint *endpoint)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ANSWER_MS / 1000;
    metrics_ask(endpoint->metrics);
    endpoint->wake(endpoint->context);
    while (!metrics_current(endpoint->metrics)) {
        if (atomic_load(&endpoint->closing))
            return false;
        if (sem_clockwait(&endpoint->answered, CLOCK_MONOTONIC, &until) != 0 && errno != EINTR)
            return metrics_current(endpoint->metrics);
    }
    return true;
}

/* --- answers --- */

/* What Prometheus's own clients tell of every process, under the same names. */
static void print_process(FILE *out)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    fprintf(out,
            "# HELP process_cpu_seconds_total Processor time of the process.\n"
            "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %.6f\n",
            seconds);
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*u %lu", &pages) == 1)
        fprintf(out,
                "# HELP process_resident_memory_bytes Memory of the process that is resident, a "
                "PM that it has mapped included.\n"
                "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %lu\n",
                pages * (unsigned long)sysconf(_SC_PAGESIZE));
    if (file)
        fclose(file);
}

/* NULL: no memory. */
static char *print_all(const struct metrics *metrics, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    metrics_print(metrics, out);
    print_process(out);
    const bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, char *text,
                               size_t bytes, enum MHD_ResponseMemoryMode mode, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, mode);
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (result == MHD_YES && status == MHD_HTTP_METHOD_NOT_ALLOWED)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (result == MHD_YES)
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, const char *sentence)
{
    char page[PAGE_BYTES];
    const int bytes = snprintf(page, sizeof page, "%s\n", sentence);
    return respond(connection, status, page, (size_t)bytes, MHD_RESPMEM_MUST_COPY,
                   "text/plain; charset=utf-8");
}

static enum MHD_Result say_state(struct metrics_endpoint *endpoint,
                                 struct MHD_Connection *connection, bool ready_asked)
{
    if (!refresh(endpoint))
        return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                   "not healthy: the control role has not answered within 2 s; see the log and "
                   "the load of this host");
    const char *why_not =
        ready_asked ? atomic_load_explicit(&endpoint->metrics->why_not, memory_order_relaxed)
                    : NULL;
    return say(connection, why_not ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK,
               why_not ? why_not : "ok");
}

static enum MHD_Result answer(void *of, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    struct metrics_endpoint *endpoint = of;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
    if (strcmp(url, "/healthz") == 0 || strcmp(url, "/readyz") == 0)
        return say_state(endpoint, connection, strcmp(url, "/readyz") == 0);
    if (strcmp(url, "/metrics") != 0)
        return say(connection, MHD_HTTP_NOT_FOUND, "there are /metrics, /healthz and /readyz");
    size_t bytes;
    /* Old figures would look like a process that stands still: better none. */
    if (!refresh(endpoint))
        return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                   "the control role has not answered within 2 s");
    char *text = print_all(endpoint->metrics, &bytes);
    return text ? respond(connection, MHD_HTTP_OK, text, bytes, MHD_RESPMEM_MUST_FREE,
                          "text/plain; version=0.0.4; charset=utf-8")
                : MHD_NO;
}

/* --- opening --- */

/* To be freed by freeaddrinfo. Errors: ROWAN_ENOMEM, ROWAN_EADDRESS. */
static int parse_address(const char *address, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *colon = strrchr(address, ':'), *port = colon ? colon + 1 : address;
    char *host = colon ? strndup(address, (size_t)(colon - address)) : strdup("127.0.0.1");
    uint64_t number;
    if (!host)
        return ROWAN_ENOMEM;
    const size_t length = strlen(host);
    const bool in_brackets = *host == '[' && host[length - 1] == ']';
    if (in_brackets)
        host[length - 1] = '\0';
    const bool right = host[in_brackets] && config_parse_u64(port, &number) == 0 &&
                       number <= UINT16_MAX &&
                       getaddrinfo(host + in_brackets, port, &hints, out) == 0;
    free(host);
    return right ? 0 : ROWAN_EADDRESS;
}

bool metrics_address_is_right(const char *address)
{
    struct addrinfo *found;
    if (!*address)
        return true;
    const int error = parse_address(address, &found);
    if (!error)
        freeaddrinfo(found);
    return error != ROWAN_EADDRESS;
}

const char *metrics_why(int error)
{
    return error == ROWAN_EADDRESS ? "metrics is " METRICS_ADDRESS_IS : error_sentence(error);
}

/* A socket that listens, or an error. */
static int listen_at(const char *address)
{
    struct addrinfo *found;
    int error = parse_address(address, &found);
    if (error)
        return error;
    const int one = 1;
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)
        error =
            errno == EADDRNOTAVAIL || errno == EINVAL ? ROWAN_EADDRESS : error_from_errno(errno);
    freeaddrinfo(found);
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

static void log_address(int fd)
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    char host[64] = "", port[16] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) == 0)
        getnameinfo((struct sockaddr *)&at, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    log_event(LOG_INFO, "metrics_at", "address=%s port=%s", host, port);
}

int metrics_endpoint_open(const char *address, struct metrics *metrics, void (*wake)(void *context),
                          void *context, struct metrics_endpoint **out)
{
    *out = NULL;
    if (!*address)
        return 0;
    struct metrics_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint)
        return ROWAN_ENOMEM;
    const int fd = listen_at(address);
    if (fd < 0) {
        free(endpoint);
        return fd;
    }
    endpoint->metrics = metrics;
    endpoint->wake = wake;
    endpoint->context = context;
    sem_init(&endpoint->answered, 0, 0);
    metrics->on_answer = on_answer;
    metrics->on_answer_context = endpoint;
    log_address(fd);
    endpoint->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL, answer, endpoint,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_AT_ONCE,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, endpoint, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!endpoint->daemon) {
        close(fd);
        sem_destroy(&endpoint->answered);
        free(endpoint);
        return ROWAN_EIO;
    }
    *out = endpoint;
    return 0;
}

void metrics_endpoint_close(struct metrics_endpoint *endpoint)
{
    if (!endpoint)
        return;
    atomic_store(&endpoint->closing, true);
    sem_post(&endpoint->answered); /* nobody else does any more */
    MHD_stop_daemon(endpoint->daemon);
    sem_destroy(&endpoint->answered);
    free(endpoint);
}
