/* One thread, one reactor-less loop: it sleeps on nothing but yields, because it is the client's
 * sleep that is under test. Keys live in a small open table that only this thread touches. */
#include "toy.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/cluster/cluster.h"
#include "common/cluster/control.h"
#include "common/fabric/fabric.h"
#include "proto/message.h"

enum { OBJECTS = 4096, HELD = 256, EVENTS = 16 };

struct object {
    char key[32];
    uint32_t key_bytes; /* 0: free */
    uint8_t *value;     /* NULL: deleted */
    uint32_t value_bytes;
    uint64_t version;
};

struct toy {
    pthread_t thread;
    struct fabric *cm_fabric, *server_fabric;
    struct fabric_endpoint *cm, *server;
    struct cluster_config *config;
    struct object objects[OBJECTS];
    uint64_t version;
    struct fabric_event held[HELD];
    uint32_t held_count;
    _Atomic int allowed;
    _Atomic bool stopping;
};

static struct object *find(struct toy *toy, const uint8_t *key, uint32_t key_bytes)
{
    uint32_t at = slot_of_key(key, key_bytes) % OBJECTS;

    ASSERT(key_bytes <= sizeof toy->objects[0].key);
    while (toy->objects[at].key_bytes && (toy->objects[at].key_bytes != key_bytes ||
                                          memcmp(toy->objects[at].key, key, key_bytes) != 0))
        at = (at + 1) % OBJECTS;
    return &toy->objects[at];
}

static void store(struct toy *toy, struct object *object, const struct message_request *request,
                  const uint8_t *key, const uint8_t *value)
{
    memcpy(object->key, key, request->key_bytes);
    object->key_bytes = request->key_bytes;
    free(object->value);
    object->value = malloc(request->value_bytes + 1);
    ASSERT(object->value);
    memcpy(object->value, value, request->value_bytes);
    object->value_bytes = request->value_bytes;
    object->version = ++toy->version;
}

/* What a server would do, without replicas. */
static int act(struct toy *toy, const struct message_request *request, const uint8_t *key,
               const uint8_t *value, struct object **out)
{
    struct object *object = find(toy, key, request->key_bytes);

    *out = object;
    switch (request->type) {
    case MESSAGE_GET:
        return object->value ? 0 : ROWAN_ENOTFOUND;
    case MESSAGE_DELETE:
        if (!object->value)
            return ROWAN_ENOTFOUND;
        free(object->value);
        object->value = NULL;
        return 0;
    case MESSAGE_PUT_IF:
        if ((object->value ? object->version : 0) != request->expected)
            return ROWAN_EVERSION;
        break;
    default:
        break;
    }
    store(toy, object, request, key, value);
    return 0;
}

static void send_whole(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count)
{
    int error = fabric_send(conn, iov, count);

    ASSERT(error == 0); /* the tests leave room */
}

static void answer(struct toy *toy, const struct fabric_event *event)
{
    struct message_request request;
    const uint8_t *key, *value;
    struct object *object;

    ASSERT(message_parse_request(event->data, event->bytes, &request, &key, &value));
    struct message_reply reply = {.type = MESSAGE_REPLY,
                                  .layout = MESSAGE_LAYOUT,
                                  .operation = request.operation,
                                  .tag = request.tag,
                                  .term = toy->config->term};

    reply.status = (int16_t)act(toy, &request, key, value, &object);
    reply.version = object->value ? object->version : 0;
    if (request.type == MESSAGE_GET && object->value)
        reply.value_bytes = object->value_bytes;
    struct fabric_iov iov[2] = {{&reply, sizeof reply}, {object->value, reply.value_bytes}};

    send_whole(event->conn, iov, reply.value_bytes ? 2 : 1);
    fabric_message_release(event->conn, event->message);
}

static void answer_cm(struct toy *toy, const struct fabric_event *event)
{
    Rowan__ControlMessage *request, message = ROWAN__CONTROL_MESSAGE__INIT;
    Rowan__ClientIdIs id = ROWAN__CLIENT_ID_IS__INIT;
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;
    uint8_t config[4096], bytes[5000];
    uint32_t tag;

    ASSERT(control_decode(event->data, event->bytes, &tag, &request) == 0);
    if (request->body_case == ROWAN__CONTROL_MESSAGE__BODY_NEW_CLIENT_ID) {
        id.client_id = 7;
        message.body_case = ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS;
        message.client_id_is = &id;
    } else {
        is.configuration.data = config;
        is.configuration.len = cluster_encode(toy->config, false, config, sizeof config);
        message.body_case = ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS;
        message.configuration_is = &is;
    }
    struct fabric_iov iov = {bytes, (uint32_t)control_encode(tag, &message, bytes, sizeof bytes)};

    send_whole(event->conn, &iov, 1);
    fabric_message_release(event->conn, event->message);
    control_free(request);
}

/* What was held for a connection that is gone is gone with it. */
static void forget(struct toy *toy, const struct fabric_conn *conn)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < toy->held_count; i++) {
        if (toy->held[i].conn != conn)
            toy->held[kept++] = toy->held[i];
    }
    toy->held_count = kept;
}

static void answer_held(struct toy *toy)
{
    int allowed = atomic_load(&toy->allowed);

    while (toy->held_count > 0 && allowed != 0) {
        answer(toy, &toy->held[0]);
        memmove(&toy->held[0], &toy->held[1], --toy->held_count * sizeof toy->held[0]);
        if (allowed > 0) {
            atomic_fetch_sub(&toy->allowed, 1);
            allowed--;
        }
    }
}

static void serve(struct toy *toy, struct fabric_endpoint *endpoint)
{
    struct fabric_event events[EVENTS];
    unsigned count = fabric_poll(endpoint, clock_now_ns(clock_system()), events, EVENTS);

    for (unsigned i = 0; i < count; i++) {
        if (events[i].kind == FABRIC_CLOSED)
            forget(toy, events[i].conn);
        if (events[i].kind != FABRIC_MESSAGE)
            continue;
        if (endpoint == toy->cm) {
            answer_cm(toy, &events[i]);
        } else {
            ASSERT(toy->held_count < HELD);
            toy->held[toy->held_count++] = events[i];
        }
    }
    if (endpoint == toy->server)
        answer_held(toy);
    fabric_flush(endpoint);
    if (count == 0)
        sched_yield();
}

static void *run(void *argument)
{
    struct toy *toy = argument;

    while (!atomic_load(&toy->stopping)) {
        serve(toy, toy->cm);
        serve(toy, toy->server);
    }
    return NULL;
}

static struct cluster_config *make_config(const char *address)
{
    struct cluster_config *config = cluster_create(1, 1);

    ASSERT(config);
    config->term = 1;
    config->cluster = 99;
    config->block_limit = 65536;
    config->replicas = 1;
    config->next_client_id = 8;
    config->members[0] = (struct member){.server = 1, .incarnation = 1, .workers = 1};
    snprintf(config->members[0].address, sizeof config->members[0].address, "%s", address);
    config->shards[0] =
        (struct shard){.last_slot = SLOT_COUNT - 1, .epoch = 1, .primary = 1, .worker = 0};
    ASSERT(cluster_finish(config) == 0);
    return config;
}

static void open_place(const char *address, enum fabric_kind kind, struct fabric **fabric,
                       struct fabric_endpoint **endpoint)
{
    ASSERT(fabric_open("shm", address, fabric) == 0);
    ASSERT(fabric_endpoint_open(*fabric, 0, endpoint) == 0);
    fabric_endpoint_identity(
        *endpoint,
        &(struct fabric_identity){.cluster = 99, .incarnation = 1, .id = 1, .kind = kind});
}

struct toy *toy_start(const char *directory)
{
    struct toy *toy = calloc(1, sizeof *toy);
    char cm[200], server[200], path[200];

    ASSERT(toy);
    snprintf(cm, sizeof cm, "shm:%s/c", directory);
    snprintf(server, sizeof server, "shm:%s/s", directory);
    snprintf(path, sizeof path, "%s/cm", directory);
    atomic_init(&toy->allowed, -1);
    toy->config = make_config(server);
    open_place(cm, FABRIC_CM, &toy->cm_fabric, &toy->cm);
    open_place(server, FABRIC_SERVER, &toy->server_fabric, &toy->server);
    FILE *file = fopen(path, "w");

    ASSERT(file);
    fprintf(file, "%s\n", cm);
    ASSERT(fclose(file) == 0);
    ASSERT(pthread_create(&toy->thread, NULL, run, toy) == 0);
    return toy;
}

void toy_stop(struct toy *toy)
{
    atomic_store(&toy->stopping, true);
    pthread_join(toy->thread, NULL);
    fabric_endpoint_close(toy->cm);
    fabric_endpoint_close(toy->server);
    fabric_close(toy->cm_fabric);
    fabric_close(toy->server_fabric);
    for (uint32_t i = 0; i < OBJECTS; i++)
        free(toy->objects[i].value);
    cluster_release(toy->config);
    free(toy);
}

void toy_allow(struct toy *toy, int answers)
{
    atomic_store(&toy->allowed, answers);
}
