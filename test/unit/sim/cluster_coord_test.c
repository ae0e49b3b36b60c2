/* cluster_coord_test.c - a whole cluster whose CM has trouble with the coordination service while all servers end
 * and start again: replies are lost, the CM is parted from the service, loses its session, is killed, finds that a
 * rival leads. When the trouble is over the cluster serves, with every acknowledged value, and the service held one
 * chain of configurations (chain.h). */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "chain.h"
#include "common/base/log.h"
#include "test/lib/unit.h"

enum { SEEDS = 12, STARTS = 6, KEYS = 8, SERVERS = 3 };

#define TROUBLE_NS (3 * NS_PER_S)
#define SERVES_NS  (20 * NS_PER_S)

struct scene {
    struct sim_cluster *cluster;
    struct chain chain;
    struct random random;
    uint32_t values[KEYS]; /* acknowledged */
    uint32_t outstanding, failed;
    uint32_t read; /* the value that a get brought */
};

static uint64_t draw(struct scene *scene, uint64_t below)
{
    return random_below(&scene->random, below);
}

/* After every round. */
static void look(struct scene *scene)
{
    const struct sim_cluster *cluster = scene->cluster;
    chain_look(&scene->chain, cluster->registry);
    const struct cm *managers[] = {cluster->cm, cluster->rival.cm};
    for (int i = 0; i < 2; i++) {
        if (!managers[i])
            continue;
        assert_int_equal(cm_error(managers[i]), 0);
        if (cm_config(managers[i]))
            chain_has(&scene->chain, cm_config(managers[i]));
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (cluster->servers[i].server)
            assert_int_equal(server_error(cluster->servers[i].server), 0);
    }
}

static bool is_answered(void *context)
{
    struct scene *scene = context;
    look(scene);
    return scene->outstanding == 0;
}

static bool looks_on(void *context)
{
    look(context);
    return false;
}

static void run_for(struct scene *scene, uint64_t ns)
{
    sim_cluster_run(scene->cluster, looks_on, scene, ns);
}

/* --- operations --- */

static void on_completion(const struct rowan_completion *completion)
{
    struct scene *scene = completion->context;
    scene->outstanding--;
    scene->failed += completion->status != 0;
}

static void do_operation(struct scene *scene, enum message_type type, uint32_t key, uint32_t *value)
{
    char text[16];
    snprintf(text, sizeof text, "key-%u", key);
    const struct session_request request = {.type = type,
                                            .key = text,
                                            .key_bytes = strlen(text),
                                            .value = type == MESSAGE_PUT ? value : NULL,
                                            .value_bytes = type == MESSAGE_PUT ? sizeof *value : 0,
                                            .room = type == MESSAGE_GET ? value : NULL,
                                            .room_bytes = type == MESSAGE_GET ? sizeof *value : 0,
                                            .callback = on_completion,
                                            .context = scene};
    scene->outstanding = 1;
    scene->failed = 0;
    assert_int_equal(session_post(scene->cluster->clients[0].session, &request), 0);
    assert_true(sim_cluster_run(scene->cluster, is_answered, scene, SERVES_NS));
    assert_int_equal(scene->failed, 0);
}

static void read_and_write_all(struct scene *scene)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t value = 0;
        if (scene->values[key]) {
            do_operation(scene, MESSAGE_GET, key, &value);
            assert_int_equal(value, scene->values[key]);
        }
        value = 1 + (uint32_t)draw(scene, 1000000);
        do_operation(scene, MESSAGE_PUT, key, &value);
        scene->values[key] = value;
    }
}

/* --- trouble --- */

static void trouble(struct scene *scene)
{
    struct sim_cluster *cluster = scene->cluster;
    switch (draw(scene, 8)) {
    case 0:
    case 1:
        if (cluster->cm)
            sim_coord_part(cluster->coord, true);
        break;
    case 2:
        if (cluster->cm)
            sim_coord_part(cluster->coord, false);
        break;
    case 3:
        if (cluster->cm)
            sim_coord_expire(cluster->coord);
        break;
    case 4:
        sim_cluster_kill_cm(cluster);
        break;
    case 5:
        if (!cluster->cm)
            sim_cluster_start_cm(cluster);
        break;
    case 6:
        if (!cluster->rival.cm)
            sim_cluster_start_rival(cluster);
        break;
    case 7:
        sim_cluster_kill_rival(cluster);
        break;
    }
}

static void end_trouble(struct scene *scene)
{
    struct sim_cluster *cluster = scene->cluster;
    sim_cluster_kill_rival(cluster);
    if (!cluster->cm)
        sim_cluster_start_cm(cluster);
    sim_coord_part(cluster->coord, false);
}

/* Every server ends, and starts at a time of its own, amid the trouble. */
static void start_again(struct scene *scene)
{
    struct sim_cluster *cluster = scene->cluster;
    uint64_t start_ns[SERVERS], end_ns = cluster->clock.now_ns + TROUBLE_NS;
    for (uint32_t i = 0; i < SERVERS; i++) {
        sim_cluster_kill_server(cluster, i + 1, NULL);
        scene->chain.running[i + 1] = 0;
        start_ns[i] = cluster->clock.now_ns + draw(scene, TROUBLE_NS / 2);
    }
    while (cluster->clock.now_ns < end_ns) {
        trouble(scene);
        run_for(scene, 1 + draw(scene, 200 * NS_PER_MS));
        for (uint32_t i = 0; i < SERVERS; i++) {
            if (scene->chain.running[i + 1] || start_ns[i] > cluster->clock.now_ns)
                continue;
            sim_cluster_start_server(cluster, i + 1);
            scene->chain.running[i + 1] = 100 * cluster->starts + i + 1;
        }
    }
    end_trouble(scene);
}

static void run_seed(uint64_t seed, struct sim_registry_counts *sum)
{
    static struct scene scene;
    memset(&scene, 0, sizeof scene);
    random_init(&scene.random, seed);
    print_message("# seed %lu\n", seed);
    struct sim_cluster_options options = {.seed = seed,
                                          .servers = SERVERS,
                                          .replicas = 2,
                                          .shards = 6,
                                          .pm_bytes = 128 << 20,
                                          .timeout_ns = SERVES_NS};
    options.max_delay_ns = draw(&scene, NS_PER_MS);
    options.registry.session_ns = NS_PER_S;
    options.registry.max_delay_ns = NS_PER_MS + draw(&scene, 50 * NS_PER_MS);
    options.registry.lost_reply = 2 + (uint32_t)draw(&scene, 3);
    scene.cluster = sim_cluster_create(&options);
    for (uint32_t i = 0; i < STARTS; i++) {
        read_and_write_all(&scene);
        start_again(&scene);
    }
    read_and_write_all(&scene);
    run_for(&scene, NS_PER_S); /* a new CM reads */
    assert_true(scene.chain.cold_starts >= STARTS);
    struct sim_registry_counts counts = sim_registry_counts(scene.cluster->registry);
    sum->lost_effects += counts.lost_effects;
    sum->lost_writes += counts.lost_writes;
    sum->expired += counts.expired;
    stage_finish(scene.cluster, KEYS);
    chain_clear(&scene.chain);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(a_cluster_serves_again_after_any_trouble_with_its_coordination)
{
    struct sim_registry_counts sum = {0};
    uint64_t from = 1, to = SEEDS;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++)
        run_seed(seed, &sum);
    print_message("# %lu replies lost to writes that won, %lu writes lost, %lu sessions ended\n",
                  sum.lost_effects, sum.lost_writes, sum.expired);
    if (!seeds)
        assert_true(sum.lost_effects > to && sum.lost_writes > to && sum.expired > to);
}

int main(void)
{
    if (!getenv("SIM_LOG"))
        log_set_level(LOG_ERROR);
    return unit_run(NULL, NULL);
}
