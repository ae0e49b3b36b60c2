/* The checkers put together, and what is cheap enough to be looked at after every round. */
#include "test/sim/checks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/cluster/slot.h"
#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "test/sim/checks_state.h"
#include "test/sim/sim_fault.h"

enum { FIRST_ROOM = 64 };

void checks_fail(struct checks *checks, const char *checker, uint32_t key, uint32_t shard,
                 const char *format, ...)
{
    char why[sizeof checks->failure->why];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    failure_set(checks->failure, FAILURE_CORRECTNESS, checker, checks->cluster->clock.now_ns, key,
                shard, "%s", why);
}

void checks_tell(struct checks_server *server, enum journal_kind kind,
                 const struct checks_entry *entry, const char *text)
{
    const char *name = server->checks->cluster->servers[server->number].process.name;
    if (!server->checks->journal)
        return;
    struct journal_event event = {.kind = kind,
                                  .key = entry->key,
                                  .shard = entry->header.shard,
                                  .version = entry->header.version};
    memcpy(event.node, name, strnlen(name, sizeof event.node - 1));
    memcpy(event.text, text, strlen(text));
    journal_add(server->checks->journal, &event);
}

void *checks_grow(void *old, uint32_t *room, size_t item_bytes)
{
    *room = *room ? 2 * *room : FIRST_ROOM;
    void *grown = realloc(old, *room * item_bytes);
    ASSERT(grown);
    return grown;
}

uint32_t checks_bucket(uint64_t a, uint64_t b)
{
    uint64_t mixed = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b * UINT64_C(0xc2b2ae3d27d4eb4f));
    return (uint32_t)(mixed >> 40) % CHECKS_BUCKETS;
}

bool checks_is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

uint64_t checks_name(const void *key, uint32_t bytes)
{
    const uint32_t first = bytes < LOAD_SHORT_KEY_BYTES ? bytes : LOAD_SHORT_KEY_BYTES;
    return XXH3_64bits_withSeed(key, first, bytes) | 1;
}

/* --- life --- */

static void learn_keys(struct checks *checks)
{
    checks->key_count = checks->load ? load_keys(checks->load) : 0;
    checks->keys = calloc(checks->key_count + 1, sizeof *checks->keys);
    ASSERT(checks->keys);
    for (uint32_t i = 0; i < checks->key_count; i++) {
        struct checks_key *key = &checks->keys[i];
        key->count = load_key(checks->load, i, key->bytes);
        key->hash = index_hash(key->bytes, key->count);
        key->slot = slot_of_key(key->bytes, key->count);
        key->name = checks_name(key->bytes, key->count);
        uint32_t *bucket = &checks->by_key[checks_bucket(key->name, 0)];
        key->next = *bucket;
        *bucket = 1 + i;
    }
}

struct checks *checks_create(struct sim_cluster *cluster, struct load *load,
                             struct failure *failure)
{
    struct checks *checks = calloc(1, sizeof *checks);
    ASSERT(checks);
    checks->cluster = cluster;
    checks->load = load;
    checks->failure = failure;
    checks->journal = cluster->options.journal;
    learn_keys(checks);
    checks_stored_open(checks);
    checks_log_open(checks);
    checks_step(checks);
    return checks;
}

void checks_expect_flips(struct checks *checks)
{
    checks->flips = true;
}

void checks_destroy(struct checks *checks)
{
    if (!checks)
        return;
    checks_log_close(checks);
    checks_stored_close(checks);
    cluster_release(checks->config);
    cluster_release(checks->old);
    free(checks->losses);
    free(checks->terms);
    free(checks->given);
    free(checks->keys);
    free(checks);
}

struct checks_counts checks_counts(const struct checks *checks)
{
    return checks->counts;
}

/* --- C7, and who started or ended --- */

/* What the configuration changes. */
static void look_at_changes(struct checks *checks, const struct cluster_config *config)
{
    for (uint32_t i = 0; checks->config && i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i];
        const struct shard *before = cluster_shard(checks->config, row->id);
        checks->counts.promoted += before && before->primary != row->primary;
        if (before && before->primary != row->primary)
            checks->led_from[row->id] = row->epoch;
        for (uint32_t j = 0; before && j < before->filling_count; j++)
            checks->counts.refilled += shard_has_backup(row, before->filling[j]);
    }
}

/* What the coordination service holds by now. A term that is skipped here was acted on by nobody: whoever stores one
 * hears of it in a later round. */
/* --- managers --- */

enum { WORD_LEASES = 2, LIMP_LEASES = 40 };
#define WORD_NS                                                                                    \
    (4 * NS_PER_S) /* from what a server says to what a manager stores for it, at most */
#define LIMP_NS (6 * NS_PER_S)

/* Who has a lease, and who may say that it gets none: it has not had any for two leases, starts, or is down and has said so. */
static void look_at_leases(struct checks *checks)
{
    const struct sim_cluster *cluster = checks->cluster;
    const uint64_t now_ns = cluster->clock.now_ns, lease_ns = cluster->options.lease_ms * NS_PER_MS;
    bool any = false;
    for (uint32_t i = 0; lease_ns && i < cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        any |= control != NULL;
        const uint64_t its_ns = sim_process_now_ns(&cluster->servers[i].process, now_ns);
        if (!control || !control->config ||
            its_ns >= control->lease.grant_ns + WORD_LEASES * lease_ns)
            checks->without_ns[i] = now_ns;
        if (control &&
            its_ns < atomic_load_explicit(&control->common->lease_ns, memory_order_relaxed))
            checks->leased_ns = now_ns;
    }
    if (!any) /* to say a word */
        checks->leased_ns = now_ns;
    const uint64_t since_ns =
        cluster->limps_ns > checks->leased_ns ? cluster->limps_ns : checks->leased_ns;
    if (cluster->limps_ns && now_ns > since_ns + LIMP_LEASES * lease_ns + LIMP_NS)
        failure_set(checks->failure, FAILURE_LIVENESS, "managers", now_ns, JOURNAL_NO_KEY,
                    JOURNAL_NO_SHARD, "the CM limps, and nobody goes over to the rival");
}

/* Another manager is named because some server has said that it gets no lease, and for no other reason. */
static void look_at_manager(struct checks *checks, const struct cluster_config *config)
{
    const uint64_t now_ns = checks->cluster->clock.now_ns;
    bool said = !checks->config || config->manager == checks->config->manager;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        said = said || now_ns - checks->without_ns[i] <= WORD_NS;
    if (!said)
        checks_fail(checks, "managers", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "term %lu names another manager, and every server had its grants",
                    config->term);
}

/* A manager that has heard nobody who knows better may name itself, and do no more: then it hears them. */
static bool is_claim(const struct cluster_config *before, const struct cluster_config *config)
{
    return before && config->manager != before->manager && config->term == before->term + 1 &&
           config->next_client_id == before->next_client_id &&
           config->member_count == before->member_count &&
           config->shard_count == before->shard_count &&
           memcmp(config->members, before->members,
                  config->member_count * sizeof *config->members) == 0 &&
           memcmp(config->shards, before->shards, config->shard_count * sizeof *config->shards) ==
               0;
}

/* `config` is the one that came back, or was stored behind it. */
static void look_behind_old(struct checks *checks, struct cluster_config *config, uint64_t version)
{
    if (version == checks->cluster->back_version || is_claim(checks->old, config))
        checks->cluster->back_version = version;
    else
        checks_fail(checks, "C7", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "a configuration was stored behind an old one that had come back");
    cluster_release(checks->old);
    checks->old = config;
}

static void look_at_registry(struct checks *checks)
{
    const void *value;
    size_t bytes;
    uint64_t version = sim_registry_value(checks->cluster->registry, &value, &bytes);
    if (version == checks->registry_version)
        return;
    checks->registry_version = version;
    struct cluster_config *config;
    int error = cluster_decode(value, bytes, &config);
    if (!error && checks->cluster->back_version) {
        look_behind_old(checks, config, version);
        return;
    }
    if (error) {
        checks_fail(checks, "C7", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "version %lu of the stored configuration cannot be read: %s", version,
                    error_name(error));
        return;
    }
    if (checks->config && config->term < checks->config->term)
        checks_fail(checks, "C7", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "term %lu was stored after term %lu", config->term, checks->config->term);
    if (checks->term_count == checks->term_room)
        checks->terms = checks_grow(checks->terms, &checks->term_room, sizeof *checks->terms);
    checks->terms[checks->term_count++] = config->term;
    look_at_manager(checks, config);
    checks_loss_config(checks, config);
    checks_split_config(checks, config);
    look_at_changes(checks, config);
    cluster_release(checks->config);
    checks->config = config;
    checks->format =
        (struct entry_format){.seed = cluster_seed(config), .block_limit = config->block_limit};
}

static void check_term(struct checks *checks, const char *who, const struct cluster_config *config,
                       uint64_t *seen)
{
    if (!config || config->term == *seen)
        return;
    *seen = config->term;
    for (uint32_t i = checks->term_count; i > 0; i--) {
        if (checks->terms[i - 1] == config->term)
            return;
    }
    checks_fail(checks, "C7", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                "%s acts on term %lu, which was not stored", who, config->term);
}

static bool has_lost(const struct checks *checks, const struct checks_key *key, uint32_t server)
{
    return checks->config &&
           checks_lost_at(checks, cluster_shard_of_slot(checks->config, key->slot)->id, server);
}

/* Must a start find what was acknowledged of the key? */
static bool must_find(struct checks *checks, const struct checks_key *key, uint32_t server)
{
    const uint16_t shard =
        checks->config ? cluster_shard_of_slot(checks->config, key->slot)->id : 0;
    return !has_lost(checks, key, server) &&
           !checks_may_be_hidden(&checks->servers[server], shard, key->settled);
}

/* A server that was started has built its indexes anew: of what it showed before, only that is certain which all
 * replicas had when it ended. And it has found the blocks that its digest roles had not seen. */
static void note_start(struct checks *checks, struct checks_server *server, uint64_t incarnation)
{
    const char *name = checks->cluster->servers[server->number].process.name;
    if (server->incarnation == incarnation)
        return;
    server->incarnation = incarnation;
    server->lost_before = sim_fault_count_at(FAULT_BLOCK_LOST, name);
    for (uint32_t i = 0; i < checks->key_count; i++)
        checks->keys[i].shown[server->number] =
            must_find(checks, &checks->keys[i], server->number) ? checks->keys[i].settled : 0;
}

static void look_at_cm(struct checks *checks, const struct cm *cm, const char *who, uint64_t *term)
{
    if (!cm)
        return;
    check_term(checks, who, cm_config(cm), term);
    if (cm_error(cm) == ROWAN_ECLUSTER && checks->cluster->went_back)
        return; /* as it should: the nemesis starts it again */
    if (cm_error(cm))
        checks_fail(checks, "error", JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "%s has ended: %s", who,
                    error_name(cm_error(cm)));
}

/* Two clients with one id would have one record between them: the second one's writes would be taken for retries. */
static void look_at_id(struct checks *checks, const struct sim_client *client, uint32_t *seen)
{
    uint32_t id = client->session ? sim_client_id(client) : 0;
    if (id == *seen)
        return;
    *seen = id;
    for (uint32_t i = 0; id && i < checks->given_count; i++) {
        if (checks->given[i] == id)
            checks_fail(checks, "ids", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                        "%s got client id %u, which was given before", client->process.name, id);
    }
    if (checks->given_count == checks->given_room)
        checks->given = checks_grow(checks->given, &checks->given_room, sizeof *checks->given);
    checks->given[checks->given_count++] = id;
}

static void look_at_ids(struct checks *checks)
{
    const struct sim_cluster *cluster = checks->cluster;
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        look_at_id(checks, &cluster->clients[i], &checks->client_ids[i]);
    look_at_id(checks, &cluster->rival.guest, &checks->client_ids[SIM_MAX_CLIENTS]);
}

static void look_at_processes(struct checks *checks)
{
    struct sim_cluster *cluster = checks->cluster;
    look_at_cm(checks, cluster->cm, "the CM", &checks->cm_term);
    look_at_cm(checks, cluster->rival.cm, "the rival CM", &checks->rival_term);
    look_at_cm(checks, cluster->third.cm, "the third CM", &checks->third_term);
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        check_term(checks, cluster->clients[i].process.address,
                   session_config(cluster->clients[i].session), &checks->client_terms[i]);
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        if (!control)
            continue;
        note_start(checks, &checks->servers[i], control->common->incarnation);
        check_term(checks, cluster->servers[i].process.address, control->config,
                   &checks->servers[i].term);
        const struct server *server = cluster->servers[i].server;
        /* Refused ones too: nobody starts them again. One that was removed starts itself. */
        if (server_error(server) &&
            !(cluster->options.lease_ms && server_error(server) == ROWAN_EREMOVED))
            checks_fail(checks, "error", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                        "server %u has ended: %s", i + 1, server_why(server));
    }
}

/* --- C1 --- */

static bool serves(struct checks *checks, uint32_t number, uint16_t shard)
{
    const struct sim_server *at = &checks->cluster->servers[number];
    struct server *server = at->server;
    const struct control *control = checks_control(checks, number);
    if (!control || sim_process_now_ns(&at->process, checks->cluster->clock.now_ns) >=
                        atomic_load_explicit(&control->common->lease_ns, memory_order_relaxed))
        return false; /* it answers nobody */
    for (uint32_t i = 0; server && i < checks->cluster->options.workers; i++) {
        const struct worker *worker = server_poller(server, 1 + i).role;
        const struct shard_state *state = worker->shards[shard];
        if (!state || atomic_load_explicit(&state->recovering, memory_order_relaxed))
            continue;
        checks_loss_served(checks, shard, state->epoch);
        return true;
    }
    return false;
}

/* One shard after the other, one in a round. */
static void look_at_owners(struct checks *checks)
{
    if (!checks->config)
        return;
    uint16_t shard = checks->config->shards[checks->rounds % checks->config->shard_count].id;
    uint32_t first = 0;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        if (!serves(checks, i, shard))
            continue;
        if (first)
            checks_fail(checks, "C1", JOURNAL_NO_KEY, shard, "servers %u and %u serve shard %u",
                        first, i + 1, shard);
        first = i + 1;
    }
}

/* --- sleepers --- */

static void look_at_sleepers(struct checks *checks)
{
    const struct sim_sleeper *sleeper = &checks->cluster->sleeper;
    if (!sleeper->role)
        return;
    char when[40] = "ever";
    if (sleeper->late_ns != WAKE_NEVER)
        snprintf(when, sizeof when, "%lu ms", sleeper->late_ns / NS_PER_MS);
    failure_set(checks->failure, FAILURE_LIVENESS, "sleepers", checks->cluster->clock.now_ns,
                JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                "a %s role of %s had work, nobody woke it, and it would have slept for %s",
                sleeper->role, sleeper->process, when);
}

void checks_step(struct checks *checks)
{
    checks->rounds++;
    look_at_sleepers(checks);
    look_at_leases(checks);
    look_at_registry(checks);
    look_at_processes(checks);
    look_at_owners(checks);
    look_at_ids(checks);
    checks_look(checks);
}
