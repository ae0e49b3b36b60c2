/* view.h - what the configuration and the servers' own figures say, for the commands that show it. */
#ifndef TOOLS_ROWAN_VIEW_H
#define TOOLS_ROWAN_VIEW_H

#include "tools/rowan/rowan.h"

#define CORE 1e6 /* loads are in millionths of one (proto/control.proto) */

struct view {
    struct admin *admin;
    struct admin_status status;
};

/* Of all servers or shards those that ... */
struct counts {
    uint32_t silent, recovering, incomplete, under_replicated, filling;
    uint64_t start_scanned, start_segments; /* of all that start */
    uint64_t fill_left, fill_rate, fill_s;  /* of all; the longest estimate, 0: none yet */
    uint64_t fill_waits;
};

/* view_open connects and looks, view_look looks again. Errors are told, and leave the view closed. */
int view_open(const struct rowan_settings *settings, const char *command, struct view *view);
int view_look(const struct rowan_settings *settings, const char *command, struct view *view);
void view_close(struct view *view);

struct counts view_count(const struct view *view);

/* NULL: that server does not answer. view_replica: its status of a shard that it holds. */
const Rowan__ServerStatus *view_status(const struct view *view, uint32_t server);
const Rowan__ShardStatus *view_replica(const struct view *view, const struct shard *shard,
                                       uint32_t server);

/* Not served: its primary is recovering it, or does not answer. */
bool view_is_recovering(const struct view *view, const struct shard *shard);

/* In cores: what its shards cost the server, those that it backs too. */
double view_load(const Rowan__ServerStatus *status);

/* "3.17", epoch and number; "?" for 0. "1,2,3"; "-" for none; and as an array. */
const char *view_version(uint64_t version, char *out, size_t out_bytes);
void view_servers(const uint32_t *servers, uint32_t count, char *out, size_t out_bytes);
json_t *view_servers_json(const uint32_t *servers, uint32_t count);

/* The first `most` bytes of a key as a terminal can print them; `out` has place for one byte more. */
const char *view_key(const void *key, size_t bytes, size_t most, char *out);

/* Why a call has no answer, of a question that servers of earlier versions do not know. */
const char *view_why(const struct admin_call *call);

#endif
