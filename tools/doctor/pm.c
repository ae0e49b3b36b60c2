/* pm.c - persistent memory, by the kernel's nd and dax buses and the table of mounts. Shm and tcp run on any
 * file; verbs needs memory that a NIC can pin, and the only such persistent memory is devdax. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

#define ND  "/sys/bus/nd/devices"
#define DAX "/sys/bus/dax/devices"

enum { GOOD_ALIGN = 2 << 20, MAX_REGIONS = 8 };

struct found {
    uint32_t namespaces; /* that have bytes */
    uint32_t devdax;     /* usable */
    uint32_t fsdax;      /* mounts */
};

/* Of the pfn or dax device that a namespace carries; 0: not known. */
static int64_t alignment_of(const struct doctor *doctor, const char *name)
{
    char owner[NAME_MAX + 1];
    int64_t align = 0;

    if (host_find(doctor, ND, "pfn", "namespace", name, owner) ||
        host_find(doctor, ND, "dax", "namespace", name, owner))
        host_number(host_path(doctor, ND "/%s/align", owner), &align);
    return align;
}

/* The words that ndctl uses for what sysfs calls memory and dax. */
static const char *mode_name(const char *mode)
{
    if (strcmp(mode, "memory") == 0)
        return "fsdax";
    if (strcmp(mode, "dax") == 0)
        return "devdax";
    return strcmp(mode, "safe") == 0 ? "sector" : mode;
}

static bool is_for_pm(const char *mode)
{
    return strcmp(mode, "fsdax") == 0 || strcmp(mode, "devdax") == 0;
}

static void check_namespace(struct doctor *doctor, const char *name, struct found *found)
{
    char mode[64] = "?";
    int64_t bytes, node = -1;

    if (!host_number(host_path(doctor, ND "/%s/size", name), &bytes) || bytes == 0)
        return; /* a seed: nothing was made of it yet */
    found->namespaces++;
    host_read(host_path(doctor, ND "/%s/mode", name), mode, sizeof mode);
    host_number(host_path(doctor, ND "/%s/numa_node", name), &node);
    const char *word = mode_name(mode);
    const int64_t align = alignment_of(doctor, name);

    if (!is_for_pm(word)) {
        doctor_say(doctor, VERDICT_WRONG, 0, "pm", name,
                   "%" PRId64 " bytes in mode %s, which cannot be mapped as memory\n"
                   "ndctl create-namespace -f -e %s -m devdax --align 2M (its data is lost)",
                   bytes, word, name);
    } else if (align > 0 && align < GOOD_ALIGN) {
        doctor_say(doctor, VERDICT_WRONG, 0, "pm", name,
                   "%" PRId64 " bytes in mode %s with an alignment of %" PRId64
                   ": small pages only, slow to register and to look up\n"
                   "ndctl create-namespace -f -e %s -m %s --align 2M (its data is lost)",
                   bytes, word, align, name, word);
    } else {
        doctor_ok(doctor, "pm", name,
                  "%" PRId64 " bytes in mode %s, alignment %" PRId64 "%s, NUMA node %" PRId64,
                  bytes, word, align, align ? "" : " (not told)", node);
    }
}

/* --- devdax --- */

static void check_devdax(struct doctor *doctor, const char *name, struct found *found)
{
    char driver[PATH_MAX];
    int64_t bytes = 0, align = 0, node = -1;

    if (!host_number(host_path(doctor, DAX "/%s/size", name), &bytes) || bytes == 0)
        return;
    host_number(host_path(doctor, DAX "/%s/align", name), &align);
    host_number(host_path(doctor, DAX "/%s/numa_node", name), &node);
    const bool bound = host_resolve(doctor, host_path(doctor, DAX "/%s/driver", name), driver);

    if (bound && strstr(driver, "/kmem")) {
        doctor_say(doctor, VERDICT_WRONG, 0, "devdax", name,
                   "is used as ordinary memory (driver kmem)\n"
                   "daxctl reconfigure-device -m devdax -f %s",
                   name);
    } else if (!bound) {
        doctor_say(doctor, VERDICT_WRONG, 0, "devdax", name,
                   "no driver has taken it\nmodprobe device_dax");
    } else if (access(host_path(doctor, "/dev/%s", name), R_OK | W_OK) != 0) {
        doctor_say(doctor, VERDICT_WRONG, 0, "devdax", name,
                   "this user may not read and write /dev/%s\n"
                   "chown USER /dev/%s (the server's user; lasting: a udev rule)",
                   name, name);
    } else {
        found->devdax++;
        if (doctor->pm_node < 0)
            doctor->pm_node = node;
        doctor_ok(doctor, "devdax", name,
                  "/dev/%s has %" PRId64 " bytes, alignment %" PRId64 ", NUMA node %" PRId64, name,
                  bytes, align, node);
    }
}

/* --- fsdax --- */

static void check_mount(struct doctor *doctor, const char *device, const char *folder,
                        const char *system, const char *options, struct found *found)
{
    const char *name = device + strlen("/dev/");

    found->fsdax++;
    if (host_has_word(options, "dax") || host_has_word(options, "dax=always"))
        doctor_ok(doctor, "mount", name, "%s (%s) is mounted with DAX", folder, system);
    else
        doctor_say(doctor, VERDICT_WRONG, 0, "mount", name,
                   "%s (%s) lies on persistent memory and is mounted without dax: files there "
                   "go through the page cache, unless they have the DAX attribute\n"
                   "umount %s && mount -o dax %s %s (4096-byte blocks: mkfs.ext4 -b 4096)",
                   folder, system, folder, device, folder);
}

static void check_mounts(struct doctor *doctor, struct found *found)
{
    FILE *file = fopen(host_path(doctor, "/proc/self/mounts"), "re");
    char line[4096], device[128], folder[256], system[32], options[1024];

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %255s %31s %1023s", device, folder, system, options) == 4 &&
            strncmp(device, "/dev/pmem", 9) == 0 && found->fsdax < MAX_NAMES / 2)
            check_mount(doctor, device, folder, system, options, found);
    if (file)
        fclose(file);
}

/* --- all of it --- */

/* If the caches survive a power failure, neither flushes nor DDIO matter. */
static void check_domains(struct doctor *doctor)
{
    struct host_names names;
    host_list(host_path(doctor, ND), "region", &names);
    doctor->caches_survive = names.count > 0;
    for (uint32_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        char domain[64] = "";
        host_read(host_path(doctor, ND "/%s/persistence_domain", name), domain, sizeof domain);
        const bool of_caches = strcmp(domain, "cpu_cache") == 0;
        doctor->caches_survive &= of_caches;
        if (i >= MAX_REGIONS)
            continue;
        if (of_caches)
            doctor_ok(doctor, "power-fail", name, "the CPU's caches survive a power failure");
        else if (strcmp(domain, "memory_controller") == 0)
            doctor_ok(doctor, "power-fail", name,
                      "what has left the CPU's caches survives a power failure");
        else
            doctor_say(
                doctor, VERDICT_UNKNOWN, 0, "power-fail", name,
                "the platform does not say whether the CPU's caches survive a power failure");
    }
}

static void check_ipmctl(struct doctor *doctor)
{
    static const char *const paths[] = {"/usr/bin/ipmctl", "/usr/sbin/ipmctl",
                                        "/usr/local/bin/ipmctl"};

    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (access(host_path(doctor, "%s", paths[i]), X_OK) == 0) {
            doctor_ok(doctor, "ipmctl", NULL, "%s (media counters of Optane modules; needs root)",
                      paths[i]);
            return;
        }
    }
    doctor_say(doctor, VERDICT_MISSING, 0, "ipmctl", NULL,
               "not installed: write amplification of Optane modules cannot be measured; "
               "nothing else needs it\n"
               "apt-get install ipmctl");
}

static void sum_up(struct doctor *doctor, const struct found *found)
{
    if (!found->devdax && !found->fsdax && !found->namespaces)
        doctor_say(
            doctor, VERDICT_MISSING, 0, "pm", NULL,
            "there is no persistent memory: shm and tcp keep their data in files (any "
            "durability); verbs can use tmpfs or huge pages with durability none only\n"
            "ndctl list -RN (what regions there are); ndctl create-namespace -m devdax --align 2M");
    else if (!found->devdax && !(found->fsdax && doctor->has_odp) && doctor->asked & ON_VERBS)
        doctor_say(
            doctor, VERDICT_WRONG, ON_VERBS, "pm-for-rdma", NULL,
            "there is persistent memory, but none that a NIC can pin: files on DAX "
            "need on-demand paging, which no usable RDMA device here offers\n"
            "ndctl create-namespace -f -e NAMESPACE -m devdax --align 2M (its data is lost)");
}

void check_pm(struct doctor *doctor)
{
    struct found found = {0};
    struct host_names names;

    host_list(host_path(doctor, ND), "namespace", &names);
    for (uint32_t i = 0; i < names.count && i < MAX_NAMES / 2; i++)
        check_namespace(doctor, names.names[i], &found);
    host_list(host_path(doctor, DAX), "dax", &names);
    for (uint32_t i = 0; i < names.count && i < MAX_NAMES / 2; i++)
        check_devdax(doctor, names.names[i], &found);
    check_mounts(doctor, &found);
    sum_up(doctor, &found);
    check_domains(doctor);
    check_ipmctl(doctor);
    if (doctor->nic_node >= 0 && doctor->pm_node >= 0 && doctor->nic_node != doctor->pm_node)
        doctor_say(doctor, VERDICT_WRONG, 0, "numa", NULL,
                   "the RDMA device is at NUMA node %" PRId64 ", persistent memory at %" PRId64
                   ": each block crosses the sockets' link\n"
                   "use the memory or the device of the other socket, and run the server there "
                   "(numactl --cpunodebind=%" PRId64 ")",
                   doctor->nic_node, doctor->pm_node, doctor->pm_node);
}
