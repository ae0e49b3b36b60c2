/* sim_coord_state.h - what the two halves of the simulated coordination service share: the handle
 * (sim_coord.c), which is the owner's side, and the service (sim_registry.c).
 *
 * They talk in letters. Those of one connection arrive in the order they were sent, either way. */
#ifndef SIM_COORD_STATE_H
#define SIM_COORD_STATE_H

#include "common/base/random.h"
#include "test/sim/sim_coord.h"

enum sim_letter_kind {
    /* to the service */
    SIM_LETTER_READ,
    SIM_LETTER_CAS,
    SIM_LETTER_WATCH,
    SIM_LETTER_ELECT,
    SIM_LETTER_CLOSE,
    /* to the owner */
    SIM_LETTER_VALUE,
    SIM_LETTER_STORED,
    SIM_LETTER_CHANGED,
    SIM_LETTER_LEADS,
};

struct sim_letter {
    struct sim_letter *next;
    uint64_t due_ns; /* when it arrives */
    enum sim_letter_kind kind;
    struct sim_session *session; /* to the service: holds it */
    uint32_t connection;         /* of the handle, when it was sent */
    bool unheard;                /* CAS: the reply is lost */
    int error;                   /* STORED */
    uint64_t version; /* CAS: expected; WATCH: another one fires it; else: of the value */
    void *value;      /* CAS, VALUE: its own */
    size_t bytes;
};

/* Ends at the service; a handle has one after another. */
struct sim_session {
    struct sim_session *next;
    uint32_t holders;        /* the handle, and letters to the service */
    struct sim_coord *owner; /* NULL: closed, or another session is its now */
    uint64_t heard_ns;       /* when the service last heard of it */
    uint64_t linger_ns;      /* that it is kept beyond session_ns: the service looks now and then */
    uint64_t floor;          /* it is shown nothing older */
    bool established;        /* its first letter arrived */
    bool ended;
    bool watched;
    uint32_t watch_connection;
    uint64_t candidate; /* its turn to lead; 0: does not stand */
};

/* Of the requests of which one may be outstanding. */
struct sim_request {
    bool asked, sent;
    void *context;
};

struct sim_coord {
    struct coord head; /* first */
    struct sim_registry *registry;
    struct sim_coord *next;
    struct sim_session *session;
    bool partitioned;
    uint32_t connection;    /* rises when one is lost: letters of older ones are void */
    uint64_t known_version; /* that the owner was last told */
    bool leads;             /* as the owner was told */

    struct sim_letter *inbox; /* by time */
    uint64_t inbox_ns;        /* its last letter arrives */
    uint64_t sent_ns;         /* the last letter to the service arrives */
    uint64_t expiry_ns;       /* when the owner hears that its session ended; 0: not */

    struct sim_request read, cas, watch, elect;
    coord_read_done *read_done;
    coord_cas_done *cas_done;
    coord_changed *changed;
    coord_leader *leader;
    struct sim_letter *cas_letter; /* not sent yet */
    bool cas_lost;                 /* no reply comes: it is answered ROWAN_EUNKNOWN, then */
    uint64_t cas_unknown_ns;
};

struct sim_value {
    void *data;
    size_t bytes;
    uint64_t version; /* 0: none */
};

struct sim_registry {
    struct sim_registry_options options;
    struct sim_registry_counts counts;
    struct random random;
    struct sim_value value, last; /* `last`: the one before */
    uint64_t changed_ns;          /* since when it is the value */
    struct sim_letter *letters;   /* to the service, by time */
    struct sim_session *sessions; /* that did not end */
    struct sim_session *leader;
    uint64_t candidates; /* so far */
    struct sim_coord *handles;
};

/* --- the service; times are those of the registry's clock --- */

uint64_t sim_registry_now_ns(const struct sim_registry *registry);

/* How long a letter travels. */
uint64_t sim_registry_delay(struct sim_registry *registry);

/* Does, in the order of time, what is due. */
void sim_registry_advance(struct sim_registry *registry, uint64_t now_ns);

struct sim_session *sim_session_create(struct sim_coord *owner, uint64_t now_ns);
void sim_session_release(struct sim_session *session);

/* The service forgets it: its watch, its candidacy. */
void sim_session_end(struct sim_registry *registry, struct sim_session *session, uint64_t now_ns);

/* A letter of the handle's session and connection; aborts without memory. */
struct sim_letter *sim_letter_create(struct sim_coord *coord, enum sim_letter_kind kind);
void sim_letter_destroy(struct sim_letter *letter);

/* Puts it where its time wants it, behind those of the same. */
void sim_letter_file(struct sim_letter **list, struct sim_letter *letter);

/* To the service; it has a due_ns. Takes it over. */
void sim_registry_post(struct sim_registry *registry, struct sim_letter *letter);

/* The connection breaks: of what is on its way to the service all or nothing arrives. */
void sim_registry_cut(struct sim_registry *registry, const struct sim_session *session);

#endif
