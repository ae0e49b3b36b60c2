/* lease_fixture.c - see lease_fixture.h. */
#include "test/unit/cm/lease_fixture.h"

#include "test/lib/asserts.h"

struct world_renewal last[SERVERS + 1];

struct cm_state_options options_of(uint64_t manager)
{
    struct cm_state_options options = world_options(SERVERS, 3, 0);
    options.lease_ms = LEASE_MS;
    options.incarnation = manager;
    options.keyed = true;
    return options;
}

struct world *standby(uint64_t incarnation, uint64_t now_ns)
{
    struct cm_state_options options = options_of(incarnation);
    struct world *world = world_create(world_store, &options);
    world->now_ns = now_ns;
    world_settle(world);
    return world;
}

void say_without(struct world *world, uint32_t server, uint64_t without_ns, bool nobody_leads)
{
    struct cm_join join = world_join_of(server);
    join.known_term = term(world);
    join.named = join.formatted = true;
    join.without_ms = without_ns / NS_PER_MS;
    join.nobody_leads = nobody_leads;
    world_join(world, server, 5, &join);
}

struct world *manager_at(uint64_t incarnation, uint64_t now_ns)
{
    struct world *world = standby(incarnation, now_ns);
    if (world_stored())
        say_without(world, 1, 3 * LONGEST, true);
    else
        world_lead(world, true);
    world_settle(world);
    return world;
}

struct world *cluster(void)
{
    memset(last, 0, sizeof last);
    struct world *world = manager_at(7001, NS_PER_S);
    world_join_all(world, SERVERS);
    world_settle(world);
    assert_int_equal(cm_state_config(world->state)->lease_ms, LEASE_MS);
    assert_int_equal(cm_state_config(world->state)->manager, 7001);
    return world;
}

uint64_t term(const struct world *world)
{
    return cm_state_config(world->state)->term;
}

bool renew(struct world *world, uint32_t server)
{
    last[server].term = term(world);
    world_renew(world, server, 50 + server, &last[server]);
    world_round(world, world->now_ns);
    const struct world_sent *sent = world_last(world, server);
    assert_int_equal(sent->kind, CM_ACTION_LEASE);
    assert_int_equal(sent->tag, 50 + server);
    last[server].manager_ns = sent->manager_ns;
    last[server].manager = world->manager;
    return sent->granted;
}

uint32_t run(struct world *world, uint32_t members, uint64_t until_ns)
{
    uint32_t granted = 0;
    while (world->now_ns < until_ns) {
        uint64_t next_ns = world->now_ns + LEASE / 4;
        world_round(world, next_ns < until_ns ? next_ns : until_ns);
        world_settle(world);
        granted = 0;
        for (uint32_t server = 1; server <= SERVERS; server++) {
            if (members & 1u << server)
                granted |= (uint32_t)renew(world, server) << server;
        }
    }
    return granted;
}

uint64_t last_sign_of(struct world *world, uint32_t server)
{
    const uint64_t present = last[server].manager_ns;
    renew(world, server);
    return present;
}

void fall_silent(struct world *world)
{
    run(world, FIRST_TWO, last_sign_of(world, 3) + 2 * LEASE);
    world_settle(world);
}

uint32_t committed(const struct world *world, uint64_t of)
{
    uint32_t members = 0;
    for (uint32_t i = 0; i < world->sent_count; i++) {
        const struct world_sent *sent = &world->sent[i];
        if (sent->kind == CM_ACTION_COMMITTED && sent->term == of)
            members |= 1u << sent->connection;
    }
    return members;
}

void adopt_all(struct world *world)
{
    for (uint32_t server = 1; server <= SERVERS; server++) {
        if (world->connections[server].open)
            world_adopt(world, server, term(world));
    }
}

struct world *committed_cluster(void)
{
    struct world *world = cluster();
    adopt_all(world);
    assert_int_equal(run(world, ALL, world->now_ns + 3 * LEASE), ALL);
    assert_int_equal(committed(world, 1), ALL);
    world_forget(world);
    return world;
}

struct world *cluster_with_a_kept_member(void)
{
    struct cm_state_options options = options_of(7001);
    options.replicas = 1;
    struct world *world = world_create(world_store, &options);
    world->now_ns = NS_PER_S;
    world_elect(world);
    memset(last, 0, sizeof last);
    world_join_all(world, SERVERS);
    world_settle(world);
    world_format_all(world, SERVERS);
    world_have_clients(world);
    adopt_all(world);
    run(world, ALL, world->now_ns + 3 * LEASE);
    fall_silent(world);
    assert_true(cluster_member(cm_state_config(world->state), 3)->kept);
    return world;
}

struct cluster_config *config_by_hand(uint32_t members, uint32_t shards, uint32_t replicas)
{
    struct cluster_config *config = cluster_create(members, shards);
    config->term = 10;
    config->cluster = 77;
    config->block_limit = 64;
    config->replicas = replicas;
    config->next_client_id = 1025;
    config->manager = 5;
    config->lease_ms = 500;
    for (uint32_t i = 0; i < members; i++) {
        const struct cm_join join = world_join_of(i + 1);
        config->members[i] = join_member(&join);
    }
    for (uint32_t i = 0; i < shards; i++)
        config->shards[i] =
            (struct shard){.id = (uint16_t)i,
                           .epoch = 7,
                           .first_slot = (uint16_t)(i * 100),
                           .last_slot = (uint16_t)(i + 1 < shards ? i * 100 + 99 : SLOT_COUNT - 1)};
    return config;
}

const struct cluster_config *in_force(const struct world *world)
{
    return cm_state_config(world->state);
}

void commit_among(struct world *world, uint32_t members)
{
    const uint64_t of = term(world);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        if (members & 1u << server)
            world_adopt(world, server, of);
    }
    run(world, members, world->now_ns + LEASE / 4 + 1);
}
