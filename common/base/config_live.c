/* config_live.c - what changes of a program's settings while it runs.
 *
 * E1 New settings are complete and checked before the first of those in force changes, so that a mistake changes nothing.
 * E2 A string in force stays as long as the program: what it was read from, or set by, goes before.
 */
#include "common/base/config_live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/config_value.h"
#include "common/base/error.h"
#include "common/base/log.h"

enum { SENTENCE_BYTES = 768, SHOWN_BYTES = 64 };

struct config_text {
    struct config_text *next;
    char bytes[];
};

void config_live_ask(struct config_live *live)
{
    atomic_store_explicit(&live->asked, true, memory_order_release);
}

static bool is_same(const struct config_key *key, const void *left, const void *right)
{
    const union config_value a = config_value_get(key, left), b = config_value_get(key, right);

    return config_type_of(key) == CONFIG_STRING ? strcmp(a.text, b.text) == 0
                                                : a.number == b.number;
}

static void tell_changed(const struct config_live *live, const struct config_key *key,
                         const void *fresh)
{
    char from[SHOWN_BYTES], to[SHOWN_BYTES];

    config_print(key, live->settings, from, sizeof(from));
    config_print(key, fresh, to, sizeof(to));
    log_event(LOG_INFO, "setting_changed", "key=%s from=%s to=%s", key->name, from, to);
}

static void refuse(const char *why)
{
    log_event(LOG_ERROR, "settings_refused", "detail=\"%s\"", why);
}

/* E2. NULL: no memory. */
static const char *keep_text(struct config_live *live, const char *from)
{
    const size_t bytes = strlen(from) + 1;
    struct config_text *text = malloc(sizeof *text + bytes);

    if (text == NULL)
        return NULL;
    text->next = live->texts;
    live->texts = text;
    return memcpy(text->bytes, from, bytes);
}

void config_live_fini(struct config_live *live)
{
    for (struct config_text *text = live->texts; text != NULL; text = live->texts) {
        live->texts = text->next;
        free(text);
    }
}

/* E1. How many keys changed; `kept`: how many others would have. */
static unsigned take(struct config_live *live, const void *fresh, unsigned *kept)
{
    unsigned changed = 0;

    *kept = 0;
    for (unsigned i = 0; i < live->spec->key_count; i++) {
        const struct config_key *key = &live->spec->keys[i];

        if (is_same(key, live->settings, fresh))
            continue;
        if (!config_is_live(key)) {
            ++*kept;
            log_event(LOG_WARN, "setting_kept", "key=%s detail=\"%s %s\"", key->name, key->name,
                      config_why_kept(key));
            continue;
        }
        union config_value value = config_value_get(key, fresh);
        if (config_type_of(key) == CONFIG_STRING)
            value.text = keep_text(live, value.text);
        if (config_type_of(key) == CONFIG_STRING && value.text == NULL) {
            refuse(error_sentence(ROWAN_ENOMEM));
            continue;
        }
        tell_changed(live, key, fresh);
        config_value_put(key, live->settings, value);
        changed++;
    }
    if (changed > 0)
        live->apply(live->context);
    return changed;
}

static void read_again(struct config_live *live, void *fresh)
{
    struct config_rest rest;
    char why[SENTENCE_BYTES];
    const char *wrong = NULL;
    unsigned changed, kept;

    if (config_parse_why(live->spec, live->argc, live->argv, fresh, &rest, why, sizeof(why)) != 0) {
        refuse(why);
        return;
    }
    if (live->check != NULL)
        wrong = live->check(fresh, why, sizeof(why));
    if (wrong != NULL) {
        refuse(wrong);
    } else {
        changed = take(live, fresh, &kept);
        log_event(LOG_INFO, "settings_read", "file=%s changed=%u kept=%u",
                  live->file != NULL ? live->file : "-", changed, kept);
    }
    config_free(&rest);
}

bool config_live_poll(struct config_live *live)
{
    void *fresh;

    if (!atomic_load_explicit(&live->asked, memory_order_relaxed) ||
        !atomic_exchange_explicit(&live->asked, false, memory_order_acquire))
        return false;
    log_reopen(); /* who renames a log asks in the same way */
    fresh = calloc(1, live->settings_bytes);
    if (fresh == NULL)
        refuse(error_sentence(ROWAN_ENOMEM));
    else
        read_again(live, fresh);
    free(fresh);
    return true;
}

int config_live_set(struct config_live *live, const char *name, const char *text, char *why,
                    size_t why_bytes)
{
    void *fresh = malloc(live->settings_bytes);
    const char *wrong = NULL;
    unsigned kept;
    int error;

    if (fresh == NULL) {
        snprintf(why, why_bytes, "%s", error_sentence(ROWAN_ENOMEM));
        return ROWAN_ENOMEM;
    }
    memcpy(fresh, live->settings, live->settings_bytes);
    error = config_set(live->spec, name, text, fresh, why, why_bytes);
    if (!error && live->check != NULL)
        wrong = live->check(fresh, why, why_bytes);
    if (wrong != NULL) {
        error = ROWAN_ECONFIG;
        if (wrong != why)
            snprintf(why, why_bytes, "%s", wrong);
    }
    if (!error)
        take(live, fresh, &kept);
    free(fresh);
    return error;
}
