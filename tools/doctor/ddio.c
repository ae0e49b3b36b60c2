/* ddio.c - whether what a NIC writes stays in the CPU's cache, where a power failure drops it. No file of the
 * kernel tells, so this says how to find out on which platform.
 *
 * Skylake and Cascade Lake (family 6, model 85): register perfctrlsts_0 at 0x180 of the root port that the
 * NIC hangs on; DDIO is off there when bit 7 (use_allocating_flow_wr) is 0 and bit 3 (nosnoopopwren) is 1.
 * Ice Lake: by the firmware's settings only, for all ports (pmem.io: Direct Write to PMem). */
#include <string.h>

#include "tools/doctor/doctor.h"

#define CLASS "/sys/class/infiniband"

enum { MAX_LOOKED_DEVICES = 8, INTEL_SERVER_FAMILY = 6, SKYLAKE = 85, ICE_LAKE = 106 };

struct ddio_cpu {
    bool is_intel;
    int family, model;
};

static struct ddio_cpu read_cpu(const struct doctor *doctor)
{
    const char *path = host_path(doctor, "/proc/cpuinfo");
    struct ddio_cpu cpu = {0};
    char line[512];
    cpu.is_intel =
        host_line(path, "vendor_id", line, sizeof line) && strstr(line, ": GenuineIntel");
    if (host_line(path, "cpu family", line, sizeof line))
        sscanf(line, "cpu family : %d", &cpu.family);
    if (host_line(path, "model\t", line, sizeof line))
        sscanf(line, "model : %d", &cpu.model);
    return cpu;
}

/* "0000:3a:00.0" of /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0. False: no device of a PCI bus. */
static bool find_root_port(const struct doctor *doctor, const char *device, char slot[64])
{
    char path[PATH_MAX], bus[64];
    return host_resolve(doctor, host_path(doctor, CLASS "/%s/device", device), path) &&
           sscanf(path, "/sys/devices/%63[^/]/%63[^/]/", bus, slot) == 2 &&
           strncmp(bus, "pci", 3) == 0;
}

static const char *way_to_see(int model, const char *port, char mend[TEXT_BYTES])
{
    if (model == ICE_LAKE)
        return "look in the firmware's (BIOS) settings: on this CPU it is switched for all root "
               "ports, there only";
    if (model == SKYLAKE)
        snprintf(mend, TEXT_BYTES,
                 "setpci -s %s 180.b as root shows it (off: bit 7 is 0 and bit 3 is 1); setpci "
                 "-s %s 180.b=08:88 switches it off for that root port until the next boot",
                 port, port);
    else
        snprintf(mend, TEXT_BYTES,
                 "look in the firmware's (BIOS) settings for DDIO, or the CPU's manual for the "
                 "registers of root port %s",
                 port);
    return mend;
}

static void check_device(struct doctor *doctor, const char *device, const struct ddio_cpu *cpu)
{
    char port[64], mend[TEXT_BYTES];
    if (!find_root_port(doctor, device, port))
        doctor_say(
            doctor, VERDICT_UNKNOWN, 0, "ddio", device,
            "no PCI device: where it is software (rxe), the CPU copies what comes in, and it may "
            "stay in the cache: good for trying things out, not against power failures");
    else if (!cpu->is_intel || cpu->family != INTEL_SERVER_FAMILY)
        doctor_say(
            doctor, VERDICT_UNKNOWN, 0, "ddio", device,
            "cannot be read from here: ask the platform's manual whether writes of PCI devices "
            "stop in the CPU's cache, and how that is switched off");
    else
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "ddio", device,
                   "cannot be read from here: with DDIO on, what the NIC writes stops "
                   "in the CPU's cache, and a power failure drops it\n%s",
                   way_to_see(cpu->model, port, mend));
}

void check_ddio(struct doctor *doctor)
{
    struct host_names names;

    if (!(doctor->asked & ON_VERBS))
        return;
    host_list(host_path(doctor, CLASS), "", &names);
    if (names.count == 0) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "ddio", NULL,
                   "there is no RDMA device whose root port could be checked");
        return;
    }
    if (doctor->caches_survive) {
        doctor_ok(doctor, "ddio", NULL,
                  "on or off: the CPU's caches survive a power failure on this platform");
        return;
    }
    const struct ddio_cpu cpu = read_cpu(doctor);
    for (uint32_t i = 0; i < names.count && i < MAX_LOOKED_DEVICES; i++)
        if (!*doctor->device || strcmp(names.names[i], doctor->device) == 0)
            check_device(doctor, names.names[i], &cpu);
}
