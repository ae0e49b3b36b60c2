/* world.c - see world.h. The checks, wherever a message is sent:
 *  - a configuration was stored before (C7), and newer ones come after older ones; a client id is given once, to one who asked;
 *  - the secret goes only to a connection whose Join named a member's incarnation; plans are answered when they are stored;
 *  - one request to the store is under way; what is stored obeys the rules of world_checks.c. */
#include "test/unit/cm/world.h"

#include "common/base/error.h"
#include "common/base/version.h"
#include "test/lib/asserts.h"
#include "test/unit/cm/world_checks.h"

void world_store_fini(struct world_store *store)
{
    for (uint64_t i = 1; i <= store->version; i++)
        cluster_release(store->history[i]);
    memset(store, 0, sizeof *store);
}

struct world_store *world_store;

int world_setup(void **state)
{
    (void)state;
    world_store = calloc(1, sizeof *world_store);
    return world_store ? 0 : -1;
}

static struct world *worlds;

int world_teardown(void **state)
{
    (void)state;
    while (worlds)
        world_destroy(worlds);
    world_store_fini(world_store);
    free(world_store);
    return 0;
}

const struct cluster_config *world_stored(void)
{
    return world_store->history[world_store->version];
}

struct cm_state_options world_options(uint32_t servers, uint32_t replicas, uint32_t shards)
{
    struct cm_state_options options = {.server_count = servers,
                                       .replicas = replicas,
                                       .shards = shards,
                                       .incarnation = 7001,
                                       .cluster = 77};
    for (uint32_t i = 0; i < servers; i++)
        options.servers[i] = i + 1;
    memset(options.secret, 0x5e, sizeof options.secret);
    return options;
}

struct world *world_create(struct world_store *store, const struct cm_state_options *options)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->store = store;
    world->manager = options->incarnation;
    world->next = worlds;
    worlds = world;
    assert_int_equal(cm_state_create(options, &world->state), ROWAN_OK);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_START});
    return world;
}

void world_destroy(struct world *world)
{
    struct world **at = &worlds;
    while (*at != world)
        at = &(*at)->next;
    *at = world->next;
    cluster_release(world->proposal);
    cm_state_destroy(world->state);
    free(world);
}

static void check_configuration(struct world *world, const struct cm_action *action)
{
    struct world_connection *peer = &world->connections[action->connection];
    const struct cluster_config *config = action->config;
    if (!config) {
        assert_false(action->with_secret);
        return;
    }
    const struct cluster_config *stored = NULL;
    for (uint64_t i = 1; i <= world->store->version; i++) {
        if (world->store->history[i]->term == config->term)
            stored = world->store->history[i];
    }
    assert_non_null(stored);
    assert_int_equal(stored->next_client_id, config->next_client_id);
    assert_memory_equal(stored->shards, config->shards,
                        config->shard_count * sizeof config->shards[0]);

    if (action->tag == 0)
        assert_true(config->term > peer->told_term);
    else
        assert_true(config->term >= peer->told_term);
    peer->told_term = config->term;
    if (action->with_secret) {
        const struct member *member = cluster_member(config, peer->server);
        assert_non_null(member);
        assert_int_equal(member->incarnation, peer->incarnation);
    }
}

static void check_id(struct world *world, const struct cm_action *action)
{
    struct world_store *store = world->store;
    struct world_connection *peer = &world->connections[action->connection];
    uint32_t id = action->client_id;
    const uint32_t place = (id >> 29) * WORLD_IDS + id % (1u << 29);
    assert_true(id >= 1 && store->version > 0 && id % (1u << 29) < WORLD_IDS);
    assert_true(id < store->history[store->version]->next_client_id);
    assert_false(store->id_given[place / 8] & (1 << place % 8));
    store->id_given[place / 8] |= (uint8_t)(1 << place % 8);
    assert_true(peer->wants_id && peer->id_tag == action->tag);
    peer->wants_id = false;
    store->ids_given++;
}

static void check_plan(struct world_connection *peer, const struct cluster_config *config)
{
    const struct cm_plan *plan = &peer->plan;
    peer->plan_tag = 0;
    if (plan->kind == CM_PLAN_MOVE)
        assert_true(shard_names(cluster_shard(config, (uint16_t)plan->shard), plan->to));
    else if (plan->kind <
             CM_PLAN_MOVE) /* WORKER and SPLIT: nothing that a client sees, or sees long */
        assert_int_equal(cluster_wants(config, plan->server), plan->kind == CM_PLAN_ADD);
    assert_true(plan->kind != CM_PLAN_REMOVE || !cluster_member(config, plan->server));
}

static void note_sent(struct world *world, const struct cm_output *output,
                      const struct cm_action *action)
{
    struct world_connection *peer = &world->connections[action->connection];
    assert_true(peer->open && world->sent_count < WORLD_SENT);
    if (action->kind == CM_ACTION_LEASE)
        assert_true(action->now_ns <= world->now_ns);
    else if (action->kind == CM_ACTION_COMMITTED)
        assert_true(action->term > 0 &&
                    (action->term <= peer->told_term || action->term <= peer->claimed_term));
    else if (action->kind == CM_ACTION_CONFIGURATION)
        check_configuration(world, action);
    else if (action->kind == CM_ACTION_CLIENT_ID && action->client_id)
        check_id(world, action);
    else if (action->error == ROWAN_ENOTLEADING || /* it asks another one */
             (peer->wants_id && peer->id_tag == action->tag && action->error != ROWAN_EAGAIN))
        peer->wants_id = false;

    if (peer->plan_tag && peer->plan_tag == action->tag) {
        if (action->kind == CM_ACTION_CONFIGURATION)
            check_plan(peer, action->config);
        peer->plan_tag = 0;
    }
    if (action->kind == CM_ACTION_FAILURE || action->with_secret)
        peer->waits = false;
    if (action->kind == CM_ACTION_CONFIGURATION && !action->config)
        peer->registration_epoch = output->registration_epoch;
    peer->bring = action->bring;
    if (world->repeating && action->kind == CM_ACTION_CONFIGURATION && !action->config)
        return;
    struct world_sent *sent = &world->sent[world->sent_count++];
    *sent = (struct world_sent){.kind = action->kind,
                                .connection = action->connection,
                                .tag = action->tag,
                                .with_secret = action->with_secret,
                                .not_leading = !output->leads,
                                .term = action->config ? action->config->term : action->term,
                                .granted = action->granted,
                                .manager_ns = action->now_ns,
                                .client_id = action->client_id,
                                .error = action->error,
                                .waiting_count = output->waiting_count};
    memcpy(sent->waiting_for, output->waiting_for,
           output->waiting_count * sizeof output->waiting_for[0]);
    if (action->kind == CM_ACTION_FAILURE) {
        assert_true(action->error < 0 && strlen(action->detail) > 10);
        snprintf(sent->detail, sizeof sent->detail, "%s", action->detail);
    }
}

static void start_store(struct world *world, const struct cm_action *action)
{
    assert_true(world->leads || action->config->manager == world->manager);
    assert_true(!world->reading && !world->storing && action->config->has_secret);
    world->storing = true;
    world->expected_version = action->expected_version;
    world->proposal = cluster_copy(action->config);
}

static void note_warning(struct world *world, const struct cm_action *action)
{
    assert_true(strlen(action->detail) > 5);
    if (world->warning_count == WORLD_WARNINGS)
        return;
    world->warnings[world->warning_count].event = action->event;
    snprintf(world->warnings[world->warning_count++].detail, CM_MAX_DETAIL_BYTES + 1, "%s",
             action->detail);
}

void world_step(struct world *world, const struct cm_event *event)
{
    struct cm_event with_time = *event;
    with_time.now_ns = world->now_ns;
    const struct cm_output *output = cm_state_step(world->state, &with_time);
    world->wake_ns = output->wake_ns;
    for (uint32_t i = 0; i < output->count; i++) {
        const struct cm_action *action = &output->actions[i];
        switch (action->kind) {
        case CM_ACTION_READ:
            assert_false(world->reading || world->storing);
            world->reading = true;
            break;
        case CM_ACTION_STORE:
            start_store(world, action);
            break;
        case CM_ACTION_TELL:
        case CM_ACTION_WARN:
            note_warning(world, action);
            break;
        case CM_ACTION_STOP:
            world->stopped = true;
            world->stop_error = action->error;
            snprintf(world->stop_detail, sizeof world->stop_detail, "%s", action->detail);
            break;
        default:
            note_sent(world, output, action);
            break;
        }
    }
}

void world_answer_read(struct world *world, int error)
{
    assert_true(world->reading);
    world->reading = false;
    uint64_t version = world->store->version;
    world_step(world, &(struct cm_event){
                          .kind = CM_EVENT_READ,
                          .error = error,
                          .version = error ? 0 : version,
                          .config = error || version == 0 ? NULL : world->store->history[version]});
}

void world_answer_store(struct world *world, enum world_outcome outcome)
{
    assert_true(world->storing);
    struct cluster_config *proposal = world->proposal;
    world->storing = false;
    world->proposal = NULL;

    struct cm_event event = {.kind = CM_EVENT_STORED, .error = ROWAN_EVERSION};
    bool arrives = outcome == WORLD_OK || outcome == WORLD_UNKNOWN_WON;
    if (arrives && world->expected_version == world->store->version) {
        struct world_store *store = world->store;
        assert_true(store->version < WORLD_HISTORY);
        assert_int_equal(cluster_finish(proposal), ROWAN_OK);
        if (store->history[store->version])
            world_check_next(store, store->history[store->version], proposal);
        store->history[++store->version] = cluster_hold(proposal);
        event.error = ROWAN_OK;
        event.version = world->store->version;
    }
    cluster_release(proposal);
    if (outcome == WORLD_ERROR)
        event.error = ROWAN_EIO;
    else if (outcome != WORLD_OK)
        event.error = ROWAN_EUNKNOWN;
    world_step(world, &event);
}

void world_settle(struct world *world)
{
    while (!world->stopped && (world->reading || world->storing)) {
        if (world->reading)
            world_answer_read(world, ROWAN_OK);
        else
            world_answer_store(world, WORLD_OK);
    }
}

struct cluster_config *world_next(const struct world *world)
{
    struct cluster_config *next = cluster_copy(cm_state_config(world->state));
    next->term++;
    next->next_client_id += CM_CLIENT_ID_BLOCK;
    return next;
}

void world_change(struct world *world, struct cluster_config *next)
{
    world->store->history[++world->store->version] = next;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
}

void world_open(struct world *world, uint32_t connection)
{
    world->connections[connection] = (struct world_connection){.open = true};
    world_step(world, &(struct cm_event){.kind = CM_EVENT_OPENED, .connection = connection});
}

void world_close(struct world *world, uint32_t connection)
{
    world->connections[connection] = (struct world_connection){0};
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CLOSED, .connection = connection});
}

static struct world_connection *open_connection(struct world *world, uint32_t connection)
{
    if (!world->connections[connection].open)
        world_open(world, connection);
    return &world->connections[connection];
}

void world_lead(struct world *world, bool leader)
{
    world->leads = leader;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_LEADER, .leader = leader});
}

void world_elect(struct world *world)
{
    world_settle(world);
    world_lead(world, true);
    world_settle(world);
}

struct cm_join world_join_of(uint32_t server)
{
    struct cm_join join = {.server = server,
                           .format = VERSION_CONFIGURATION_HIGHEST,
                           .incarnation = 1000 + server,
                           .workers = 2,
                           .block_limit = 65536,
                           .fabric = "shm",
                           .durability = "fence"};
    snprintf(join.address, sizeof join.address, "shm:/run/server-%u", server);
    return join;
}

struct cm_join world_rejoin_of(const struct world *world, uint32_t server, uint32_t round)
{
    struct cm_join join = world_join_of(server);
    join.incarnation = 100000 * round + server;
    join.data_cluster = world->store->history[world->store->version]->cluster;
    snprintf(join.address, sizeof join.address, "shm:/run/server-%u-%u", server, round);
    return join;
}

/* A process may say later that it has formatted its PM. */
static void remember_report(struct world_store *store, const struct cm_join *join)
{
    for (uint32_t i = 0; i < store->report_count; i++) {
        struct cm_join *report = &store->reports[i];
        if (report->server == join->server && report->incarnation == join->incarnation) {
            if (join->data_cluster)
                report->data_cluster = join->data_cluster;
            report->formatted |= join->formatted;
            return;
        }
    }
    assert_true(store->report_count < WORLD_REPORTS);
    store->reports[store->report_count++] = *join;
}

struct cm_join *world_rejoin_all(const struct world *world, uint32_t servers, uint32_t round)
{
    static struct cm_join joins[CLUSTER_MAX_MEMBERS];
    for (uint32_t i = 0; i < servers; i++)
        joins[i] = world_rejoin_of(world, i + 1, round);
    return joins;
}

void world_restart_all(struct world *world, uint32_t servers, const struct cm_join *joins)
{
    world_close_all(world, servers);
    for (uint32_t server = 1; server <= servers; server++)
        world_join(world, server, 200 + server, &joins[server - 1]);
}

void world_cold_start(struct world *world, uint32_t servers, const struct cm_join *joins)
{
    world_restart_all(world, servers, joins);
    world_settle(world);
}

void world_join_once(struct world *world, uint32_t connection, uint32_t tag,
                     const struct cm_join *join)
{
    struct world_connection *peer = open_connection(world, connection);
    remember_report(world->store, join);
    peer->server = join->server;
    peer->incarnation = join->incarnation;
    peer->waits = true;
    peer->join_tag = tag;
    peer->join = *join;
    peer->join.registration_epoch = peer->registration_epoch;
    world_step(world,
               &(struct cm_event){.kind = CM_EVENT_JOIN,
                                  .connection = connection,
                                  .tag = tag,
                                  .join = &peer->join,
                                  .config = peer->bring ? world->stored[join->server] : NULL});
}

void world_repeat_joins(struct world *world)
{
    const uint32_t connections = sizeof world->connections / sizeof world->connections[0];
    world->repeating = true;
    for (uint32_t i = 0; i < 2 * connections; i++) {
        const struct world_connection *peer = &world->connections[i % connections];
        if (peer->open && peer->waits && !world->stopped)
            world_join_once(world, i % connections, peer->join_tag, &peer->join);
    }
    world->repeating = false;
}

void world_join(struct world *world, uint32_t connection, uint32_t tag, const struct cm_join *join)
{
    const bool newcomer = !world->connections[connection].waits;
    world_join_once(world, connection, tag, join);
    if (newcomer)
        world_repeat_joins(world);
}

void world_get(struct world *world, uint32_t connection, uint32_t tag, uint64_t known_term)
{
    struct world_connection *peer = open_connection(world, connection);
    peer->asked = true;
    if (known_term > peer->claimed_term)
        peer->claimed_term = known_term;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_GET_CONFIGURATION,
                                         .connection = connection,
                                         .tag = tag,
                                         .known_term = known_term});
}

void world_new_id(struct world *world, uint32_t connection, uint32_t tag)
{
    struct world_connection *peer = open_connection(world, connection);
    peer->id_tag = peer->wants_id ? peer->id_tag : tag;
    peer->wants_id = true;
    world_step(world, &(struct cm_event){
                          .kind = CM_EVENT_NEW_CLIENT_ID, .connection = connection, .tag = tag});
}

void world_renew(struct world *world, uint32_t connection, uint32_t tag,
                 const struct world_renewal *renewal)
{
    world_note_renewal(world, connection, renewal);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_RENEW,
                                         .cut_count = renewal->cut_count,
                                         .cut = renewal->cut,
                                         .connection = connection,
                                         .tag = tag,
                                         .known_term = renewal->term,
                                         .leaves = renewal->leaves,
                                         .manager = renewal->manager,
                                         .manager_ns = renewal->manager_ns});
}

void world_adopt(struct world *world, uint32_t connection, uint64_t term)
{
    world_step(world, &(struct cm_event){
                          .kind = CM_EVENT_ADOPTED, .connection = connection, .known_term = term});
}

void world_filled(struct world *world, uint32_t connection, uint16_t shard, uint32_t epoch,
                  uint32_t server, bool is_true)
{
    if (is_true && world->store->filled[shard][server] < epoch)
        world->store->filled[shard][server] = epoch;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_FILLED,
                                         .connection = connection,
                                         .shard = shard,
                                         .epoch = epoch,
                                         .server = server});
}

void world_plan(struct world *world, uint32_t connection, uint32_t tag, struct cm_plan plan)
{
    struct world_connection *peer = open_connection(world, connection);
    peer->plan = plan;
    if (plan.kind == CM_PLAN_MOVE)
        world->store->moves[plan.server][plan.to] = true;
    peer->plan_tag = tag;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_PLAN,
                                         .connection = connection,
                                         .tag = tag,
                                         .plan = peer->plan});
}

void world_round(struct world *world, uint64_t now_ns)
{
    world->now_ns = now_ns;
    if (world->wake_ns <= now_ns)
        world_step(world, &(struct cm_event){.kind = CM_EVENT_TIME});
}

void world_join_all(struct world *world, uint32_t servers)
{
    for (uint32_t server = 1; server <= servers; server++) {
        struct cm_join join = world_join_of(server);
        world_join(world, server, 100 + server, &join);
    }
}

void world_format_all(struct world *world, uint32_t servers)
{
    for (uint32_t server = 1; server <= servers; server++) {
        struct cm_join join = world_join_of(server);
        join.data_cluster = cm_state_config(world->state)->cluster;
        join.named = join.formatted = true;
        world_join(world, server, 150 + server, &join);
    }
}

void world_have_clients(struct world *world)
{
    enum { CLIENT = 60 };
    world_new_id(world, CLIENT, 1);
    world_settle(world);
    assert_int_equal(world_last(world, CLIENT)->kind, CM_ACTION_CLIENT_ID);
    world_close(world, CLIENT);
    world_forget(world);
}

struct world *world_empty(struct world_store *store, uint32_t servers)
{
    struct cm_state_options options = world_options(servers, servers < 3 ? servers : 3, 0);
    struct world *world = world_create(store, &options);
    world_elect(world);
    return world;
}

struct world *world_cluster(struct world_store *store, uint32_t servers)
{
    struct world *world = world_empty(store, servers);
    world_join_all(world, servers);
    world_settle(world);
    assert_non_null(cm_state_config(world->state));
    world_format_all(world, servers);
    world_forget(world);
    return world;
}

uint32_t world_warnings(const struct world *world, const char *event)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->warning_count; i++)
        count += strcmp(world->warnings[i].event, event) == 0;
    return count;
}

const char *world_warning(const struct world *world, const char *event)
{
    const char *last = NULL;
    for (uint32_t i = 0; i < world->warning_count; i++) {
        if (strcmp(world->warnings[i].event, event) == 0)
            last = world->warnings[i].detail;
    }
    return last;
}

const struct world_sent *world_last(const struct world *world, uint32_t connection)
{
    for (uint32_t i = world->sent_count; i > 0; i--) {
        if (world->sent[i - 1].connection == connection)
            return &world->sent[i - 1];
    }
    return NULL;
}

void assert_failure(const struct world_sent *sent, int error, const char *words)
{
    assert_non_null(sent);
    assert_int_equal(sent->kind, CM_ACTION_FAILURE);
    assert_int_equal(sent->error, error);
    if (!strstr(sent->detail, words))
        fail_msg("\"%s\" does not say \"%s\"", sent->detail, words);
}

void assert_configuration(const struct world_sent *sent, uint32_t tag, uint64_t term,
                          bool with_secret)
{
    assert_non_null(sent);
    assert_int_equal(sent->kind, CM_ACTION_CONFIGURATION);
    assert_int_equal(sent->tag, tag);
    assert_int_equal(sent->term, term);
    assert_int_equal(sent->with_secret, with_secret);
}
