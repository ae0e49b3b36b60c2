/* actions.c - see state_inside.h. */
#include <stdarg.h>
#include <stdio.h>

#include "cm/state_inside.h"
#include "common/base/assert.h"

struct cm_action *actions_add(struct cm_state *state, enum cm_action_kind kind)
{
    ASSERT(state->output.count < MAX_ACTIONS);
    struct cm_action *action = &state->actions[state->output.count++];
    *action = (struct cm_action){.kind = kind};
    return action;
}

struct cm_action *actions_answer(struct cm_state *state, enum cm_action_kind kind,
                                 uint32_t connection, uint32_t tag)
{
    ASSERT(state->connections[connection].open);
    struct cm_action *action = actions_add(state, kind);
    action->connection = connection;
    action->tag = tag;
    return action;
}

void actions_refuse(struct cm_state *state, uint32_t connection, uint32_t tag, int error,
                    const char *detail)
{
    struct cm_action *action = actions_answer(state, CM_ACTION_FAILURE, connection, tag);
    action->error = error;
    action->detail = detail;
}

void actions_stop(struct cm_state *state, int error, const char *detail)
{
    struct cm_action *action = actions_add(state, CM_ACTION_STOP);
    action->error = error;
    action->detail = detail;
    state->stopped = true;
}

void actions_configuration(struct cm_state *state, uint32_t connection, uint32_t tag)
{
    struct connection *peer = &state->connections[connection];
    struct cm_action *action = actions_answer(state, CM_ACTION_CONFIGURATION, connection, tag);
    action->config = state->config;
    if (!state->config)
        return;
    action->with_secret = peer->member; /* S5 */
    peer->known_term = state->config->term;
}

void actions_log(struct cm_state *state, enum cm_action_kind kind, const char *event,
                 const char *format, ...)
{
    ASSERT(state->story_count < MAX_STORIES);
    char *story = state->stories[state->story_count++];
    va_list values;
    va_start(values, format);
    vsnprintf(story, sizeof state->stories[0], format, values);
    va_end(values);
    struct cm_action *action = actions_add(state, kind);
    action->event = event;
    action->detail = story;
}
