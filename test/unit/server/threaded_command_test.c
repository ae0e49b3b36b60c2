/* Queries of a shard's owner, taken back by the control role on another thread. */
#include "common/reactor/reactor.h"
#include "server/command.h"
#include "test/lib/unit.h"

enum { QUERIES = 20000, AT_A_TIME = 4 /* in a list */ };

struct run {
    struct inbox outbox;
    _Atomic uint32_t taken;
};

/* Like the control role: it frees what comes back at once. */
static enum poll_result take_back(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct run *run = role;
    struct command command;
    bool any = false;

    (void)now_ns;
    (void)wake_ns;
    while (command_pop(&run->outbox, &command)) {
        memset(command.query, 0xff, sizeof *command.query);
        free(command.query);
        atomic_fetch_add(&run->taken, 1);
        any = true;
    }
    return any ? POLL_BUSY : POLL_IDLE;
}

static void push_some(struct run *run)
{
    struct queries queries = {0};
    struct server_common common = {0};

    for (uint32_t i = 0; i < AT_A_TIME; i++) {
        struct query *query = calloc(1, sizeof *query);

        assert_non_null(query);
        query_begin(&queries, query, NULL);
    }
    while (command_answer(&queries, &run->outbox, &common))
        ;
    assert_null(queries.first);
    assert_null(queries.last);
}

TEST(an_answered_query_belongs_to_who_asked_for_it)
{
    struct run run = {0};
    const struct reactor_options options = {.name = "control", .clock = clock_system(), .cpu = -1};
    const struct poller poller = {"control", take_back, &run, NULL};
    struct reactor *reactor;

    assert_int_equal(inbox_init(&run.outbox, 64), 0);
    assert_int_equal(reactor_create(&options, &reactor), 0);
    assert_int_equal(reactor_add_poller(reactor, &poller), 0);
    inbox_set_reactor(&run.outbox, reactor);
    assert_int_equal(reactor_start(reactor), 0);
    for (uint32_t i = 0; i < QUERIES; i += AT_A_TIME)
        push_some(&run);
    while (atomic_load(&run.taken) < QUERIES)
        ;
    reactor_stop(reactor);
    reactor_join(reactor);
    reactor_destroy(reactor);
    inbox_fini(&run.outbox);
}

UNIT_MAIN(NULL, NULL)
