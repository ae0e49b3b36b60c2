/* choose.h - which record an operation is of. */
#ifndef YCSB_CHOOSE_H
#define YCSB_CHOOSE_H

#include <stdint.h>

#include "common/base/random.h"
#include "tools/rowan-ycsb/inserts.h"
#include "tools/rowan-ycsb/zipf.h"

/* latest: the rank is the age, newest insert first, then the highest record (YCSB's
 * SkewedLatestGenerator). hotspot: of `hot_fraction` of the records with the probability
 * `hot_operations`, evenly; else of the others. */
enum choice_by { CHOOSE_ZIPFIAN, CHOOSE_UNIFORM, CHOOSE_LATEST, CHOOSE_HOTSPOT };

/* What all lanes of a run share. Immutable while they run, but for `inserts`. */
struct choice {
    enum choice_by by;
    uint64_t records; /* loaded, > 0 */
    struct zipf zipf; /* zipfian and latest: over `records` */
    double hot_fraction, hot_operations;
    uint64_t hot_moves_ns; /* zipfian and hotspot: how often other records become hot; 0: never */
    uint64_t seed;         /* of where they move: lanes and processes with one seed move together */
    struct inserts *inserts; /* latest: read, too; NULL: none */
};

/* One lane's. */
struct chooser {
    const struct choice *choice;
    struct zipf latest; /* over records and inserts */
    uint64_t period;    /* since `shift` was computed */
    uint64_t shift;
};

void chooser_init(struct chooser *chooser, const struct choice *choice);

/* A record that exists, `run_ns` after the start of the run. */
uint64_t chooser_next(struct chooser *chooser, struct random *random, uint64_t run_ns);

/* A permutation of [0, count) that leaves no neighbours together: where `place` goes. Rounds of
 * invertible steps on the next power of two, repeated while the result is not below `count` (cycle
 * walking: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). */
uint64_t choose_permuted(uint64_t place, uint64_t count);

#endif
