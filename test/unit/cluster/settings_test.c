/* What a process answers who asks for its settings, and who changes one. */
#include "common/base/error.h"
#include "common/cluster/settings.h"
#include "test/lib/unit.h"

struct settings {
    uint64_t workers, percent;
    bool checkpoints;
};

static const struct config_key keys[] = {
    {"percent", CONFIG_U64 | CONFIG_LIVE, offsetof(struct settings, percent), "75", 1, 95, NULL,
     ""},
    {"workers", CONFIG_U64, offsetof(struct settings, workers), "2", 1, 64, NULL, ""},
    {"checkpoints", CONFIG_BOOL | CONFIG_LIVE, offsetof(struct settings, checkpoints), "yes", 0, 0,
     NULL, ""},
};
static const struct config_spec spec = {.program = "rowan-server", .keys = keys, .key_count = 3};
static struct settings settings;
static unsigned applied;
static struct settings_answer answer;

static void apply(void *context)
{
    (void)context;
    applied++;
}

static struct config_live live = {.spec = &spec,
                                  .file = "/etc/rowan/a.conf",
                                  .settings = &settings,
                                  .settings_bytes = sizeof settings,
                                  .apply = apply};

static void ask(struct config_live *of, const char *key, const char *value)
{
    Rowan__SetSetting question = ROWAN__SET_SETTING__INIT;
    question.key = (char *)(uintptr_t)key;
    question.value = (char *)(uintptr_t)value;
    settings = (struct settings){.workers = 2, .percent = 75, .checkpoints = true};
    applied = 0;
    settings_answer(of, &question, &answer);
}

static void assert_is(const char *percent)
{
    assert_int_equal(answer.message.body_case, ROWAN__CONTROL_MESSAGE__BODY_SETTINGS_ARE);
    const Rowan__SettingsAre *are = answer.message.settings_are;
    assert_string_equal(are->file, "/etc/rowan/a.conf");
    assert_int_equal(are->n_settings, 2);
    assert_string_equal(are->settings[0]->key, "percent");
    assert_string_equal(are->settings[0]->value, percent);
    assert_string_equal(are->settings[1]->key, "checkpoints");
    assert_string_equal(are->settings[1]->value, "yes");
}

TEST(without_a_key_what_is_in_force_is_told)
{
    ask(&live, "", "");
    assert_is("75");
    assert_int_equal(applied, 0);
}

TEST(a_change_is_told_when_it_was_made)
{
    ask(&live, "percent", "60");
    assert_is("60");
    assert_int_equal(settings.percent, 60);
    assert_int_equal(applied, 1);
}

TEST(what_cannot_be_is_refused_with_its_sentence)
{
    static const struct {
        const char *key, *value, *sentence;
    } wrong[] = {
        {"percent", "99", "percent must be a number from 1 to 95, not \"99\""},
        {"workers", "3", "workers changes only at a restart"},
        {"wrkers", "3", "unknown key wrkers; rowan-server --help lists the keys"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ask(&live, wrong[i].key, wrong[i].value);
        assert_int_equal(answer.message.body_case, ROWAN__CONTROL_MESSAGE__BODY_FAILURE);
        assert_int_equal(answer.message.failure->error, ROWAN_EREFUSED);
        assert_string_equal(answer.message.failure->detail, wrong[i].sentence);
        assert_int_equal(applied, 0);
    }
}

TEST(a_process_without_settings_says_so)
{
    ask(NULL, "", "");
    assert_int_equal(answer.message.failure->error, ROWAN_EUNSUPPORTED);
}

UNIT_MAIN(NULL, NULL)
