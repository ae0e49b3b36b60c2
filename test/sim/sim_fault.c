/* Fault sites fire by chance, each from a stream of its own: what one site does never moves another. */
#include "test/sim/sim_fault.h"

#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "test/sim/sim_log.h"

struct site {
    struct random random;
    uint32_t one_in; /* 0: never */
    uint64_t asked, fired;
};

enum { MAX_NODES = 32, NODE_BYTES = 32 };

struct node {
    char name[NODE_BYTES];
    uint64_t fired[FAULT_SITE_COUNT];
};

static struct site sites[FAULT_SITE_COUNT];
static struct node nodes[MAX_NODES];
static unsigned node_count;
uint32_t fabric_segment_bytes = UINT32_C(4)
                                << 20; /* fabric.h; the size of a run is set before its cluster */

uint64_t clean_tombstones_ns = NS_PER_S;   /* server/clean/clean_state.h; likewise */
uint64_t clean_checkpoint_ns = NS_PER_S;   /* likewise */
uint64_t clients_keep_ns = 120 * NS_PER_S; /* server/shard/completed.h; likewise */
uint32_t index_chunk_buckets = 1024;       /* server/index/index_table.h; likewise */
uint32_t block_list_bytes = 256 << 10;     /* server/shard/block_list.h; likewise */

#define SITE_NAME(name, text) #name,
static const char *const SITE_NAMES[] = {FAULT_SITES(SITE_NAME)};

void sim_fault_begin(const struct sim_fault_options *options)
{
    node_count = 0;
    for (unsigned i = 0; i < FAULT_SITE_COUNT; i++) {
        sites[i] = (struct site){.one_in = options ? options->one_in[i] : 0};
        random_init(&sites[i].random, options ? options->seed + i : 0);
    }
}

void sim_fault_end(void)
{
    for (unsigned i = 0; i < FAULT_SITE_COUNT; i++)
        sites[i].one_in = 0;
}

static struct node *find_node(const char *name)
{
    for (unsigned i = 0; i < node_count; i++) {
        if (strcmp(nodes[i].name, name) == 0)
            return &nodes[i];
    }
    return NULL;
}

static struct node *node_now(void)
{
    const char *name = sim_log_node_now();
    struct node *node = find_node(name);
    if (node)
        return node;
    ASSERT(node_count < MAX_NODES && strlen(name) < NODE_BYTES);
    node = &nodes[node_count++];
    *node = (struct node){0};
    memcpy(node->name, name, strlen(name));
    return node;
}

bool fault_fires(enum fault_site site)
{
    ASSERT(site < FAULT_SITE_COUNT);
    struct site *at = &sites[site];
    at->asked++;
    if (at->one_in == 0 || random_below(&at->random, at->one_in) != 0)
        return false;
    at->fired++;
    node_now()->fired[site]++;
    return true;
}

uint64_t sim_fault_count(enum fault_site site)
{
    return sites[site].fired;
}

uint64_t sim_fault_passed(enum fault_site site)
{
    return sites[site].asked - sites[site].fired;
}

uint64_t sim_fault_count_at(enum fault_site site, const char *node)
{
    const struct node *at = find_node(node);
    return at ? at->fired[site] : 0;
}

const char *sim_fault_name(enum fault_site site)
{
    return SITE_NAMES[site];
}
