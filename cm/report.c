/* report.c - see report.h. */
#include "cm/report.h"

#include <string.h>

#include "common/base/error.h"

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
    if (right) {
        damage_add(&join->damage, (uint16_t)from->shard, (uint16_t)from->first_slot);
        if (from->first_slot != DAMAGE_NO_SLOT)
            damage_add(&join->damage, (uint16_t)from->shard, (uint16_t)from->last_slot);
    }
    join->possibly_incomplete |= !right || join->damage.all;
}

struct cluster_config *report_decode(const Rowan__Join *from, struct cm_join *out)
{
    *out = (struct cm_join){.server = from->server,
                            .incarnation = from->incarnation,
                            .workers = from->workers,
                            .block_limit = from->block_limit,
                            .data_cluster = from->data_cluster,
                            .possibly_incomplete = from->possibly_incomplete,
                            .named = from->named,
                            .known_term = from->known_term,
                            .formatted = from->formatted,
                            .registration_epoch = from->registration_epoch,
                            .stored_term = from->stored_term,
                            .without_ms = from->without_ms};
    struct cluster_config *stored = NULL;
    const int error =
        from->stored.len ? cluster_decode(from->stored.data, from->stored.len, &stored) : 0;
    if (error && error != ROWAN_ENOMEM)
        out->stored_term = 0; /* it is not whole */
    for (size_t i = 0; i < from->n_damaged; i++)
        add_damage(out, from->damaged[i]);
    copy_text(out->address, sizeof out->address, from->address);
    copy_text(out->fabric, sizeof out->fabric, from->fabric);
    copy_text(out->durability, sizeof out->durability, from->durability);
    return stored;
}

uint32_t report_cut_count(const Rowan__Renew *from)
{
    return from->n_incomplete < CLUSTER_MAX_MEMBERS ? (uint32_t)from->n_incomplete
                                                    : CLUSTER_MAX_MEMBERS;
}

void report_load(const Rowan__Load *from, struct load_row *rows, struct load_report *out)
{
    *out = (struct load_report){.cores = from->cores, .free_bytes = from->free_bytes, .rows = rows};
    for (; out->count < from->n_shards && out->count < CLUSTER_MAX_SHARDS; out->count++) {
        const Rowan__ShardLoad *row = from->shards[out->count];
        rows[out->count] =
            (struct load_row){row->shard, row->epoch, row->load, row->split, row->bytes};
    }
}
