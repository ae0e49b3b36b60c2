/* Draws of records. What moves is a rotation: the record of each rank becomes another one, and all ranks
 * keep a record of their own. */
#include "tools/rowan-ycsb/choose.h"

#include "tools/rowan-ycsb/workload.h"

enum { ROUNDS = 3, GROWTH = 1024 };

uint64_t choose_permuted(uint64_t place, uint64_t count)
{
    unsigned bits = count > 2 ? 64 - (unsigned)__builtin_clzll(count - 1) : 1;
    uint64_t mask = UINT64_MAX >> (64 - bits);

    do {
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            place = (place * UINT64_C(0x9e3779b97f4a7c15) + round) & mask;
            place ^= place >> (bits + 1) / 2;
        }
    } while (place >= count);
    return place;
}

void chooser_init(struct chooser *chooser, const struct choice *choice)
{
    *chooser = (struct chooser){.choice = choice, .latest = choice->zipf};
}

/* Ranks are drawn over the number of records at the last growth by a thousandth: until the next, the
 * oldest thousandth, which hardly any draw meets, is not drawn. */
static uint64_t latest(struct chooser *chooser, struct random *random)
{
    const struct choice *choice = chooser->choice;
    uint64_t inserted = choice->inserts ? inserts_acked(choice->inserts) : 0;
    uint64_t count = choice->records + inserted;

    if (count - chooser->latest.count > chooser->latest.count / GROWTH)
        zipf_grow(&chooser->latest, count);
    uint64_t age = zipf_rank(&chooser->latest, random_unit(random));

    if (age < inserted)
        return choice->inserts->first + choice->inserts->step * (inserted - 1 - age);
    return choice->records - 1 - (age - inserted);
}

static uint64_t hotspot(const struct choice *choice, struct random *random)
{
    uint64_t hot = (uint64_t)((double)choice->records * choice->hot_fraction);

    if (hot == 0)
        hot = 1;
    if (hot == choice->records || random_unit(random) < choice->hot_operations)
        return choose_permuted(zipf_scale(random_u64(random), hot), choice->records);
    return choose_permuted(hot + zipf_scale(random_u64(random), choice->records - hot),
                           choice->records);
}

static uint64_t moved(struct chooser *chooser, uint64_t record, uint64_t run_ns)
{
    const struct choice *choice = chooser->choice;

    if (choice->hot_moves_ns == 0)
        return record;
    uint64_t period = run_ns / choice->hot_moves_ns;

    if (period != chooser->period) {
        chooser->period = period;
        chooser->shift = zipf_scale(workload_mix(choice->seed, period), choice->records);
    }
    return (record + chooser->shift) % choice->records;
}

uint64_t chooser_next(struct chooser *chooser, struct random *random, uint64_t run_ns)
{
    const struct choice *choice = chooser->choice;

    switch (choice->by) {
    case CHOOSE_UNIFORM:
        return zipf_scale(random_u64(random), choice->records);
    case CHOOSE_LATEST:
        return latest(chooser, random);
    case CHOOSE_HOTSPOT:
        return moved(chooser, hotspot(choice, random), run_ns);
    case CHOOSE_ZIPFIAN:
        break;
    }
    uint64_t rank = zipf_rank(&choice->zipf, random_unit(random));

    return moved(chooser, zipf_scramble(rank, choice->records), run_ns);
}
