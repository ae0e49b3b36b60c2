/* rowan.h - the commands of `rowan`. */
#ifndef TOOLS_ROWAN_ROWAN_H
#define TOOLS_ROWAN_ROWAN_H

#include "tools/admin.h"
#include "tools/tool.h"

struct rowan_settings {
    const char *cm;
    const char *dir;
    const char *user, *secret_file; /* both empty: nobody logs in */
    const char *value_file;         /* "": the value is on the command line */
    uint64_t timeout_ms;            /* never 0 when a command gets it */
    const char *interval;           /* top: seconds */
    uint64_t frames;                /* 0: without end */
    bool json;
    bool wait;
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
command_function command_plan, command_move, command_split, command_balance; /* plan.c */
command_function command_user, command_login;                                /* users.c */
/* Until each shard has all its replicas, and none moves or is split. An exit code. */
int command_wait_whole(const struct rowan_settings *settings, const char *command);

/* Shards that a server leads, is a full backup of, or fills. */
struct share {
    uint32_t leads, backs, fills;
};
struct share share_of(const struct cluster_config *config, uint32_t server);

/* How long to try to reach the cluster, at most. */
uint64_t command_open_ms(const struct rowan_settings *settings);

/* admin_open; an error is told. `missing` has the servers that a cluster waits for. */
int command_connect(const struct rowan_settings *settings, const char *command, struct admin **out,
                    struct admin_missing *missing);

#endif
