/* stage.h - a session, a CM that answers by itself, and servers that the test plays. */
#ifndef CLIENT_STAGE_H
#define CLIENT_STAGE_H

#include "client/session.h"
#include "common/base/clock.h"
#include "fake_fabric.h"

#define STAGE_CM         "fake:cm" /* and what begins so */
#define STAGE_TIMEOUT_NS (10 * NS_PER_S)

struct stage {
    struct fake_fabric *fake;
    struct session *session;
    struct cluster_config *config; /* what the CM answers; NULL: none yet */
    uint32_t ids;                  /* given so far */
    uint32_t asked_config;         /* how often the CM was asked */
    bool cm_silent;
    bool later_format;  /* of the configurations that are told from now on */
    const char *leader; /* of the CMs, the address of the one that leads; NULL: none does */
    uint32_t asked_id;  /* how often the CM was asked for one */
    bool reads;         /* the user may not write */
    int id_error;       /* what the CM says to who asks for an id; 0: it gives one */
    uint64_t now_ns, wake_ns;
};

/* Two servers "fake:1" and "fake:2" with two workers each, four shards of 4096 slots: shard 10 + i
 * is led by server 1 + i / 2, worker i % 2, with epoch `term` + i. */
struct cluster_config *stage_config(uint64_t term);

/* A session that is ready, its clock at 1 s. */
void stage_open(struct stage *stage, uint32_t depth, uint32_t operations_per_id);
void stage_close(struct stage *stage);

/* Polls the session and lets the CM answer, until nothing moves. */
void stage_run(struct stage *stage);
void stage_run_after(struct stage *stage, uint64_t ns);

/* The CM has this configuration from now on (takes the reference) and pushes it. */
void stage_push(struct stage *stage, struct cluster_config *config);

/* A CM answers so. tag 0: unasked. */
void stage_refuse(struct fake_conn *conn, uint32_t tag, int error);

/* A key of the shard at that position. */
const char *stage_key(unsigned shard, char *room, unsigned number);

/* Takes the next request a server got; fails the test if there is none. */
struct request {
    struct fake_conn *conn;
    struct message_request head;
    const uint8_t *key, *value;
};
struct request stage_request(struct stage *stage);
bool stage_quiet(struct stage *stage); /* no further request */

/* Answers it. */
void stage_answer(struct request *request, int status, uint64_t version, uint64_t term,
                  const void *value, uint32_t value_bytes);

#endif
