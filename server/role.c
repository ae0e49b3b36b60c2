/* The inboxes of a role. */
#include "server/role.h"

#include <stdio.h>

#include "common/base/error.h"

int role_init(struct role *role, struct server_common *common, uint32_t questions)
{
    role->common = common;
    int error = inbox_init(&role->inbox, COMMAND_CAPACITY);
    if (!error)
        error = inbox_init(&role->outbox, COMMAND_CAPACITY);
    if (!error && questions)
        error = inbox_init(&role->questions, questions);
    if (error)
        role_fini(role);
    return error;
}

void role_fini(struct role *role)
{
    command_drain(&role->inbox);
    command_drain(&role->outbox);
    inbox_fini(&role->questions);
    inbox_fini(&role->outbox);
    inbox_fini(&role->inbox);
}

void role_attach(struct role *role, struct reactor *reactor, struct reactor *control)
{
    inbox_set_reactor(&role->inbox, reactor);
    inbox_set_reactor(&role->outbox, control);
    inbox_set_reactor(&role->questions, reactor);
}

static const struct metric metrics_of_role[] = {
    {"rowan_role_busy_seconds_total",
     "Processor time of the role's polls that found work: its rate is the share of a core that it "
     "is busy.",
     "", METRIC_COUNTER, 0, 1e-9},
};

void role_metrics(const struct counter *busy_ns, struct metrics *metrics, const char *name,
                  uint32_t number)
{
    char labels[METRICS_LABELS_BYTES];
    snprintf(labels, sizeof labels, "role=\"%s\",number=\"%u\"", name, number);
    metrics_add(metrics, metrics_of_role, sizeof metrics_of_role / sizeof metrics_of_role[0],
                busy_ns, labels);
}

void role_copied(struct role *role, uint16_t shard, uint32_t epoch)
{
    const struct command command = {
        .kind = COMMAND_FILLED,
        .filled = {.shard = shard, .epoch = epoch, .server = role->common->server}};
    (void)command_push(&role->outbox, &command);
}

bool role_take(struct role *role, const struct command *command)
{
    if (command->kind == COMMAND_RECOVER) {
        role->part = command->part;
        return true;
    }
    if (command->kind != COMMAND_ADOPT)
        return false;
    const int error = command_push(&role->outbox, command); /* it answers by coming back */
    if (error)
        server_fail(role->common, error, "no memory for a change of the configuration");
    return true;
}
