/* cluster_proto.c - a configuration as protobuf, in and out.
 *
 * Encoding allocates nothing: serialised messages one behind another are one message with their fields
 * merged (protobuf encoding guide, "Last One Wins": repeated fields are concatenated). So the scalars,
 * each member and each shard are packed as a Configuration with nothing else in it.
 */
#include "common/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/cluster/control.h"
#include "common/cluster/unpack.h"

/* A Configuration and the memory of the one part in it. */
struct config_part {
    Rowan__Configuration configuration;
    Rowan__Member member, *members[1];
    Rowan__Shard shard, *shards[1];
    Rowan__User user, *users[1];
    Rowan__Keys keys;
};

uint32_t cluster_format(const struct cluster_config *config)
{
    return config->keys.drawn ? VERSION_CONFIGURATION_KEYS
           : config->mixed    ? VERSION_CONFIGURATION_MIXED
           : config->users    ? VERSION_CONFIGURATION_USERS
           : config->lease_ms ? VERSION_CONFIGURATION_LEASES
                              : VERSION_CONFIGURATION_LOWEST;
}

static ProtobufCBinaryData key(const uint8_t bytes[CLUSTER_SECRET_BYTES], bool is_there)
{
    return control_bytes(bytes, is_there ? CLUSTER_SECRET_BYTES : 0);
}

static void part_keys(struct config_part *part, const struct cluster_keys *keys)
{
    rowan__keys__init(&part->keys);
    part->keys.proof = key(keys->proof, true);
    part->keys.former_proof = key(keys->former_proof, keys->changing);
    part->keys.tickets = key(keys->tickets, true);
    part->keys.former_tickets = key(keys->former_tickets, keys->former_below > 0);
    part->keys.former_below = keys->former_below;
    part->keys.rotation = keys->rotation;
    part->configuration.keys = &part->keys;
}

static void part_scalars(struct config_part *part, const struct cluster_config *config,
                         bool with_secret)
{
    rowan__configuration__init(&part->configuration);
    part->configuration.format = with_secret        ? cluster_format(config)
                                 : config->lease_ms ? VERSION_CONFIGURATION_LEASES
                                                    : VERSION_CONFIGURATION_LOWEST;
    part->configuration.login_required = with_secret && config->users && config->users->required;
    part->configuration.term = config->term;
    part->configuration.cluster = config->cluster;
    part->configuration.block_limit = config->block_limit;
    part->configuration.replicas = config->replicas;
    part->configuration.next_client_id = config->next_client_id;
    part->configuration.manager = config->manager;
    part->configuration.lease_ms = config->lease_ms;
    part->configuration.wanted = (uint32_t *)(uintptr_t)config->wanted;
    part->configuration.n_wanted = config->wanted_count;
    part->configuration.balance = (Rowan__Configuration__Balance)config->balance;
    part->configuration.next_shard = config->next_shard;
    part->configuration.epoch_floor = config->epoch_floor;
    if (with_secret && config->has_secret)
        part->configuration.secret = control_bytes(config->secret, sizeof config->secret);
    if (with_secret && config->keys.drawn)
        part_keys(part, &config->keys);
}

/* Clients of any version read a configuration that is mixed: as one in which nobody is kept, and shards wait. */
static bool tells_kept(const struct cluster_config *config, bool with_secret)
{
    return with_secret || !config->mixed;
}

static void part_member(struct config_part *part, const struct member *member, bool tells)
{
    rowan__configuration__init(&part->configuration);
    rowan__member__init(&part->member);
    part->member.server = member->server;
    part->member.incarnation = member->incarnation;
    part->member.workers = member->workers;
    part->member.kept = member->kept && tells;
    part->member.address = (char *)(uintptr_t)member->address;
    part->members[0] = &part->member;
    part->configuration.members = part->members;
    part->configuration.n_members = 1;
}

static void part_shard(struct config_part *part, const struct shard *shard, bool waits)
{
    rowan__configuration__init(&part->configuration);
    rowan__shard__init(&part->shard);
    part->shard.id = shard->id;
    part->shard.first_slot = shard->first_slot;
    part->shard.last_slot = shard->last_slot;
    part->shard.epoch = shard->epoch;
    part->shard.primary = shard->primary;
    part->shard.worker = shard->worker;
    part->shard.backups = (uint32_t *)(uintptr_t)shard->backups;
    part->shard.n_backups = shard->backup_count;
    part->shard.filling = (uint32_t *)(uintptr_t)shard->filling;
    part->shard.n_filling = shard->filling_count;
    part->shard.possibly_incomplete = shard->possibly_incomplete;
    part->shard.move_from = shard->move_from;
    part->shard.move_to = shard->move_to;
    part->shard.split = (Rowan__Shard__Split)shard->split;
    part->shard.waits = waits;
    part->shards[0] = &part->shard;
    part->configuration.shards = part->shards;
    part->configuration.n_shards = 1;
}

void user_pack(const struct user *user, bool with_keys, Rowan__User *out)
{
    rowan__user__init(out);
    out->name = (char *)(uintptr_t)user->name;
    out->role = (Rowan__User__Role)user->role;
    out->prefix = control_bytes(user->prefix, user->prefix_bytes);
    if (!with_keys)
        return;
    const struct scram_verifier *from = &user->verifier;
    out->rounds = from->rounds;
    out->salt = control_bytes(from->salt, sizeof from->salt);
    out->stored_key = control_bytes(from->stored_key, sizeof from->stored_key);
    out->server_key = control_bytes(from->server_key, sizeof from->server_key);
}

int user_unpack(const Rowan__User *from, struct user *out)
{
    struct user user = {.role = from->role >= 0 && from->role <= (int)USER_ADMIN
                                    ? (uint8_t)from->role
                                    : USER_NOTHING,
                        .prefix_bytes = (uint8_t)from->prefix.len,
                        .verifier.rounds = from->rounds};
    const size_t name_bytes = strlen(from->name);
    if (name_bytes >= sizeof user.name || from->prefix.len > sizeof user.prefix ||
        !control_take(&from->salt, user.verifier.salt, sizeof user.verifier.salt) ||
        !control_take(&from->stored_key, user.verifier.stored_key,
                      sizeof user.verifier.stored_key) ||
        !control_take(&from->server_key, user.verifier.server_key, sizeof user.verifier.server_key))
        return ROWAN_EFORMAT;
    memcpy(user.name, from->name, name_bytes);
    if (from->prefix.len)
        memcpy(user.prefix, from->prefix.data, from->prefix.len);
    *out = user;
    return user_is_right(out) ? 0 : ROWAN_EFORMAT;
}

static void part_user(struct config_part *part, const struct user *user)
{
    rowan__configuration__init(&part->configuration);
    user_pack(user, true, &part->user);
    part->users[0] = &part->user;
    part->configuration.users = part->users;
    part->configuration.n_users = 1;
}

static uint32_t part_count(const struct cluster_config *config, bool with_secret)
{
    return 1 + config->member_count + config->shard_count +
           (with_secret && config->users ? config->users->count : 0);
}

/* Part 0 is the scalars, then come the members, the shards, and the users. */
static void part_at(struct config_part *part, const struct cluster_config *config, bool with_secret,
                    uint32_t index)
{
    if (index == 0)
        part_scalars(part, config, with_secret);
    else if (index <= config->member_count)
        part_member(part, &config->members[index - 1], tells_kept(config, with_secret));
    else if (index <= config->member_count + config->shard_count)
        part_shard(part, &config->shards[index - 1 - config->member_count],
                   !tells_kept(config, with_secret) &&
                       shard_is_kept(config, &config->shards[index - 1 - config->member_count]));
    else
        part_user(part,
                  &config->users->list[index - 1 - config->member_count - config->shard_count]);
}

size_t cluster_encoded_bytes(const struct cluster_config *config, bool with_secret)
{
    struct config_part part;
    size_t bytes = 0;
    for (uint32_t i = 0; i < part_count(config, with_secret); i++) {
        part_at(&part, config, with_secret, i);
        bytes += rowan__configuration__get_packed_size(&part.configuration);
    }
    return bytes;
}

size_t cluster_encode(const struct cluster_config *config, bool with_secret, void *out,
                      size_t capacity)
{
    if (cluster_encoded_bytes(config, with_secret) > capacity)
        return 0;

    struct config_part part;
    size_t bytes = 0;
    for (uint32_t i = 0; i < part_count(config, with_secret); i++) {
        part_at(&part, config, with_secret, i);
        bytes += rowan__configuration__pack(&part.configuration, (uint8_t *)out + bytes);
    }
    return bytes;
}

static int decode_member(const Rowan__Member *from, struct member *member)
{
    size_t address_bytes = strlen(from->address);
    if (address_bytes > CLUSTER_MAX_ADDRESS_BYTES)
        return ROWAN_EFORMAT;
    member->server = from->server;
    member->incarnation = from->incarnation;
    member->workers = from->workers;
    member->kept = from->kept;
    memcpy(member->address, from->address, address_bytes + 1);
    return ROWAN_OK;
}

/* What a 16-bit field cannot hold is refused here; cluster_finish checks the rest. */
static int decode_shard(const Rowan__Shard *from, struct shard *shard)
{
    if (from->id > UINT16_MAX || from->first_slot >= SLOT_COUNT || from->last_slot >= SLOT_COUNT)
        return ROWAN_EFORMAT;
    if (from->n_backups > CLUSTER_MAX_REPLICAS - 1 || from->n_filling > CLUSTER_MAX_REPLICAS - 1)
        return ROWAN_EFORMAT;
    shard->id = (uint16_t)from->id;
    shard->first_slot = (uint16_t)from->first_slot;
    shard->last_slot = (uint16_t)from->last_slot;
    shard->epoch = from->epoch;
    shard->primary = from->primary;
    shard->worker = from->worker;
    shard->backup_count = (uint32_t)from->n_backups;
    shard->filling_count = (uint32_t)from->n_filling;
    shard->possibly_incomplete = from->possibly_incomplete;
    shard->move_from = from->move_from;
    shard->move_to = from->move_to;
    shard->split = (enum shard_split)from->split;
    shard->waits = from->waits;
    for (size_t i = 0; i < from->n_backups; i++)
        shard->backups[i] = from->backups[i];
    for (size_t i = 0; i < from->n_filling; i++)
        shard->filling[i] = from->filling[i];
    return ROWAN_OK;
}

static bool take_key(const ProtobufCBinaryData *from, bool is_there,
                     uint8_t out[CLUSTER_SECRET_BYTES])
{
    return is_there ? control_take(from, out, CLUSTER_SECRET_BYTES) : from->len == 0;
}

static int decode_keys(const Rowan__Configuration *from, struct cluster_config *config)
{
    struct cluster_keys *keys = &config->keys;
    if (!from->keys)
        return 0;
    keys->drawn = true;
    keys->changing = from->keys->former_proof.len > 0;
    keys->former_below = from->keys->former_below;
    keys->rotation = from->keys->rotation;
    const bool right =
        config->has_secret && take_key(&from->keys->proof, true, keys->proof) &&
        take_key(&from->keys->former_proof, keys->changing, keys->former_proof) &&
        take_key(&from->keys->tickets, true, keys->tickets) &&
        take_key(&from->keys->former_tickets, keys->former_below > 0, keys->former_tickets);
    return right ? 0 : ROWAN_EFORMAT;
}

static int decode_users(const Rowan__Configuration *from, struct cluster_config *config)
{
    if (from->n_users == 0 && !from->login_required)
        return 0;
    config->users = from->n_users <= USERS_MAX ? users_create((uint32_t)from->n_users) : NULL;
    if (!config->users)
        return from->n_users <= USERS_MAX ? ROWAN_ENOMEM : ROWAN_EFORMAT;
    config->users->required = from->login_required;
    int error = 0;
    for (uint32_t i = 0; i < config->users->count && !error; i++)
        error = user_unpack(from->users[i], &config->users->list[i]);
    return error;
}

static int decode_parts(const Rowan__Configuration *from, struct cluster_config *config)
{
    config->term = from->term;
    config->cluster = from->cluster;
    config->block_limit = from->block_limit;
    config->replicas = from->replicas;
    config->next_client_id = from->next_client_id;
    config->manager = from->manager;
    config->lease_ms = from->lease_ms;
    config->wanted_count = (uint32_t)from->n_wanted;
    for (uint32_t i = 0; i < config->wanted_count; i++)
        config->wanted[i] = from->wanted[i];
    config->balance = (enum cluster_balance)from->balance;
    config->next_shard = (uint16_t)from->next_shard;
    config->epoch_floor = from->epoch_floor;
    config->has_secret = from->secret.len > 0;
    if (config->has_secret)
        memcpy(config->secret, from->secret.data, sizeof config->secret);

    int error = decode_keys(from, config);
    if (!error)
        error = decode_users(from, config);
    for (uint32_t i = 0; i < config->member_count && !error; i++)
        error = decode_member(from->members[i], &config->members[i]);
    for (uint32_t i = 0; i < config->shard_count && !error; i++)
        error = decode_shard(from->shards[i], &config->shards[i]);
    return error ? error : cluster_finish(config);
}

int cluster_decode(const void *bytes, size_t count, struct cluster_config **out)
{
    ProtobufCMessage *message;
    int error = unpack_message(&rowan__configuration__descriptor, bytes, count, &message);
    if (error)
        return error;

    const Rowan__Configuration *from = (const Rowan__Configuration *)message;
    struct cluster_config *config = NULL;
    const uint32_t format = from->format ? from->format : 1;
    error = ROWAN_EINCOMPATIBLE;
    if (format < VERSION_CONFIGURATION_LOWEST || format > VERSION_CONFIGURATION_HIGHEST)
        goto out;
    error = ROWAN_EFORMAT;
    if (from->n_members > CLUSTER_MAX_MEMBERS || from->n_shards > CLUSTER_MAX_SHARDS ||
        from->n_wanted > CLUSTER_MAX_MEMBERS || from->next_shard > CLUSTER_MAX_SHARDS ||
        from->epoch_floor > CLUSTER_MAX_EPOCH ||
        (from->secret.len != 0 && from->secret.len != CLUSTER_SECRET_BYTES))
        goto out;
    error = ROWAN_ENOMEM;
    config = cluster_create((uint32_t)from->n_members, (uint32_t)from->n_shards);
    if (!config)
        goto out;
    error = decode_parts(from, config);
    if (error)
        goto out;
    *out = config;
    config = NULL;
out:
    cluster_release(config);
    unpack_free(message);
    return error;
}
