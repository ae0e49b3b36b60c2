/* config_live.h - the settings of a program that runs. It reads them again, as at its start, when it is asked to (SIGHUP); or
 * one of them is set, until it reads them again. Only keys that are CONFIG_LIVE change; it says so of each other one.
 *
 * One thread, but for config_live_ask.
 */
#ifndef BASE_CONFIG_LIVE_H
#define BASE_CONFIG_LIVE_H

#include <stdatomic.h>

#include "common/base/config.h"

struct config_live {
    const struct config_spec *spec;
    int argc; /* of the start, with argv, which outlives this */
    char **argv;
    const char *file; /* config_rest.file */
    void *settings;   /* in force; the program's */
    size_t settings_bytes;
    /* A mistake that no range of a key finds, as a sentence, perhaps in `why`; NULL: there is none. `settings` are not in
     * force. */
    const char *(*check)(const void *settings, char *why, size_t why_bytes);
    void (*apply)(void *context); /* what is in force has changed */
    void *context;
    struct config_text
        *texts; /* zeroed: strings that changed; somebody may still read the older ones */
    _Atomic bool asked;
};

/* config_live_ask: it is to read its settings again. Any thread, or a signal handler. */
void config_live_ask(struct config_live *live);

/* config_live_poll: reads them if it was asked to (and does log_reopen), and logs what became of it: a file with a mistake changes nothing. True: it
 * was asked. */
bool config_live_poll(struct config_live *live);

/* config_live_fini: no setting that changed, and is a string, is read any more. */
void config_live_fini(struct config_live *live);

/* config_live_set: `why` is a sentence on failure. Errors: ROWAN_ECONFIG, ROWAN_ENOMEM; nothing has changed then. */
int config_live_set(struct config_live *live, const char *name, const char *text, char *why,
                    size_t why_bytes);

#endif
