/* rowan-doctor: is this host fit, and if not, what exactly to do. */
#include "common/base/log.h"
#include "release.h"
#include "tools/doctor/doctor.h"
#include "tools/tool.h"

#define FIELD(name) offsetof(struct doctor, name)

static const struct config_key keys[] = {
    {"fabric", CONFIG_CHOICE, FIELD(fabric), "all", 0, 0, "all|shm|tcp|verbs",
     "for which fabric the host must be fit; all: each is checked, and one is enough"},
    {"device", CONFIG_STRING, FIELD(device), "", 0, 0, NULL,
     "RDMA device to check (mlx5_0); without it all"},
    {"pm-bytes", CONFIG_U64, FIELD(pm_bytes), "1G", 0, UINT64_MAX / 2, NULL,
     "memory that a server will register, in bytes"},
    {"port", CONFIG_U64, FIELD(port), "0", 0, 65535, NULL,
     "first TCP port of the server; 0: check the ranges only"},
    {"ports", CONFIG_U64, FIELD(ports), "16", 1, 65535, NULL,
     "how many TCP ports from there on: one for each worker, one for control"},
    {"root", CONFIG_STRING, FIELD(root), "", 0, 0, NULL,
     "for tests: read files below this folder, and open no device"},
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL, "print one JSON object and nothing else"},
};

static const struct config_spec spec = {
    .program = "rowan-doctor",
    .release = ROWAN_RELEASE,
    .summary = "Checks whether this host is fit for Rowan-KV: ok, wrong, missing or unknown for "
               "each thing that\n"
               "matters, and the command that mends it. Run it as the user, and with the limits, "
               "of the server.\n"
               "Exit code: 0 fit, 1 not fit, 2 usage.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static int examine(void *settings, int argc, char **argv)
{
    struct doctor *doctor = settings;
    (void)argc;
    (void)argv;
    log_set_level(LOG_ERROR); /* the checks report what a probe would log */
    doctor->asked = doctor->fabric ? 1u << (doctor->fabric - 1) : ON_ALL;
    doctor->nic_node = doctor->pm_node = -1;
    check_cpu(doctor);
    check_memory(doctor);
    check_network(doctor);
    check_rdma(doctor);
    check_pm(doctor);
    check_ddio(doctor);
    const int code = doctor->json ? report_json(doctor) : report_text(doctor);
    return doctor_fit(doctor) ? code : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static struct doctor doctor; /* large */
    return tool_main(&spec, argc, argv, &doctor, examine);
}
