/* config_value.c - the text of one setting as a value and back, and what its type allows in words. It also
 * holds what config.h offers to everybody of single values.
 */
#include "common/base/config_value.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum { NUMBER_BYTES = 32 };

int config_parse_u64(const char *text, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    const char *suffix;
    uint64_t number = 0;

    if (!isdigit((unsigned char)*text))
        return ROWAN_EINVALID;
    for (; isdigit((unsigned char)*text); text++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return ROWAN_EINVALID;
    }
    if (*text != '\0') {
        suffix = strchr(suffixes, *text);
        if (suffix == NULL || text[1] != '\0' ||
            __builtin_mul_overflow(number, UINT64_C(1024) << (10 * (suffix - suffixes)), &number))
            return ROWAN_EINVALID;
    }
    *out = number;
    return 0;
}

bool config_value_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"yes", "true", "1"};
    static const char *const no[] = {"no", "false", "0"};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool parse_choice(const char *choices, const char *text, uint64_t *out)
{
    size_t text_bytes = strlen(text);

    for (uint64_t number = 0;; number++) {
        size_t word_bytes = strcspn(choices, "|");

        if (word_bytes == text_bytes && memcmp(choices, text, word_bytes) == 0) {
            *out = number;
            return true;
        }
        if (choices[word_bytes] == '\0')
            return false;
        choices += word_bytes + 1;
    }
}

bool config_value_parse(const struct config_key *key, const char *text, union config_value *out)
{
    uint64_t number;

    switch (config_type_of(key)) {
    case CONFIG_STRING:
        out->text = text;
        return true;
    case CONFIG_BOOL:
        return config_value_parse_bool(text, &out->flag);
    case CONFIG_CHOICE:
        return parse_choice(key->choices, text, &out->number);
    case CONFIG_U64:
        if (config_parse_u64(text, &number) != 0 || number < key->min || number > key->max)
            return false;
        out->number = number;
        return true;
    }
    ASSERT(false);
    return false;
}

/* With the largest suffix that loses nothing: 67108864 is "64M". */
static const char *print_u64(uint64_t number, char out[static NUMBER_BYTES])
{
    const char *suffix = "\0KMGT";

    while (number != 0 && number % 1024 == 0 && suffix[1] != '\0') {
        number /= 1024;
        suffix++;
    }
    snprintf(out, NUMBER_BYTES, "%llu%.1s", (unsigned long long)number, suffix);
    return out;
}

void config_value_print_allowed(const struct config_key *key, char *out, size_t out_bytes)
{
    char min[NUMBER_BYTES], max[NUMBER_BYTES];

    switch (config_type_of(key)) {
    case CONFIG_STRING:
        snprintf(out, out_bytes, "any text");
        return;
    case CONFIG_BOOL:
        snprintf(out, out_bytes, "yes or no");
        return;
    case CONFIG_CHOICE:
        snprintf(out, out_bytes, "one of %s", key->choices);
        return;
    case CONFIG_U64:
        print_u64(key->min, min);
        print_u64(key->max, max);
        if (key->max == UINT64_MAX)
            snprintf(out, out_bytes, "a number, at least %s", min);
        else
            snprintf(out, out_bytes, "a number from %s to %s", min, max);
        return;
    }
    ASSERT(false);
}

bool config_is_live(const struct config_key *key)
{
    return (key->type & CONFIG_LIVE) != 0;
}

const char *config_why_kept(const struct config_key *key)
{
    return key->type & CONFIG_MADE ? "does not change: it is fixed when the cluster is made"
                                   : "changes only at a restart";
}

/* Bytes of the field. */
static size_t field_bytes(const struct config_key *key)
{
    const enum config_type type = config_type_of(key);

    return type == CONFIG_STRING ? sizeof(const char *)
           : type == CONFIG_BOOL ? sizeof(bool)
                                 : sizeof(uint64_t);
}

union config_value config_value_get(const struct config_key *key, const void *settings)
{
    union config_value value = {.number = 0};

    memcpy(&value, (const char *)settings + key->offset, field_bytes(key));
    return value;
}

void config_value_put(const struct config_key *key, void *settings, union config_value value)
{
    memcpy((char *)settings + key->offset, &value, field_bytes(key));
}

void config_print(const struct config_key *key, const void *settings, char *out, size_t out_bytes)
{
    union config_value value = config_value_get(key, settings);
    char number[NUMBER_BYTES];
    const char *word = key->choices;

    switch (config_type_of(key)) {
    case CONFIG_STRING:
        snprintf(out, out_bytes, "%s", value.text);
        return;
    case CONFIG_BOOL:
        snprintf(out, out_bytes, "%s", value.flag ? "yes" : "no");
        return;
    case CONFIG_CHOICE:
        for (; value.number > 0; value.number--)
            word += strcspn(word, "|") + 1;
        snprintf(out, out_bytes, "%.*s", (int)strcspn(word, "|"), word);
        return;
    case CONFIG_U64:
        snprintf(out, out_bytes, "%s", print_u64(value.number, number));
        return;
    }
    ASSERT(false);
}
