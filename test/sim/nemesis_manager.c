/* nemesis_manager.c - what is done to managers alone; see nemesis.h. */
#include "test/sim/nemesis_state.h"

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
