/* cpu.c - the instructions that the programs need or are faster with, and the clock. The flags of
 * /proc/cpuinfo are the kernel's reading of CPUID. */
#include <string.h>

#include "tools/doctor/doctor.h"

static bool has_flag(const char *flags, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = strstr(flags, name); at; at = strstr(at + 1, name))
        if (at[-1] == ' ' && (at[length] == ' ' || at[length] == '\n' || at[length] == '\0'))
            return true;
    return false;
}

/* The first "flags" line; "" if there is none. */
static void read_flags(const struct doctor *doctor, char *out, size_t out_bytes)
{
    FILE *file = host_open(doctor, "/proc/cpuinfo");

    while (file && fgets(out, (int)out_bytes, file)) {
        if (strncmp(out, "flags", 5) == 0) {
            fclose(file);
            return;
        }
    }
    if (file)
        fclose(file);
    out[0] = '\0';
}

static void check_flushes(struct doctor *doctor, const char *flags)
{
    const bool clwb = has_flag(flags, "clwb"), clflushopt = has_flag(flags, "clflushopt");

    if (clwb || clflushopt) {
        doctor_say(doctor, VERDICT_OK, 0, "cpu-flush", "clwb %s, clflushopt %s",
                   clwb ? "yes" : "no", clflushopt ? "yes" : "no");
        return;
    }
    struct check *check = doctor_say(doctor, VERDICT_WRONG, 0, "cpu-flush",
                                     "neither clwb nor clflushopt: on persistent memory each flush "
                                     "is a clflush, one after another");

    check_mend(check, "in a virtual machine: give it the host's CPU (qemu: -cpu host or max)");
}

static void check_instructions(struct doctor *doctor)
{
    char flags[8192];

    read_flags(doctor, flags, sizeof flags);
    if (!*flags) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "cpu-instructions",
                   "/proc/cpuinfo has no line of flags");
        return;
    }
    if (has_flag(flags, "sse4_2") && has_flag(flags, "pclmulqdq")) {
        doctor_say(doctor, VERDICT_OK, 0, "cpu-instructions",
                   "sse4.2 and pclmulqdq (checksums, slots of keys)");
    } else {
        struct check *check =
            doctor_say(doctor, VERDICT_WRONG, 0, "cpu-instructions",
                       "the CPU has no sse4.2 or no pclmulqdq: checksums and slots "
                       "of keys are computed by tables, which is slow");

        check_mend(check, "in a virtual machine: give it the host's CPU (qemu: -cpu host or max)");
    }
    check_flushes(doctor, flags);
}

/* Those that can be read without a system call. */
static bool is_fast(const char *clock)
{
    static const char *const fast[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};

    for (unsigned i = 0; i < sizeof fast / sizeof fast[0]; i++)
        if (strcmp(clock, fast[i]) == 0)
            return true;
    return false;
}

static void check_clock(struct doctor *doctor)
{
    static const char folder[] = "/sys/devices/system/clocksource/clocksource0";
    char clock[64], available[256] = "";

    if (!host_read(doctor, clock, sizeof clock, "%s/current_clocksource", folder)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "clock", "%s/current_clocksource cannot be read",
                   folder);
        return;
    }
    if (is_fast(clock)) {
        doctor_say(doctor, VERDICT_OK, 0, "clock", "clock source %s, read without a system call",
                   clock);
        return;
    }
    host_read(doctor, available, sizeof available, "%s/available_clocksource", folder);
    struct check *check = doctor_say(doctor, VERDICT_WRONG, 0, "clock",
                                     "clock source %s: each reading of the clock is a slow system "
                                     "call, and every poll reads it",
                                     clock);

    if (strstr(available, "tsc"))
        check_mend(check, "echo tsc > %s/current_clocksource", folder);
    else
        check_mend(check, "dmesg | grep -i tsc (why the kernel does not trust it); boot with "
                          "tsc=reliable if the machine's TSC is sound");
}

void check_cpu(struct doctor *doctor)
{
    check_instructions(doctor);
    check_clock(doctor);
}
