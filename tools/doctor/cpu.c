/* cpu.c - the instructions that the programs need or are faster with, and the clock. The flags of
 * /proc/cpuinfo are the kernel's reading of CPUID. */
#include <string.h>

#include "tools/doctor/doctor.h"

#define CLOCKS "/sys/devices/system/clocksource/clocksource0"

static const char give_host_cpu[] =
    "in a virtual machine: give it the host's CPU (qemu: -cpu host or max)";

static void check_instructions(struct doctor *doctor)
{
    char flags[8192];
    if (!host_line(host_path(doctor, "/proc/cpuinfo"), "flags", flags, sizeof flags)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "cpu-instructions", NULL,
                   "/proc/cpuinfo has no line of flags");
        return;
    }
    if (host_has_word(flags, "sse4_2") && host_has_word(flags, "pclmulqdq"))
        doctor_ok(doctor, "cpu-instructions", NULL,
                  "sse4.2 and pclmulqdq (checksums, slots of keys)");
    else
        doctor_say(doctor, VERDICT_WRONG, 0, "cpu-instructions", NULL,
                   "the CPU has no sse4.2 or no pclmulqdq: checksums and slots of keys "
                   "are computed by tables, which is slow\n%s",
                   give_host_cpu);
    const bool clwb = host_has_word(flags, "clwb"), opt = host_has_word(flags, "clflushopt");
    if (clwb || opt)
        doctor_ok(doctor, "cpu-flush", NULL, "clwb %s, clflushopt %s", clwb ? "yes" : "no",
                  opt ? "yes" : "no");
    else
        doctor_say(doctor, VERDICT_WRONG, 0, "cpu-flush", NULL,
                   "neither clwb nor clflushopt: on persistent memory each flush is a "
                   "clflush, one after another\n%s",
                   give_host_cpu);
}

static void check_clock(struct doctor *doctor)
{
    char clock[64], available[256] = "";
    host_read(host_path(doctor, CLOCKS "/available_clocksource"), available, sizeof available);
    if (!host_read(host_path(doctor, CLOCKS "/current_clocksource"), clock, sizeof clock))
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "clock", NULL,
                   CLOCKS "/current_clocksource cannot be read");
    else if (host_has_word("tsc kvm-clock hyperv_clocksource_tsc_page", clock))
        doctor_ok(doctor, "clock", NULL, "clock source %s, read without a system call", clock);
    else
        doctor_say(doctor, VERDICT_WRONG, 0, "clock", NULL,
                   "clock source %s: each reading of the clock is a slow system call, and "
                   "every poll reads it\n%s",
                   clock,
                   strstr(available, "tsc")
                       ? "echo tsc > " CLOCKS "/current_clocksource"
                       : "dmesg | grep -i tsc (why the kernel does not trust it); boot with "
                         "tsc=reliable if the machine's TSC is sound");
}

/* A lease lasts 13/16 of its length at the server (server/control/control_lease.c, J1), so a clock that did not count a pause of
 * less than 3/16 of it harms nobody. kvm-clock stands still whenever the machine is stopped; what is restored into another machine
 * goes on with the counter that was saved, whatever the source. */
static void check_pause(struct doctor *doctor)
{
    char flags[8192] = "", clock[64] = "unknown";
    const bool read = host_line(host_path(doctor, "/proc/cpuinfo"), "flags", flags, sizeof flags);
    host_read(host_path(doctor, CLOCKS "/current_clocksource"), clock, sizeof clock);
    if (!read)
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "clock-pause", NULL,
                   "/proc/cpuinfo has no line of flags: it may be a virtual machine");
    else if (!host_has_word(flags, "hypervisor"))
        doctor_ok(doctor, "clock-pause", NULL, "no virtual machine: the clock counts every pause");
    else
        doctor_say(
            doctor, VERDICT_WRONG, 0, "clock-pause", NULL,
            "a virtual machine, clock source %s: %s, and a server that was paused for longer "
            "than 3/16 of a lease may answer old values for a moment\n"
            "set lease-ms to six times the longest stun of live migration and snapshots at "
            "least, and stop the server (systemctl stop) before the machine is paused for longer",
            clock,
            strcmp(clock, "kvm-clock") == 0
                ? "it does not count the time for which the machine is paused"
                : "it may not count the time for which the machine is paused, moved or saved");
}

void check_cpu(struct doctor *doctor)
{
    check_pause(doctor);
    check_instructions(doctor);
    check_clock(doctor);
}
