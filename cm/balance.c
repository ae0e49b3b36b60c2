/* balance.c - see balance.h.
 *
 * Invariants:
 *  V1 A step lowers the higher of the loads of the two that it concerns, by what is known.
 *  V2 Nothing is decided before every member that may hold shards has reported in the last reports' time, and of each shard that
 *     it holds: an average without one would be wrong.
 *  V4 A shard that moves for space makes nobody hotter than all should be, and what moves for load fits below what is filled: so
 *     neither calls the other back.
 *  V3 No shard is touched that changes, rests behind a change, or is to change by an earlier step.
 */
#include "cm/balance.h"

#include <string.h>

#include "cm/split.h"
#include "common/base/clock.h"

enum {
    BALANCED_PERCENT = 105,
    IDLE_PERCENT = 60,
    BUSY_PERCENT = 10,
    SPACE_PERCENT = 60, /* a server that has less of its space in use is not short of it */
    SPACE_BAND = 20, /* per cent of their space, between two servers, before a shard moves for it */
    GAIN_PARTS = 40, /* a step gains one of these of the average */
    FILL_GAIN_PARTS = 20, /* and as many more than one without copying */
};

#define REPORTED_NS (3 * NS_PER_S)
#define GOING_NS    (BALANCE_REST_NS + REPORTED_NS)
#define CARRIED_OUT_NS                                                                             \
    (3 * NS_PER_S / 2) /* until reports tell of what was decided, and of nothing in front of it */
#define SWING_NS (2 * NS_PER_S) /* reports of the servers, and what they tell of, are apart */

struct bin {
    uint64_t load, cores;
    uint64_t free_bytes; /* room, without what is to come */
    uint64_t used_bytes, all_bytes;
    bool takes;       /* shards */
    bool gives_fills; /* is no source of a filling */
    bool takes_fills;
};

struct work {
    const struct cluster_config *config;
    const struct loads *loads;
    uint64_t now_ns;
    uint32_t overloaded_percent;
    struct bin bins[CLUSTER_MAX_MEMBERS];  /* by position of the member */
    uint64_t average;                      /* of a core's load */
    uint32_t hot;                          /* the position of who has most */
    uint8_t moved[CLUSTER_MAX_SHARDS / 8]; /* V3: bits, by position */
    struct choice {
        uint64_t
            peak; /* the highest of the two then, with what a filling has to gain more; UINT64_MAX: none */
        uint32_t at, to; /* positions: of the shard, of the member */
        int64_t less, more;
        bool fill;
    } best, passed; /* `passed`: of those whose target has not the space */
};

/* Of the shard's primary. */
static struct bin *source_of(struct work *work, const struct shard *shard)
{
    return &work->bins[cluster_position(work->config, shard->primary)];
}

/* V2. False: not of each shard that it holds. */
static bool add_shards(struct work *work, struct bin *bin, uint32_t server)
{
    for (uint32_t i = 0; i < work->config->served_count; i++) {
        const struct shard *shard = &work->config->shards[i];
        if (shard_is_full_at(shard, server) && !loads_knows(work->loads, shard->id, server))
            return false;
        bin->load += loads_at(work->loads, shard->id, server);
    }
    return true;
}

/* V2. False: not every one has. */
static bool sum_up(struct work *work)
{
    uint64_t load = 0, cores = 0;
    for (uint32_t i = 0; i < work->config->member_count; i++) {
        const struct member *member = &work->config->members[i];
        struct bin *bin = &work->bins[i];
        bin->takes = !member->kept && cluster_wants(work->config, member->server);
        bin->gives_fills = bin->takes_fills = bin->takes;
        if (!bin->takes)
            continue;
        const struct load_member *known = loads_member(work->loads, member);
        if (!known || work->now_ns - known->told_ns > REPORTED_NS)
            return false;
        bin->cores = known->cores;
        bin->free_bytes = loads_room(work->loads, work->config, member);
        bin->used_bytes = known->live_bytes;
        bin->all_bytes = known->all_bytes;
        if (!add_shards(work, bin, member->server))
            return false;
        load += bin->load;
        cores += bin->cores;
    }
    work->average = cores ? load / cores : 0;
    return cores > 0;
}

static uint64_t bytes_of(const struct work *work, uint32_t at)
{
    return loads_bytes(work->loads, &work->config->shards[at]);
}

static uint64_t height(const struct bin *bin, int64_t more)
{
    const int64_t load = (int64_t)bin->load + more;
    return load > 0 ? (uint64_t)load / bin->cores : 0;
}

static void find_hot(struct work *work)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < work->config->member_count; i++) {
        if (!work->bins[i].takes || height(&work->bins[i], 0) < most)
            continue;
        most = height(&work->bins[i], 0);
        work->hot = i;
    }
}

static void note_fillings(struct work *work)
{
    for (uint32_t i = 0; i < work->config->shard_count; i++) {
        const struct shard *shard = &work->config->shards[i];
        for (uint32_t k = 0; k < shard->filling_count; k++) {
            work->bins[cluster_position(work->config, shard->filling[k])].takes_fills = false;
            source_of(work, shard)->gives_fills = false;
        }
    }
}

/* V3 */
static bool may_change(const struct work *work, uint32_t at)
{
    const struct shard *shard = &work->config->shards[at];
    const uint64_t moved_ns = work->loads->shards[shard->id].moved_ns;
    return !(work->moved[at / 8] >> at % 8 & 1) && !shard_is_kept(work->config, shard) &&
           shard->epoch < CLUSTER_MAX_EPOCH && shard->filling_count == 0 && shard->move_to == 0 &&
           !split_concerns(work->config, shard) &&
           shard->backup_count + 1 >= work->config->replicas &&
           (moved_ns == 0 || work->now_ns - moved_ns >= BALANCE_REST_NS);
}

/* V1. */
static void weigh(struct work *work, const struct choice *choice)
{
    const struct bin *hot = &work->bins[work->hot], *target = &work->bins[choice->to];
    const uint64_t left = height(hot, -choice->less), there = height(target, choice->more),
                   peak = (left > there ? left : there) +
                          (choice->fill ? work->average / FILL_GAIN_PARTS : 0);
    const bool fits = !choice->fill || target->free_bytes > bytes_of(work, choice->at);
    struct choice *best = fits ? &work->best : &work->passed;
    if (peak + work->average / GAIN_PARTS > height(hot, 0) || peak >= best->peak)
        return;
    *best = *choice;
    best->peak = peak;
}

static void weigh_shard(struct work *work, uint32_t at)
{
    const struct shard *shard = &work->config->shards[at];
    const uint32_t from = work->config->members[work->hot].server;
    const int64_t load = loads_at(work->loads, shard->id, from);
    const bool leads = shard->primary == from,
               fills = source_of(work, shard)->gives_fills &&
                       shard->backup_count < CLUSTER_MAX_REPLICAS - 1;
    for (uint32_t i = 0; i < work->config->member_count; i++) {
        const uint32_t to = work->config->members[i].server;
        if (!work->bins[i].takes || i == work->hot)
            continue;
        if (leads && shard_has_backup(shard, to)) {
            const int64_t more = load - loads_at(work->loads, shard->id, to);
            weigh(work, &(struct choice){.at = at, .to = i, .less = more, .more = more});
        } else if (fills && work->bins[i].takes_fills && !shard_names(shard, to)) {
            weigh(work,
                  &(struct choice){.at = at, .to = i, .less = load, .more = load, .fill = true});
        }
    }
}

/* The same among the workers of a server: one that is overloaded gives its hottest shard that lowers it to the one with least. */
static bool find_worker(struct work *work, uint32_t position, struct cm_plan *plan)
{
    const struct member *member = &work->config->members[position];
    const uint32_t workers = member->workers;
    uint64_t loads[CLUSTER_MAX_WORKERS] = {0}, all = 0, best = 0;
    uint32_t hot = 0, cold = 0;
    if (!work->bins[position].takes || work->bins[position].cores < 2)
        return false;
    for (uint32_t i = 0; i < work->config->shard_count; i++) {
        const struct shard *shard = &work->config->shards[i];
        if (shard->primary != member->server)
            continue;
        loads[shard->worker] += loads_at(work->loads, shard->id, member->server);
        all += loads_at(work->loads, shard->id, member->server);
    }
    for (uint32_t i = 1; i < workers; i++) {
        hot = loads[i] > loads[hot] ? i : hot;
        cold = loads[i] < loads[cold] ? i : cold;
    }
    if (loads[hot] * workers * 100 <= all * work->overloaded_percent ||
        loads[hot] * 100 < (uint64_t)LOAD_CORE * BUSY_PERCENT)
        return false;
    for (uint32_t i = 0; i < work->config->shard_count; i++) {
        const struct shard *shard = &work->config->shards[i];
        const uint64_t load = loads_at(work->loads, shard->id, member->server);
        if (shard->primary != member->server || shard->worker != hot || !may_change(work, i) ||
            load <= best || (loads[cold] + load) * 100 > loads[hot] * 95)
            continue;
        best = load;
        *plan = (struct cm_plan){
            .kind = CM_PLAN_WORKER, .server = member->server, .shard = shard->id, .to = cold};
    }
    return best > 0;
}

static uint64_t used_percent(const struct bin *bin, uint64_t more)
{
    return bin->all_bytes ? (bin->used_bytes + more) * 100 / bin->all_bytes : 0;
}

/* V4 */
static bool takes_for_space(const struct work *work, const struct bin *bin, uint32_t at,
                            uint32_t from)
{
    const struct shard *shard = &work->config->shards[at];
    const uint64_t then = height(bin, loads_at(work->loads, shard->id, from));
    return bin->takes && bin->takes_fills && bin->free_bytes > bytes_of(work, at) &&
           (then * 100 <= work->average * BALANCED_PERCENT ||
            then * 100 < (uint64_t)LOAD_CORE * BUSY_PERCENT);
}

/* That could take the shard for it; `full`: none could. */
static uint32_t emptiest(const struct work *work, uint32_t at, uint32_t full)
{
    const struct cluster_config *config = work->config;
    const uint64_t percent = used_percent(&work->bins[full], 0), bytes = bytes_of(work, at);
    uint64_t least = percent - SPACE_BAND + 1;
    uint32_t to = full;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct bin *bin = &work->bins[i];
        if (shard_names(&config->shards[at], config->members[i].server) || bin->all_bytes == 0 ||
            used_percent(bin, 0) >= least || used_percent(bin, bytes) >= percent ||
            !takes_for_space(work, bin, at, config->members[full].server))
            continue;
        least = used_percent(bin, 0);
        to = i;
    }
    return to;
}

/* Off the server that has most of its space in use, the heaviest shard that leaves it above where that goes. */
static bool find_space(struct work *work)
{
    const struct cluster_config *config = work->config;
    uint32_t full = 0;
    uint64_t most = 0;
    for (uint32_t i = 1; i < config->member_count; i++)
        full = used_percent(&work->bins[i], 0) > used_percent(&work->bins[full], 0) ? i : full;
    const uint64_t percent = used_percent(&work->bins[full], 0);
    const uint32_t from = config->members[full].server;
    for (uint32_t i = 0; percent >= SPACE_PERCENT && i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const uint64_t bytes = bytes_of(work, i);
        if (!shard_is_full_at(shard, from) || bytes <= most || !may_change(work, i) ||
            !source_of(work, shard)->gives_fills || shard->backup_count == CLUSTER_MAX_REPLICAS - 1)
            continue;
        const uint32_t to = emptiest(work, i, full);
        if (to == full)
            continue;
        most = bytes;
        work->hot = full;
        work->best = (struct choice){.at = i, .to = to};
    }
    return most > 0;
}

static struct cm_plan plan_of(const struct work *work, const struct choice *choice)
{
    return (struct cm_plan){.kind = CM_PLAN_MOVE,
                            .server = work->config->members[work->hot].server,
                            .shard = work->config->shards[choice->at].id,
                            .to = work->config->members[choice->to].server};
}

static bool is_new(struct balance *balance, const struct cm_plan *passed)
{
    if (balance->passed == passed->shard && balance->passed_at == passed->to)
        return false;
    balance->passed = (uint16_t)passed->shard;
    balance->passed_at = passed->to;
    return true;
}

/* As if it had been carried out. */
static void apply(struct work *work, const struct choice *choice)
{
    struct bin *hot = &work->bins[work->hot], *target = &work->bins[choice->to];
    hot->load = (uint64_t)((int64_t)hot->load - choice->less);
    target->load = (uint64_t)((int64_t)target->load + choice->more);
    work->moved[choice->at / 8] |= (uint8_t)(1 << choice->at % 8);
    if (!choice->fill)
        return;
    target->takes_fills = false;
    target->free_bytes -= bytes_of(work, choice->at);
    source_of(work, &work->config->shards[choice->at])->gives_fills = false;
}

static bool is_above(const struct work *work, uint32_t percent)
{
    return height(&work->bins[work->hot], 0) * 100 > work->average * percent;
}

static bool find_move(struct work *work)
{
    const uint32_t from = work->config->members[work->hot].server;
    work->best.peak = work->passed.peak = UINT64_MAX;
    for (uint32_t i = 0; i < work->config->shard_count; i++) {
        if (may_change(work, i) && shard_names(&work->config->shards[i], from))
            weigh_shard(work, i);
    }
    return work->best.peak < UINT64_MAX;
}

/* A shard that is hotter than what each server should have: wherever it went, it would be too much. Its halves can part. */
static bool find_split(const struct work *work, struct cm_plan *plan)
{
    const struct member *hot = &work->config->members[work->hot];
    uint64_t most = work->average * work->bins[work->hot].cores;
    bool found = false;
    for (uint32_t i = 0; i < work->config->served_count; i++) {
        const struct shard *shard = &work->config->shards[i];
        const uint64_t load = loads_at(work->loads, shard->id, hot->server);
        const uint32_t slot = work->loads->shards[shard->id].split;
        if (shard->primary != hot->server || load <= most || slot == 0 || !may_change(work, i))
            continue;
        most = load;
        found = true;
        *plan = (struct cm_plan){.kind = CM_PLAN_SPLIT, .shard = shard->id, .to = slot};
    }
    return found;
}

static bool any_below(const struct work *work, uint32_t percent)
{
    bool any = false;
    for (uint32_t i = 0; i < work->config->member_count; i++)
        any = any ||
              (work->bins[i].takes && height(&work->bins[i], 0) * 100 < work->average * percent);
    return any;
}

/* One of its shards is being split: what moves then is decided once its halves may. */
static bool is_splitting(const struct work *work, uint32_t server)
{
    bool any = false;
    for (uint32_t i = work->config->served_count; i < work->config->shard_count; i++)
        any = any || work->config->shards[i].primary == server;
    return any;
}

/* Has who has most too much? */
static bool is_overloaded(struct balance *balance, const struct work *work)
{
    if (!is_above(work, BALANCED_PERCENT))
        balance->going_ns = 0;
    const bool goes_on = work->now_ns < balance->going_ns;
    const bool is =
        height(&work->bins[work->hot], 0) * 100 >= (uint64_t)LOAD_CORE * BUSY_PERCENT &&
        is_above(work, goes_on || any_below(work, IDLE_PERCENT) ? BALANCED_PERCENT
                                                                : work->overloaded_percent);
    if (!is)
        balance->since_ns = 0;
    else if (!balance->since_ns)
        balance->since_ns = work->now_ns;
    return is && work->now_ns - balance->decided_ns >= CARRIED_OUT_NS &&
           (goes_on || work->now_ns - balance->since_ns >= SWING_NS ||
            loads_turned(work->loads, work->now_ns));
}

/* Until all are within BALANCED_PERCENT, or there is no move or place left. Returns how many. */
static uint32_t find_steps(struct balance *balance, struct work *work, struct cm_plan *plans)
{
    uint32_t count = 0;
    find_hot(work);
    if (!is_overloaded(balance, work) ||
        is_splitting(work, work->config->members[work->hot].server))
        return 0;
    if (work->now_ns >= balance->split_ns && find_split(work, &plans[0]))
        return 1;
    note_fillings(work);
    while (count < BALANCE_STEPS && is_above(work, BALANCED_PERCENT) && find_move(work)) {
        plans[count++] = plan_of(work, &work->best);
        apply(work, &work->best);
        find_hot(work);
    }
    if (count > 0) {
        balance->decided_ns = work->now_ns;
        balance->going_ns = work->now_ns + GOING_NS;
    }
    return count;
}

enum balance_found balance_decide(struct balance *balance, const struct cluster_config *config,
                                  const struct loads *loads, uint64_t now_ns,
                                  struct cm_plan plans[BALANCE_STEPS], uint32_t *count)
{
    struct work work = {.config = config,
                        .loads = loads,
                        .now_ns = now_ns,
                        .overloaded_percent =
                            100 + (balance->above ? balance->above : BALANCE_ABOVE)};
    work.passed.peak = UINT64_MAX;
    *count = 0;
    if (!sum_up(&work)) /* V2 */
        return BALANCE_NOTHING;
    *count = find_steps(balance, &work, plans);
    for (uint32_t i = 0; i < config->member_count && *count == 0; i++)
        *count += find_worker(&work, i, &plans[0]);
    if (*count == 0 && work.passed.peak == UINT64_MAX &&
        now_ns - balance->decided_ns >= CARRIED_OUT_NS) {
        note_fillings(&work);
        if (find_space(&work)) {
            plans[(*count)++] = plan_of(&work, &work.best);
            balance->decided_ns = now_ns;
        }
    }
    if (*count > 0)
        return BALANCE_DECIDED;
    if (work.passed.peak == UINT64_MAX)
        return BALANCE_NOTHING;
    plans[(*count)++] = plan_of(&work, &work.passed);
    return is_new(balance, &plans[0]) ? BALANCE_PASSED : BALANCE_NOTHING;
}
