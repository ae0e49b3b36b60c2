/* memory.c - limits of this process that a server would meet: locked memory, descriptors; huge pages. A
 * server that systemd starts has its own limits: run the doctor as the server would be run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/fabric/verbs/verbs_check.h"
#include "common/reactor/descriptors.h"
#include "tools/doctor/doctor.h"

#define HUGE_PAGES "/sys/kernel/mm/hugepages/hugepages-2048kB"

static void check_locked(struct doctor *doctor)
{
    struct verbs_locked_memory memory;
    struct verbs_obstacle obstacle = {0};

    if (!(doctor->asked & ON_VERBS))
        return;
    if (verbs_read_locked_memory(doctor->root, &memory)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "memlock", NULL,
                   "/proc/self/limits or /proc/self/status cannot be read");
        return;
    }
    if (!verbs_may_pin(&memory, doctor->pm_bytes, &obstacle)) {
        doctor_say(doctor, VERDICT_WRONG, ON_VERBS, "memlock", NULL,
                   "%s\n"
                   "%s",
                   obstacle.what, obstacle.mend);
    } else if (memory.is_exempt) {
        doctor_ok(doctor, "memlock", NULL, "this process may lock any memory (CAP_IPC_LOCK)");
    } else if (memory.limit_bytes == UINT64_MAX) {
        doctor_ok(doctor, "memlock", NULL, "no limit on locked memory");
    } else {
        doctor_ok(doctor, "memlock", NULL,
                  "%" PRIu64 " bytes may be locked, enough for %" PRIu64
                  " (--pm-bytes says how much a server registers)",
                  memory.limit_bytes, doctor->pm_bytes);
    }
}

/* The hard limit is what counts: the programs raise their soft one to it. UINT64_MAX: none. */
static bool read_descriptors(const struct doctor *doctor, uint64_t *out)
{
    char line[256], hard[32];
    if (!host_line(host_path(doctor, "/proc/self/limits"), "Max open files", line, sizeof line) ||
        sscanf(line, "Max open files %*s %31s", hard) != 1)
        return false;
    *out = strcmp(hard, "unlimited") == 0 ? UINT64_MAX : strtoull(hard, NULL, 10);
    return true;
}

static void check_descriptors(struct doctor *doctor)
{
    uint64_t limit;

    if (!read_descriptors(doctor, &limit)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "descriptors", NULL,
                   "/proc/self/limits cannot be read");
    } else if (limit >= DESCRIPTORS_WANTED) {
        doctor_ok(doctor, "descriptors", NULL,
                  "up to %" PRIu64 " open (hard limit); each connection takes one or more", limit);
    } else {
        doctor_say(doctor, VERDICT_WRONG, 0, "descriptors", NULL,
                   "at most %" PRIu64 " open (hard limit), and each connection takes one "
                   "or more: a server refuses clients beyond\n"
                   "ulimit -Hn 65536 as root before the start, or LimitNOFILE=65536 in the systemd "
                   "unit",
                   limit);
    }
}

/* Only pages of 2 MiB: those the backend asks for. */
static void check_huge_pages(struct doctor *doctor)
{
    int64_t total, unused;

    if (!(doctor->asked & ON_VERBS))
        return;
    if (!host_number(host_path(doctor, HUGE_PAGES "/nr_hugepages"), &total) ||
        !host_number(host_path(doctor, HUGE_PAGES "/free_hugepages"), &unused)) {
        doctor_say(doctor, VERDICT_MISSING, 0, "hugepages", NULL,
                   "the kernel has no huge pages of 2 MiB; buffers take small ones");
    } else if (unused > 0) {
        doctor_ok(doctor, "hugepages", NULL,
                  "%" PRId64 " of %" PRId64 " huge pages of 2 MiB are free", unused, total);
    } else {
        doctor_say(doctor, VERDICT_MISSING, 0, "hugepages", NULL,
                   "no huge page of 2 MiB is free (of %" PRId64
                   "): buffers take small ones, which cost a NIC more look-ups\n"
                   "sysctl vm.nr_hugepages=%" PRId64,
                   total, total + 64);
    }
}

void check_memory(struct doctor *doctor)
{
    check_locked(doctor);
    check_huge_pages(doctor);
    check_descriptors(doctor);
}
