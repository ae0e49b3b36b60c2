/* report.c - keeps the checks, and prints them. */
#include <stdarg.h>
#include <string.h>

#include "common/base/assert.h"
#include "tools/doctor/doctor.h"
#include "tools/tool.h"

static const char *const fabric_names[FABRICS] = {"shm", "tcp", "verbs"};
static const char *const verdict_names[] = {[VERDICT_OK] = "ok",
                                            [VERDICT_WRONG] = "wrong",
                                            [VERDICT_MISSING] = "missing",
                                            [VERDICT_UNKNOWN] = "unknown"};

void doctor_say(struct doctor *doctor, enum verdict verdict, unsigned blocks, const char *kind,
                const char *subject, const char *text, ...)
{
    ASSERT(doctor->count < MAX_CHECKS); /* each group has its own, lower, limit */
    struct check *check = &doctor->checks[doctor->count++];
    char both[2 * TEXT_BYTES];
    va_list args;
    *check = (struct check){.verdict = verdict, .blocks = blocks & doctor->asked};
    snprintf(check->name, sizeof check->name, "%s%s%s", kind, subject ? "-" : "",
             subject ? subject : "");
    va_start(args, text);
    vsnprintf(both, sizeof both, text, args);
    va_end(args);
    const size_t length = strcspn(both, "\n");
    snprintf(check->detail, sizeof check->detail, "%.*s", (int)length, both);
    if (both[length])
        snprintf(check->mend, sizeof check->mend, "%s", both + length + 1);
}

unsigned doctor_fit(const struct doctor *doctor)
{
    unsigned fit = doctor->asked;

    for (uint32_t i = 0; i < doctor->count; i++)
        fit &= ~doctor->checks[i].blocks;
    return fit;
}

/* --- text --- */

static void print_fabric(const struct doctor *doctor, unsigned fabric)
{
    bool fits = true;

    for (uint32_t i = 0; i < doctor->count; i++) {
        if (!(doctor->checks[i].blocks & 1u << fabric))
            continue;
        if (fits)
            printf("%-5s  does not fit this host as it is:", fabric_names[fabric]);
        printf(" %s", doctor->checks[i].name);
        fits = false;
    }
    if (fits)
        printf("%-5s  fits this host", fabric_names[fabric]);
    putchar('\n');
}

int report_text(const struct doctor *doctor)
{
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct check *check = &doctor->checks[i];

        printf("%-8s %-20s %s\n", verdict_names[check->verdict], check->name, check->detail);
        if (*check->mend)
            printf("%-8s %-20s > %s\n", "", "", check->mend);
    }
    putchar('\n');
    for (unsigned i = 0; i < FABRICS; i++)
        if (doctor->asked & 1u << i)
            print_fabric(doctor, i);
    return EXIT_DONE;
}

/* --- JSON --- */

static json_t *check_json(const struct check *check)
{
    json_t *blocks = json_array();

    for (unsigned i = 0; i < FABRICS; i++)
        if (check->blocks & 1u << i)
            json_array_append_new(blocks, json_string(fabric_names[i]));
    /* Names and lines of the host may be no UTF-8: jansson refuses those, and "?" is printed instead. */
    json_t *detail = json_string(check->detail);
    json_t *mend = json_string(check->mend);

    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", check->name, "verdict",
                     verdict_names[check->verdict], "detail", detail ? detail : json_string("?"),
                     "mend", mend ? mend : json_string("?"), "blocks", blocks);
}

int report_json(const struct doctor *doctor)
{
    const unsigned fit = doctor_fit(doctor);
    json_t *fabrics = json_object(), *checks = json_array();

    for (unsigned i = 0; i < FABRICS; i++)
        if (doctor->asked & 1u << i)
            json_object_set_new(fabrics, fabric_names[i], json_boolean(fit & 1u << i));
    for (uint32_t i = 0; i < doctor->count; i++)
        json_array_append_new(checks, check_json(&doctor->checks[i]));
    return tool_print_json(json_pack("{s:o, s:o}", "fits", fabrics, "checks", checks));
}
