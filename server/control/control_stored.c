/* The newest configuration that this server adopted goes into its PM (store_config.c): the first one before the server
 * serves, later ones beside its work. Nobody reads it but a manager that has lost its own (rowan-cm --recover), and
 * --check: what counts is what the manager says.
 *
 * Every server that serves in a configuration, or in a later one, keeps a stored one with the same shards and epochs:
 * a manager that has asked all of them knows every epoch in which a version was given.
 */
#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

void control_stored_read(struct control *control)
{
    struct cluster_config *config;
    struct store_config stored;
    const int error = store_config_read(control->common->pm, &stored);
    if (!error) {
        control->stored_term = stored.term;
        log_event(LOG_INFO, "stored_configuration", "term=%lu bytes=%u", stored.term,
                  stored.byte_count);
        if (cluster_decode(stored.bytes, stored.byte_count, &config) == 0) {
            control->stored_open = !(config->users && config->users->required);
            cluster_release(config);
        }
    } else if (error != ROWAN_ENOTFOUND) {
        log_event(LOG_WARN, "stored_configuration_damaged", "error=%s", error_name(error));
    }
}

static int encode_and_start(struct control *control, const struct cluster_config *config)
{
    const size_t bytes = cluster_encoded_bytes(config, true);
    void *encoded = malloc(bytes);
    if (!encoded)
        return ROWAN_ENOMEM;
    const struct store_config stored = {.term = config->term,
                                        .bytes = encoded,
                                        .byte_count =
                                            (uint32_t)cluster_encode(config, true, encoded, bytes)};
    const int error = store_config_start(control->common->pm, &stored, &control->stored_write);
    free(encoded);
    return error;
}

/* Is there one to be stored? A term that is not above the stored one comes from a coordination service that was put back:
 * the stored one stays. */
static bool begin(struct control *control)
{
    const struct cluster_config *config =
        control->opening == OPENING_RUN ? control->coming : control->config;
    if (!config || control_stored_covers(control, config))
        return false;
    const int error = encode_and_start(control, config);
    if (error)
        server_fail(control->common, error, "the configuration cannot be stored");
    control->storing = error == 0;
    return control->storing;
}

bool control_stored_poll(struct control *control)
{
    if (!control->storing && !begin(control))
        return false;
    if (!server_done(control->common, store_config_poll(&control->stored_write)))
        return false;
    control->storing = false;
    control->stored_term = control->stored_write.term;
    return true;
}
