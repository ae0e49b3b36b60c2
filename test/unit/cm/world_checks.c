/* world_checks.c - what a configuration that is stored may change:
 *  - a cold start replaces no process that runs, raises the epoch of every shard that does not wait, and counts exactly the replicas
 *    that brought whole data, or, of a shard without one, if all came, those possibly incomplete; or, before the first client id, all;
 *  - a failover removes or keeps members and nothing else; a shard loses exactly what failed, never its last full
 *    replica, and nothing becomes full by it;
 *  - what an operator wants changes who may be a member by one server, and no shard;
 *  - what adds members and replicas leaves all that was there, but what is drained and has been replaced, or is out of its
 *    primary's reach; a primary that is drained becomes a backup; nothing becomes full that does not have all. But a shard
 *    that was kept goes to those of its full replicas that return with whole data or, if all return, with the best, or waits on;
 *  - a split puts two shards with new ids and higher epochs in the place of one, whose row goes behind: it ends when every
 *    replica of it has copied all, and the row goes after that. In between the replicas of the three are the same;
 *  - another manager changes nothing else;
 *  - the first client ids are reserved when every member has said that its PM is formatted. */
#include "test/unit/cm/world_checks.h"

#include "cm/loads.h"
#include "test/lib/asserts.h"

static const struct cm_join *report_of(const struct world_store *store,
                                       const struct cluster_config *config, uint32_t server)
{
    const struct member *member = cluster_member(config, server);
    assert_non_null(member);
    for (uint32_t i = 0; i < store->report_count; i++) {
        const struct cm_join *report = &store->reports[i];
        if (report->server == server && report->incarnation == member->incarnation)
            return report;
    }
    fail_msg("nobody ever joined as server %u with incarnation %llu", server,
             (unsigned long long)member->incarnation);
    return NULL;
}

/* 0: no data, 1: possibly incomplete, 2: whole. Nothing was lost of a cluster in which nothing was written. */
static int quality_of(const struct cm_join *report, const struct cluster_config *config,
                      uint16_t shard)
{
    if (config->next_client_id == 1)
        return 2;
    if (report->data_cluster == 0)
        return 0;
    assert_int_equal(report->data_cluster, config->cluster);
    return report->possibly_incomplete || damage_concerns(&report->damage, config, shard) ? 1 : 2;
}

static int quality(const struct world_store *store, const struct cluster_config *config,
                   uint32_t server, uint16_t shard)
{
    return quality_of(report_of(store, config, server), config, shard);
}

/* Of the process of a kept server that runs now: it came, and waits for another shard that it holds. NULL: it did not. */
static const struct cm_join *waiting(const struct world_store *store, uint32_t server)
{
    for (uint32_t i = 0; store->running && i < store->report_count; i++) {
        if (store->reports[i].server == server &&
            store->reports[i].incarnation == store->running[server])
            return &store->reports[i];
    }
    return NULL;
}

static bool holds(const struct shard *shard, uint32_t server)
{
    return shard->primary == server || shard_has_backup(shard, server);
}

static bool is_child(const struct cluster_config *config, const struct shard *shard)
{
    return cluster_parent(config, shard) != NULL;
}

/* The row of an ended shard may have gone, and no child begins with an epoch that it had. */
static const struct shard *row_after(const struct cluster_config *after, const struct shard *before)
{
    const struct shard *row = cluster_shard(after, before->id);
    if (!row)
        assert_true(before->split == SPLIT_ENDED && after->epoch_floor >= before->epoch);
    return row;
}

static bool is_kept(const struct cluster_config *config, uint32_t server)
{
    const struct member *member = cluster_member(config, server);
    return member && member->kept;
}

static uint32_t full_replicas(const struct shard *shard)
{
    return 1 + shard->backup_count;
}

static void check_cold_shard(const struct world_store *store, const struct cluster_config *config,
                             const struct shard *before, const struct shard *after)
{
    assert_true(after->id == before->id && after->first_slot == before->first_slot &&
                after->last_slot == before->last_slot);
    assert_in_range(after->epoch, before->epoch + !is_kept(config, after->primary),
                    before->epoch + 1 + is_child(config, after));
    assert_int_equal(after->filling_count, 0);
    int best = 0, away = 0;
    uint32_t came = 0, whole = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        uint32_t server = config->members[i].server;
        if (!holds(before, server))
            continue;
        const struct cm_join *waits = config->members[i].kept ? waiting(store, server) : NULL;
        came += !config->members[i].kept || waits;
        if (waits && quality_of(waits, config, before->id) > away)
            away = quality_of(waits, config, before->id);
        if (config->members[i].kept)
            continue;
        whole += quality(store, config, server, before->id) == 2;
        if (quality(store, config, server, before->id) > best)
            best = quality(store, config, server, before->id);
    }
    if (is_kept(config, after->primary)) {   /* it waits */
        assert_true(best < 2 || whole == 1); /* B3 */
        assert_int_equal(full_replicas(after), full_replicas(before));
        return;
    }
    assert_true(best > 0 && (best == 2 || (came == full_replicas(before) && away <= best)));
    assert_int_equal(after->possibly_incomplete, before->possibly_incomplete || best == 1);
    for (uint32_t i = 0; i < config->member_count; i++) {
        uint32_t server = config->members[i].server;
        bool counts = holds(before, server) && !config->members[i].kept &&
                      quality(store, config, server, before->id) == best;
        assert_int_equal(holds(after, server), counts);
        if (before->primary == server && counts)
            assert_int_equal(after->primary, server);
    }
}

static uint32_t ended_rows(const struct cluster_config *config)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->shard_count; i++)
        count += config->shards[i].split == SPLIT_ENDED;
    return count;
}

static void check_cold_start(struct world_store *store, const struct cluster_config *before,
                             const struct cluster_config *after)
{
    store->cold_starts++;
    for (uint32_t i = 0; i < before->member_count; i++) {
        const struct member *old = &before->members[i], *new = cluster_member(after, old->server);
        if (!new || new->kept)
            continue;
        const struct cm_join *report = report_of(store, after, new->server);
        assert_true(new->incarnation != old->incarnation);
        assert_true(!store->running || store->running[old->server] != old->incarnation);
        assert_int_equal(new->workers, report->workers);
        assert_string_equal(new->address, report->address);
    }
    for (uint32_t i = 0; i < before->shard_count; i++) {
        if (before->shards[i].split != SPLIT_ENDED)
            check_cold_shard(store, after, &before->shards[i],
                             row_after(after, &before->shards[i]));
    }
    assert_int_equal(after->shard_count, before->shard_count - ended_rows(before));
}

/* Members are gone or kept, and the processes are the same. */
static bool is_failover(const struct cluster_config *before, const struct cluster_config *after)
{
    bool changed = false;
    for (uint32_t i = 0; i < before->member_count; i++) {
        const struct member *new = cluster_member(after, before->members[i].server);
        changed = changed || (!before->members[i].kept && (!new || new->kept));
    }
    return changed;
}

/* No process goes on, and there was one. */
static bool is_cold_start(const struct cluster_config *before, const struct cluster_config *after)
{
    bool any = false, ran = false;
    for (uint32_t i = 0; i < before->member_count; i++) {
        const struct member *new = cluster_member(after, before->members[i].server);
        ran = ran || !before->members[i].kept;
        any = any || (new && !new->kept &&new->incarnation == before->members[i].incarnation);
    }
    return ran && !any;
}

static void check_failover_shard(const struct cluster_config *before, const struct shard *old,
                                 const struct cluster_config *after, const struct shard *new)
{
    assert_true(new->id == old->id &&new->first_slot == old->first_slot &&new->last_slot ==
                old->last_slot);
    assert_int_equal(new->possibly_incomplete, old->possibly_incomplete);
    bool any_left = false;
    for (uint32_t i = 0; i < before->member_count; i++) {
        const uint32_t server = before->members[i].server;
        const bool gone = !cluster_member(after, server) || is_kept(after, server);
        const bool held = holds(old, server);
        any_left = any_left || (held && !gone);
        assert_true(held || !holds(new, server)); /* nothing becomes full by it */
    }
    if (is_kept(after,
                new->primary)) { /* it waits: those that failed and said goodbye, or all of them */
        for (uint32_t i = 0; i < before->member_count; i++) {
            const uint32_t server = before->members[i].server;
            assert_true(
                holds(new, server) == holds(old, server) ||
                (any_left && !is_kept(before, old->primary) && !cluster_member(after, server)));
        }
        if (is_kept(before, old->primary))
            assert_int_equal(full_replicas(new), full_replicas(old));
    } else if (any_left) {
        for (uint32_t i = 0; i < before->member_count; i++) {
            const uint32_t server = before->members[i].server;
            const bool gone = !cluster_member(after, server) || is_kept(after, server);
            assert_int_equal(holds(new, server), holds(old, server) && !gone);
        }
    } else { /* the last ones are never dropped */
        assert_int_equal(full_replicas(new), full_replicas(old));
        assert_int_equal(new->primary, old->primary);
    }
    const bool same = new->primary == old->primary &&new->backup_count ==
                      old->backup_count &&new->filling_count == old->filling_count;
    if (!is_kept(after, new->primary))
        assert_int_equal(new->epoch, old->epoch + !same);
}

static void check_failover(struct world_store *store, const struct cluster_config *before,
                           const struct cluster_config *after)
{
    store->failovers++;
    uint32_t running = 0;
    for (uint32_t i = 0; i < after->member_count; i++) {
        const struct member *member = &after->members[i];
        assert_non_null(cluster_member(before, member->server));
        assert_int_equal(member->incarnation, cluster_member(before, member->server)->incarnation);
        assert_true(member->kept || !is_kept(before, member->server));
        running += !member->kept;
    }
    assert_true(running > 0);
    assert_int_equal(after->shard_count, before->shard_count);
    for (uint32_t i = 0; i < before->shard_count; i++) {
        if (before->shards[i].split == SPLIT_ENDED)
            assert_int_equal(after->shards[i].split, SPLIT_ENDED);
        else
            check_failover_shard(before, &before->shards[i], after, &after->shards[i]);
    }
}

/* Replicas, full ones and those that fill, that are not drained. */
static uint32_t wanted_replicas(const struct cluster_config *config, const struct shard *shard,
                                bool filling)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const uint32_t server = config->members[i].server;
        count += cluster_wants(config, server) && server != shard->move_from &&
                 (holds(shard, server) || (filling && shard_has_filling(shard, server)));
    }
    return count;
}

static bool any_cut(const struct world_store *store, uint32_t primary)
{
    bool any = false;
    for (uint32_t i = 0; i <= WORLD_SERVERS; i++)
        any = any || store->cut[primary][i];
    return any;
}

/* By roles that are swapped, with one that does not fill and is not drained; as it is drained, or somebody wanted that; or it said that it
 * does not reach some. */
static void check_primary(struct world_store *store, const struct cluster_config *config,
                          const struct shard *old, const struct shard *new)
{
    if (new->primary == old->primary)
        return;
    store->swaps++;
    assert_true(cluster_wants(config, new->primary));
    assert_true(!cluster_wants(config, old->primary) ||
                (old->move_from == old->primary ? old->move_to == new->primary
                                                : store->moves[old->primary][new->primary]) ||
                any_cut(store, old->primary));
    assert_true(holds(old, new->primary) && shard_has_backup(new, old->primary));
}

/* It begins because somebody wanted it, with a server that fills, and goes on as long as both hold the shard; unless the one that
 * came is full, and nobody fills in place of the other. */
static void check_move(struct world_store *store, const struct cluster_config *config,
                       const struct shard *old, const struct shard *new)
{
    if (old->move_to && !new->move_to && shard_names(new, old->move_from) &&
        shard_names(new, old->move_to)) {
        assert_true(!shard_has_filling(old, old->move_to) && new->filling_count == 0);
    } else if (old->move_to && shard_names(new, old->move_from) && shard_names(new, old->move_to)) {
        assert_true(new->move_from == old->move_from &&new->move_to == old->move_to);
    } else if (new->move_to) {
        store->moved++;
        assert_true(store->moves[new->move_from][new->move_to] && holds(old, new->move_from));
        assert_true(!shard_names(old, new->move_to) && shard_has_filling(new, new->move_to));
        assert_true(cluster_wants(config, new->move_to));
    }
}

/* A member is a replica no more: it was out of reach, or there are enough without it, full ones if it was one; or it filled and
 * is drained. */
static void check_left(struct world_store *store, const struct cluster_config *config,
                       const struct shard *old, const struct shard *new, uint32_t server)
{
    const bool full = holds(old, server);
    store->left++;
    assert_true(store->cut[old->primary][server] || store->cut[new->primary][server] ||
                wanted_replicas(config, new, !full) >= config->replicas ||
                (!full && !cluster_wants(config, server)));
}

/* Nothing else happens to a shard that is split, and to its children. */
static void check_split_shard(struct world_store *store, const struct shard *old,
                              const struct shard *new)
{
    if (!new)
        return;
    if (new->split == old->split) { /* as it was, but for backups out of reach */
        assert_true(new->primary == old->primary &&new->filling_count == 0);
        for (uint32_t i = 0; i < old->backup_count; i++)
            assert_true(shard_has_backup(new, old->backups[i]) ||
                        store->cut[old->primary][old->backups[i]]);
        assert_int_equal(new->epoch, old->epoch + (new->backup_count != old->backup_count));
        return;
    }
    store->splits++;
    assert_true(old->split == SPLIT_PARENT && new->split == SPLIT_ENDED);
    assert_int_equal(new->epoch, old->epoch + 1);
    assert_int_equal(store->filled[old->id][old->primary], old->epoch);
    for (uint32_t i = 0; i < old->backup_count; i++)
        assert_int_equal(store->filled[old->id][old->backups[i]], old->epoch);
}

static void check_filled_shard(struct world_store *store, uint32_t at,
                               const struct cluster_config *before,
                               const struct cluster_config *after)
{
    const struct shard *old = &before->shards[at], *new = row_after(after, old);
    if (old->split != SPLIT_NONE || is_child(before, old)) {
        check_split_shard(store, old, new);
        return;
    }
    bool changed =
        new->primary != old->primary || new->worker != old->worker || new->move_to != old->move_to;
    check_primary(store, after, old, new);
    check_move(store, after, old, new);
    assert_int_equal(new->possibly_incomplete, old->possibly_incomplete);
    for (uint32_t i = 0; i < after->member_count; i++) {
        const uint32_t server = after->members[i].server;
        if (holds(new, server) && !holds(old, server)) {
            assert_true(shard_has_filling(old, server));
            assert_int_equal(store->filled[old->id][server], old->epoch);
        }
        if (shard_has_filling(new, server) && !shard_has_filling(old, server))
            assert_true(!holds(old, server) && cluster_wants(after, server));
        if (shard_names(old, server) && !shard_names(new, server))
            check_left(store, after, old, new, server);
        changed = changed || holds(new, server) != holds(old, server) ||
                  shard_has_filling(new, server) != shard_has_filling(old, server);
    }
    assert_int_equal(new->epoch, old->epoch + changed);
    const uint32_t count = wanted_replicas(after, new, true);
    const bool extra = new->move_to && !old->move_to && !cluster_wants(after, new->move_from);
    assert_true(count <= after->replicas || count <= wanted_replicas(after, old, true) + extra);
}

static bool returns(const struct cluster_config *after, uint32_t server)
{
    const struct member *member = cluster_member(after, server);
    return member && !member->kept;
}

/* A full replica was kept. If it is served now, by those with the best data that run; else it has whom it had, and nobody has whole
 * data, or a single one that has just returned. One that had filled before, as
 * its primary said, may become full by the way. */
static void check_kept_shard(struct world_store *store, uint32_t at,
                             const struct cluster_config *before,
                             const struct cluster_config *after)
{
    const struct shard *old = &before->shards[at], *new = row_after(after, old);
    int best = 0;
    uint32_t came = 0, back = 0, whole = 0, away = 0;
    for (uint32_t i = 0; i < before->member_count; i++) {
        const uint32_t server = before->members[i].server;
        away += holds(old, server) && !returns(after, server);
        if (!holds(old, server) || !returns(after, server))
            continue;
        came++;
        back += before->members[i].kept;
        whole += quality(store, after, server, old->id) == 2;
        if (quality(store, after, server, old->id) > best)
            best = quality(store, after, server, old->id);
    }
    if (old->split == SPLIT_ENDED ||
        (back == 0 && old->split != SPLIT_NONE && new &&is_kept(after, new->primary))) {
        check_split_shard(store, old, new);
        return;
    }
    if (is_kept(after, new->primary)) {
        assert_true(best < 2 || before->mixed || (back && whole == 1 && away)); /* B3 */
        assert_in_range(new->epoch, old->epoch + (back > 0),
                        old->epoch + (back || store->gives_up ? 2 : 0));
        for (uint32_t i = 0; i < before->member_count; i++)
            assert_true(holds(new, before->members[i].server) ==
                            holds(old, before->members[i].server) ||
                        store->gives_up);
        return;
    }
    assert_true(best == 2 || store->gives_up || (best == 1 && came == full_replicas(old)));
    assert_int_equal(new->possibly_incomplete, old->possibly_incomplete || best < 2);
    assert_in_range(new->epoch, old->epoch + 1, old->epoch + 1 + is_child(after, new));
    for (uint32_t i = 0; i < after->member_count; i++) {
        const uint32_t server = after->members[i].server;
        const bool counts = holds(old, server) && returns(after, server) &&
                            quality(store, after, server, old->id) == best;
        const bool filled =
            shard_has_filling(old, server) && store->filled[old->id][server] == old->epoch;
        assert_true(holds(new, server) == counts || (filled && holds(new, server)));
    }
}

static void check_fill(struct world_store *store, const struct cluster_config *before,
                       const struct cluster_config *after)
{
    store->fills++;
    for (uint32_t i = 0; i < after->member_count; i++) {
        const struct member *new = &after->members[i], *old = cluster_member(before, new->server);
        store->comebacks += old && old->kept && !new->kept;
        if (old && (!old->kept || new->kept))
            assert_memory_equal(new, old, sizeof *new);
        else
            assert_string_equal(new->address, report_of(store, after, new->server)->address);
    }
    for (uint32_t i = 0; i < before->shard_count; i++) {
        if (is_kept(before, before->shards[i].primary))
            check_kept_shard(store, i, before, after);
        else
            check_filled_shard(store, i, before, after);
    }
    assert_true(
        after->member_count > before->member_count || after->shard_count < before->shard_count ||
        memcmp(after->shards, before->shards, after->shard_count * sizeof after->shards[0]) != 0);
}

static void check_split(const struct cluster_config *before, const struct cluster_config *after)
{
    const struct shard *parent = &after->shards[after->shard_count - 1],
                       *old = cluster_shard(before, parent->id);
    const uint32_t at = (uint32_t)(old - before->shards);
    struct shard expected = *old;
    expected.split = SPLIT_PARENT;
    expected.epoch++;
    assert_memory_equal(parent, &expected, sizeof expected);
    for (uint32_t i = 0; i < 2; i++) {
        const struct shard *child = &after->shards[at + i];
        assert_null(cluster_shard(before, child->id));
        assert_true(child->epoch > old->epoch && child->epoch > before->epoch_floor);
        assert_ptr_equal(cluster_parent(after, child), parent); /* K6: they have its replicas */
        assert_int_equal(child->possibly_incomplete, old->possibly_incomplete);
    }
    assert_memory_equal(after->shards, before->shards, at * sizeof *old);
    assert_memory_equal(after->shards + at + 2, old + 1,
                        (before->shard_count - at - 1) * sizeof *old);
    assert_memory_equal(after->members, before->members,
                        after->member_count * sizeof after->members[0]);
}

/* One server may be a member now, or may be none, and is taken out if it holds nothing. */
static void check_plan(struct world_store *store, const struct cluster_config *before,
                       const struct cluster_config *after)
{
    uint32_t differ = 0;
    store->plans++;
    for (uint32_t server = 1; server <= CLUSTER_MAX_MEMBERS; server++)
        differ += cluster_wants(after, server) != cluster_wants(before, server);
    assert_true(differ == 1 && before->wanted_count > 0 && after->wanted_count > 0);
    for (uint32_t i = 0; i < before->member_count; i++) {
        const struct member *old = &before->members[i], *now = cluster_member(after, old->server);
        if (now)
            assert_memory_equal(now, old, sizeof *now);
        for (uint32_t k = 0; k < before->shard_count && !now; k++)
            assert_true(!shard_names(&before->shards[k], old->server) &&
                        !cluster_wants(after, old->server));
    }
    assert_memory_equal(after->shards, before->shards,
                        after->shard_count * sizeof after->shards[0]);
}

void world_check_next(struct world_store *store, const struct cluster_config *before,
                      const struct cluster_config *after)
{
    assert_int_equal(after->term, before->term + 1);
    assert_int_equal(after->cluster, before->cluster);
    assert_int_equal(after->block_limit, before->block_limit);
    assert_int_equal(after->replicas, before->replicas);
    assert_memory_equal(after->secret, before->secret, sizeof after->secret);
    assert_int_equal(after->lease_ms, before->lease_ms);
    if (after->shard_count > before->shard_count) {
        assert_int_equal(after->shard_count, before->shard_count + 2);
        check_split(before, after);
        return;
    }
    if (!users_equal(after->users, before->users) ||
        memcmp(&after->keys, &before->keys, sizeof after->keys) != 0) {
        assert_true(after->manager == before->manager &&
                    after->shard_count == before->shard_count &&
                    after->member_count == before->member_count);
        assert_memory_equal(after->members, before->members,
                            after->member_count * sizeof after->members[0]);
        assert_memory_equal(after->shards, before->shards,
                            after->shard_count * sizeof after->shards[0]);
        return;
    }
    if (memcmp(after->wanted, before->wanted, sizeof after->wanted) != 0) {
        assert_true(after->manager == before->manager &&
                    after->next_client_id == before->next_client_id);
        check_plan(store, before, after);
        return;
    }
    if (is_cold_start(before, after)) {
        assert_true(after->next_client_id >= before->next_client_id);
        assert_int_equal(after->next_client_id == 1, before->next_client_id == 1);
        assert_true(after->manager == before->manager);
        check_cold_start(store, before, after);
        return;
    }
    if (is_failover(before, after)) {
        assert_int_equal(after->next_client_id, before->next_client_id);
        assert_true(after->manager == before->manager);
        check_failover(store, before, after);
        return;
    }
    if (after->manager == before->manager && after->next_client_id == before->next_client_id) {
        check_fill(store, before, after);
        return;
    }
    assert_int_equal(after->member_count, before->member_count);
    if (after->manager != before->manager)
        assert_int_equal(after->next_client_id, before->next_client_id);
    else
        assert_true(after->next_client_id > before->next_client_id);
    for (uint32_t i = 0;
         after->next_client_id > 1 && before->next_client_id == 1 && i < before->member_count; i++)
        assert_true(report_of(store, before, before->members[i].server)->formatted);
    assert_memory_equal(after->members, before->members,
                        after->member_count * sizeof after->members[0]);
    assert_memory_equal(after->shards, before->shards,
                        after->shard_count * sizeof after->shards[0]);
}

/* --- what members say of their space --- */

static void tell_space(struct world *world, uint32_t connection)
{
    const struct cluster_config *config = cm_state_config(world->state);
    struct world_connection *peer = &world->connections[connection];
    static struct load_row rows[CLUSTER_MAX_SHARDS];
    struct load_report report = {.cores = 1, .free_bytes = UINT64_C(1) << 40, .rows = rows};
    if (!config || world->tells_loads || peer->space_term == config->term)
        return;
    peer->space_term = config->term;
    for (uint32_t i = 0; i < config->shard_count; i++)
        rows[report.count++] =
            (struct load_row){config->shards[i].id, config->shards[i].epoch, 0, 0, 1};
    world_step(world, &(struct cm_event){
                          .kind = CM_EVENT_LOAD, .connection = connection, .load = &report});
}

void world_note_renewal(struct world *world, uint32_t connection,
                        const struct world_renewal *renewal)
{
    for (uint32_t i = 0; i < renewal->cut_count; i++)
        world->store->cut[world->connections[connection].server][renewal->cut[i]] = true;
    tell_space(world, connection);
}
