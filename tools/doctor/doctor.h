/* doctor.h - what the files of rowan-doctor share. A check reads facts of the host and reports one thing.
 * All files are read below `root`, so that a test can make up a host. If the root is not the host's own,
 * checks that need a system call (opening a device) are left out. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum verdict {
    VERDICT_OK,
    VERDICT_WRONG,   /* there, and not as it should be */
    VERDICT_MISSING, /* not there */
    VERDICT_UNKNOWN, /* cannot be read from here */
};

/* Fabrics, as bits. */
enum { ON_SHM = 1, ON_TCP = 2, ON_VERBS = 4, ON_ALL = 7, FABRICS = 3 };

enum { MAX_CHECKS = 256, TEXT_BYTES = 640, MAX_NAMES = 64 };

struct check {
    char name[64];
    enum verdict verdict;
    unsigned blocks; /* fabrics that cannot be used on this host as it is */
    char detail[TEXT_BYTES];
    char mend[TEXT_BYTES]; /* "": nothing to do */
};

struct doctor {
    /* Settings. */
    const char *root; /* "" for the host's own */
    uint64_t fabric;  /* 0: all; else its bit's number + 1 */
    uint64_t pm_bytes;
    uint64_t port; /* first of the server; 0: any */
    uint64_t ports;
    const char *device; /* RDMA; "": all */
    bool json;

    unsigned asked; /* fabrics */

    /* What one group found and another asks for. */
    bool has_odp; /* an RDMA device that was opened */
    bool
        caches_survive; /* there is persistent memory, and all of it counts the caches as its own */
    int64_t nic_node, pm_node; /* NUMA, of the first usable one; -1: not known */

    uint32_t count;
    struct check checks[MAX_CHECKS];
};

/* --- report.c --- */

/* A new check named KIND-SUBJECT, or KIND where there is no subject (NULL). `text`: its detail and, behind a newline, what
 * mends it. */
void doctor_say(struct doctor *doctor, enum verdict verdict, unsigned blocks, const char *kind,
                const char *subject, const char *text, ...) __attribute__((format(printf, 6, 7)));
#define doctor_ok(doctor, ...) doctor_say(doctor, VERDICT_OK, 0, __VA_ARGS__)

/* The fabrics, of those asked for, that no check blocks. */
unsigned doctor_fit(const struct doctor *doctor);

/* On standard output. They return an exit code. */
int report_text(const struct doctor *doctor);
int report_json(const struct doctor *doctor);

/* --- host.c: reading below the root --- */

struct host_names {
    uint32_t count;
    char names[MAX_NAMES][NAME_MAX + 1];
};

bool host_is_real(const struct doctor *doctor);

/* A path below the root, for the functions that follow; good until the next call. Too long: "". */
const char *host_path(const struct doctor *doctor, const char *path, ...)
    __attribute__((format(printf, 2, 3)));

/* The first line of a file, without its end; of host_line the first that begins with `prefix`. False: there is
 * none, or it cannot be read; `out` is unchanged. */
bool host_read(const char *path, char *out, size_t out_bytes);
bool host_line(const char *path, const char *prefix, char *out, size_t out_bytes);
bool host_number(const char *path, int64_t *out);

/* What is in a folder that begins with `prefix`, in the order of their numbers; none if it is not there. */
void host_list(const char *folder, const char *prefix, struct host_names *out);

/* Where a path leads, below the root. False: nowhere. */
bool host_resolve(const struct doctor *doctor, const char *path, char out[PATH_MAX]);

/* The first entry of a folder that begins with `prefix` and whose file `file` has this line. False: there is none. */
bool host_find(const struct doctor *doctor, const char *folder, const char *prefix,
               const char *file, const char *line, char out[NAME_MAX + 1]);

/* Is `word` one of the words of `text`, with blanks or commas between them? */
bool host_has_word(const char *text, const char *word);

/* --- the groups of checks --- */

void check_cpu(struct doctor *doctor);    /* cpu.c: instructions, clock */
void check_memory(struct doctor *doctor); /* memory.c: locked memory, huge pages, descriptors */
void check_pm(struct doctor *doctor);     /* pm.c: namespaces, DAX, mounts, the power-fail domain */
void check_network(struct doctor *doctor); /* network.c: ports */
void check_rdma(struct doctor *doctor);    /* rdma.c: devices, ports, GIDs, what they can */
void check_ddio(struct doctor *doctor);    /* ddio.c */

#endif
