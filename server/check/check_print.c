/* A report as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "server/check/check.h"

#define CHECK_TEXT(name, text, json) text,
#define CHECK_NAME(name, text, json) json,
static const char *const texts[] = {CHECK_TABLE(CHECK_TEXT)};
static const char *const names[] = {CHECK_TABLE(CHECK_NAME)};
static const char *const replica_names[] = {"none", "filling", "full", "damaged"};
static const char *const config_names[] = {
    "none", "whole", "damaged", "of another version, in a format that this one does not read"};
static const char *const block_names[] = {NULL,   "puts", "deletes", "commit_versions",
                                          "pads", NULL,   "records", "checkpoint"};
_Static_assert(sizeof(segment_owner_names) / sizeof(segment_owner_names[0]) == OWNER_KINDS,
               "owners");
_Static_assert(sizeof(block_names) / sizeof(block_names[0]) == ENTRY_TYPES, "blocks");

/* --- text --- */

static void add_counts(FILE *out, const char *title, const char *const *what,
                       const uint64_t *counts, unsigned from, unsigned to)
{
    fprintf(out, "%s:", title);
    for (unsigned i = from; i < to; i++) {
        if (what[i])
            fprintf(out, " %s %lu%s", what[i], counts[i], i + 1 < to ? "," : "\n");
    }
}

static void add_places(FILE *out, const struct check_report *report)
{
    static const char *const of[CHECK_KINDS] = {
        [CHECK_SUPERBLOCK] = "copy", [CHECK_CONFIG] = "copy", [CHECK_RUN] = "slot",
        [CHECK_ROW] = "shard",       [CHECK_VOID] = "row",    [CHECK_REPLICA] = "shard"};
    for (uint32_t i = 0; i < report->place_count; i++) {
        const struct check_place *place = &report->places[i];
        const char *number = of[place->kind] ? of[place->kind] : "segment";
        fprintf(out, "  %s: %s %lu, %lu bytes at %lu of the file", names[place->kind], number,
                place->number, place->bytes, place->offset);
        if (place->kind == CHECK_BLOCK || place->kind == CHECK_TORN)
            fprintf(out, ", %lu of the segment",
                    (place->offset - report->offset) % STORE_SEGMENT_BYTES);
        fprintf(out, "\n");
    }
    uint64_t more = check_found(report) - report->run_is_damaged - report->place_count;
    if (more)
        fprintf(out, "  and %lu more\n", more);
}

char *check_text(const struct check_report *report)
{
    const struct superblock *block = &report->superblock;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "superblock: server %u of cluster %016lx, format %u, %lu segments of 4 MiB\n",
            block->server, block->cluster, block->format_version, block->segments);
    if (report->has_run)
        fprintf(out, "last run: number %lu, incarnation %016lx, durability %s%s\n",
                report->run.sequence, report->run.incarnation,
                pm_durability_name(report->run.durability),
                report->run.possibly_incomplete ? ", on possibly incomplete data" : "");
    else
        fprintf(out, "last run: %s\n", report->run_is_damaged ? "all records are damaged" : "none");
    for (unsigned i = 0; i < 2; i++) {
        const struct check_config *config = &report->configs[i];
        fprintf(out, "configuration, copy %u: %s", i, config_names[config->state]);
        if (config->state == CONFIG_COPY_WHOLE)
            fprintf(out, ", term %lu, %u members, %u shards", config->term, config->members,
                    config->shards);
        fprintf(out, "\n");
    }
    add_counts(out, "segments", segment_state_names, report->states, 0, SEGMENT_COMMITTED + 1);
    add_counts(out, "owners", segment_owner_names, report->owners, 0, OWNER_KINDS);
    fprintf(out, "replicas: %u\n", report->row_count);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct replica_row *row = &report->rows[i].row;
        fprintf(out, "  shard %u: %s", report->rows[i].shard, replica_names[row->state]);
        if (row->state != REPLICA_DAMAGED)
            fprintf(out, ", since epoch %u, settled %u.%lu", row->first_epoch,
                    version_epoch(row->settled), version_counter(row->settled));
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < report->void_count; i++)
        fprintf(out, "void: segment %lu, %u bytes at %u of the segment\n", report->voids[i].segment,
                report->voids[i].bytes, report->voids[i].from);
    add_counts(out, "whole blocks", block_names, report->blocks, ENTRY_PUT, ENTRY_TYPES);
    fprintf(out, "  of %lu entries, %lu bytes\n", report->entries, report->block_bytes);
    for (unsigned i = 0; i < CHECK_KINDS; i++) {
        if (report->found[i])
            fprintf(out, "%lu %s\n", report->found[i], texts[i]);
    }
    add_places(out, report);
    if (check_found(report) == 0)
        fprintf(out, "nothing is damaged\n");
    const bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

/* --- JSON --- */

static json_t *json_counts(const char *const *what, const uint64_t *counts, unsigned from,
                           unsigned to)
{
    json_t *object = json_object();
    for (unsigned i = from; i < to; i++) {
        if (what[i])
            json_object_set_new(object, what[i], json_integer((json_int_t)counts[i]));
    }
    return object;
}

static json_t *json_rows(const struct check_report *report)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct replica_row *row = &report->rows[i].row;
        json_array_append_new(
            array, json_pack("{s:i,s:s,s:I,s:I,s:I}", "shard", (int)report->rows[i].shard, "state",
                             replica_names[row->state], "first_epoch", (json_int_t)row->first_epoch,
                             "first_allocation", (json_int_t)row->first_allocation, "settled",
                             (json_int_t)row->settled));
    }
    return array;
}

static json_t *json_voids(const struct check_report *report)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < report->void_count; i++) {
        const struct check_void *range = &report->voids[i];
        json_array_append_new(array,
                              json_pack("{s:I,s:i,s:i}", "segment", (json_int_t)range->segment,
                                        "from", (int)range->from, "bytes", (int)range->bytes));
    }
    return array;
}

static json_t *json_places(const struct check_report *report)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < report->place_count; i++) {
        const struct check_place *place = &report->places[i];
        json_array_append_new(array, json_pack("{s:s,s:I,s:I,s:I}", "kind", names[place->kind],
                                               "number", (json_int_t)place->number, "offset",
                                               (json_int_t)place->offset, "bytes",
                                               (json_int_t)place->bytes));
    }
    return array;
}

static json_t *json_configs(const struct check_report *report)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < 2; i++) {
        const struct check_config *config = &report->configs[i];
        json_array_append_new(array,
                              json_pack("{s:s,s:I,s:i,s:i}", "state", config_names[config->state],
                                        "term", (json_int_t)config->term, "members",
                                        (int)config->members, "shards", (int)config->shards));
    }
    return array;
}

json_t *check_json(const struct check_report *report)
{
    const struct superblock *block = &report->superblock;
    char cluster[17];
    snprintf(cluster, sizeof(cluster), "%016lx", block->cluster);
    return json_pack(
        "{s:i,s:s,s:i,s:I,s:b,s:I,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:I,s:o}", "server",
        (int)block->server, "cluster", cluster, "format", (int)block->format_version, "segments",
        (json_int_t)block->segments, "has_run", report->has_run, "last_run",
        (json_int_t)report->run.sequence, "runs_damaged", report->run_is_damaged,
        "possibly_incomplete", report->run.possibly_incomplete, "configurations",
        json_configs(report), "states",
        json_counts(segment_state_names, report->states, 0, SEGMENT_COMMITTED + 1), "owners",
        json_counts(segment_owner_names, report->owners, 0, OWNER_KINDS), "replicas",
        json_rows(report), "void", json_voids(report), "blocks",
        json_counts(block_names, report->blocks, ENTRY_PUT, ENTRY_TYPES), "entries",
        (json_int_t)report->entries, "block_bytes", (json_int_t)report->block_bytes, "damage",
        json_counts(names, report->found, 0, CHECK_KINDS), "found", (json_int_t)check_found(report),
        "places", json_places(report));
}
