/* keys.c - see keys.h. */
#include "common/cluster/keys.h"

#include <string.h>

#include "common/cluster/cluster.h"

const uint8_t *cluster_proof(const struct cluster_config *config)
{
    return config->keys.drawn ? config->keys.proof : config->secret;
}

const uint8_t *cluster_former_proof(const struct cluster_config *config)
{
    return config->keys.changing ? config->keys.former_proof : NULL;
}

const uint8_t *cluster_cover(const struct cluster_config *config)
{
    return config->keys.drawn ? config->keys.tickets : config->secret;
}

const uint8_t *cluster_ticket_key(const struct cluster_config *config, uint32_t client)
{
    return client < config->keys.former_below ? config->keys.former_tickets : cluster_cover(config);
}

void cluster_rotate(struct cluster_config *config, const struct cluster_drawn *drawn, bool anew)
{
    struct cluster_keys *keys = &config->keys;
    memcpy(keys->former_proof, cluster_proof(config), sizeof keys->former_proof);
    memcpy(keys->proof, drawn->proof, sizeof keys->proof);
    memset(keys->former_tickets, 0, sizeof keys->former_tickets);
    keys->former_below = 0;
    if (anew || !keys->drawn) {
        memcpy(keys->former_tickets, cluster_cover(config), sizeof keys->former_tickets);
        memcpy(keys->tickets, drawn->tickets, sizeof keys->tickets);
        keys->former_below = config->next_client_id;
    }
    keys->drawn = keys->changing = true;
}

void cluster_rotated(struct cluster_config *config)
{
    config->keys.changing = false;
    memset(config->keys.former_proof, 0, sizeof config->keys.former_proof);
}
