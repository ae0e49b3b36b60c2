/* ipmctl.c - both formats of ipmctl.h lead to the same two steps: a DIMM begins, a counter of it has a value. */
#include "tools/dlwa/ipmctl.h"

#include <expat.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
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
    char *why; /* empty: nothing is wrong */

    XML_Parser xml;
    unsigned depth; /* 1: in the list, 2: in a DIMM, 3: in one of its values */
    char name[NAME_BYTES];
    char value[VALUE_BYTES];
    size_t value_bytes;
};

static bool wrong(struct parse *parse, unsigned long line, const char *what)
{
    if (!*parse->why)
        snprintf(parse->why, IPMCTL_WHY_BYTES, "line %lu: %s", line, what);
    return false;
}

/* --- what both formats tell --- */

static bool begin_dimm(struct parse *parse, unsigned long line, const char *id)
{
    struct ipmctl_reading *reading = parse->reading;

    if (strlen(id) < 3 || strncmp(id, "0x", 2) != 0 ||
        strspn(id + 2, "0123456789abcdefABCDEF") != strlen(id + 2) || strlen(id) >= IPMCTL_ID_BYTES)
        return wrong(parse, line, "this is no number of a DIMM");
    for (uint32_t i = 0; i < reading->count; i++) {
        if (strcmp(reading->dimms[i].id, id) == 0)
            return wrong(parse, line, "a DIMM comes twice");
    }
    if (reading->count == IPMCTL_MAX_DIMMS)
        return wrong(parse, line, "there are more DIMMs than this program counts");
    reading->dimms[reading->count] = (struct ipmctl_dimm){.found = 0};
    strcpy(reading->dimms[reading->count++].id, id);
    return true;
}

/* 0x and 32 digits. */
static bool read_counter(struct parse *parse, unsigned long line, const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (strncmp(text, "0x", 2) != 0 || strlen(text + 2) != HEX_DIGITS ||
        strspn(text + 2, "0123456789abcdefABCDEF") != HEX_DIGITS)
        return wrong(parse, line, "a counter is not 0x and 32 hexadecimal digits");
    for (const char *digit = text + 2; *digit; digit++) {
        if (value >> (COUNTER_BITS - 4))
            return wrong(parse, line, "a counter is larger than any device can have counted to");
        value = value << 4 | (uint64_t)(*digit <= '9' ? *digit - '0' : (*digit | 32) - 'a' + 10);
    }
    *out = value;
    return true;
}

static bool take_counter(struct parse *parse, unsigned long line, const char *name,
                         const char *text)
{
    struct ipmctl_reading *reading = parse->reading;
    struct ipmctl_dimm *dimm = reading->count ? &reading->dimms[reading->count - 1] : NULL;
    uint64_t value = 0;

    if (!read_counter(parse, line, text, &value))
        return false;
    if (!dimm)
        return wrong(parse, line, "a counter comes before the first DIMM");
    for (unsigned i = 0; i < IPMCTL_COUNTERS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        if (dimm->found & 1u << i)
            return wrong(parse, line, "a counter comes twice");
        dimm->found |= 1u << i;
        dimm->counters[i] = value;
    }
    return true;
}

/* --- text --- */

static bool take_line(struct parse *parse, unsigned long number, char *line)
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
            return wrong(parse, number, "a line ---DimmID=...--- is cut off");
        line[length - (sizeof end - 1)] = '\0';
        return begin_dimm(parse, number, line + sizeof begin - 1);
    }
    value = strchr(line, '=');
    if (!value)
        return wrong(parse, number, "this is not what ipmctl show -performance prints");
    *value = '\0';
    return take_counter(parse, number, line, value + 1);
}

static bool parse_text(struct parse *parse, const char *text, size_t bytes)
{
    const char *const end = text + bytes;
    char line[256];

    for (unsigned long number = 1; text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)((stop ? stop : end) - text);

        if (length >= sizeof line || memchr(text, '\0', length))
            return wrong(parse, number, "this is not what ipmctl show -performance prints");
        memcpy(line, text, length);
        line[length] = '\0';
        if (!take_line(parse, number, line))
            return false;
        text += length + (stop != NULL);
    }
    return true;
}

/* --- nvmxml --- */

static void refuse(struct parse *parse, const char *what)
{
    wrong(parse, XML_GetCurrentLineNumber(parse->xml), what);
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
    const unsigned long line = XML_GetCurrentLineNumber(parse->xml);
    bool is_right = true;

    (void)name;
    if (parse->depth-- != 3)
        return;
    parse->value[parse->value_bytes] = '\0';
    if (strcmp(parse->name, "DimmID") == 0)
        is_right = begin_dimm(parse, line, parse->value);
    else
        is_right = take_counter(parse, line, parse->name, parse->value);
    if (!is_right)
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
        return wrong(parse, 1, "it is too long");
    }
    XML_SetUserData(parse->xml, parse);
    XML_SetElementHandler(parse->xml, on_start, on_end);
    XML_SetCharacterDataHandler(parse->xml, on_text);
    XML_SetStartDoctypeDeclHandler(parse->xml, on_doctype);
    if (XML_Parse(parse->xml, text, (int)bytes, XML_TRUE) != XML_STATUS_OK)
        wrong(parse, XML_GetCurrentLineNumber(parse->xml),
              XML_ErrorString(XML_GetErrorCode(parse->xml)));
    XML_ParserFree(parse->xml);
    return !*parse->why;
}

bool ipmctl_parse(const char *text, size_t bytes, struct ipmctl_reading *out,
                  char why[IPMCTL_WHY_BYTES])
{
    struct parse parse = {.reading = out, .why = why};
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
