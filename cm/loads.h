/* loads.h - what the members have said about the load of each shard (design, section 6, "Resharding"). Pure.
 *
 * A load is in millionths of a core, and the mean of some reports: where servers share processors, or clients pause, all loads of
 * a server swing together, and that is to move nothing. One report tells all the same that the load has turned: when a shard has
 * become more than twice as hot as others of its server, which was not idle. Then the newest of all counts alone, and what is
 * told in the next second. When a shard moves, what is known of it moves along, until its new holders report.
 */
#ifndef CM_LOADS_H
#define CM_LOADS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"

enum { LOAD_CORE = 1000000 };

/* Of a member. */
struct load_member {
    uint64_t incarnation; /* 0: it has not reported */
    uint64_t told_ns;
    uint32_t cores;
    uint64_t free_bytes;            /* of its PM, above its reserve */
    uint64_t live_bytes, all_bytes; /* in all of that; 0: an older server, which does not say */
    bool full;                      /* it refuses puts */
    uint64_t left_ns;               /* a shard left it for want of space last; 0: none did */
};

/* Of a shard, by its id. */
struct load_shard {
    uint64_t
        moved_ns; /* its replicas, or who leads it, changed last; 0: not as far as this manager saw */
    uint32_t split; /* the slot that halves its load; 0: none is known */
    struct {
        uint32_t server, load, newest;
        uint64_t bytes;         /* that it has of it */
    } at[CLUSTER_MAX_REPLICAS]; /* server 0: the place is free */
};

/* All zeros at first. */
struct loads {
    struct load_member members[CLUSTER_MAX_SERVER + 1]; /* by server */
    struct load_shard shards[CLUSTER_MAX_SHARDS];
    uint64_t turned_ns; /* 0: never */
    uint64_t now_ns;    /* of the last report or configuration */
};

/* Has the load turned just now? */
bool loads_turned(const struct loads *loads, uint64_t now_ns);

/* A report: of a member of `config`, about shards that it holds. */
struct load_report {
    uint32_t cores;
    uint64_t free_bytes, live_bytes, all_bytes;
    bool full;
    uint32_t count;
    const struct load_row {
        uint32_t shard, epoch, load, split;
        uint64_t bytes;
    } * rows;
};

/* Rows of shards or epochs that `config` does not have are left out. */
void loads_told(struct loads *loads, const struct cluster_config *config, uint32_t server,
                const struct load_report *report, uint64_t now_ns);

/* `config` is in force, after `before`. */
void loads_follow(struct loads *loads, const struct cluster_config *before,
                  const struct cluster_config *config, uint64_t now_ns);

/* NULL: this process has not reported. */
const struct load_member *loads_member(const struct loads *loads, const struct member *member);

/* Space. More than LOADS_FILLED_PERCENT of what a server has above its reserve is not filled: the rest is for what is written,
 * and for cleaning, which costs the more the less is dead. */
enum { LOADS_FILLED_PERCENT = 75, LOADS_SHORT_PERCENT = 90 };
#define LOADS_LEFT_NS                                                                              \
    (30 * NS_PER_S) /* so long one is not chosen that a shard left for want of space */
#define LOADS_SHED_NS (5 * NS_PER_S) /* until what left a full server is seen to have helped */

/* How many bytes more a member may be given up to there, without what is to come: of what fills there and has not arrived, of what is split there
 * the second copy. 0 if it has not reported, or a shard left it lately. */
uint64_t loads_room(const struct loads *loads, const struct cluster_config *config,
                    const struct member *member);

/* It has so little that what fills there must go; it refuses puts, and one of its full backups must go (again). */
bool loads_is_short(const struct loads *loads, const struct member *member);
bool loads_must_shed(const struct loads *loads, const struct member *member);

/* Of its primary's copy, as far as is known. */
uint64_t loads_bytes(const struct loads *loads, const struct shard *shard);

/* It has reported, and has no room for one more copy of the shard. */
bool loads_lack_space(const struct loads *loads, const struct cluster_config *config,
                      const struct member *member, const struct shard *shard);

/* Of that shard, at that server; 0, too, if that has said nothing. loads_knows: it has, or what it took over from another one did. */
bool loads_knows(const struct loads *loads, uint16_t shard, uint32_t server);
uint32_t loads_at(const struct loads *loads, uint16_t shard, uint32_t server);

#endif
