/* options.h - what a server is started with. */
#ifndef SERVER_OPTIONS_H
#define SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct config_live;
struct login_secret;
struct metrics;

struct server_options {
    uint32_t server;      /* number, 1 or more */
    uint64_t incarnation; /* not 0, never given twice */
    struct clock *clock;  /* that the polls' `now_ns` is read from; outlives the server */
    const char *cm;       /* fabric addresses of the CMs: a list (common/cluster/managers.h) */
    const char *address; /* of this process, where peers and clients find it; outlives the server */
    struct login_secret
        *cluster_key;  /* outlives the server; NULL: there is none (common/cluster/login.h) */
    uint32_t workers;  /* 1 to CLUSTER_MAX_WORKERS */
    uint32_t digests;  /* 1 to SERVER_MAX_DIGESTS */
    uint32_t reactors; /* threads that run the roles; reported in the status */
    uint32_t landing_segments; /* posted to the landing zone at a time, 2 to 1024 */
    uint64_t stop_timeout_ns;  /* server_stop: how long it may take */
    uint32_t
        clean_percent; /* segments with less live bytes than that are cleaned, 1 to 95; 0: 75 */
    uint64_t
        fill_rate; /* bytes a second that each worker copies to replicas which fill; 0: no limit */
    uint32_t trace_one_in; /* one in so many operations is followed (worker_trace.h); 0: none */
    bool no_checkpoints;   /* none is written; one that is there is used */
    unsigned
        wear; /* enum server_wear_mode (server/wear.h); not 0: `pm` is a tap (common/pm/pm_tap.h) */
    uint8_t boot_id[16];          /* of the host's present boot; clock_boot_id */
    struct config_live *settings; /* of the process; NULL: none changes while the server runs */
    struct metrics *
        metrics; /* that the server adds to, and the control role looks after; outlives it; NULL: nobody asks */
};

#endif
