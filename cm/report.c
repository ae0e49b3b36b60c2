/* report.c - what servers report, and every other request, as the state gets it. */
#include "cm/cm_internal.h"

#include <string.h>

#include "common/base/error.h"
#include "common/base/version.h"

/* A text that is too long becomes empty, and so is refused with the rest of the report. */
static void copy_text(char *to, size_t to_bytes, const char *from)
{
    size_t bytes = strlen(from);
    if (bytes >= to_bytes)
        bytes = 0;
    memcpy(to, from, bytes);
    to[bytes] = '\0';
}

/* What makes no sense may concern every shard, and so do more than there is space for. */
static void add_damage(struct cm_join *join, const Rowan__DamagedShard *from)
{
    const bool right = from->shard <= UINT16_MAX && from->first_slot <= UINT16_MAX &&
                       from->last_slot <= UINT16_MAX;
    if (right && from->found) {
        damage_found(&join->damage, (uint16_t)from->shard);
    } else if (right) {
        damage_add(&join->damage, (uint16_t)from->shard, (uint16_t)from->first_slot);
        if (from->first_slot != DAMAGE_NO_SLOT)
            damage_add(&join->damage, (uint16_t)from->shard, (uint16_t)from->last_slot);
    }
    join->possibly_incomplete |= !right || join->damage.all;
}

int report_decode(const Rowan__Join *from, struct cm_join *out, struct cluster_config **stored)
{
    *out = (struct cm_join){.server = from->server,
                            .incarnation = from->incarnation,
                            .workers = from->workers,
                            .block_limit = from->block_limit,
                            .data_cluster = from->data_cluster,
                            .possibly_incomplete = from->possibly_incomplete,
                            .named = from->named,
                            .known_term = from->known_term,
                            .known_manager = from->known_manager,
                            .formatted = from->formatted,
                            .registration_epoch = from->registration_epoch,
                            .stored_term = from->stored_term,
                            .format = from->format ? from->format : VERSION_CONFIGURATION_LEASES,
                            .without_ms = from->without_ms,
                            .torn = from->torn,
                            .nobody_leads = from->nobody_leads};
    *stored = NULL;
    const int error =
        from->stored.len ? cluster_decode(from->stored.data, from->stored.len, stored) : 0;
    if (error && error != ROWAN_ENOMEM)
        out->stored_term = 0; /* it is not whole */
    for (size_t i = 0; i < from->n_damaged; i++)
        add_damage(out, from->damaged[i]);
    copy_text(out->address, sizeof out->address, from->address);
    copy_text(out->fabric, sizeof out->fabric, from->fabric);
    copy_text(out->durability, sizeof out->durability, from->durability);
    return error == ROWAN_EINCOMPATIBLE ? error : 0;
}

static void renew_event(const Rowan__Renew *from, struct cm_event *out)
{
    out->kind = CM_EVENT_RENEW;
    out->known_term = from->term;
    out->manager = from->manager;
    out->manager_ns = from->manager_ns;
    out->leaves = from->leaves;
    out->cut = from->incomplete;
    out->cut_count = from->n_incomplete < CLUSTER_MAX_MEMBERS ? (uint32_t)from->n_incomplete
                                                              : CLUSTER_MAX_MEMBERS;
}

static bool plan_event(const Rowan__Plan *from, struct cm_event *out)
{
    out->kind = CM_EVENT_PLAN;
    out->plan = (struct cm_plan){.kind = (enum cm_plan_kind)from->kind,
                                 .server = from->server,
                                 .shard = from->shard,
                                 .to = from->to,
                                 .rotation = from->rotation};
    const bool names = from->user && strlen(from->user->name) <= USER_NAME_BYTES;
    if (from->kind == ROWAN__PLAN__KIND__NO_USER && names)
        strcpy(out->plan.user.name, from->user->name);
    if (from->kind == ROWAN__PLAN__KIND__NO_USER)
        return names;
    if (from->kind == ROWAN__PLAN__KIND__USER)
        return from->user && !user_unpack(from->user, &out->plan.user);
    if (from->kind == ROWAN__PLAN__KIND__LOGIN && from->to == CM_LOGIN_ROTATE && !from->rotation)
        return false;
    return from->kind >= 0 && from->kind < (int)CM_PLAN_KINDS;
}

bool report_event(const Rowan__ControlMessage *from, struct cm_event *out)
{
    switch (from->body_case) {
    case ROWAN__CONTROL_MESSAGE__BODY_GET_CONFIGURATION:
        out->kind = CM_EVENT_GET_CONFIGURATION;
        out->known_term = from->get_configuration->known_term;
        return true;
    case ROWAN__CONTROL_MESSAGE__BODY_NEW_CLIENT_ID:
        out->kind = CM_EVENT_NEW_CLIENT_ID;
        out->reader = from->new_client_id->unless_reader;
        return true;
    case ROWAN__CONTROL_MESSAGE__BODY_RENEW:
        renew_event(from->renew, out);
        return true;
    case ROWAN__CONTROL_MESSAGE__BODY_ADOPTED:
        out->kind = CM_EVENT_ADOPTED;
        out->known_term = from->adopted->term;
        return true;
    case ROWAN__CONTROL_MESSAGE__BODY_FILLED:
        out->kind = CM_EVENT_FILLED;
        out->shard = from->filled->shard;
        out->epoch = from->filled->epoch;
        out->server = from->filled->server;
        return true;
    case ROWAN__CONTROL_MESSAGE__BODY_PLAN:
        return plan_event(from->plan, out);
    default:
        return false;
    }
}

void report_load(const Rowan__Load *from, struct load_row *rows, struct load_report *out)
{
    *out = (struct load_report){.cores = from->cores,
                                .free_bytes = from->free_bytes,
                                .live_bytes = from->live_bytes,
                                .all_bytes = from->all_bytes,
                                .full = from->full,
                                .rows = rows};
    for (; out->count < from->n_shards && out->count < CLUSTER_MAX_SHARDS; out->count++) {
        const Rowan__ShardLoad *row = from->shards[out->count];
        rows[out->count] =
            (struct load_row){row->shard, row->epoch, row->load, row->split, row->bytes};
    }
}
