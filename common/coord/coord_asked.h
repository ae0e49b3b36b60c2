/* coord_asked.h - what the owner of a handle has asked for and was not answered yet: the same in every backend. Internal to
 * common/coord.
 *
 * A backend's struct begins with it, and its ops name the functions below. What is asked is WAITING until the backend's poll hands
 * it over. An answer may ask again.
 */
#ifndef COORD_COORD_ASKED_H
#define COORD_COORD_ASKED_H

#include "common/coord/coord.h"

enum asked_state { ASKED_FREE, ASKED_WAITING, ASKED_RUNNING };

struct coord_asked {
    struct coord coord;
    struct reactor *reactor; /* woken for what is asked, or NULL */
    uint64_t known_version;  /* the last one that was answered; 0: none */
    bool answered;           /* something was; the backend takes it back */

    struct {
        enum asked_state state;
        coord_read_done *done; /* NULL: nothing is asked */
        void *context;
    } read;

    struct {
        enum asked_state state;
        coord_cas_done *done; /* likewise */
        void *context;
        uint64_t expected;
        uint8_t *value; /* the backend's memory for COORD_MAX_VALUE_BYTES */
        size_t bytes;
    } cas;

    struct {
        enum asked_state state;
        coord_changed *changed; /* likewise */
        void *context;
        uint64_t version; /* another one fires it */
    } watch;

    struct {
        enum asked_state state;
        coord_leader *leader; /* NULL: does not stand */
        void *context;
        bool leads;
    } election;
};

/* See coord.h. */
int coord_asked_read(struct coord *coord, coord_read_done *done, void *context);
int coord_asked_cas(struct coord *coord, uint64_t expected_version, const void *value, size_t bytes,
                    coord_cas_done *done, void *context);
int coord_asked_watch(struct coord *coord, coord_changed *changed, void *context);
int coord_asked_elect(struct coord *coord, coord_leader *leader, void *context);

/* Of what is asked. coord_answer_leads: nothing happens if the owner knows it. */
void coord_answer_read(struct coord_asked *asked, int error, const void *value, size_t bytes,
                       uint64_t version);
void coord_answer_cas(struct coord_asked *asked, int error);
void coord_answer_watch(struct coord_asked *asked);
void coord_answer_leads(struct coord_asked *asked, bool leads);

#endif
