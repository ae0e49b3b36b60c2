/* settings.c - see settings.h. */
#include "common/cluster/settings.h"

#include <stdio.h>

#include "common/base/assert.h"
#include "common/base/config_value.h"
#include "common/base/error.h"
#include "common/cluster/control.h"

static void list(const struct config_live *live, struct settings_answer *out)
{
    rowan__settings_are__init(&out->are);
    out->are.settings = out->row_list;
    out->are.file = (char *)(uintptr_t)(live->file ? live->file : "");
    for (unsigned i = 0; i < live->spec->key_count; i++) {
        const struct config_key *key = &live->spec->keys[i];
        const size_t at = out->are.n_settings;
        if (!config_is_live(key))
            continue;
        ASSERT(at < SETTINGS_MAX);
        config_print(key, live->settings, out->values[at], sizeof out->values[at]);
        rowan__setting__init(&out->rows[at]);
        out->rows[at].key = (char *)(uintptr_t)key->name;
        out->rows[at].value = out->values[at];
        if (config_type_of(key) == CONFIG_STRING) /* of any length */
            out->rows[at].value = (char *)(uintptr_t)config_value_get(key, live->settings).text;
        out->row_list[at] = &out->rows[at];
        out->are.n_settings++;
    }
    out->message = CONTROL_MESSAGE(SETTINGS_ARE, settings_are, &out->are);
}

void settings_answer(struct config_live *live, const Rowan__SetSetting *question,
                     struct settings_answer *out)
{
    int error = live ? 0 : ROWAN_EUNSUPPORTED;
    if (!live)
        snprintf(out->why, sizeof out->why, "this process has no settings that change");
    else if (*question->key)
        error = config_live_set(live, question->key, question->value, out->why, sizeof out->why);
    if (!error) {
        list(live, out);
        return;
    }
    rowan__failure__init(&out->failure);
    out->failure.error = error == ROWAN_ECONFIG ? ROWAN_EREFUSED : error;
    out->failure.detail = out->why;
    out->message = CONTROL_MESSAGE(FAILURE, failure, &out->failure);
}
