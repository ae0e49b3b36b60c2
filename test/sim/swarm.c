/* What kind of run a seed is. Every draw is a statement of its own: compilers may evaluate the members of one
 * initializer in any order. */
#include "test/sim/swarm.h"

#include "common/base/clock.h"
#include "server/shard/block_list.h"

enum {
    OPERATIONS_MIN = 2000,
    OPERATIONS_MORE = 1500,
    PERCENT = 100,
    SMALLEST_SEGMENT = 16384,
    LARGE_SEGMENT = 1 << 20, /* of few roles: a start leaves few of them that are not full */
    RARE_MORE = 2,
    OFTEN = 48, /* one in so many: much space is left unused then */
    READER_DEPTH = 64,
    LONGER = 6, /* leases: so long a fault may last at least */
    MOST_LIMPING_MS = 250,
    TABLES_BYTES = 11 << 20, /* the replica table has 4 MiB and the configuration 1 MiB, twice */
};

/* --- drawing --- */

static uint64_t between(struct random *random, uint64_t least, uint64_t most)
{
    return least + random_below(random, most - least + 1);
}

static uint32_t between32(struct random *random, uint32_t least, uint32_t most)
{
    return (uint32_t)between(random, least, most);
}

static bool chance(struct random *random, uint32_t percent)
{
    return random_below(random, PERCENT) < percent;
}

/* Each size is as likely as half or twice of it: times and odds span several of these. */
static uint64_t spread(struct random *random, uint64_t least, unsigned doublings)
{
    uint64_t base = least << random_below(random, doublings + 1);
    return base + random_below(random, base);
}

/* 0: not in this run. */
static uint32_t perhaps(struct random *random, uint32_t percent, uint32_t least, unsigned doublings)
{
    bool on = chance(random, percent);
    uint32_t value = (uint32_t)spread(random, least, doublings);
    return on ? value : 0;
}

/* --- the cluster --- */

static void draw_cluster(struct random *random, struct sim_cluster_options *out)
{
    out->seed = random_u64(random);
    out->servers = between32(random, 3, 5);
    if (chance(random, 25))
        out->servers += between32(random, 1, 2);
    out->replicas = between32(random, 2, 3);
    out->shards = between32(random, 2, 16);
    out->workers = chance(random, 50) ? 1 : between32(random, 2, 3);
    out->digests = between32(random, 1, 2);
    out->clients = between32(random, 2, 6);
    out->depth = (uint32_t)spread(random, 2, 4);
    out->landing_segments = between32(random, 2, 5);
    static const uint32_t limits[] = {256, 1024, 4096, 16384, 32768};
    out->block_limit = limits[random_below(random, sizeof limits / sizeof limits[0])];
    out->max_messages = (uint32_t)spread(random, 8, 5);
    if (chance(random, 50))
        out->operations_per_id = between32(random, 100, 1000);
    if (chance(random, 25))
        out->span = between32(random, 32, 256);
    out->timeout_ns = spread(random, 500 * NS_PER_MS, 4);
    out->one_sided = chance(random, 50);
    out->void_ns = spread(random, 2 * NS_PER_MS, 4);
    out->early_seal = perhaps(random, 50, 12, 4);
}

/* A bucket is split when there are 5 1/2 keys for each: in most runs from the first ones on, in some when the bits that
 * items keep of their hashes are used up (index.c, I1: with the 64th bucket). */
static void draw_index(struct random *random, struct swarm *out)
{
    const bool many = chance(random, 15);
    if (many) {
        out->load.keys = out->load.hot_keys + between32(random, 400, 600);
        out->cluster.shards = 1;
        /* One worker is written to by everybody at once in the end. */
        if (out->cluster.timeout_ns < 2 * NS_PER_S)
            out->cluster.timeout_ns = 2 * NS_PER_S;
    }
    out->chunk_buckets = UINT32_C(1) << (many ? random_below(random, 6) : chance(random, 25));
}

/* How many of a server's roles share a thread: all, some, or none. */
static void draw_reactors(struct random *random, struct sim_cluster_options *out)
{
    out->reactors = between32(random, 1, out->workers + out->digests);
    out->idle_wakes = (uint32_t)spread(random, 8, 5);
}

static void draw_times(struct random *random, struct sim_cluster_options *out)
{
    /* Long enough for much to be on its way, or not durable, when something ends. */
    out->max_delay_ns = spread(random, 50 * NS_PER_US, 7);
    out->fence_ns = chance(random, 10) ? 0 : spread(random, 10 * NS_PER_US, 10);
    out->silence_ns = spread(random, 100 * NS_PER_MS, 4);
    if (chance(random, 50))
        out->drift_ppm = between32(random, 100, 10000);
    out->clocks_apart = true;
    /* Less than a fence promises little over a power loss, so most runs have fences. */
    out->durability = PM_FENCE;
    if (chance(random, 15))
        out->durability = chance(random, 50) ? PM_ASYNC : PM_NONE;
    out->registry.max_delay_ns = spread(random, NS_PER_MS, 5);
    out->registry.session_ns = spread(random, 100 * NS_PER_MS, 3);
    out->registry.lost_reply = perhaps(random, 25, 4, 3);
}

/* --- clients, faults --- */

static void draw_load(struct random *random, const struct sim_cluster_options *cluster,
                      uint64_t safety_ns, struct load_options *out)
{
    out->seed = random_u64(random);
    out->operations = between(random, OPERATIONS_MIN, OPERATIONS_MIN + OPERATIONS_MORE);
    out->hot_keys = between32(random, 1, 8);
    out->keys = out->hot_keys + between32(random, 20, 300);
    out->depth = cluster->depth;
    /* Faults hold clients up, so they are asked to be done somewhat earlier. */
    out->mean_pause_ns = safety_ns * cluster->clients / out->operations * 3 / 4;
    if (chance(random, 50))
        out->burst = between32(random, 4, 24);
    out->max_value_bytes = (uint32_t)spread(random, 1024, 4);
    out->long_in = between32(random, 10, 60);
    out->forged_in = perhaps(random, 50, 2, 2);
    out->gets = between32(random, 10, 50);
    out->puts = between32(random, 20, 50);
    out->put_ifs = between32(random, 0, 30);
    out->deletes = between32(random, 0, 20);
    /* None, or so many that some are done. */
    out->put_ifs += out->put_ifs ? RARE_MORE : 0;
    out->deletes += out->deletes ? RARE_MORE : 0;
}

/* Power is lost, and nothing is fenced. */
static bool is_lossy(const struct swarm *swarm)
{
    return swarm->cluster.durability != PM_FENCE && swarm->nemesis.power_loss_in;
}

/* Where nothing is fenced, a replica whose host loses power alone is left out for good, as nothing fills it again. */
static void draw_power(struct random *random, bool fence, struct nemesis_options *out)
{
    const bool power = chance(random, 75), together = chance(random, 75);
    out->power_loss_in = between32(random, 1, fence ? 4 : 2);
    if (fence)
        return;
    out->power_loss_in = power ? out->power_loss_in : 0;
    out->power_together = together;
    if (power)
        out->weights[NEMESIS_KILL_ALL] = 4;
}

static void draw_nemesis(struct random *random, bool fence, struct nemesis_options *out)
{
    out->seed = random_u64(random);
    out->mean_pause_ns = spread(random, 500 * NS_PER_MS, 1);
    out->max_length_ns = spread(random, 250 * NS_PER_MS, 3);
    bool any = false;
    for (unsigned i = 0; i < NEMESIS_DEAF; i++) {
        uint32_t weight = between32(random, 2, 5);
        /* A start takes its time: those that end a whole cluster leave the others some. */
        if (i == NEMESIS_KILL_ALL || i == NEMESIS_KILL_ONE || i == NEMESIS_KILL_CM)
            weight = 1;
        bool on = chance(random, 50);
        out->weights[i] = on ? weight : 0;
        any |= on;
    }
    if (!any)
        out->weights[NEMESIS_KILL_ALL] = 1;
    draw_power(random, fence, out);
}

/* A segment for each early roll: they are somewhat rarer than the others. */
static void draw_sites(struct random *random, struct sim_fault_options *out)
{
    out->seed = random_u64(random);
    for (unsigned i = 0; i < FAULT_NO_RECORD; i++)
        out->one_in[i] = perhaps(random, 40, 8, 6);
    out->one_in[FAULT_NO_RECORD] = out->one_in[FAULT_NO_MEMORY];
    if (out->one_in[FAULT_EARLY_ROLL])
        out->one_in[FAULT_EARLY_ROLL] += 12;
    out->one_in[FAULT_LATE_SPLIT] = perhaps(random, 40, 2, 3);
    /* Each one is looked for in all of the primary's memory. */
    out->one_in[FAULT_BLOCK_LOST] *= 16;
    out->one_in[FAULT_HOLD_OFFSET] = perhaps(random, 40, 1, 2);
    /* Few messages bring entries. */
    if (out->one_in[FAULT_ANSWER_LOST])
        out->one_in[FAULT_ANSWER_LOST] = 2 + out->one_in[FAULT_ANSWER_LOST] / 16;
}

/* --- more of one kind of trouble --- */

/* Ends in the middle of stores, of which much is not durable, and many segments are new. */
static void focus_on_power(struct random *random, struct swarm *out)
{
    out->cluster.max_delay_ns = spread(random, 5 * NS_PER_US, 3);
    out->cluster.fence_ns = spread(random, NS_PER_MS, 3);
    out->nemesis.weights[NEMESIS_KILL_ALL] = out->nemesis.weights[NEMESIS_KILL_ONE] = 8;
    out->nemesis.power_loss_in = between32(random, 1, 2);
    out->faults.one_in[FAULT_EARLY_ROLL] = perhaps(random, 90, 3, 2);
}

/* Landings that do not come to their end: cuts, and senders that stop in the middle of a store. */
static void focus_on_landings(struct random *random, struct swarm *out)
{
    out->cluster.one_sided = chance(random, 75);
    out->cluster.max_delay_ns = spread(random, 500 * NS_PER_US, 3);
    out->cluster.void_ns = spread(random, 200 * NS_PER_US, 2);
    out->cluster.early_seal = perhaps(random, 75, 4, 2);
    out->nemesis.weights[NEMESIS_CUT] = out->nemesis.weights[NEMESIS_STOP] = 12;
}

/* Values in many blocks, or in one long one, full of what looks like entries. */
static void focus_on_values(struct random *random, struct swarm *out)
{
    out->load.max_value_bytes = (uint32_t)spread(random, 4096, 2);
    out->load.long_in = between32(random, 2, 4);
    out->load.forged_in = between32(random, 1, 2);
}

static void focus(struct random *random, struct swarm *out)
{
    const bool power = chance(random, 30), landings = chance(random, 30);
    if (power)
        focus_on_power(random, out);
    if (landings)
        focus_on_landings(random, out);
    if ((power || landings) && chance(random, 60))
        focus_on_values(random, out);
}

/* Blocks of a whole segment as on shm and tcp, or those of RDMA: packets that lie one behind the other, or slots
 * of one block each. */
static void draw_landing(struct random *random, struct sim_cluster_options *out)
{
    const uint64_t way = random_below(random, 8);
    if (way < 4)
        out->block_limit = out->landing_stride = 256;
    if (way == 4)
        out->block_limit = 1024;
}

/* Keys up to 1 KiB; values up to a quarter of the segment, in real ones of 4 MiB and smaller ones. They are few, and all
 * else is as small as it may be, for a seed to take some seconds only. */
static void draw_large(struct random *random, struct swarm *out)
{
    const bool keys = chance(random, 20), values = chance(random, 6), real = chance(random, 50);
    if (keys || values)
        out->load.max_key_bytes = between32(random, LOAD_SHORT_KEY_BYTES + 1, LOAD_KEY_BYTES);
    if (!values)
        return;
    out->segment_bytes = real && !is_lossy(out) ? 4 * LARGE_SEGMENT : LARGE_SEGMENT;
    out->load.max_value_bytes = out->segment_bytes / 4;
    out->load.long_in = between32(random, 20, 50);
    out->load.depth = out->cluster.depth = between32(random, 2, 4);
    out->cluster.servers = between32(random, 3, 4);
    out->cluster.workers = out->cluster.digests = out->cluster.reactors = 1;
    out->cluster.landing_segments = 2;
    out->cluster.early_seal = out->faults.one_in[FAULT_EARLY_ROLL] = 0;
    if (real) {
        out->cluster.landing_stride = 0;
        out->cluster.block_limit = UINT32_C(4096) << random_below(random, 4);
    }
    if (out->cluster.timeout_ns < 4 * NS_PER_S)
        out->cluster.timeout_ns = 4 * NS_PER_S;
    for (unsigned i = NEMESIS_KILL_ALL; i <= NEMESIS_KILL_ONE; i++)
        out->nemesis.weights[i] = out->nemesis.weights[i] > 0;
}

/* --- memory --- */

/* In half of the runs the PM is so small that its segments are used again and again: they hold little of what they could,
 * so that a run has many, and many of the values are long. */
static void draw_space(struct random *random, struct swarm *out)
{
    const bool small = chance(random, 50);
    const uint32_t rolls = (uint32_t)spread(random, 4, 2), seals = (uint32_t)spread(random, 6, 2);
    const uint32_t long_in = between32(random, 3, 15);
    if (!small || is_lossy(out))
        return;
    out->load.may_fill = true;
    if (out->segment_bytes >= LARGE_SEGMENT)
        return;
    out->faults.one_in[FAULT_EARLY_ROLL] = rolls;
    out->cluster.early_seal = out->cluster.one_sided ? seals : 0;
    out->faults.one_in[FAULT_BLOCK_LOST] /= 8; /* memory is small to look through */
    out->load.long_in = long_in;
}

/* Not where segments are cleaned: the records of what was cleaned are the primary's alone (server/clean), and damage may
 * make another server primary. Not where a power loss takes what it likes: then nobody may have a whole replica. */
static void draw_flips(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0xf11b5); /* so that the rest of the run is as without */
    const bool flips = chance(&random, 40);
    const uint32_t flip_in = between32(&random, 1, 3);
    if (!flips || out->load.may_fill || out->cluster.durability != PM_FENCE ||
        out->cluster.replicas < 2)
        return;
    out->nemesis.flip_in = flip_in;
    out->nemesis.flip_server = (uint32_t)random_below(&random, out->cluster.servers);
}

/* Where segments are cleaned: a client that asks again for what was, and a backup that gets much later what it asked for.
 * The client is patient for longer than it is deaf and the servers take to start. */
static void draw_late(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0xdeaf); /* likewise */
    const bool deaf = chance(&random, 50), hold = chance(&random, 50);
    const uint64_t deaf_ns = between(&random, 5 * NS_PER_S, 8 * NS_PER_S);
    const uint32_t lost_in = between32(&random, 64, 256);
    if (!out->load.may_fill || out->segment_bytes >= LARGE_SEGMENT)
        return;
    if (deaf) {
        out->nemesis.weights[NEMESIS_DEAF] = 4;
        out->nemesis.deaf_ns = deaf_ns;
        if (out->cluster.timeout_ns < deaf_ns + 8 * NS_PER_S)
            out->cluster.timeout_ns = deaf_ns + 8 * NS_PER_S;
    }
    if (hold) {
        out->faults.one_in[FAULT_HOLD_OFFSET] = 1;
        out->faults.one_in[FAULT_BLOCK_LOST] = lost_in;
    }
}

/* Faults that outlast leases. */
static void draw_failover_faults(struct random *random, struct swarm *out)
{
    struct nemesis_options *nemesis = &out->nemesis;
    const bool split = chance(random, 75), late = chance(random, 50), deaf = chance(random, 50);
    const uint64_t deaf_ns = between(random, 2 * NS_PER_S, 5 * NS_PER_S);
    nemesis->restless = chance(random, 50);
    nemesis->weights[NEMESIS_KILL_ONE] += 2;
    nemesis->weights[NEMESIS_SPLIT] = split ? 20 : 0;
    nemesis->weights[NEMESIS_DRY] += late ? 6 : 0;
    if (nemesis->max_length_ns < LONGER * nemesis->lease_ns)
        nemesis->max_length_ns = LONGER * nemesis->lease_ns;
    nemesis->weights[NEMESIS_DEAF] = deaf ? 4 : 0;
    nemesis->deaf_ns = deaf_ns;
    if (nemesis->weights[NEMESIS_DEAF] && out->cluster.timeout_ns < deaf_ns + 8 * NS_PER_S)
        out->cluster.timeout_ns = deaf_ns + 8 * NS_PER_S;
}

/* Who does not hear of a commit is one of two that stay. */
static void draw_unheard(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x4ea4d); /* likewise */
    if (!chance(&random, 30))
        return;
    out->nemesis.weights[NEMESIS_UNHEARD] = between32(&random, 8, 24);
    out->cluster.replicas = 3;
}

/* Machines and disks that are new, or stay away, clocks that change, and what servers or the manager do not know. */
static void draw_replacements(uint64_t seed, struct swarm *swarm, struct nemesis_options *out)
{
    struct random random;
    random_init(&random, seed ^ 0x4e57); /* likewise */
    out->empty_in = perhaps(&random, 50, 1, 3);
    out->readdress_in = perhaps(&random, 30, 1, 2);
    out->weights[NEMESIS_CLOCK] = chance(&random, 40) ? between32(&random, 1, 12) : 0;
    swarm->cluster.start_wait_ms = between32(&random, 200, 1500);
    swarm->cluster.goodbye_wait_ms = between32(&random, 3000, 5000);
    out->away_in = perhaps(&random, 60, 1, 3);
    out->in_turn_in = perhaps(&random, 60, 1, 3);
    swarm->cluster.stranger = chance(&random, 25);
    swarm->faults.one_in[FAULT_NEWS] = perhaps(&random, 60, 50, 3);
}

/* It takes 50 leases, and nothing else comes meanwhile. */
static void draw_limp(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x1149); /* likewise */
    if (chance(&random, 40) && out->cluster.lease_ms <= MOST_LIMPING_MS && !out->cluster.stranger)
        out->nemesis.weights[NEMESIS_LIMP] = between32(&random, 8, 24);
}

/* One more that nobody knows; and what they have stored goes back. */
static void draw_managers(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x3a4a6); /* likewise */
    out->cluster.third = chance(&random, 40);
    out->nemesis.weights[NEMESIS_BACK] = chance(&random, 40) ? between32(&random, 16, 40) : 0;
}

/* No shard falls to one while another one said goodbye just before. */
static void draw_off(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x0ff); /* likewise */
    if (!chance(&random, 20))
        return;
    out->nemesis.weights[NEMESIS_OFF] = between32(&random, 8, 24);
    out->cluster.replicas = 3;
}

/* Behind the last fault: with leases a server is gone for good, or the stored configuration was an old one before. */
static void draw_ends(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x90e); /* likewise */
    const bool living = chance(&random, 50), gone = chance(&random, 40);
    const uint32_t server = between32(&random, 1, out->cluster.servers);
    out->living = living;
    out->gone = gone && out->cluster.lease_ms ? server : 0;
}

/* Not where bits flip: in an open segment that is a torn tail to a cold start, which may serve without who has all. */
static void draw_failover(uint64_t seed, uint32_t failovers, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0xfa11); /* likewise */
    const bool failover = chance(&random, failovers);
    const uint32_t lease_ms = (uint32_t)spread(&random, 100, 2);
    if (!failover || out->nemesis.flip_in)
        return;
    out->cluster.lease_ms = lease_ms;
    /* Its only other copy may be on the server that fails. */
    out->faults.one_in[FAULT_BLOCK_LOST] = 0;
    out->nemesis.lease_ns = lease_ms * NS_PER_MS;
    if (out->cluster.timeout_ns < 4 * NS_PER_S)
        out->cluster.timeout_ns = 4 * NS_PER_S;
    draw_failover_faults(&random, out);
    out->nemesis.weights[NEMESIS_PLAN] = between32(&random, 0, 8);
    draw_replacements(seed, out, &out->nemesis);
    draw_unheard(seed, out);
    draw_limp(seed, out);
    draw_off(seed, out);
    draw_managers(seed, out);
    out->cluster.heat_us = perhaps(&random, 50, 50, 5);
    out->load.readers = out->cluster.clients / 2;
    /* A reader asks on while the server that it asks stands still. */
    if (out->segment_bytes < LARGE_SEGMENT && out->cluster.depth < READER_DEPTH)
        out->load.depth = out->cluster.depth = READER_DEPTH;
}

static void choose_segments(struct swarm *out)
{
    /* All of a PM is looked through when its host has lost power. */
    const struct sim_fault_options *faults = &out->faults;
    const uint32_t rolls = faults->one_in[FAULT_EARLY_ROLL], seals = out->cluster.early_seal;
    if ((rolls && rolls < OFTEN) || (seals && seals < OFTEN)) {
        out->segment_bytes = SMALLEST_SEGMENT;
        if (out->cluster.block_limit > SMALLEST_SEGMENT / 4)
            out->cluster.block_limit = SMALLEST_SEGMENT / 4;
    }
    /* What may be on its way to a backup is a segment's worth, and of that no client has all. */
    if (out->load.max_value_bytes > out->segment_bytes / 4)
        out->load.max_value_bytes = out->segment_bytes / 4;
}

/* What must be free for a server not to be full, and what it has open. */
static uint64_t reserve_for(const struct sim_cluster_options *cluster)
{
    const uint64_t senders = (uint64_t)(cluster->servers - 1) * cluster->workers;
    /* An entry of 64 B takes a slot. */
    const uint64_t times = cluster->landing_stride ? cluster->landing_stride / FABRIC_STRIDE : 1;
    return 2 * times * senders + 2 * (cluster->workers + cluster->digests) +
           cluster->landing_segments;
}

/* Every write of a run has its own space, on each replica, and each start leaves some segments that are not full: nothing
 * needs to be cleaned. */
static uint64_t segments_for_all(const struct swarm *swarm)
{
    const struct sim_cluster_options *cluster = &swarm->cluster;
    const bool slots = cluster->landing_stride > FABRIC_STRIDE;
    const struct load_options *load = &swarm->load;
    const uint64_t writes = load->operations + 2 * load->keys; /* some in the verdict */
    const uint64_t each = 320 + (load->forged_in ? 1200 / load->forged_in : 0);
    uint64_t longs = writes / load->long_in * load->max_value_bytes;
    uint64_t written = 2 * (writes * each * (slots ? 2 : 1) + longs);
    /* What replicas have lost they get again from the others, after each start. */
    const uint64_t left = swarm->segment_bytes >= LARGE_SEGMENT ? 120 : 300;
    uint64_t segments = (is_lossy(swarm) ? 3 : 1) * (written / swarm->segment_bytes + left);
    /* And what begins a new segment before the old one is full. */
    if (cluster->early_seal)
        segments += 2 * writes / cluster->early_seal;
    if (swarm->faults.one_in[FAULT_EARLY_ROLL])
        segments += 2 * writes / swarm->faults.one_in[FAULT_EARLY_ROLL];
    return segments;
}

/* All keys, of which some are long. */
static uint64_t live_bytes_of(const struct load_options *load)
{
    const uint64_t each = 2 * LOAD_SHORT_KEY_BYTES + 320 + load->max_key_bytes / 10;
    return load->keys * each + (2 * load->keys / load->long_in + 2) * load->max_value_bytes;
}

/* Half of the runs have small messages for what is asked for; half fill so slowly that clients write meanwhile. With leases, some
 * of those whose memory is large have both, and values of several messages. */
static void draw_messages(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0xf111); /* so that the rest of the run is as without */
    bool is_small = chance(&random, 50), is_slow = chance(&random, 50);
    const uint32_t more = (uint32_t)spread(&random, 4096, 2); /* completion records need so much */
    const uint64_t fill_s = between(&random, 1, 6);
    const bool parts = chance(&random, 40) && out->cluster.lease_ms && !out->load.may_fill &&
                       out->segment_bytes < LARGE_SEGMENT;
    if (parts) {
        is_small = is_slow = true;
        out->load.max_value_bytes = out->segment_bytes / 4;
        out->load.long_in = between32(&random, 5, 15);
    }
    out->message_bytes = is_small ? out->cluster.block_limit + more : BLOCK_LIST_MOST_BYTES;
    out->cluster.fill_rate = is_slow ? live_bytes_of(&out->load) / fill_s : 0;
}

/* And some more: most of what is written has no space but where it is made. */
static uint64_t segments_for_live(struct random *random, const struct swarm *swarm)
{
    const struct load_options *load = &swarm->load;
    const uint64_t live = live_bytes_of(load), rolls = swarm->faults.one_in[FAULT_EARLY_ROLL];
    return live / swarm->segment_bytes + (rolls ? load->keys / rolls : 0) + between(random, 8, 40);
}

static uint64_t pm_bytes_for(struct random *random, const struct swarm *swarm)
{
    const uint64_t segments =
        reserve_for(&swarm->cluster) +
        (swarm->load.may_fill ? segments_for_live(random, swarm) : segments_for_all(swarm));
    return segments * swarm->segment_bytes + TABLES_BYTES;
}

/* All but one have more memory than what all keys need: a filling is to look for space. */
static void draw_sizes(uint64_t seed, struct swarm *out)
{
    struct random random;
    random_init(&random, seed ^ 0x512e5); /* likewise */
    const bool unequal = chance(&random, 40);
    const uint32_t times = between32(&random, 1, 2);
    if (!unequal || !out->cluster.lease_ms || !out->load.may_fill)
        return;
    out->cluster.last_pm_bytes = out->cluster.pm_bytes;
    out->cluster.pm_bytes += times * (out->cluster.pm_bytes - TABLES_BYTES);
}

void swarm_draw(uint64_t seed, uint32_t failovers, struct swarm *out)
{
    struct random random;
    random_init(&random, seed);
    *out = (struct swarm){.segment_bytes = UINT32_C(65536) << random_below(&random, 2)};
    out->safety_ns = between(&random, 20 * NS_PER_S, 24 * NS_PER_S);
    draw_cluster(&random, &out->cluster);
    draw_times(&random, &out->cluster);
    draw_load(&random, &out->cluster, out->safety_ns, &out->load);
    draw_nemesis(&random, out->cluster.durability == PM_FENCE, &out->nemesis);
    draw_sites(&random, &out->faults);
    focus(&random, out);
    /* A commit version that a digest role does not see would hide the holes that losses leave, until the next write. */
    if (is_lossy(out))
        out->faults.one_in[FAULT_BLOCK_LOST] = 0;
    draw_reactors(&random, &out->cluster);
    draw_index(&random, out);
    draw_landing(&random, &out->cluster);
    draw_large(&random, out);
    draw_space(&random, out);
    draw_flips(seed, out);
    draw_late(seed, out);
    draw_failover(seed, failovers, out);
    /* As in life more than an operation's timeout by the fastest clock, and than the longest fault. */
    out->keep_ns = out->cluster.timeout_ns * 5 / 4 + 2 * out->nemesis.max_length_ns;
    choose_segments(out);
    draw_messages(seed, out);
    out->cluster.pm_bytes = pm_bytes_for(&random, out);
    draw_sizes(seed, out);
    draw_ends(seed, out);
    /* What a host has lost of a replica row, or brings back of a segment, takes from what was told, and done, about
     * tombstones: that is a loss, if every host has lost something or may have; the checkers know only of what was. */
    out->tombstones_ns = is_lossy(out)        ? 3600 * NS_PER_S
                         : out->load.may_fill ? between(&random, 100 * NS_PER_MS, NS_PER_S)
                                              : NS_PER_S; /* a pass reads everything */
    out->checkpoint_ns =
        chance(&random, 25) ? 3600 * NS_PER_S : between(&random, 20 * NS_PER_MS, NS_PER_S);
}
