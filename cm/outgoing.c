/* outgoing.c - the messages that a configuration manager sends. */
#include "cm/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/cluster/control.h"
#include "common/cluster/login.h"
#include "proto/message.h"

/* `bytes` holds a struct message_control whose tag and layout are unused, then the payload. */
struct outgoing {
    uint32_t references;
    uint32_t byte_count;
    uint8_t bytes[];
};

static struct outgoing *outgoing_create(const Rowan__ControlMessage *message)
{
    size_t bytes =
        sizeof(struct message_control) + rowan__control_message__get_packed_size(message);
    struct outgoing *outgoing = malloc(sizeof *outgoing + bytes);
    if (!outgoing)
        return NULL;
    outgoing->references = 1;
    outgoing->byte_count = (uint32_t)control_encode(0, message, outgoing->bytes, bytes);
    ASSERT(outgoing->byte_count > 0); /* nothing we send comes near CONTROL_MAX_BYTES */
    return outgoing;
}

struct outgoing *outgoing_configuration(const struct cm_action *action,
                                        const struct cm_output *output, int store_error)
{
    const struct cluster_config *config = action->config;
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;
    is.waiting_for = (uint32_t *)(uintptr_t)output->waiting_for;
    is.n_waiting_for = output->waiting_count;
    is.not_leading = !output->leads;
    is.store_error = (uint32_t)-store_error;
    if (!config) {
        is.registration_epoch = output->registration_epoch;
        is.bring = action->bring;
        return outgoing_create(&CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
    }
    size_t bytes = cluster_encoded_bytes(config, action->with_secret);
    is.configuration.data = malloc(bytes);
    if (!is.configuration.data)
        return NULL;
    is.configuration.len =
        cluster_encode(config, action->with_secret, is.configuration.data, bytes);
    struct outgoing *outgoing =
        outgoing_create(&CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
    free(is.configuration.data);
    return outgoing;
}

struct outgoing *outgoing_client_id(uint32_t client_id, const struct cluster_config *config,
                                    const char *user)
{
    uint8_t ticket[MAC_BYTES];
    Rowan__ClientIdIs is = ROWAN__CLIENT_ID_IS__INIT;
    is.client_id = client_id;
    if (client_id && user &&
        !login_ticket(cluster_ticket_key(config, client_id), client_id, user, ticket))
        return NULL;
    if (client_id && user)
        is.ticket = control_bytes(ticket, sizeof ticket);
    return outgoing_create(&CONTROL_MESSAGE(CLIENT_ID_IS, client_id_is, &is));
}

struct outgoing *outgoing_lease(uint64_t manager, uint64_t manager_ns, bool granted)
{
    Rowan__LeaseIs is = ROWAN__LEASE_IS__INIT;
    is.manager = manager;
    is.manager_ns = manager_ns;
    is.granted = granted;
    return outgoing_create(&CONTROL_MESSAGE(LEASE_IS, lease_is, &is));
}

struct outgoing *outgoing_users(const struct cluster_config *config)
{
    const struct users *users = config ? config->users : NULL;
    Rowan__User rows[USERS_MAX], *pointers[USERS_MAX];
    Rowan__UsersAre are = ROWAN__USERS_ARE__INIT;
    are.login_required = users && users->required;
    are.users = pointers;
    while (users && are.n_users < users->count) {
        user_pack(&users->list[are.n_users], false, &rows[are.n_users]);
        pointers[are.n_users] = &rows[are.n_users];
        are.n_users++;
    }
    return outgoing_create(&CONTROL_MESSAGE(USERS_ARE, users_are, &are));
}

struct outgoing *outgoing_committed(uint64_t term)
{
    Rowan__Committed committed = ROWAN__COMMITTED__INIT;
    committed.term = term;
    return outgoing_create(&CONTROL_MESSAGE(COMMITTED, committed, &committed));
}

struct outgoing *outgoing_failure(int error, const char *detail)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = error;
    failure.detail = (char *)(uintptr_t)detail;
    return outgoing_create(&CONTROL_MESSAGE(FAILURE, failure, &failure));
}

struct outgoing *outgoing_settings(struct config_live *live, const Rowan__SetSetting *question)
{
    struct settings_answer answer;
    settings_answer(live, question, &answer);
    return outgoing_create(&answer.message);
}

struct outgoing *outgoing_hold(struct outgoing *outgoing)
{
    outgoing->references++;
    return outgoing;
}

void outgoing_release(struct outgoing *outgoing)
{
    if (!outgoing)
        return;
    ASSERT(outgoing->references > 0);
    if (--outgoing->references == 0)
        free(outgoing);
}

int outgoing_send(const struct outgoing *outgoing, uint32_t tag, struct fabric_conn *conn)
{
    struct message_control header;
    memcpy(&header, outgoing->bytes, sizeof header);
    header.tag = tag;
    header.layout = (uint8_t)conn->layout;
    struct fabric_iov iov[2] = {
        {&header, sizeof header},
        {outgoing->bytes + sizeof header, outgoing->byte_count - (uint32_t)sizeof header},
    };
    return fabric_send(conn, iov, 2);
}
