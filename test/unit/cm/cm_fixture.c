/* cm_fixture.c - see cm_fixture.h. */
#include "test/unit/cm/cm_fixture.h"

#include <sys/stat.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "test/lib/asserts.h"
#include "test/lib/wait.h"

enum { EVENTS = 16 };

struct temp_dir dir;
struct fabric *fabric;
struct coord *coord;
struct cm *manager;
struct peer peers[PEERS];
int failed_error;

static void on_failed(void *context, int error, const char *detail)
{
    (void)context;
    assert_true(strlen(detail) > 10);
    failed_error = error;
}

/* The manager's endpoint, which is nobody else's business but a test's. */
static const struct fabric_ops *real_ops;
static struct fabric_ops watched_ops;
struct fabric_endpoint *manager_endpoint;

static int open_watched(struct fabric *of, uint32_t index, struct fabric_endpoint **out)
{
    int error = real_ops->endpoint_open(of, index, out);
    if (!error)
        manager_endpoint = *out;
    return error;
}

void open_seams(void)
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

uint32_t lease_ms;
bool recover;
ProtobufCBinaryData stored[2];

int create_manager(void)
{
    struct cm_options options = {.state = {.server_count = 2,
                                           .servers = {1, 2},
                                           .replicas = 2,
                                           .cluster = 77,
                                           .secret = "0123456789abcde",
                                           .lease_ms = lease_ms,
                                           .recover = recover,
                                           .incarnation = 5},
                                 .fabric = fabric,
                                 .coord = coord,
                                 .failed = on_failed};
    return cm_create(&options, &manager);
}

void start_manager(void)
{
    open_seams();
    assert_int_equal(create_manager(), ROWAN_OK);
}

void stop_manager(void)
{
    cm_destroy(manager);
    coord_close(coord);
    fabric_close(fabric);
}

void drop_peer(struct peer *peer)
{
    control_free(peer->answer);
    fabric_endpoint_close(peer->endpoint);
    fabric_close(peer->fabric);
    memset(peer, 0, sizeof *peer);
}

int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < PEERS; i++)
        drop_peer(&peers[i]);
    stop_manager();
    temp_dir_fini(&dir);
    return 0;
}

static void on_message(struct peer *peer, const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    assert_int_equal(control_decode(event->data, event->bytes, &tag, &message), 0);
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_COMMITTED) {
        peer->committed = message->committed->term;
        control_free(message);
        return;
    }
    control_free(peer->answer);
    peer->answer = message;
    peer->tag = tag;
    peer->answer_count++;
    const bool is = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS;
    if (is && message->configuration_is->configuration.len == 0)
        peer->registration_epoch = message->configuration_is->registration_epoch;
    peer->bring = is && message->configuration_is->bring;
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
        on_message(peer, event);
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

void poll_some(unsigned reads)
{
    uint64_t wake_ns = WAKE_NEVER;
    cm_poll(manager, clock_now_ns(clock_system()), &wake_ns);
    for (unsigned i = 0; i < PEERS; i++) {
        if (reads & 1u << i)
            poll_peer(&peers[i]);
    }
}

bool after_poll(const bool *flag)
{
    poll_some(~0u);
    return *flag;
}

void connect_peer(struct peer *peer, enum fabric_kind kind, uint64_t cluster)
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

void connect_now(struct peer *peer, enum fabric_kind kind)
{
    connect_peer(peer, kind, 0);
    assert_true(WAIT_FOR(after_poll(&peer->connected)));
}

int send_bytes(struct peer *peer, const void *bytes, size_t count)
{
    struct fabric_iov iov = {bytes, (uint32_t)count};
    return fabric_send(peer->conn, &iov, 1);
}

void send_message(struct peer *peer, uint32_t tag, const Rowan__ControlMessage *message)
{
    uint8_t bytes[1024];
    size_t count = control_encode(tag, message, bytes, sizeof bytes);
    assert_true(count > 0);
    assert_int_equal(send_bytes(peer, bytes, count), ROWAN_OK);
}

void send_get(struct peer *peer, uint32_t tag, uint64_t known_term)
{
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    get.known_term = known_term;
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get);
    send_message(peer, tag, &message);
}

void send_new_id(struct peer *peer, uint32_t tag)
{
    Rowan__NewClientId id = ROWAN__NEW_CLIENT_ID__INIT;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(NEW_CLIENT_ID, new_client_id, &id);
    send_message(peer, tag, &message);
}

void send_join_of(struct peer *peer, uint32_t tag, uint32_t server, char *fabric_name,
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

void send_join(struct peer *peer, uint32_t tag, uint32_t server)
{
    send_join_of(peer, tag, server, (char[]){"shm"}, 0);
}

void await_answer(struct peer *peer)
{
    uint32_t before = peer->answer_count;
    assert_true(WAIT_FOR((poll_some(~0u), peer->answer_count > before)));
}

void assert_failure(const struct peer *peer, uint32_t tag, int error)
{
    assert_int_equal(peer->tag, tag);
    assert_int_equal(peer->answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_FAILURE);
    assert_int_equal(peer->answer->failure->error, error);
    assert_true(strlen(peer->answer->failure->detail) > 10);
}

struct cluster_config *configuration_of(const struct peer *peer, uint32_t tag)
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

void await_lead(void)
{
    connect_now(&peers[3], FABRIC_CLIENT);
    assert_true(WAIT_FOR(says_it_leads(&peers[3])));
    drop_peer(&peers[3]);
}

int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    memset(peers, 0, sizeof peers);
    failed_error = 0;
    lease_ms = 0;
    recover = false;
    memset(stored, 0, sizeof stored);
    temp_dir_init(&dir);
    assert_int_equal(mkdir(temp_dir_at(&dir, "coord"), 0700), 0);
    start_manager();
    await_lead();
    return 0;
}

void make_cluster(void)
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

void have_a_client(void)
{
    connect_now(&peers[2], FABRIC_CLIENT);
    send_new_id(&peers[2], 14);
    await_answer(&peers[2]);
    assert_int_equal(peers[2].answer->client_id_is->client_id, 1);
    drop_peer(&peers[2]);
}
