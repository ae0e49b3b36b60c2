/* cm_fixture.h - a manager and its peers over shared memory, a coordination service in a directory, all polled by one
 * thread. */
#ifndef TEST_UNIT_CM_CM_FIXTURE_H
#define TEST_UNIT_CM_CM_FIXTURE_H

#include "cm/cm.h"
#include "common/cluster/control.h"
#include "test/lib/temp_dir.h"

enum { PEERS = 4 };

/* A server or client that talks to the manager. */
struct peer {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn;
    bool connected, closed;
    int closed_error;
    uint32_t answer_count;
    uint32_t tag;                  /* of the last answer */
    uint64_t registration_epoch;   /* the last that it was told */
    bool bring;                    /* likewise: it is to bring what it stored */
    Rowan__ControlMessage *answer; /* the last one, but for Committed */
    uint64_t committed;            /* the term of the last of those */
};

/* Of the one manager. */
extern struct temp_dir dir;
extern struct fabric *fabric;
extern struct coord *coord;
extern struct cm *manager;
extern int failed_error;
extern struct fabric_endpoint *manager_endpoint;

/* What create_manager is given: milliseconds of leases; what was stored is made anew from what the servers stored. */
extern uint32_t lease_ms;
extern bool recover;
extern ProtobufCBinaryData stored[2];

extern struct peer peers[PEERS];

/* Each test begins with a manager that leads. */
int setup(void **state);
int teardown(void **state);

void open_seams(void);
int create_manager(void);
void start_manager(void);
void stop_manager(void);

/* Polls until the manager leads; uses peer 3. */
void await_lead(void);

/* One round of the manager, and of the peers that `reads` says. */
void poll_some(unsigned reads);

/* One round of all; then the flag. */
bool after_poll(const bool *flag);

void connect_peer(struct peer *peer, enum fabric_kind kind, uint64_t cluster);

/* Polls until it is connected, and until one more answer has come. */
void connect_now(struct peer *peer, enum fabric_kind kind);
void await_answer(struct peer *peer);
void drop_peer(struct peer *peer);

int send_bytes(struct peer *peer, const void *bytes, size_t count);
void send_message(struct peer *peer, uint32_t tag, const Rowan__ControlMessage *message);
void send_get(struct peer *peer, uint32_t tag, uint64_t known_term);
void send_new_id(struct peer *peer, uint32_t tag);

/* Of a server whose PM holds nothing yet, or, formatted, the data of this cluster. */
void send_join_of(struct peer *peer, uint32_t tag, uint32_t server, char *fabric_name,
                  uint64_t data_cluster);
void send_join(struct peer *peer, uint32_t tag, uint32_t server);

void assert_failure(const struct peer *peer, uint32_t tag, int error);
struct cluster_config *configuration_of(const struct peer *peer, uint32_t tag);

/* Peers 0 and 1 become servers 1 and 2 and have the configuration. */
void make_cluster(void);

/* Peer 2 was one. */
void have_a_client(void);

#endif
