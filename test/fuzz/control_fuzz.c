/* control_fuzz.c - control_decode on arbitrary bytes: what it accepts, it can encode again. A SetSetting among it is answered.
 *
 * That need not decode: protobuf-c accepts an unknown field of number 0 when its tag is padded to two
 * bytes, writes the tag in one, and does not accept that.
 * Inputs that do not start with a right header get one, so that the fuzzer's time goes to protobuf.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/cluster/control.h"
#include "common/cluster/settings.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    uint64_t percent, level;
    bool checkpoints;
    uint64_t workers;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"percent", CONFIG_U64 | CONFIG_LIVE, FIELD(percent), "75", 1, 95, NULL, ""},
    {"level", CONFIG_CHOICE | CONFIG_LIVE, FIELD(level), "b", 0, 0, "a|b|c", ""},
    {"checkpoints", CONFIG_BOOL | CONFIG_LIVE, FIELD(checkpoints), "yes", 0, 0, NULL, ""},
    {"workers", CONFIG_U64, FIELD(workers), "2", 1, 64, NULL, ""},
};
static const struct config_spec spec = {.program = "p", .keys = keys, .key_count = 4};

static void apply(void *context)
{
    const struct settings *settings = context;
    ASSERT(settings->percent >= 1 && settings->percent <= 95 && settings->level <= 2 &&
           settings->workers == 2);
}

/* Settings within their ranges, or a sentence; either can be sent. */
static void answer(const Rowan__SetSetting *question)
{
    struct settings settings = {.percent = 75, .level = 1, .checkpoints = true, .workers = 2};
    struct config_live live = {.spec = &spec,
                               .settings = &settings,
                               .settings_bytes = sizeof settings,
                               .apply = apply,
                               .context = &settings};
    struct settings_answer answer;
    uint8_t bytes[4096];
    log_set_level(LOG_ERROR);
    settings_answer(&live, question, &answer);
    ASSERT(control_encode(1, &answer.message, bytes, sizeof bytes) > 0);
    ASSERT(answer.message.body_case == ROWAN__CONTROL_MESSAGE__BODY_SETTINGS_ARE
               ? answer.are.n_settings == 3
               : answer.failure.error == ROWAN_EREFUSED && *answer.failure.detail);
}

static void check(const uint8_t *data, size_t size)
{
    uint32_t tag, tag_again;
    Rowan__ControlMessage *message, *again;
    if (control_decode(data, size, &tag, &message))
        return;
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING)
        answer(message->set_setting);
    size_t bytes =
        sizeof(struct message_control) + rowan__control_message__get_packed_size(message);
    uint8_t *encoded = malloc(bytes);
    ASSERT(encoded);
    ASSERT(control_encode(tag, message, encoded, bytes) == bytes);
    if (control_decode(encoded, bytes, &tag_again, &again) == 0) {
        ASSERT(tag_again == tag && again->body_case == message->body_case);
        control_free(again);
    }
    free(encoded);
    control_free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);

    const struct message_control header = {.type = MESSAGE_CONTROL, .layout = MESSAGE_LAYOUT};
    uint8_t *message = malloc(sizeof header + size);
    ASSERT(message);
    memcpy(message, &header, sizeof header);
    if (size > 0)
        memcpy(message + sizeof header, data, size);
    check(message, sizeof header + size);
    free(message);
    return 0;
}
