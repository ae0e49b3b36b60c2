/* rowan.h - the commands of `rowan`, and what they share. */
#ifndef TOOLS_ROWAN_ROWAN_H
#define TOOLS_ROWAN_ROWAN_H

#include "tools/admin.h"
#include "tools/tool.h"

struct rowan_settings {
    struct admin_access access;
    const char *value_file; /* "": the value is on the command line */
    uint64_t timeout_ms;    /* never 0 when a command gets it */
    const char *interval;   /* top: seconds */
    uint64_t frames;        /* 0: without end */
    bool json;
    bool wait;
    bool yes;
};

/* A command, whose name is words[0]. Returns the program's exit code. */
typedef int command_function(const struct rowan_settings *settings, char **words);

command_function command_get, command_put, command_del;                      /* data.c */
command_function command_status;                                             /* status.c */
command_function command_shards;                                             /* shards.c */
command_function command_slow;                                               /* slow.c */
command_function command_trace;                                              /* trace.c */
command_function command_top;                                                /* top.c */
command_function command_verify;                                             /* verify.c */
command_function command_set;                                                /* set.c */
command_function command_plan, command_move, command_split, command_give_up, /* plan.c */
    command_balance;
command_function command_user, command_login; /* users.c */
/* Has the manager store it, and if `wait` sees it through; then has `print`, if not NULL, tell it. An exit code. under_way: is it
 * still? If so `line`, of COMMAND_LINE_BYTES, says how far; NULL: there is nothing to wait for. */
enum { COMMAND_LINE_BYTES = 96 };
typedef bool under_way(const struct cluster_config *config, const Rowan__Plan *plan, char *line);
typedef int print_plan(const struct cluster_config *config, const Rowan__Plan *plan, bool json);
int command_carry_out(const struct rowan_settings *settings, const char *command,
                      const Rowan__Plan *plan, under_way *goes_on, print_plan *print);

/* Until each shard has all its replicas, and none moves or is split. An exit code. */
int command_wait_whole(const struct rowan_settings *settings, const char *command);

/* Shards that a server leads, is a full backup of, or fills. */
struct share {
    uint32_t leads, backs, fills, all;
};
struct share share_of(const struct cluster_config *config, uint32_t server);

/* How long to try to reach the cluster, at most. */
uint64_t command_open_ms(const struct rowan_settings *settings);

/* admin_open; an error is told. `missing`, if not NULL, has the servers that a cluster waits for. */
int command_connect(const struct rowan_settings *settings, const char *command, struct admin **out,
                    struct admin_missing *missing);

/* --- view.c: what the configuration and the servers' own figures say --- */

#define CORE 1e6 /* loads are in millionths of one (proto/control.proto) */

struct view {
    struct admin *admin;
    struct admin_status status;
};

/* Of all servers or shards those that ... */
struct counts {
    uint32_t silent, recovering, incomplete, under_replicated, filling;
    uint32_t waiting; /* of those that are recovering: for members that are kept */
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
