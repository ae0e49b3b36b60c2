/* rowan-dlwa: device write amplification, by the DIMMs' counters or by a model of them. */
#include "release.h"
#include "tools/dlwa/dlwa.h"

#include "common/pm/wear.h"

#define FIELD(name) offsetof(struct dlwa_settings, name)

static const struct config_key keys[] = {
    ADMIN_ACCESS_KEYS(FIELD(access)),
    {"timeout-ms", CONFIG_U64, FIELD(timeout_ms), "10000", 1, 60000, NULL,
     "how long a cluster has to answer, in milliseconds"},
    {"ipmctl", CONFIG_BOOL, FIELD(ipmctl), "no", 0, 0, NULL,
     "ask the DIMMs of this host, by ipmctl"},
    {"after", CONFIG_STRING, FIELD(after), "", 0, 0, NULL,
     "with ipmctl: read what \"ipmctl show -performance\" printed, as text or as nvmxml, from this "
     "file; -: standard input"},
    {"before", CONFIG_STRING, FIELD(before), "", 0, 0, NULL,
     "with after: an earlier reading, to be taken off"},
    {"seconds", CONFIG_STRING, FIELD(seconds), "", 0, 0, NULL,
     "with after: in how long that was counted, so that the years can be told"},
    {"counters", CONFIG_CHOICE, FIELD(counters), "power-cycle", 0, 0, "power-cycle|lifetime",
     "with ipmctl: since power came, or since the DIMM was made"},
    {"model", CONFIG_BOOL, FIELD(model), "no", 0, 0, NULL,
     "show what the model makes of 18 to 216 streams, beside the paper's Figure 2"},
    {"svg", CONFIG_STRING, FIELD(svg), "", 0, 0, NULL, "with model: draw it to this file, too"},
    {"dimms", CONFIG_U64, FIELD(dimms), "3", 1, WEAR_MAX_DIMMS, NULL,
     "DIMMs of the model; of each server, for the years"},
    {"interval", CONFIG_STRING, FIELD(interval), "", 0, 0, NULL,
     "seconds between two looks: show what was written in each"},
    {"count", CONFIG_U64, FIELD(count), "0", 0, 1000000, NULL,
     "with interval: of how many; 0: until it is stopped"},
    {"endurance-pbw", CONFIG_U64, FIELD(endurance_pbw), "363", 1, 1000000, NULL,
     "10^15 bytes that a DIMM may write to its media (Optane 100: 292, 363 and 300 with 128, 256 "
     "and 512 GB)"},
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL,
     "print JSON and nothing else: one object, with interval one for each"},
};

static const struct config_spec spec = {
    .program = "rowan-dlwa",
    .release = ROWAN_RELEASE,
    .summary =
        "Shows how many bytes persistent memory writes to its media for those it is asked to "
        "write, and how many years it lasts at that rate:\n"
        "  of a cluster's servers, by a model of the DIMM (their setting wear-model), since each "
        "began;\n"
        "  with --ipmctl of the Optane DIMMs of this host, by their own counters;\n"
        "  with --model of the model itself, on streams of small writes.\n"
        "Years: endurance-pbw * 10^15 * DIMMs / media bytes a second.\n"
        "Exit code: 0 done, 1 failed, 2 usage.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

/* What does not go together. NULL: it does. */
static const char *find_conflict(const struct dlwa_settings *settings)
{
    if (settings->model && settings->ipmctl)
        return "--model and --ipmctl exclude each other";
    if ((settings->model || settings->ipmctl) &&
        (*settings->access.managers || *settings->access.dir))
        return "--cm and --dir are for a cluster, without --model and --ipmctl";
    if (*settings->after && !settings->ipmctl)
        return "--after goes with --ipmctl";
    if ((*settings->before || *settings->seconds) && !*settings->after)
        return "--before and --seconds go with --after";
    if (*settings->svg && !settings->model)
        return "--svg goes with --model";
    if (*settings->interval && (settings->model || *settings->after))
        return "--interval is for a cluster, or for --ipmctl without --after";
    if (settings->count && !*settings->interval)
        return "--count goes with --interval";
    return NULL;
}

static int run(void *of, int argc, char **argv)
{
    struct dlwa_settings *settings = of;
    const char *conflict = find_conflict(settings);

    (void)argc;
    (void)argv;
    if (conflict)
        return tool_usage(conflict);
    settings->interval_s = settings->seconds_s = 0;
    if (*settings->interval &&
        !tool_parse_number(settings->interval, 0.01, 1e6, &settings->interval_s))
        return tool_usage("--interval: seconds, from 0.01 to 1000000");
    if (*settings->seconds &&
        !tool_parse_number(settings->seconds, 0.01, 1e10, &settings->seconds_s))
        return tool_usage("--seconds: from 0.01 to 10000000000");
    if (settings->model)
        return dlwa_model(settings);
    return settings->ipmctl ? dlwa_device(settings) : dlwa_cluster(settings);
}

int main(int argc, char **argv)
{
    struct dlwa_settings settings;

    return tool_main(&spec, argc, argv, &settings, run);
}
