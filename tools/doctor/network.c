/* network.c - TCP ports: tcp serves on them, and verbs sets connections up over them. Those of the kernel's
 * own range may be taken by any outgoing connection at any time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"

enum { FIRST_FREE_PORT = 1024, LAST_PORT = 65535, LISTENS = 0x0a };

struct ports {
    uint64_t low, high; /* of the kernel's range */
    char reserved[512]; /* out of it */
};

static bool read_ports(const struct doctor *doctor, struct ports *out)
{
    char line[128];

    out->reserved[0] = '\0';
    host_read(host_path(doctor, "/proc/sys/net/ipv4/ip_local_reserved_ports"), out->reserved,
              sizeof out->reserved);
    return host_read(host_path(doctor, "/proc/sys/net/ipv4/ip_local_port_range"), line,
                     sizeof line) &&
           sscanf(line, "%" SCNu64 " %" SCNu64, &out->low, &out->high) == 2;
}

/* "8000-8010,9000" */
static bool is_reserved(const char *list, uint64_t port)
{
    while (*list) {
        char *end;
        const uint64_t first = strtoull(list, &end, 10);
        const uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : first;

        if (first <= port && port <= last)
            return true;
        if (*end != ',')
            return false;
        list = end + 1;
    }
    return false;
}

static bool is_kernels(const struct ports *ports, uint64_t port)
{
    return port >= ports->low && port <= ports->high && !is_reserved(ports->reserved, port);
}

/* A port from `first` on that somebody listens at; 0: none. */
static uint64_t find_listener(const struct doctor *doctor, const char *path, uint64_t first,
                              uint64_t last)
{
    FILE *file = fopen(host_path(doctor, "%s", path), "re");
    char line[512];
    uint64_t found = 0;
    unsigned port, state;

    while (file && !found && fgets(line, sizeof line, file))
        if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &port, &state) == 2 &&
            state == LISTENS && port >= first && port <= last)
            found = port;
    if (file)
        fclose(file);
    return found;
}

static void check_asked_ports(struct doctor *doctor, const struct ports *ports)
{
    const uint64_t first = doctor->port, last = first + doctor->ports - 1;
    uint64_t taken = find_listener(doctor, "/proc/net/tcp", first, last);

    if (!taken)
        taken = find_listener(doctor, "/proc/net/tcp6", first, last);
    uint64_t port = first;

    while (port <= last && !is_kernels(ports, port))
        port++;
    if (last > LAST_PORT)
        doctor_say(doctor, VERDICT_WRONG, ON_TCP | ON_VERBS, "ports", NULL,
                   "ports %" PRIu64 " to %" PRIu64 " go beyond 65535\nchoose a lower one", first,
                   last);
    else if (taken)
        doctor_say(doctor, VERDICT_WRONG, ON_TCP | ON_VERBS, "ports", NULL,
                   "a process listens on port %" PRIu64 "\n"
                   "ss -ltnp 'sport = :%" PRIu64 "' (who it is); end it, or choose other ports",
                   taken, taken);
    else if (port <= last)
        doctor_say(doctor, VERDICT_WRONG, 0, "ports", NULL,
                   "port %" PRIu64 " lies in the kernel's own range (%" PRIu64 " to %" PRIu64
                   "): any outgoing connection may take it\n"
                   "sysctl net.ipv4.ip_local_reserved_ports=%s%s%" PRIu64 "-%" PRIu64,
                   port, ports->low, ports->high, ports->reserved, *ports->reserved ? "," : "",
                   first, last);
    else
        doctor_ok(doctor, "ports", NULL,
                  "%" PRIu64 " to %" PRIu64
                  ": nobody listens there, and they are outside of the kernel's own range",
                  first, last);
}

/* No ports were named: are enough outside of the kernel's range? */
static void check_range(struct doctor *doctor, const struct ports *ports)
{
    const uint64_t below = ports->low > FIRST_FREE_PORT ? ports->low - FIRST_FREE_PORT : 0;
    const uint64_t above = ports->high < LAST_PORT ? LAST_PORT - ports->high : 0;

    if (below + above >= doctor->ports)
        doctor_ok(doctor, "ports", NULL,
                  "choose them outside of %" PRIu64 " to %" PRIu64
                  ", the kernel's own range (--port N checks yours)",
                  ports->low, ports->high);
    else
        doctor_say(doctor, VERDICT_WRONG, 0, "ports", NULL,
                   "the kernel's own range, %" PRIu64 " to %" PRIu64
                   ", leaves none for servers: any outgoing connection may take theirs\n"
                   "sysctl net.ipv4.ip_local_port_range='32768 60999'",
                   ports->low, ports->high);
}

void check_network(struct doctor *doctor)
{
    struct ports ports;

    if (!(doctor->asked & (ON_TCP | ON_VERBS)))
        return;
    if (!read_ports(doctor, &ports))
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "ports", NULL,
                   "/proc/sys/net/ipv4/ip_local_port_range cannot be read");
    else if (doctor->port)
        check_asked_ports(doctor, &ports);
    else
        check_range(doctor, &ports);
}
