/* check.h - verifies the PM of a server that does not run, and reports what is in it and what is damaged. Only reads.
 *
 * What is whole by checksum or check counts as right. Whether a place that is not whole was damaged or never finished
 * (a write or a connection that a crash cut) cannot be told in a segment that is still being written or digested; in a
 * committed one it is damage.
 */
#ifndef SERVER_CHECK_H
#define SERVER_CHECK_H

#include <jansson.h>

#include "server/store/store_layout.h"

/* X(name, text for people, name in JSON) */
#define CHECK_TABLE(X)                                                                             \
    X(SUPERBLOCK, "copies of the superblock are damaged", "superblock_copies")                     \
    X(CONFIG, "copies of the configuration are damaged", "configuration_copies")                   \
    X(RUN, "copies of run records are damaged", "run_copies")                                      \
    X(WORD, "segments have one damaged word in the meta table", "segment_words")                   \
    X(SEGMENT, "segments have two damaged words: nobody can tell what they are", "segments")       \
    X(ROW, "rows of the replica table have one damaged copy", "replica_row_copies")                \
    X(REPLICA, "rows of the replica table are damaged in both copies", "replica_rows")             \
    X(VOID, "copies of rows of the void table are torn or damaged", "void_row_copies")             \
    X(BLOCK, "places in committed segments are damaged", "blocks")                                 \
    X(TORN, "places in other segments are torn or damaged", "blocks_torn_or_damaged")              \
    X(STALE, "free segments are not zero", "free_segments_not_zero")

#define CHECK_ENUMERATOR(name, text, json) CHECK_##name,
enum check_kind { CHECK_TABLE(CHECK_ENUMERATOR) CHECK_KINDS };
#undef CHECK_ENUMERATOR

enum { CHECK_MOST_PLACES = 100 };

struct check_place {
    enum check_kind kind;
    uint64_t number; /* of the copy, the run's slot, the segment or the shard */
    uint64_t offset; /* in the file or device */
    uint64_t bytes;
};

struct check_row {
    uint16_t shard;
    struct replica_row row;
};

/* A range that the void table names. What lies there is not looked at. */
struct check_void {
    uint64_t segment;
    uint32_t from, bytes;
};

/* A copy of the configuration. Its secret is not kept. */
struct check_config {
    enum config_copy state;
    uint64_t term; /* of a whole one, like the rest */
    uint32_t members, shards;
};

struct check_report {
    uint64_t offset; /* of the map in the file or device */
    struct superblock superblock;
    bool has_run, run_is_damaged;
    struct store_run run; /* if has_run */
    struct check_config configs[2];
    uint64_t states[SEGMENT_COMMITTED + 1], owners[OWNER_KINDS]; /* segments */
    uint32_t row_count;
    struct check_row rows[STORE_SHARD_IDS];   /* those in use, and those damaged */
    struct check_void voids[2 * STORE_VOIDS]; /* of two copies that differ both */
    uint32_t void_count;
    uint64_t blocks[ENTRY_TYPES]; /* whole ones, by entry_type */
    uint64_t entries, block_bytes;
    uint64_t found[CHECK_KINDS];
    struct check_place places[CHECK_MOST_PLACES]; /* the first ones */
    uint32_t place_count;
};

/* check_pm: reads all of a map. The report is to be freed. Errors: those of store_read_identity (store_why tells), ROWAN_ENOMEM. */
int check_pm(const struct pm *pm, struct check_report **out);

/* How much was found that is or may be damaged. */
uint64_t check_found(const struct check_report *report);

/* The report: for people (ends with a newline) to be freed, or as JSON. NULL without memory. */
char *check_text(const struct check_report *report);
json_t *check_json(const struct check_report *report);

#endif
