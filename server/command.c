/* Commands between the roles of a server. */
#include "server/command.h"

#include <stdlib.h>

#include "common/base/error.h"

int command_push(struct inbox *inbox, const struct command *command)
{
    struct command *copy = malloc(sizeof *copy);
    if (!copy)
        return ROWAN_ENOMEM;
    *copy = *command;
    if (!inbox_push(inbox, copy)) {
        free(copy);
        return ROWAN_EAGAIN;
    }
    return 0;
}

bool command_pop(struct inbox *inbox, struct command *command)
{
    struct command *found = inbox_pop(inbox);
    if (!found)
        return false;
    *command = *found;
    free(found);
    return true;
}

void command_drain(struct inbox *inbox)
{
    struct command command;
    while (command_pop(inbox, &command)) {
        if (command.kind == COMMAND_CONFIG)
            cluster_release(command.config);
        else if (command.kind == COMMAND_SHARD)
            shard_state_destroy(command.shard);
        else if (command.kind == COMMAND_QUERY)
            free(command.query);
    }
}

bool command_answer(struct queries *queries, struct inbox *outbox, struct server_common *common)
{
    struct query *query = queries->first;
    if (!query)
        return false;
    LIST_REMOVE(queries, query, place); /* once it is handed over, it is the receiver's */
    if (!query_step(query, common) ||
        command_push(outbox, &(struct command){.kind = COMMAND_QUERY, .query = query}))
        LIST_APPEND(queries, query, place);
    return true;
}
