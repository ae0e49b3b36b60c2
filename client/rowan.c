/* The outer shell of the SDK: puts a fabric, a clock and sleep around a session. Calls that wait
 * poll the session; when nothing happened for `spin_us` they sleep on its endpoint. */
#include "client/rowan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/session.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/cluster/login.h"
#include "common/cluster/managers.h"
#include "common/reactor/wait.h"

_Static_assert(ROWAN_MAX_WAIT == WAIT_MOST, "one limit");
_Static_assert(sizeof(struct rowan_options) == 64 && sizeof(struct rowan_op) == 72 &&
                   sizeof(struct rowan_completion) == 48,
               "the public ABI: a new field takes the place of reserved ones");

enum { PENDING = 1 /* no status is positive */ };

struct rowan {
    struct clock *clock;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct event_source source;
    struct session *session;
    struct login_secret login;
    uint32_t timeout_ms;
    uint64_t spin_ns;
    uint64_t idle_since_ns; /* 0: the last poll was busy */
    unsigned yields;        /* since then */
};

const char *rowan_version(void)
{
    return ROWAN_VERSION;
}

void rowan_options_init(struct rowan_options *options)
{
    *options = (struct rowan_options){
        .depth = 64, .timeout_ms = 10000, .open_timeout_ms = 10000, .spin_us = 20};
}

/* One poll, or a sleep that ends at `until_ns` at the latest. */
static int advance(struct rowan *rowan, uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns(rowan->clock);
    uint64_t wake_ns = until_ns;

    if (session_poll(rowan->session, now_ns, &wake_ns) == POLL_BUSY) {
        rowan->idle_since_ns = 0;
        rowan->yields = 0;
        return 0;
    }
    if (!rowan->idle_since_ns)
        rowan->idle_since_ns = now_ns;
    if (now_ns >= until_ns || now_ns - rowan->idle_since_ns < rowan->spin_ns)
        return 0;
    if (rowan->yields++ < WAIT_YIELDS) {
        wait_yield();
        return 0;
    }
    if (session_release(rowan->session))
        return 0;
    rowan->idle_since_ns = 0;
    rowan->yields = 0;
    return event_source_wait(&rowan->source, rowan->clock, session_poll, rowan->session, until_ns);
}

static uint64_t after_ms(const struct rowan *rowan, uint64_t ms)
{
    return clock_now_ns(rowan->clock) + ms * NS_PER_MS;
}

/* --- open and close --- */

static int wait_ready(struct rowan *rowan, uint32_t timeout_ms)
{
    uint64_t until_ns = after_ms(rowan, timeout_ms);

    while (!session_ready(rowan->session)) {
        int error = advance(rowan, until_ns);

        if (error)
            return error;
        error = session_error(rowan->session);
        if (!session_ready(rowan->session) &&
            (error == ROWAN_ELOGIN || fabric_endpoint_error(rowan->endpoint) ||
             clock_now_ns(rowan->clock) >= until_ns))
            return error;
    }
    return 0;
}

static int find_cm(const struct rowan_options *options, char *managers, size_t room)
{
    if (!options->cm)
        return options->directory ? config_read_cm(options->directory, managers, room)
                                  : ROWAN_EINVALID;
    size_t bytes = strlen(options->cm);

    if (bytes >= room)
        return ROWAN_EINVALID;
    memcpy(managers, options->cm, bytes + 1);
    return 0;
}

static bool is_given(const char *text)
{
    return text && *text;
}

/* What is reserved gets a meaning some day, so nobody may come to rely on its being ignored. */
#define RESERVED_IS_ZERO(of) bytes_are_zero((of)->reserved, sizeof(of)->reserved)

int rowan_open(const struct rowan_options *options, struct rowan **out)
{
    if (!options || !out || !RESERVED_IS_ZERO(options) ||
        is_given(options->user) != is_given(options->secret_file))
        return ROWAN_EINVALID;
    char managers[MANAGERS_LIST_BYTES];
    int error = find_cm(options, managers, sizeof managers);

    if (error)
        return error;
    struct rowan *rowan = calloc(1, sizeof *rowan);

    if (!rowan)
        return ROWAN_ENOMEM;
    rowan->clock = clock_system();
    rowan->spin_ns = options->spin_us * NS_PER_US;
    rowan->timeout_ms = options->timeout_ms;
    const struct session_options session_options = {.depth = options->depth,
                                                    .timeout_ns = options->timeout_ms * NS_PER_MS,
                                                    .login = is_given(options->user) ? &rowan->login
                                                                                     : NULL};
    if (is_given(options->user))
        error = login_secret_read(&rowan->login, options->user, options->secret_file);
    if (!error)
        error = fabric_open(managers, NULL, &rowan->fabric);
    if (!error)
        error = fabric_endpoint_open(rowan->fabric, 0, &rowan->endpoint);
    if (!error)
        error = session_create(rowan->endpoint, managers, &session_options, &rowan->session);
    if (!error) {
        fabric_endpoint_source(rowan->endpoint, &rowan->source);
        error = wait_ready(rowan, options->open_timeout_ms);
    }
    if (error) {
        rowan_close(rowan);
        return error;
    }
    *out = rowan;
    return 0;
}

void rowan_close(struct rowan *rowan)
{
    if (!rowan)
        return;
    session_destroy(rowan->session);
    fabric_endpoint_close(rowan->endpoint);
    fabric_close(rowan->fabric);
    login_secret_fini(&rowan->login);
    free(rowan);
}

/* --- asynchronous --- */

static struct rowan_op op_of(const void *key, size_t key_bytes, const void *value, size_t bytes)
{
    return (struct rowan_op){.key = key,
                             .key_bytes = key_bytes,
                             .value = (void *)(uintptr_t)value,
                             .value_room = bytes,
                             .value_bytes = bytes};
}

static struct session_request request_of(enum message_type type, const struct rowan_op *op,
                                         uint64_t expected, rowan_callback callback, void *context)
{
    struct session_request request = {.type = type,
                                      .key = op->key,
                                      .key_bytes = op->key_bytes,
                                      .expected = expected,
                                      .callback = callback,
                                      .context = context};

    if (type == MESSAGE_GET) {
        request.room = op->value;
        request.room_bytes = op->value_room;
    } else if (type != MESSAGE_DELETE) {
        request.value = op->value;
        request.value_bytes = op->value_bytes;
    }
    return request;
}

static int post(struct rowan *rowan, enum message_type type, struct rowan_op op, uint64_t expected,
                rowan_callback callback, void *context)
{
    const struct session_request request = request_of(type, &op, expected, callback, context);
    return session_post(rowan->session, &request);
}

int rowan_post_get(struct rowan *rowan, const void *key, size_t key_bytes, void *value,
                   size_t value_room, rowan_callback callback, void *context)
{
    return post(rowan, MESSAGE_GET, op_of(key, key_bytes, value, value_room), 0, callback, context);
}

int rowan_post_put(struct rowan *rowan, const void *key, size_t key_bytes, const void *value,
                   size_t value_bytes, rowan_callback callback, void *context)
{
    return post(rowan, MESSAGE_PUT, op_of(key, key_bytes, value, value_bytes), 0, callback,
                context);
}

int rowan_post_put_if_version(struct rowan *rowan, const void *key, size_t key_bytes,
                              const void *value, size_t value_bytes, uint64_t expected,
                              rowan_callback callback, void *context)
{
    return post(rowan, MESSAGE_PUT_IF, op_of(key, key_bytes, value, value_bytes), expected,
                callback, context);
}

int rowan_post_del(struct rowan *rowan, const void *key, size_t key_bytes, rowan_callback callback,
                   void *context)
{
    return post(rowan, MESSAGE_DELETE, op_of(key, key_bytes, NULL, 0), 0, callback, context);
}

uint32_t rowan_outstanding(const struct rowan *rowan)
{
    return session_outstanding(rowan->session);
}

int rowan_poll(struct rowan *rowan, struct rowan_completion *completions, int max, int timeout_ms)
{
    struct session *session = rowan->session;
    uint64_t before = session_completed(session);
    uint64_t until_ns = 0;
    int count = 0;

    if (session_polling(session) || max < 0 || (max > 0 && !completions))
        return ROWAN_EINVALID;
    if (session_waiting(session) == 0 && timeout_ms != 0)
        until_ns = timeout_ms < 0 ? WAKE_NEVER : after_ms(rowan, (uint64_t)timeout_ms);
    do {
        int error = advance(rowan, session_outstanding(session) > 0 ? until_ns : 0);

        if (error)
            return error;
    } while (session_outstanding(session) > 0 && session_completed(session) == before &&
             until_ns > 0 && clock_now_ns(rowan->clock) < until_ns);
    while (count < max && session_next(session, &completions[count]))
        count++;
    return count;
}

int rowan_wait_all(struct rowan *rowan)
{
    if (session_polling(rowan->session))
        return ROWAN_EINVALID;
    while (session_outstanding(rowan->session) > 0) {
        int error = advance(rowan, WAKE_NEVER);

        if (error)
            return error;
    }
    return 0;
}

/* True if one of them was busy. */
static bool poll_each(struct rowan *const *sessions, size_t count, uint64_t now_ns)
{
    bool busy = false;

    for (size_t i = 0; i < count; i++) {
        uint64_t wake_ns = WAKE_NEVER;

        busy |= session_poll(sessions[i]->session, now_ns, &wake_ns) == POLL_BUSY;
    }
    return busy;
}

/* True if one of them held something back. */
static bool release_each(struct rowan *const *sessions, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count; i++)
        any |= session_release(sessions[i]->session);
    return any;
}

int rowan_wait_any(struct rowan *const *sessions, size_t count, int64_t timeout_us)
{
    struct waiter waiters[ROWAN_MAX_WAIT];
    unsigned yields = 0;

    if (!sessions || count == 0 || count > ROWAN_MAX_WAIT)
        return ROWAN_EINVALID;
    for (size_t i = 0; i < count; i++) {
        if (session_polling(sessions[i]->session))
            return ROWAN_EINVALID;
        waiters[i] = (struct waiter){
            .source = &sessions[i]->source, .poll = session_poll, .role = sessions[i]->session};
    }
    struct clock *clock = sessions[0]->clock;
    uint64_t start_ns = clock_now_ns(clock), now_ns = start_ns;
    uint64_t until_ns = timeout_us < 0 ? WAKE_NEVER : start_ns + (uint64_t)timeout_us * NS_PER_US;

    while (!poll_each(sessions, count, now_ns)) {
        now_ns = clock_now_ns(clock);
        if (now_ns >= until_ns)
            return 0;
        if (now_ns - start_ns < sessions[0]->spin_ns)
            continue;
        if (yields++ < WAIT_YIELDS)
            wait_yield();
        else if (!release_each(sessions, count))
            return event_sources_wait(waiters, count, clock, until_ns);
    }
    return 0;
}

/* --- waited for --- */

static void take_op(const struct rowan_completion *completion)
{
    struct rowan_op *op = completion->context;

    op->status = completion->status;
    op->version = completion->version;
    if (completion->value || completion->value_bytes)
        op->value_bytes = completion->value_bytes;
}

/* Polls until no operation before `end` is pending. A sleep that fails is no reason to leave
 * operations behind that name the caller's buffers: then this polls without sleep. */
static void wait_ops(struct rowan *rowan, const struct rowan_op *ops, size_t end)
{
    for (size_t i = 0; i < end; i++) {
        while (ops[i].status == PENDING)
            (void)advance(rowan, WAKE_NEVER);
    }
}

static int run_ops(struct rowan *rowan, enum message_type type, struct rowan_op *ops, size_t count,
                   uint64_t expected)
{
    if (session_polling(rowan->session))
        return ROWAN_EINVALID;
    for (size_t i = 0; i < count; i++) {
        struct session_request request = request_of(type, &ops[i], expected, take_op, &ops[i]);

        request.reserved = true;
        ops[i].status = PENDING;
        ops[i].version = 0;
        if (type == MESSAGE_GET)
            ops[i].value_bytes = 0;
        int error = session_post(rowan->session, &request);

        /* There is no place, or no number until the manager gives a new client id. */
        for (uint64_t until_ns = 0; error == ROWAN_EAGAIN;) {
            if (until_ns == 0)
                until_ns = after_ms(rowan, rowan->timeout_ms);
            (void)advance(rowan, until_ns);
            error = session_post(rowan->session, &request);
            if (error == ROWAN_EAGAIN && clock_now_ns(rowan->clock) >= until_ns)
                error = ROWAN_ETIMEDOUT;
        }
        if (error)
            ops[i].status = error;
    }
    wait_ops(rowan, ops, count);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].status)
            return ops[i].status;
    }
    return 0;
}

static int run_many(struct rowan *rowan, enum message_type type, struct rowan_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!RESERVED_IS_ZERO(&ops[i]))
            return ROWAN_EINVALID;
    }
    return run_ops(rowan, type, ops, count, 0);
}

int rowan_multi_get(struct rowan *rowan, struct rowan_op *ops, size_t count)
{
    return run_many(rowan, MESSAGE_GET, ops, count);
}

int rowan_multi_put(struct rowan *rowan, struct rowan_op *ops, size_t count)
{
    return run_many(rowan, MESSAGE_PUT, ops, count);
}

int rowan_get(struct rowan *rowan, const void *key, size_t key_bytes, void *value,
              size_t value_room, size_t *value_bytes, uint64_t *version)
{
    struct rowan_op op = op_of(key, key_bytes, value, value_room);
    int error = run_ops(rowan, MESSAGE_GET, &op, 1, 0);

    if (value_bytes && (error == 0 || error == ROWAN_EBUFFER))
        *value_bytes = op.value_bytes;
    if (version && (error == 0 || error == ROWAN_EBUFFER))
        *version = op.version;
    return error;
}

static int put(struct rowan *rowan, enum message_type type, struct rowan_op op, uint64_t expected,
               uint64_t *version)
{
    int error = run_ops(rowan, type, &op, 1, expected);

    if (version && (error == 0 || error == ROWAN_EVERSION))
        *version = op.version;
    return error;
}

int rowan_put(struct rowan *rowan, const void *key, size_t key_bytes, const void *value,
              size_t value_bytes, uint64_t *version)
{
    return put(rowan, MESSAGE_PUT, op_of(key, key_bytes, value, value_bytes), 0, version);
}

int rowan_put_if_version(struct rowan *rowan, const void *key, size_t key_bytes, const void *value,
                         size_t value_bytes, uint64_t expected, uint64_t *version)
{
    return put(rowan, MESSAGE_PUT_IF, op_of(key, key_bytes, value, value_bytes), expected, version);
}

int rowan_del(struct rowan *rowan, const void *key, size_t key_bytes)
{
    struct rowan_op op = op_of(key, key_bytes, NULL, 0);

    return run_ops(rowan, MESSAGE_DELETE, &op, 1, 0);
}
