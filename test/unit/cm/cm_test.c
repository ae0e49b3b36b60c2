/* cm_test.c - the adapter between the real seams: shared memory between a manager and its peers, a
 * coordination service in a directory, all polled by one thread. */
#define TEST_FIXTURE setup, teardown

#include <sys/stat.h>

#include "cm/cm.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/cluster/control.h"
#include "test/lib/fail_call.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"

enum { PEERS = 4, EVENTS = 16 };

/* A server or client that talks to the manager. */
struct peer {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn;
    bool connected, closed;
    int closed_error;
    uint32_t answer_count;
    uint32_t tag;                /* of the last answer */
    uint64_t registration_epoch; /* the last that it was told */
    bool bring;                  /* likewise: it is to bring what it stored */
    Rowan__ControlMessage *answer;
};

static struct temp_dir dir;
static struct fabric *fabric;
static struct coord *coord;
static struct cm *manager;
static struct peer peers[PEERS];
static int failed_error;

static void on_failed(void *context, int error, const char *detail)
{
    (void)context;
    assert_true(strlen(detail) > 10);
    failed_error = error;
}

/* The manager's endpoint, which is nobody else's business but a test's. */
static const struct fabric_ops *real_ops;
static struct fabric_ops watched_ops;
static struct fabric_endpoint *manager_endpoint;

static int open_watched(struct fabric *of, uint32_t index, struct fabric_endpoint **out)
{
    int error = real_ops->endpoint_open(of, index, out);
    if (!error)
        manager_endpoint = *out;
    return error;
}

static void open_seams(void)
{
    char address[300];
    snprintf(address, sizeof address, "shm:%s/cm", dir.path);
    assert_int_equal(fabric_open("shm", address, &fabric), ROWAN_OK);
    real_ops = fabric->ops;
    watched_ops = *real_ops;
    watched_ops.endpoint_open = open_watched;
    fabric->ops = &watched_ops;
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "coord"), NULL, &coord), ROWAN_OK);
}

static bool recover; /* what was stored, from these: what the servers stored */
static ProtobufCBinaryData stored[2];

static int create_manager(void)
{
    struct cm_options options = {.state = {.server_count = 2,
                                           .servers = {1, 2},
                                           .replicas = 2,
                                           .cluster = 77,
                                           .secret = "0123456789abcde",
                                           .recover = recover},
                                 .fabric = fabric,
                                 .coord = coord,
                                 .incarnation = 5,
                                 .failed = on_failed};
    return cm_create(&options, &manager);
}

static void start_manager(void)
{
    open_seams();
    assert_int_equal(create_manager(), ROWAN_OK);
}

static void stop_manager(void)
{
    cm_destroy(manager);
    coord_close(coord);
    fabric_close(fabric);
}

static void drop_peer(struct peer *peer)
{
    control_free(peer->answer);
    fabric_endpoint_close(peer->endpoint);
    fabric_close(peer->fabric);
    memset(peer, 0, sizeof *peer);
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < PEERS; i++)
        drop_peer(&peers[i]);
    stop_manager();
    temp_dir_fini(&dir);
    return 0;
}

static void on_event(struct peer *peer, const struct fabric_event *event)
{
    switch (event->kind) {
    case FABRIC_CONNECTED:
        peer->connected = true;
        break;
    case FABRIC_CLOSED:
        peer->closed = true;
        peer->closed_error = event->error;
        peer->conn = NULL;
        break;
    case FABRIC_MESSAGE:
        control_free(peer->answer);
        peer->answer = NULL;
        assert_int_equal(control_decode(event->data, event->bytes, &peer->tag, &peer->answer), 0);
        peer->answer_count++;
        if (peer->answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS &&
            peer->answer->configuration_is->configuration.len == 0)
            peer->registration_epoch = peer->answer->configuration_is->registration_epoch;
        peer->bring = peer->answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS &&
                      peer->answer->configuration_is->bring;
        fabric_message_release(event->conn, event->message);
        break;
    default:
        break;
    }
}

static void poll_peer(struct peer *peer)
{
    struct fabric_event events[EVENTS];
    if (!peer->endpoint)
        return;
    unsigned count = fabric_poll(peer->endpoint, clock_now_ns(clock_system()), events, EVENTS);
    for (unsigned i = 0; i < count; i++)
        on_event(peer, &events[i]);
    fabric_flush(peer->endpoint);
}

/* One round of the manager, and of the peers that `reads` says. */
static void poll_some(unsigned reads)
{
    uint64_t wake_ns = WAKE_NEVER;
    cm_poll(manager, clock_now_ns(clock_system()), &wake_ns);
    for (unsigned i = 0; i < PEERS; i++) {
        if (reads & 1u << i)
            poll_peer(&peers[i]);
    }
}

static bool after_poll(const bool *flag)
{
    poll_some(~0u);
    return *flag;
}

static void connect_peer(struct peer *peer, enum fabric_kind kind, uint64_t cluster)
{
    char address[300];
    snprintf(address, sizeof address, "shm:%s/cm", dir.path);
    assert_int_equal(fabric_open("shm", NULL, &peer->fabric), ROWAN_OK);
    assert_int_equal(fabric_endpoint_open(peer->fabric, 0, &peer->endpoint), ROWAN_OK);
    fabric_endpoint_identity(peer->endpoint,
                             &(struct fabric_identity){.cluster = cluster,
                                                       .incarnation = 9,
                                                       .id = 1 + (uint32_t)(peer - peers),
                                                       .kind = kind});
    assert_int_equal(fabric_connect(peer->endpoint, address, 0, 1, &peer->conn), ROWAN_OK);
}

static void connect_now(struct peer *peer, enum fabric_kind kind)
{
    connect_peer(peer, kind, 0);
    assert_true(WAIT_FOR(after_poll(&peer->connected)));
}

static int send_bytes(struct peer *peer, const void *bytes, size_t count)
{
    struct fabric_iov iov = {bytes, (uint32_t)count};
    return fabric_send(peer->conn, &iov, 1);
}

static void send_message(struct peer *peer, uint32_t tag, const Rowan__ControlMessage *message)
{
    uint8_t bytes[1024];
    size_t count = control_encode(tag, message, bytes, sizeof bytes);
    assert_true(count > 0);
    assert_int_equal(send_bytes(peer, bytes, count), ROWAN_OK);
}

static void send_get(struct peer *peer, uint32_t tag, uint64_t known_term)
{
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    get.known_term = known_term;
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get);
    send_message(peer, tag, &message);
}

static void send_new_id(struct peer *peer, uint32_t tag)
{
    Rowan__NewClientId id = ROWAN__NEW_CLIENT_ID__INIT;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(NEW_CLIENT_ID, new_client_id, &id);
    send_message(peer, tag, &message);
}

/* Of a server whose PM holds nothing yet, or, formatted, the data of this cluster. */
static void send_join_of(struct peer *peer, uint32_t tag, uint32_t server, char *fabric_name,
                         uint64_t data_cluster)
{
    Rowan__Join join = ROWAN__JOIN__INIT;
    join.server = server;
    join.incarnation = 1000 + server;
    join.data_cluster = data_cluster;
    join.formatted = data_cluster != 0;
    join.registration_epoch = peer->registration_epoch;
    join.stored_term = server <= 2 && stored[server - 1].len > 0;
    if (peer->bring)
        join.stored = stored[server - 1];
    join.workers = 2;
    join.address = (char[]){"shm:/run/somewhere"};
    join.block_limit = 65536;
    join.fabric = fabric_name;
    join.durability = (char[]){"fence"};
    const Rowan__ControlMessage message = CONTROL_MESSAGE(JOIN, join, &join);
    send_message(peer, tag, &message);
}

static void send_join(struct peer *peer, uint32_t tag, uint32_t server)
{
    send_join_of(peer, tag, server, (char[]){"shm"}, 0);
}

/* Polls until one more answer has come. */
static void await_answer(struct peer *peer)
{
    uint32_t before = peer->answer_count;
    assert_true(WAIT_FOR((poll_some(~0u), peer->answer_count > before)));
}

static void assert_failure(const struct peer *peer, uint32_t tag, int error)
{
    assert_int_equal(peer->tag, tag);
    assert_int_equal(peer->answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_FAILURE);
    assert_int_equal(peer->answer->failure->error, error);
    assert_true(strlen(peer->answer->failure->detail) > 10);
}

static struct cluster_config *configuration_of(const struct peer *peer, uint32_t tag)
{
    struct cluster_config *config;
    assert_int_equal(peer->tag, tag);
    assert_int_equal(peer->answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS);
    const ProtobufCBinaryData *bytes = &peer->answer->configuration_is->configuration;
    assert_int_equal(cluster_decode(bytes->data, bytes->len, &config), ROWAN_OK);
    return config;
}

static bool says_it_leads(struct peer *peer)
{
    send_get(peer, 1, 0);
    await_answer(peer);
    return !peer->answer->configuration_is->not_leading;
}

static void await_lead(void)
{
    connect_now(&peers[3], FABRIC_CLIENT);
    assert_true(WAIT_FOR(says_it_leads(&peers[3])));
    drop_peer(&peers[3]);
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    memset(peers, 0, sizeof peers);
    failed_error = 0;
    recover = false;
    memset(stored, 0, sizeof stored);
    temp_dir_init(&dir);
    assert_int_equal(mkdir(temp_dir_at(&dir, "coord"), 0700), 0);
    start_manager();
    await_lead();
    return 0;
}

/* Peers 0 and 1 become servers 1 and 2 and have the configuration. */
static void make_cluster(void)
{
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 11, 1);
    await_answer(&peers[0]);
    connect_now(&peers[1], FABRIC_SERVER);
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    for (uint32_t i = 0; i < 2; i++) { /* they are told that both have come, and still there */
        send_join(&peers[0], 11, 1);
        await_answer(&peers[0]);
    }
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    assert_true(
        WAIT_FOR((poll_some(~0u), peers[0].answer_count == 4 && peers[1].answer_count == 3)));
    for (uint32_t i = 0; i < 2; i++) { /* they have formatted their PM */
        send_join_of(&peers[i], 13, i + 1, (char[]){"shm"}, 77);
        await_answer(&peers[i]);
    }
}

/* Peer 2 was one. */
static void have_a_client(void)
{
    connect_now(&peers[2], FABRIC_CLIENT);
    send_new_id(&peers[2], 14);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].answer->client_id_is->client_id, 1);
    drop_peer(&peers[2]);
}

TEST(servers_join_and_get_the_configuration_with_the_secret)
{
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 11, 1);
    await_answer(&peers[0]);
    const Rowan__ConfigurationIs *is = peers[0].answer->configuration_is;
    assert_int_equal(peers[0].tag, 11);
    assert_int_equal(is->configuration.len, 0);
    assert_int_equal(is->n_waiting_for, 1);
    assert_int_equal(is->waiting_for[0], 2);
    assert_null(cm_config(manager));

    connect_now(&peers[1], FABRIC_SERVER);
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    assert_null(cm_config(manager));
    send_join(&peers[1], 12, 2);
    await_answer(&peers[1]);
    send_join(&peers[0], 13, 1); /* it is told that both have come */
    await_answer(&peers[0]);
    assert_null(cm_config(manager));
    send_join(&peers[0], 14, 1); /* and still there */
    assert_true(WAIT_FOR((poll_some(~0u), peers[0].answer_count == 4)));
    struct cluster_config *config = configuration_of(&peers[0], 0);
    assert_int_equal(config->term, 1);
    assert_int_equal(config->cluster, 77);
    assert_true(config->has_secret);
    assert_int_equal(config->shard_count, 16);
    assert_int_equal(cluster_member(config, 1)->incarnation, 1001);
    cluster_release(config);
}

TEST(clients_get_ids_and_the_configuration_without_the_secret)
{
    make_cluster();
    have_a_client();
    connect_now(&peers[2], FABRIC_CLIENT);
    send_get(&peers[2], 5, 0);
    await_answer(&peers[2]);
    struct cluster_config *config = configuration_of(&peers[2], 5);
    assert_false(config->has_secret);
    cluster_release(config);
    send_get(&peers[2], 6, 2);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].tag, 6);
    assert_int_equal(peers[2].answer->configuration_is->configuration.len, 0);
    for (uint32_t id = 2; id <= 4; id++) {
        send_new_id(&peers[2], id);
        await_answer(&peers[2]);
        assert_int_equal(peers[2].answer->client_id_is->client_id, id);
    }
}

TEST(a_manager_that_restarts_goes_on)
{
    make_cluster();
    have_a_client();
    for (int i = 0; i < 2; i++)
        drop_peer(&peers[i]);
    stop_manager();
    start_manager();
    await_lead();
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 21, 1);
    await_answer(&peers[0]);
    struct cluster_config *config = configuration_of(&peers[0], 21);
    assert_int_equal(config->term, 2);
    cluster_release(config);
    connect_now(&peers[2], FABRIC_CLIENT);
    send_new_id(&peers[2], 22);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].answer->client_id_is->client_id, 1 + CM_CLIENT_ID_BLOCK);
}

static void note_lead(void *context, bool leads)
{
    *(bool *)context = leads;
}

static bool gives_an_id(struct peer *peer)
{
    send_new_id(peer, 33);
    await_answer(peer);
    return peer->answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS;
}

TEST(a_standby_says_that_it_is_one_until_the_leader_has_gone)
{
    struct coord *leader;
    bool leads = false;
    uint64_t wake_ns;
    make_cluster();
    have_a_client();
    drop_peer(&peers[0]);
    stop_manager();
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "coord"), NULL, &leader), 0);
    assert_int_equal(coord_elect(leader, note_lead, &leads), 0);
    assert_true(
        WAIT_FOR((coord_poll(leader, clock_now_ns(clock_system()), &wake_ns), leads == true)));
    start_manager();
    connect_now(&peers[2], FABRIC_CLIENT);
    send_get(&peers[2], 31, 0);
    await_answer(&peers[2]);
    cluster_release(configuration_of(&peers[2], 31));
    assert_true(peers[2].answer->configuration_is->not_leading);
    send_new_id(&peers[2], 32);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 32, ROWAN_ENOTLEADING);
    connect_now(&peers[0], FABRIC_SERVER);
    send_join(&peers[0], 34, 1);
    await_answer(&peers[0]);
    assert_failure(&peers[0], 34, ROWAN_ENOTLEADING);
    coord_close(leader);
    assert_true(WAIT_FOR(gives_an_id(&peers[2])));
}

/* The value is gone; both servers come with what they stored, in `bytes` of the second one `flip`. */
static void recover_from(uint8_t *bytes, size_t count, uint8_t flip)
{
    uint8_t second[1024];
    memcpy(second, bytes, count);
    second[0] ^= flip;
    stored[0] = (ProtobufCBinaryData){.len = count, .data = bytes};
    stored[1] = (ProtobufCBinaryData){.len = count, .data = second};
    for (int i = 0; i < 2; i++)
        drop_peer(&peers[i]);
    stop_manager();
    assert_int_equal(unlink(temp_dir_at(&dir, "coord/value")), 0);
    recover = true;
    start_manager();
    await_lead();
    for (int i = 0; i < 2; i++)
        connect_now(&peers[i], FABRIC_SERVER);
    for (uint32_t i = 0; i < 10; i++) {
        send_join_of(&peers[i % 2], 20 + i, 1 + i % 2, (char[]){"shm"}, 77);
        const uint32_t before = peers[i % 2].answer_count;
        assert_true(
            WAIT_FOR((poll_some(~0u), peers[i % 2].answer_count > before || cm_error(manager))));
        if (cm_error(manager))
            return;
    }
    assert_true(WAIT_FOR((poll_some(~0u), cm_config(manager))));
}

TEST(what_was_lost_is_made_anew_from_what_servers_bring_and_not_from_garbage)
{
    uint8_t bytes[1024];
    make_cluster();
    const size_t count = cluster_encode(cm_config(manager), true, bytes, sizeof bytes);
    assert_true(count > 0);
    recover_from(bytes, count, 0);
    assert_int_equal(cm_error(manager), 0);
    const struct cluster_config *config = cm_config(manager);
    assert_true(config->term > UINT32_MAX && config->cluster == 77 && config->has_secret);
    assert_memory_equal(config->secret, "0123456789abcde", sizeof config->secret);
    recover_from(bytes, count, 0xff);
    assert_int_equal(failed_error, ROWAN_EDAMAGED);
}

TEST(a_peer_of_another_cluster_is_not_let_in)
{
    make_cluster();
    connect_peer(&peers[2], FABRIC_SERVER, 78);
    assert_true(WAIT_FOR(after_poll(&peers[2].closed)));
    assert_int_equal(peers[2].closed_error, ROWAN_ECLUSTER);
    assert_false(peers[2].connected);
    connect_peer(&peers[3], FABRIC_SERVER, 77);
    assert_true(WAIT_FOR(after_poll(&peers[3].connected)));
}

TEST(bad_requests_are_answered_and_cost_nobody_else_anything)
{
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    assert_int_equal(send_bytes(&peers[2], "garbage!", 8), ROWAN_OK);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 0, ROWAN_EFORMAT);

    Rowan__GetStatus status = ROWAN__GET_STATUS__INIT;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(GET_STATUS, get_status, &status);
    send_message(&peers[2], 31, &message);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 31, ROWAN_EUNSUPPORTED);

    send_join(&peers[2], 32, 1);
    await_answer(&peers[2]);
    assert_failure(&peers[2], 32, ROWAN_EREFUSED);
    send_join_of(&peers[0], 33, 1, (char[]){"a name that is longer than any fabric's"}, 0);
    await_answer(&peers[0]);
    assert_failure(&peers[0], 33, ROWAN_EINVALID);
    send_get(&peers[0], 34, 0);
    await_answer(&peers[0]);
    cluster_release(configuration_of(&peers[0], 34));
}

/* One client asks and never reads: it is given up, others are served. */
TEST(a_peer_that_does_not_read_is_given_up)
{
    make_cluster();
    connect_now(&peers[2], FABRIC_CLIENT);
    connect_now(&peers[3], FABRIC_CLIENT);
    const unsigned others = ~(1u << 2);
    uint8_t bytes[64];
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get);
    size_t count = control_encode(1, &message, bytes, sizeof bytes);
    uint32_t asked = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        if (send_bytes(&peers[2], bytes, count) == ROWAN_OK)
            asked++;
        fabric_flush(peers[2].endpoint);
        poll_some(others);
    }
    send_get(&peers[3], 41, 0);
    await_answer(&peers[3]);
    cluster_release(configuration_of(&peers[3], 41));
    assert_true(WAIT_FOR(after_poll(&peers[2].closed)));
    assert_true(peers[2].answer_count < asked);
    assert_int_equal(cm_error(manager), ROWAN_OK);
}

TEST(a_damaged_configuration_stops_the_manager)
{
    stop_manager();
    FILE *file = fopen(temp_dir_at(&dir, "coord/value"), "w");
    assert_non_null(file);
    fputs("not a configuration", file);
    fclose(file);
    start_manager();
    assert_true(WAIT_FOR((poll_some(0), cm_error(manager) != 0)));
    assert_int_equal(failed_error, ROWAN_EFORMAT);
    uint64_t wake_ns = WAKE_NEVER;
    assert_int_equal(cm_poll(manager, 1, &wake_ns), POLL_IDLE);
}

TEST(whatever_call_fails_a_manager_that_cannot_start_leaves_its_place_to_the_next)
{
    bool more = true;
    stop_manager();
    for (uint32_t nth = 1; more; nth++) {
        open_seams();
        manager = NULL;
        fail_call(nth);
        int error = create_manager();
        more = fail_stop();
        assert_true(more || !error);
        if (more)
            stop_manager();
    }
    connect_now(&peers[0], FABRIC_CLIENT);
}

TEST(a_network_device_that_failed_stops_the_manager)
{
    manager_endpoint->error = ROWAN_EIO;
    assert_true(WAIT_FOR((poll_some(0), cm_error(manager) != 0)));
    assert_int_equal(failed_error, ROWAN_EIO);
}

UNIT_MAIN(NULL, NULL)
