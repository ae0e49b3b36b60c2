/* settings.h - the answer of a process to a SetSetting (proto/control.proto): the same of a server and of a manager, and the one
 * place that changes a setting for somebody who asks over the network.
 */
#ifndef CLUSTER_SETTINGS_H
#define CLUSTER_SETTINGS_H

#include "common/base/config_live.h"
#include "control.pb-c.h"

enum { SETTINGS_MAX = 32, SETTINGS_TEXT_BYTES = 64, SETTINGS_WHY_BYTES = 512 };

/* `message` points into it: it stays where it is. */
struct settings_answer {
    Rowan__ControlMessage message; /* a SettingsAre or a Failure */
    Rowan__SettingsAre are;
    Rowan__Failure failure;
    Rowan__Setting rows[SETTINGS_MAX];
    Rowan__Setting *row_list[SETTINGS_MAX];
    char values[SETTINGS_MAX][SETTINGS_TEXT_BYTES];
    char why[SETTINGS_WHY_BYTES];
};

/* Changes what is asked for. `live` NULL: this process has no settings. Its thread. */
void settings_answer(struct config_live *live, const Rowan__SetSetting *question,
                     struct settings_answer *out);

#endif
