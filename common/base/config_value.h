/* config_value.h - one setting: from text to value and back, and what is allowed, in words. Used by
 * config*.c alone. */
#ifndef BASE_CONFIG_VALUE_H
#define BASE_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/config.h"

static inline enum config_type config_type_of(const struct config_key *key)
{
    return (enum config_type)(key->type & CONFIG_TYPES);
}

union config_value {
    const char *text;
    uint64_t number; /* CONFIG_U64, CONFIG_CHOICE */
    bool flag;
};

/* False where `key` does not allow `text`: *out is untouched. A string's value is `text` itself. */
bool config_value_parse(const struct config_key *key, const char *text, union config_value *out);

/* From and to the key's field in `settings`. */
union config_value config_value_get(const struct config_key *key, const void *settings);
void config_value_put(const struct config_key *key, void *settings, union config_value value);

/* yes true 1 no false 0. */
bool config_value_parse_bool(const char *text, bool *out);

/* What `key` allows, as the part of a sentence after "must be". */
void config_value_print_allowed(const struct config_key *key, char *out, size_t out_bytes);

#endif
