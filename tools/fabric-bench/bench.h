/* bench.h - the sides of the program: the receiver, the senders, or both. */
#ifndef FABRIC_BENCH_BENCH_H
#define FABRIC_BENCH_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/verbs/verbs_settings.h"
#include "tools/fabric-bench/crew.h"

/* The directory in tmpfs for sockets and memory, gone when the program ends. */
struct place {
    char directory[64]; /* "": none was made */
};

enum { MAX_NUMBERS = 16 };

struct number_list {
    uint32_t count;
    uint64_t values[MAX_NUMBERS];
};

struct bench_settings {
    const char *fabric, *bytes, *senders, *seconds, *spin_us, *pm, *address, *connect;
    uint64_t mode, depth, batch, warm_up_ms, threads, receiver_spin_us, durability, segments;
    struct verbs_settings verbs;
    bool overwrite, serve, json;
};

struct bench {
    const struct bench_settings *settings;
    const char *scheme;
    struct number_list bytes, senders;
    uint64_t run_ns, spin_ns;
    uint32_t threads;
    struct fabric_verbs_options verbs;
    struct place place;
    const atomic_bool *stop; /* by a signal */
};

/* One side, or both, as the settings say. Prints what is wrong and returns the program's exit code. */
int bench_run(struct bench *bench);

#endif
