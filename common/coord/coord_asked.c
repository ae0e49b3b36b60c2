/* One of each kind may be outstanding. */
#include "common/coord/coord_asked.h"

#include <string.h>

#include "common/base/error.h"

/* The next poll sees it. */
static int note(struct coord_asked *asked, enum asked_state *state)
{
    *state = ASKED_WAITING;
    if (asked->reactor)
        reactor_wake(asked->reactor);
    return 0;
}

int coord_asked_read(struct coord *coord, coord_read_done *done, void *context)
{
    struct coord_asked *asked = (struct coord_asked *)coord;
    if (asked->read.done)
        return ROWAN_EAGAIN;
    asked->read.done = done;
    asked->read.context = context;
    return note(asked, &asked->read.state);
}

int coord_asked_cas(struct coord *coord, uint64_t expected_version, const void *value, size_t bytes,
                    coord_cas_done *done, void *context)
{
    struct coord_asked *asked = (struct coord_asked *)coord;
    if (bytes > COORD_MAX_VALUE_BYTES)
        return ROWAN_EINVALID;
    if (asked->cas.done)
        return ROWAN_EAGAIN;
    asked->cas.done = done;
    asked->cas.context = context;
    asked->cas.expected = expected_version;
    asked->cas.bytes = bytes;
    if (bytes > 0)
        memcpy(asked->cas.value, value, bytes);
    return note(asked, &asked->cas.state);
}

int coord_asked_watch(struct coord *coord, coord_changed *changed, void *context)
{
    struct coord_asked *asked = (struct coord_asked *)coord;
    if (asked->watch.changed)
        return ROWAN_EAGAIN;
    asked->watch.changed = changed;
    asked->watch.context = context;
    asked->watch.version = asked->known_version;
    return note(asked, &asked->watch.state);
}

int coord_asked_elect(struct coord *coord, coord_leader *leader, void *context)
{
    struct coord_asked *asked = (struct coord_asked *)coord;
    if (asked->election.leader)
        return ROWAN_EAGAIN;
    asked->election.leader = leader;
    asked->election.context = context;
    return note(asked, &asked->election.state);
}

void coord_answer_read(struct coord_asked *asked, int error, const void *value, size_t bytes,
                       uint64_t version)
{
    coord_read_done *done = asked->read.done;
    asked->read.done = NULL;
    asked->answered = true;
    if (!error)
        asked->known_version = version;
    done(asked->read.context, error, value, bytes, version);
}

void coord_answer_cas(struct coord_asked *asked, int error)
{
    coord_cas_done *done = asked->cas.done;
    const uint64_t version = error ? 0 : asked->cas.expected + 1;
    asked->cas.done = NULL;
    asked->answered = true;
    if (!error)
        asked->known_version = version;
    done(asked->cas.context, error, version);
}

void coord_answer_watch(struct coord_asked *asked)
{
    coord_changed *changed = asked->watch.changed;
    asked->watch.changed = NULL;
    asked->answered = true;
    changed(asked->watch.context);
}

void coord_answer_leads(struct coord_asked *asked, bool leads)
{
    if (leads == asked->election.leads)
        return;
    asked->election.leads = leads;
    asked->answered = true;
    asked->election.leader(asked->election.context, leads);
}
