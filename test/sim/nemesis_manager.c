/* nemesis_manager.c - what is done to managers alone; see nemesis.h. */
#include "test/sim/nemesis_state.h" /* first: it brings client/rowan.h, which error.h wants to see */

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "server/control/control_state.h"

bool nemesis_rival_begins(struct nemesis *nemesis, uint64_t length_ns)
{
    if (nemesis->cluster->rival.cm || nemesis->spell_count == MAX_SPELLS)
        return false;
    nemesis_spell_begin(nemesis, NEMESIS_RIVAL, length_ns)->process = nemesis_rival(nemesis);
    sim_cluster_start_rival(nemesis->cluster);
    return true;
}

/* It says something every now and then, and grants nothing: its members should go over to the rival. */
bool nemesis_limp(struct nemesis *nemesis)
{
    struct sim_process *process = sim_cluster_process(nemesis->cluster, nemesis_cm(nemesis));
    const uint64_t lease_ns = nemesis->options.lease_ns,
                   length_ns = 50 * lease_ns + 8 * NS_PER_S; /* checks.c, look_at_limp */
    if (!nemesis->cluster->cm || nemesis->cluster->rival.cm || nemesis->cluster->options.stranger ||
        nemesis->spell_count > 0 || nemesis->rose_ns == WAKE_NEVER)
        return false;
    nemesis_spell_begin(nemesis, NEMESIS_SLOW, length_ns)->process = nemesis_cm(nemesis);
    (void)nemesis_rival_begins(nemesis, length_ns + NS_PER_S);
    process->slow_ns = lease_ns * 5 / 2;
    process->due_ns = 0;
    nemesis->cluster->limps_ns = nemesis_now(nemesis);
    nemesis->next_ns = nemesis_now(nemesis) + length_ns;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, process->name, "limps for %lu ms",
                 length_ns / NS_PER_MS);
    return true;
}

/* --- the stored configuration goes back, as from a backup ---
 *
 * Only where every server has acted on a later one, and so has kept that: who was away since the old one could not know
 * better. Managers that read it end, or hear of servers that it is old; nobody stores anything behind it but its own name (checks.c,
 * C7). Then the newest comes back; where a manager named itself meanwhile, under a later term, as the operator's guide says
 * (--recover): what servers have acted on by then is no other configuration of the same term. */

static void *copy_of(const void *bytes, size_t count)
{
    void *copy = malloc(count + 1);
    ASSERT(copy);
    return memcpy(copy, bytes, count);
}

static uint64_t term_of(const void *bytes, size_t count)
{
    struct cluster_config *config;
    if (!bytes || cluster_decode(bytes, count, &config))
        return UINT64_MAX;
    const uint64_t term = config->term;
    cluster_release(config);
    return term;
}

/* Every server, on a later one than that of `term`. */
static bool all_acted_behind(const struct nemesis *nemesis, uint64_t term)
{
    bool all = true;
    for (uint32_t i = 0; i < nemesis_servers(nemesis) && all; i++) {
        const struct control *control = sim_cluster_control(nemesis->cluster, i);
        all = control && control->config && control->config->term > term;
    }
    return all;
}

bool nemesis_back(struct nemesis *nemesis)
{
    struct sim_cluster *cluster = nemesis->cluster;
    struct nemesis_back *back = &nemesis->back;
    const struct cluster_config *config = sim_cluster_config(cluster);
    const void *value;
    size_t bytes;
    const uint64_t version = sim_registry_value(cluster->registry, &value, &bytes);
    if (cluster->back_version || cluster->limps_ns || nemesis->spell_count == MAX_SPELLS ||
        nemesis->rose_ns == WAKE_NEVER || !config || nemesis->unheard.step ||
        config->term != term_of(value, bytes) ||
        !all_acted_behind(nemesis, term_of(back->old, back->old_bytes)))
        return false;
    struct spell *spell = nemesis_spell_begin(nemesis, NEMESIS_BACK, 0);
    spell->process = nemesis_cm(nemesis);
    free(back->newest);
    back->newest = copy_of(value, bytes);
    back->newest_bytes = bytes;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, "",
                 "for %lu ms: the stored configuration is that of term %lu again",
                 (spell->end_ns - nemesis_now(nemesis)) / NS_PER_MS,
                 term_of(back->old, back->old_bytes));
    sim_registry_store(cluster->registry, copy_of(back->old, back->old_bytes), back->old_bytes);
    back->version = cluster->back_version = version + 1;
    cluster->went_back++;
    if (nemesis_one_in(nemesis, 2))
        nemesis->next_ns = spell->end_ns;
    if (cluster->cm && nemesis_one_in(nemesis, 3)) /* the next one has never known better */
        nemesis_kill_cm(nemesis);
    return true;
}

void nemesis_back_end(struct nemesis *nemesis)
{
    struct nemesis_back *back = &nemesis->back;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, "",
                 "the stored configuration is that of term %lu again",
                 term_of(back->newest, back->newest_bytes));
    nemesis->cluster->back_version = 0;
    struct cluster_config *newest;
    const void *value;
    size_t bytes;
    if (sim_registry_value(nemesis->cluster->registry, &value, &bytes) == back->version) {
        sim_registry_store(nemesis->cluster->registry, back->newest, back->newest_bytes);
    } else {
        ASSERT(!cluster_decode(back->newest, back->newest_bytes, &newest));
        if (newest->term < term_of(value, bytes))
            newest->term = term_of(value, bytes);
        nemesis_store_next(nemesis, newest);
        cluster_release(newest);
        free(back->newest);
    }
    back->newest = NULL;
}

static bool has_refused(struct nemesis *nemesis, const struct cm *cm)
{
    const bool refused = cm && cm_error(cm) == ROWAN_ECLUSTER;
    nemesis->counts.refusers += refused;
    return refused;
}

/* As what looks after managers does. */
static void start_again(struct nemesis *nemesis)
{
    struct sim_cluster *cluster = nemesis->cluster;
    if (has_refused(nemesis, cluster->cm)) {
        nemesis_kill_cm(nemesis);
        nemesis->due_ns = nemesis_now(nemesis);
    }
    if (has_refused(nemesis, cluster->third.cm)) {
        sim_cluster_kill_third(cluster);
        sim_cluster_start_third(cluster);
    }
    const bool rival = has_refused(nemesis, cluster->rival.cm);
    for (uint32_t i = 0; rival && i < nemesis->spell_count; i++) {
        if (nemesis->spells[i].fault == NEMESIS_RIVAL)
            nemesis->spells[i].end_ns = nemesis->due_ns = nemesis_now(nemesis);
    }
}

void nemesis_back_step(struct nemesis *nemesis)
{
    struct nemesis_back *back = &nemesis->back;
    const void *value;
    size_t bytes;
    const uint64_t version = sim_registry_value(nemesis->cluster->registry, &value, &bytes);
    if (nemesis->cluster->went_back)
        start_again(nemesis);
    if (version == back->seen || nemesis->cluster->back_version)
        return;
    back->seen = version;
    if (back->old && !nemesis_one_in(nemesis, 4))
        return;
    free(back->old);
    back->old = copy_of(value, bytes);
    back->old_bytes = bytes;
}
