/* set: settings of servers and managers that change while they run. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"

enum { TARGETS = CLUSTER_MAX_MEMBERS + MANAGERS_MAX, NAME_BYTES = CLUSTER_MAX_ADDRESS_BYTES + 16 };

#define AGAIN_NS (50 * NS_PER_MS)

/* Whom to ask for what. */
struct request {
    struct admin *admin;
    const struct rowan_settings *settings;
    Rowan__SetSetting setting;
    json_t *answers; /* NULL: they are printed */
    uint32_t count;
    uint32_t targets[TARGETS]; /* as in struct admin_call */
};

static const char *name_of(const struct admin *admin, uint32_t target, char name[NAME_BYTES])
{
    if (target < ADMIN_MANAGERS)
        snprintf(name, NAME_BYTES, "server %u", target);
    else
        snprintf(name, NAME_BYTES, "manager %s",
                 admin_managers(admin)->addresses[target - ADMIN_MANAGERS]);
    return name;
}

static void print_text(const struct request *request, uint32_t target,
                       const Rowan__SettingsAre *are)
{
    const bool sets = *request->setting.key != '\0', from_file = *are->file != '\0';
    char name[NAME_BYTES];
    name_of(request->admin, target, name);
    if (!sets)
        printf("%s%s%s\n", name, from_file ? ", which reads " : "", are->file);
    for (size_t i = 0; i < are->n_settings; i++) {
        const Rowan__Setting *setting = are->settings[i];
        if (!sets)
            printf("  %s = %s\n", setting->key, setting->value);
        else if (strcmp(setting->key, request->setting.key) == 0)
            printf("%s: %s = %s until the next start or SIGHUP; %s%s to keep it\n", name,
                   setting->key, setting->value,
                   from_file ? "write it to " : "give it at the start", are->file);
    }
}

static int add_json(const struct request *request, uint32_t target, const struct admin_call *call)
{
    json_t *answer = json_object();
    if (target < ADMIN_MANAGERS)
        json_object_set_new(answer, "server", json_integer(target));
    else
        json_object_set_new(
            answer, "manager",
            json_string(admin_managers(request->admin)->addresses[target - ADMIN_MANAGERS]));
    if (call->error) {
        json_object_set_new(answer, "error", json_string(error_name(call->error)));
    } else {
        const Rowan__SettingsAre *are = call->reply->settings_are;
        json_t *found = json_object();
        for (size_t i = 0; i < are->n_settings; i++)
            json_object_set_new(found, are->settings[i]->key, json_string(are->settings[i]->value));
        json_object_set_new(answer, "file", json_string(are->file));
        json_object_set_new(answer, "settings", found);
    }
    return json_array_append_new(request->answers, answer);
}

/* A server that has just started is asked again until it knows the configuration, which says who may change what. */
static void ask(const struct request *request, uint32_t target,
                const Rowan__ControlMessage *question, struct admin_call *call)
{
    const uint64_t timeout_ns = request->settings->timeout_ms * NS_PER_MS,
                   end_ns = clock_now_ns(clock_system()) + timeout_ns;
    for (;;) {
        admin_post(request->admin, call, target, question, timeout_ns);
        (void)admin_wait_all(request->admin); /* its error is the call's */
        const uint64_t again_ns = clock_now_ns(clock_system()) + AGAIN_NS;
        if (call->error != ROWAN_EAGAIN || again_ns >= end_ns)
            return;
        admin_call_free(call);
        while (clock_now_ns(clock_system()) < again_ns && !admin_wait(request->admin, again_ns))
            ;
    }
}

/* One after the other: what one refuses as a mistake, nobody else is asked. */
static int ask_all(struct request *request)
{
    const Rowan__ControlMessage question =
        CONTROL_MESSAGE(SET_SETTING, set_setting, &request->setting);
    int code = EXIT_DONE;
    for (uint32_t i = 0; i < request->count; i++) {
        struct admin_call call;
        const uint32_t target = request->targets[i];
        char name[NAME_BYTES];
        ask(request, target, &question, &call);
        const int error = call.error;
        if (error)
            code = tool_say("set: %s: %s", name_of(request->admin, target, name),
                            *call.why ? call.why : error_sentence(error));
        if (request->answers && add_json(request, target, &call))
            code = tool_failed("set", ROWAN_ENOMEM);
        else if (!request->answers && !error)
            print_text(request, target, call.reply->settings_are);
        admin_call_free(&call);
        if (error == ROWAN_EREFUSED)
            break;
    }
    return code;
}

/* "manager", the number of a server, or NULL: all servers, and if nothing is changed the managers too. */
static int find_targets(struct request *request, const char *whom, uint32_t server)
{
    const struct cluster_config *config = admin_config(request->admin);
    const bool managers = whom ? server == 0 : !*request->setting.key;
    if (server && !cluster_member(config, server))
        return tool_say("set: the cluster has no server %u", server);
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (!whom || config->members[i].server == server)
            request->targets[request->count++] = config->members[i].server;
    }
    for (uint32_t i = 0; managers && i < admin_managers(request->admin)->count; i++)
        request->targets[request->count++] = ADMIN_MANAGERS + i;
    return EXIT_DONE;
}

static int run(struct request *request, const char *whom, uint32_t server)
{
    if (command_connect(request->settings, "set", &request->admin, NULL))
        return EXIT_FAILED;
    int code = find_targets(request, whom, server);
    request->answers = request->settings->json ? json_array() : NULL;
    if (code == EXIT_DONE)
        code = ask_all(request);
    if (request->answers && tool_print_json(json_pack("{s:o}", "settings", request->answers)))
        code = EXIT_FAILED;
    admin_close(request->admin);
    return code;
}

int command_set(const struct rowan_settings *settings, char **words)
{
    struct request request = {.settings = settings, .setting = ROWAN__SET_SETTING__INIT};
    char *whom = words[1] && !strchr(words[1], '=') ? words[1] : NULL;
    char *change = whom ? words[2] : words[1];
    double server = 0;
    if (whom && strcmp(whom, "manager") != 0 &&
        (!tool_parse_number(whom, 1, CLUSTER_MAX_SERVER, &server) ||
         server != (double)(uint32_t)server))
        return tool_usage("set is followed by the number of a server, or manager, and KEY=VALUE");
    if (!whom && words[1] && words[2])
        return tool_usage("too many words");
    if (change) {
        char *equals = strchr(change, '=');
        if (!equals || equals == change)
            return tool_usage("a setting is written KEY=VALUE");
        *equals = '\0';
        request.setting.key = change;
        request.setting.value = equals + 1;
    }
    return run(&request, whom, (uint32_t)server);
}
