/* tail_job.h - a question of the worker that leads a shard, on its way through the backup that is
 * asked: from the control role, which has the connection, to the digest role, which owns the shard,
 * and back (design, section 6, the union). Blocks are named by their place: PM does not change.
 */
#ifndef SERVER_TAIL_JOB_H
#define SERVER_TAIL_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "common/pm/pm.h"
#include "common/reactor/inbox.h"
#include "server/shard/shard.h"

enum {
    TAIL_JOB_BLOCKS = 1024,
    TAIL_JOB_BYTES = 256 << 10, /* of blocks in one answer */
};
#define TAIL_NONE UINT64_MAX /* `after` of a question for the figures alone */

struct link;

struct tail_job {
    /* control's: the question */
    struct link *link; /* of the asker; NULL when it has gone */
    uint32_t tag;
    uint16_t shard;
    uint32_t epoch;
    uint64_t asked_commit, after, cursor;
    bool answered; /* it came back */

    /* the owner's, then control's again: the answer */
    int error; /* the question was none */
    uint64_t commit, dense, next_cursor;
    uint32_t count;
    struct tail_block {
        uint64_t offset; /* in the map */
        uint32_t bytes;
    } blocks[TAIL_JOB_BLOCKS];
    struct tail_job *next;
};

/* Those that a digest role has to answer. */
struct tail_jobs {
    struct tail_job *first, *last;
};

/* tail_jobs_add: answers `job` from `shard` (NULL: not here), and sends it back by a later
 * tail_jobs_poll, which is true if it did something. */
void tail_jobs_add(struct tail_jobs *jobs, struct tail_job *job, struct shard_state *shard,
                   const struct pm *pm, const struct entry_format *format);
bool tail_jobs_poll(struct tail_jobs *jobs, struct inbox *outbox);
void tail_jobs_drop(struct tail_jobs *jobs);

#endif
