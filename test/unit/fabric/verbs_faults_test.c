/* verbs_faults_test.c - the verbs backend when queue pairs break, datagrams are lost, resources are
 * missing, and devices tell of errors. */
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_load.h"

enum { BREAKS = 100 };

static void setup_devices(bool purges, uint64_t seed)
{
    soft_verbs_configure(&(struct soft_config){.seed = seed, .purges_completions = purges});
}

static struct load *open_load(bool purges, uint64_t seed)
{
    setup_devices(purges, seed);
    return load_open(seed);
}

static void close_load(struct load *load)
{
    load_wind_down(load);
    load_check_zone(load);
    load_close(load);
}

static void break_under_load(bool purges, uint64_t seed)
{
    struct load *load;
    uint32_t broken = 0, closed = 0;
    const uint64_t begin_ns = clock_now_ns(clock_system());

    print_message("# seed %lu\n", seed);
    load = open_load(purges, seed);
    soft_verbs_faults(&(struct soft_faults){.rc_delay_polls = 3, .delay_polls = 2});
    while (broken < BREAKS) {
        const enum ibv_qp_type type = random_below(&load->random, 8) == 0 ? IBV_QPT_UD : IBV_QPT_RC;

        /* A handshake needs a thread of the fabric's own, which a busy host may run late: half of the breaks may come
         * in handshakes, the others come in the midst of a load. */
        while (broken % 2 == 0 && !(load->senders[0].connected && load->senders[1].connected)) {
            assert_true(clock_now_ns(clock_system()) - begin_ns < UINT64_C(120) * NS_PER_S);
            load_round(load);
        }
        for (uint64_t i = random_below(&load->random, 40); i > 0; i--)
            load_round(load);
        broken += soft_verbs_break_any_qp(type) != 0;
        assert_true(clock_now_ns(clock_system()) - begin_ns < UINT64_C(120) * NS_PER_S);
    }
    load_wind_down(load);
    for (unsigned s = 0; s < LOAD_SENDERS; s++) {
        print_message("# sender %u: %u closed, %lu batches landed, %lu unknown, %lu messages\n", s,
                      load->senders[s].closed, load->senders[s].landed_count,
                      load->senders[s].ended, load->senders[s].messages);
        closed += load->senders[s].closed;
        assert_true(load->senders[s].landed_count > 0);
        assert_true(load->senders[s].messages > 0);
    }
    assert_true(closed >= BREAKS / 4); /* one break may meet a connection that breaks anyway */
    load_check_zone(load);
    load_close(load);
    soft_verbs_faults(NULL);
}

TEST(operations_end_when_queue_pairs_of_a_shared_queue_break)
{
    break_under_load(false, 1);
}

TEST(operations_end_when_broken_queue_pairs_take_their_completions_along)
{
    break_under_load(true, 2);
}

/* --- lost datagrams --- */

static void messages_with_loss(uint32_t drop, uint64_t messages)
{
    struct load *load;
    const uint64_t begin_ns = clock_now_ns(clock_system());
    struct soft_stats stats;

    load = open_load(false, drop);
    soft_verbs_faults(
        &(struct soft_faults){.drop = drop, .duplicate = 10, .reorder = 50, .delay_polls = 4});
    while (load->senders[0].messages < messages || load->senders[1].messages < messages) {
        load_round(load);
        assert_true(clock_now_ns(clock_system()) - begin_ns < UINT64_C(120) * NS_PER_S);
    }
    load_wind_down(load);
    for (unsigned s = 0; s < LOAD_SENDERS; s++)
        assert_int_equal(load->senders[s].closed, 0);
    soft_verbs_stats(&stats);
    print_message("# %lu datagrams, %lu lost, %lu met no receive\n", stats.ud_packets,
                  stats.ud_lost, stats.ud_unreceived);
    assert_true(stats.ud_lost > 0);
    load_check_zone(load);
    load_close(load);
    soft_verbs_faults(NULL);
}

TEST(messages_arrive_though_one_datagram_of_100_is_lost)
{
    messages_with_loss(10, 300);
}

TEST(messages_arrive_though_one_datagram_of_5_is_lost)
{
    messages_with_loss(200, 100);
}

/* --- missing resources --- */

/* One process of a sweep; false: something could not be had, and what was is closed. */
static bool sweep_open(struct fabric_host *host, struct side *side, unsigned process)
{
    const struct fabric_identity identity = {.cluster = 7, .id = process, .kind = FABRIC_SERVER};

    *side = (struct side){0};
    assert_int_equal(host_pm(host, 2 * FABRIC_SEGMENT_BYTES, &side->pm), 0);
    if (host_fabric(host, process, &side->fabric) != 0 ||
        fabric_register(side->fabric, side->pm) != 0 ||
        fabric_endpoint_open(side->fabric, 0, &side->endpoint) != 0)
        return false;
    fabric_endpoint_identity(side->endpoint, &identity);
    return process == 0 || (fabric_zone_open(side->endpoint, side->pm, 2, &side->zone) == 0 &&
                            fabric_zone_post(side->zone, 0, 0) == 0);
}

static void sweep_close(struct side *side)
{
    fabric_endpoint_close(side->endpoint);
    fabric_close(side->fabric);
    pm_close(side->pm);
}

/* CONNECTED or CLOSED of a connection from `a` to `b`, whichever comes; true: CONNECTED. */
static bool sweep_connect(struct fabric_host *host, struct side *a, struct side *b)
{
    const uint64_t end_ns = host_now_ns(host) + UINT64_C(20) * NS_PER_S;
    struct fabric_event events[16];
    struct fabric_conn *conn, *accepted = NULL;
    int connected = -1;

    if (fabric_connect(a->endpoint, host_address(host, 1), 0, 1, &conn) != 0)
        return false;
    while (connected < 0 || (connected && !accepted)) {
        unsigned count = fabric_poll(a->endpoint, host_now_ns(host), events, 16);

        for (unsigned i = 0; i < count; i++) {
            if (events[i].conn == conn)
                connected = events[i].kind == FABRIC_CONNECTED;
        }
        fabric_flush(a->endpoint);
        count = fabric_poll(b->endpoint, host_now_ns(host), events, 16);
        for (unsigned i = 0; i < count; i++)
            accepted = events[i].kind == FABRIC_ACCEPTED ? events[i].conn : NULL;
        fabric_flush(b->endpoint);
        assert_true(host_now_ns(host) < end_ns);
    }
    return connected;
}

/* The nth call that makes or changes something fails; false: there were fewer. */
static bool sweep(uint32_t nth, int error)
{
    struct fabric_host host;
    struct side a, b;
    bool opened, connected = false;
    uint32_t calls;

    host_init_verbs(&host, FABRIC_RECEIVE_SHARED, 0);
    soft_verbs_fail_call(nth, error);
    opened = sweep_open(&host, &a, 0);
    opened = sweep_open(&host, &b, 1) && opened;
    if (opened)
        connected = sweep_connect(&host, &a, &b);
    calls = soft_verbs_calls();
    soft_verbs_fail_call(0, 0);
    if (opened && !connected) /* nothing of it stays behind */
        assert_true(sweep_connect(&host, &a, &b));
    sweep_close(&a);
    sweep_close(&b);
    host_fini(&host);
    assert_true(soft_verbs_is_empty());
    assert_true(calls >= nth || connected);
    return calls >= nth;
}

TEST(whatever_cannot_be_had_is_said_and_nothing_leaks)
{
    static const int errors[] = {ENOMEM, EOPNOTSUPP};
    uint32_t nth = 1;

    setup_devices(false, 1);
    while (sweep(nth, errors[nth % 2]))
        nth++;
    print_message("# %u calls failed\n", nth - 1);
    assert_true(nth > 20);
}

/* --- asynchronous events --- */

static void load_for(struct load *load, uint32_t rounds)
{
    while (rounds-- > 0)
        load_round(load);
}

/* Until each sender has had `batches` more of them landed. */
static void load_until_landed(struct load *load, uint64_t batches)
{
    const uint64_t end_ns = host_now_ns(&load->host) + UINT64_C(60) * NS_PER_S;
    const uint64_t first = load->senders[0].landed_count + batches;
    const uint64_t second = load->senders[1].landed_count + batches;

    while (load->senders[0].landed_count < first || load->senders[1].landed_count < second) {
        assert_true(host_now_ns(&load->host) < end_ns);
        load_round(load);
    }
}

TEST(a_port_that_fails_and_returns_ends_connections_at_most)
{
    struct load *load;

    load = open_load(false, 4);
    load_until_landed(load, 20);
    for (int i = 0; i < 3; i++) {
        soft_verbs_device_event("soft1", IBV_EVENT_PORT_ERR);
        load_for(load, 50);
        soft_verbs_device_event("soft1", IBV_EVENT_PORT_ACTIVE);
        load_until_landed(load, 20);
    }
    close_load(load);
}

TEST(events_that_concern_nobody_change_nothing)
{
    static const enum ibv_event_type events[] = {IBV_EVENT_GID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                                                 IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_LID_CHANGE,
                                                 IBV_EVENT_SM_CHANGE};
    struct load *load;

    load = open_load(false, 5);
    load_until_landed(load, 5);
    for (unsigned i = 0; i < sizeof events / sizeof events[0]; i++)
        soft_verbs_device_event("soft1", events[i]);
    load_until_landed(load, 20);
    for (unsigned s = 0; s < LOAD_SENDERS; s++)
        assert_int_equal(load->senders[s].closed, 0);
    close_load(load);
}

TEST(a_device_that_dies_ends_every_connection)
{
    struct load *load;
    uint64_t end_ns;

    load = open_load(false, 6);
    load_until_landed(load, 20);
    load->winding_down = true;
    soft_verbs_device_event("soft1", IBV_EVENT_DEVICE_FATAL);
    end_ns = host_now_ns(&load->host) + UINT64_C(60) * NS_PER_S;
    while (load->senders[0].closed == 0 || load->senders[1].closed == 0) {
        assert_true(host_now_ns(&load->host) < end_ns);
        load_round(load);
    }
    load_close(load);
}

UNIT_MAIN(NULL, NULL)
