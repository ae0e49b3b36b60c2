/* ipmctl.c - both formats of ipmctl.h lead to the same two steps: a DIMM begins, a counter of it has a value. */
#include "tools/dlwa/ipmctl.h"

#include <expat.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_BYTES = 64,
    VALUE_BYTES = 64,
    HEX_DIGITS = 32,
    COUNTER_BITS = 53, /* 576 PB, above what a DIMM is rated for */
};

static const char *const names[IPMCTL_COUNTERS] = {"MediaWrites", "WriteRequests",
                                                   "TotalMediaWrites", "TotalWriteRequests"};

struct parse {
    struct ipmctl_reading *reading;
    char *why;          /* empty: nothing is wrong */
    unsigned long line; /* that is read */

    XML_Parser xml;
    unsigned depth; /* 1: in the list, 2: in a DIMM, 3: in one of its values */
    char name[NAME_BYTES];
    char value[VALUE_BYTES];
    size_t value_bytes;
};

static bool wrong(struct parse *parse, const char *what)
{
    if (!*parse->why)
        snprintf(parse->why, IPMCTL_WHY_BYTES, "line %lu: %s", parse->line, what);
    return false;
}

/* 0x and one or more hexadecimal digits. */
static bool is_hexadecimal(const char *text)
{
    return strncmp(text, "0x", 2) == 0 && text[2] &&
           text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] == '\0';
}

/* --- what both formats tell --- */

static bool begin_dimm(struct parse *parse, const char *id)
{
    struct ipmctl_reading *reading = parse->reading;

    if (!is_hexadecimal(id) || strlen(id) >= IPMCTL_ID_BYTES)
        return wrong(parse, "this is no number of a DIMM");
    for (uint32_t i = 0; i < reading->count; i++) {
        if (strcmp(reading->dimms[i].id, id) == 0)
            return wrong(parse, "a DIMM comes twice");
    }
    if (reading->count == IPMCTL_MAX_DIMMS)
        return wrong(parse, "there are more DIMMs than this program counts");
    reading->dimms[reading->count] = (struct ipmctl_dimm){.found = 0};
    strcpy(reading->dimms[reading->count++].id, id);
    return true;
}

static bool take_counter(struct parse *parse, const char *name, const char *text)
{
    struct ipmctl_reading *reading = parse->reading;
    struct ipmctl_dimm *dimm = reading->count ? &reading->dimms[reading->count - 1] : NULL;
    const uint64_t value = strtoull(text, NULL, 16); /* its largest for all above */

    if (!is_hexadecimal(text) || strlen(text + 2) != HEX_DIGITS)
        return wrong(parse, "a counter is not 0x and 32 hexadecimal digits");
    if (value >> COUNTER_BITS)
        return wrong(parse, "a counter is larger than any device can have counted to");
    if (!dimm)
        return wrong(parse, "a counter comes before the first DIMM");
    for (unsigned i = 0; i < IPMCTL_COUNTERS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        if (dimm->found & 1u << i)
            return wrong(parse, "a counter comes twice");
        dimm->found |= 1u << i;
        dimm->counters[i] = value;
    }
    return true;
}

/* --- text --- */

static bool take_line(struct parse *parse, char *line)
{
    static const char begin[] = "---DimmID=", end[] = "---";
    char *value;
    size_t length;

    line += strspn(line, " \t");
    length = strlen(line);
    while (length > 0 && strchr(" \t\r", line[length - 1]))
        line[--length] = '\0';
    if (length == 0)
        return true;
    if (strncmp(line, begin, sizeof begin - 1) == 0) {
        if (length < sizeof begin + sizeof end - 2 ||
            strcmp(line + length - (sizeof end - 1), end) != 0)
            return wrong(parse, "a line ---DimmID=...--- is cut off");
        line[length - (sizeof end - 1)] = '\0';
        return begin_dimm(parse, line + sizeof begin - 1);
    }
    value = strchr(line, '=');
    if (!value)
        return wrong(parse, "this is not what ipmctl show -performance prints");
    *value = '\0';
    return take_counter(parse, line, value + 1);
}

static bool parse_text(struct parse *parse, const char *text, size_t bytes)
{
    const char *const end = text + bytes;
    char line[256];

    for (parse->line = 1; text < end; parse->line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)((stop ? stop : end) - text);

        if (length >= sizeof line || memchr(text, '\0', length))
            return wrong(parse, "this is not what ipmctl show -performance prints");
        memcpy(line, text, length);
        line[length] = '\0';
        if (!take_line(parse, line))
            return false;
        text += length + (stop != NULL);
    }
    return true;
}

/* --- nvmxml --- */

static void refuse(struct parse *parse, const char *what)
{
    parse->line = XML_GetCurrentLineNumber(parse->xml);
    wrong(parse, what);
    XML_StopParser(parse->xml, XML_FALSE);
}

static void XMLCALL on_start(void *of, const XML_Char *name, const XML_Char **attributes)
{
    static const char *const expected[] = {"DimmPerformanceList", "DimmPerformance"};
    struct parse *parse = of;

    (void)attributes;
    if (parse->depth == 3 || strlen(name) >= NAME_BYTES ||
        (parse->depth < 2 && strcmp(name, expected[parse->depth]) != 0)) {
        refuse(parse, "this element is not of ipmctl show -performance");
        return;
    }
    strcpy(parse->name, name);
    parse->value_bytes = 0;
    parse->depth++;
}

static void XMLCALL on_text(void *of, const XML_Char *text, int bytes)
{
    struct parse *parse = of;

    for (int i = 0; i < bytes; i++) {
        if (strchr(" \t\r\n", text[i]))
            continue;
        if (parse->depth != 3 || parse->value_bytes == VALUE_BYTES - 1) {
            refuse(parse, "this text is not of ipmctl show -performance");
            return;
        }
        parse->value[parse->value_bytes++] = text[i];
    }
}

static void XMLCALL on_end(void *of, const XML_Char *name)
{
    struct parse *parse = of;

    (void)name;
    if (parse->depth-- != 3)
        return;
    parse->line = XML_GetCurrentLineNumber(parse->xml);
    parse->value[parse->value_bytes] = '\0';
    if (strcmp(parse->name, "DimmID") == 0 ? !begin_dimm(parse, parse->value)
                                           : !take_counter(parse, parse->name, parse->value))
        XML_StopParser(parse->xml, XML_FALSE);
}

static void XMLCALL on_doctype(void *of, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int has_subset)
{
    (void)name, (void)system, (void)public, (void)has_subset;
    refuse(of, "ipmctl writes no document type"); /* with it come entities */
}

static bool parse_xml(struct parse *parse, const char *text, size_t bytes)
{
    parse->xml = XML_ParserCreate(NULL);
    if (!parse->xml || bytes > INT_MAX) {
        XML_ParserFree(parse->xml);
        return wrong(parse, "it is too long");
    }
    XML_SetUserData(parse->xml, parse);
    XML_SetElementHandler(parse->xml, on_start, on_end);
    XML_SetCharacterDataHandler(parse->xml, on_text);
    XML_SetStartDoctypeDeclHandler(parse->xml, on_doctype);
    if (XML_Parse(parse->xml, text, (int)bytes, XML_TRUE) != XML_STATUS_OK)
        refuse(parse, XML_ErrorString(XML_GetErrorCode(parse->xml)));
    XML_ParserFree(parse->xml);
    return !*parse->why;
}

bool ipmctl_parse(const char *text, size_t bytes, struct ipmctl_reading *out,
                  char why[IPMCTL_WHY_BYTES])
{
    struct parse parse = {.reading = out, .why = why, .line = 1};
    size_t blank = 0;

    out->count = 0;
    why[0] = '\0';
    while (blank < bytes && text[blank] && strchr(" \t\r\n", text[blank]))
        blank++;
    if (blank < bytes && text[blank] == '<' ? !parse_xml(&parse, text + blank, bytes - blank)
                                            : !parse_text(&parse, text, bytes))
        return false;
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->dimms[i].found != (1u << IPMCTL_COUNTERS) - 1) {
            snprintf(why, IPMCTL_WHY_BYTES,
                     "DIMM %s lacks counters: it is cut off, or was asked for single metrics",
                     out->dimms[i].id);
            return false;
        }
    }
    if (out->count == 0)
        snprintf(why, IPMCTL_WHY_BYTES, "no DIMM is in it");
    return out->count > 0;
}
