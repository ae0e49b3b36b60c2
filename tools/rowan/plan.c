/* add, drain, remove, move, split, give-up, balance: what an operator wants. The manager stores it; what it takes happens by itself. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"

struct share share_of(const struct cluster_config *config, uint32_t server)
{
    struct share share = {0};
    for (uint32_t i = 0; i < config->shard_count; i++) {
        share.leads += config->shards[i].primary == server;
        share.backs += shard_has_backup(&config->shards[i], server);
        share.fills += shard_has_filling(&config->shards[i], server);
    }
    share.all = share.leads + share.backs + share.fills;
    return share;
}

/* Until it holds nothing, or is not drained any more. */
static bool is_draining(const struct cluster_config *config, const Rowan__Plan *plan, char *line)
{
    const struct share share = share_of(config, plan->server);
    snprintf(line, COMMAND_LINE_BYTES, "drain: server %u leads %u shards and backs %u",
             plan->server, share.leads, share.backs);
    return share.all > 0 && !cluster_wants(config, plan->server);
}

static int print_outcome(const struct cluster_config *config, const Rowan__Plan *plan, bool json)
{
    const uint32_t server = plan->server;
    const struct share share = share_of(config, server);
    const bool member = cluster_member(config, server), wanted = cluster_wants(config, server);
    if (json)
        return tool_print_json(json_pack("{s:I, s:i, s:b, s:b, s:i, s:i, s:i}", "term",
                                         (json_int_t)config->term, "server", server, "member",
                                         member, "draining", member && !wanted, "leads",
                                         share.leads, "backs", share.backs, "fills", share.fills));
    if (!member)
        printf("server %u is no member of the cluster%s\n", server,
               wanted ? " yet: start it" : ", and may be none");
    else if (!wanted && share.all == 0)
        printf("server %u is drained: rowan remove %u takes it out of the cluster\n", server,
               server);
    else
        printf("server %u %s: it leads %u shards, backs %u and fills %u\n", server,
               wanted ? "is a member" : "is being drained", share.leads, share.backs, share.fills);
    return 0;
}

static int wait_for(struct admin *admin, const Rowan__Plan *plan, under_way *goes_on)
{
    char line[COMMAND_LINE_BYTES];
    int error = 0;
    while (!error && goes_on(admin_config(admin), plan, line)) {
        const uint64_t now_ns = clock_now_ns(clock_system());
        if (progress_due(now_ns))
            progress_line("%s", line);
        error = admin_wait(admin, now_ns + NS_PER_S);
    }
    progress_end();
    return error;
}

/* Some shard has fewer replicas than it should, or is about to change. */
static bool is_lacking(const struct cluster_config *config, const Rowan__Plan *plan, char *line)
{
    uint32_t lacking = 0;
    (void)plan;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        lacking += shard->split == SPLIT_PARENT || shard_is_kept(config, shard) ||
                   (shard->split == SPLIT_NONE &&
                    (1 + shard->backup_count < config->replicas || shard->filling_count > 0));
    }
    snprintf(line, COMMAND_LINE_BYTES, "shards: %u of %u lack replicas, or change", lacking,
             config->served_count);
    return lacking > 0;
}

int command_wait_whole(const struct rowan_settings *settings, const char *command)
{
    struct admin *admin;
    if (command_connect(settings, command, &admin, NULL))
        return EXIT_FAILED;
    const int error = wait_for(admin, NULL, is_lacking);
    admin_close(admin);
    return error ? tool_say("%s: %s", command, error_sentence(error)) : EXIT_DONE;
}

int command_carry_out(const struct rowan_settings *settings, const char *command,
                      const Rowan__Plan *plan, under_way *goes_on, print_plan *print)
{
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(PLAN, plan, (Rowan__Plan *)(uintptr_t)plan);
    struct admin *admin;
    char why[256];
    if (command_connect(settings, command, &admin, NULL))
        return EXIT_FAILED;
    int error = admin_ask(admin, &message, settings->timeout_ms * NS_PER_MS, why, NULL);
    if (!error && settings->wait && goes_on)
        error = wait_for(admin, plan, goes_on);
    int code = EXIT_DONE;
    if (error)
        code = tool_say("%s: %s", command, error == ROWAN_EREFUSED ? why : error_sentence(error));
    else if (print)
        code = print(admin_config(admin), plan, settings->json);
    admin_close(admin);
    return code;
}

static bool parse_number(const char *word, double most, uint32_t *out)
{
    double number;
    if (!tool_parse_number(word, 0, most, &number) || number != (double)(uint32_t)number)
        return false;
    *out = (uint32_t)number;
    return true;
}

int command_plan(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    plan.kind = strcmp(words[0], "add") == 0     ? ROWAN__PLAN__KIND__ADD
                : strcmp(words[0], "drain") == 0 ? ROWAN__PLAN__KIND__DRAIN
                                                 : ROWAN__PLAN__KIND__REMOVE;
    if (!parse_number(words[1], CLUSTER_MAX_SERVER, &plan.server) || plan.server == 0)
        return tool_usage("a server is named by its number");
    if (settings->wait && plan.kind != ROWAN__PLAN__KIND__DRAIN)
        return tool_usage("--wait is for drain, move, split and shards");
    return command_carry_out(settings, words[0], &plan, is_draining, print_outcome);
}

/* --- a move --- */

static bool is_moving(const struct cluster_config *config, const Rowan__Plan *plan, char *line)
{
    const struct shard *shard = cluster_shard(config, (uint16_t)plan->shard);
    if (!shard || shard->move_from != plan->server || shard->move_to != plan->to)
        return false;
    snprintf(line, COMMAND_LINE_BYTES, "move: server %u %s shard %u", plan->to,
             shard_has_filling(shard, plan->to) ? "is being filled with" : "holds", plan->shard);
    return true;
}

static int print_move(const struct cluster_config *config, const Rowan__Plan *plan, bool json)
{
    const struct shard *shard = cluster_shard(config, (uint16_t)plan->shard);
    char line[COMMAND_LINE_BYTES];
    const bool moves = is_moving(config, plan, line);
    const bool there = shard && shard_names(shard, plan->to);
    if (json)
        return tool_print_json(json_pack("{s:I, s:i, s:i, s:i, s:b, s:b, s:i}", "term",
                                         (json_int_t)config->term, "shard", plan->shard, "from",
                                         plan->server, "to", plan->to, "moving", moves, "moved",
                                         there && !moves, "primary", shard ? shard->primary : 0));
    if (moves)
        printf("shard %u moves from server %u to %u\n", plan->shard, plan->server, plan->to);
    else if (there)
        printf("server %u %s shard %u\n", plan->to, shard->primary == plan->to ? "leads" : "backs",
               plan->shard);
    else
        printf(
            "the move of shard %u has ended without server %u: one of the two servers failed, or "
            "was drained\n",
            plan->shard, plan->to);
    return there ? EXIT_DONE : tool_failed("move", ROWAN_EIO);
}

int command_move(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    plan.kind = ROWAN__PLAN__KIND__MOVE;
    if (!parse_number(words[1], CLUSTER_MAX_SHARDS - 1, &plan.shard) ||
        !parse_number(words[2], CLUSTER_MAX_SERVER, &plan.server) ||
        !parse_number(words[3], CLUSTER_MAX_SERVER, &plan.to))
        return tool_usage("a shard and the two servers are named by their numbers");
    return command_carry_out(settings, words[0], &plan, is_moving, print_move);
}

/* --- a split --- */

static bool is_splitting(const struct cluster_config *config, const Rowan__Plan *plan, char *line)
{
    const struct shard *shard = cluster_shard(config, (uint16_t)plan->shard);
    snprintf(line, COMMAND_LINE_BYTES, "split: shard %u is being copied", plan->shard);
    return shard && shard->split == SPLIT_PARENT;
}

static int print_split(const struct cluster_config *config, const Rowan__Plan *plan, bool json)
{
    char line[COMMAND_LINE_BYTES];
    const bool splits = is_splitting(config, plan, line);
    if (json)
        return tool_print_json(json_pack("{s:I, s:i, s:b, s:i}", "term", (json_int_t)config->term,
                                         "shard", plan->shard, "splitting", splits, "shards",
                                         config->served_count));
    printf("shard %u %s: %u shards are served\n", plan->shard,
           splits ? "is being split" : "is split", config->served_count);
    return 0;
}

int command_split(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    plan.kind = ROWAN__PLAN__KIND__SPLIT;
    if (!parse_number(words[1], CLUSTER_MAX_SHARDS - 1, &plan.shard) ||
        (words[2] && (!parse_number(words[2], SLOT_COUNT - 1, &plan.to) || plan.to == 0)))
        return tool_usage("a shard is named by its number, and a slot is from 1 to 16383");
    return command_carry_out(settings, words[0], &plan, is_splitting, print_split);
}

/* --- what nobody waits for any more --- */

static int print_waiting(const struct cluster_config *config, const Rowan__Plan *plan, bool json)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < config->served_count; i++)
        waiting += shard_is_kept(config, &config->shards[i]);
    if (json)
        return tool_print_json(
            json_pack("{s:I, s:i}", "term", (json_int_t)config->term, "waiting", waiting));
    printf("%s %u is not waited for; %u of %u shards wait for servers that are away\n",
           plan->server ? "server" : "shard", plan->server ? plan->server : plan->shard, waiting,
           config->served_count);
    return 0;
}

/* Says what is lost; true: whoever sits there wants that, which `plan` says then, or nothing is. */
static bool confirm(const struct rowan_settings *settings, Rowan__Plan *plan, struct admin *admin)
{
    const Rowan__ControlMessage message = CONTROL_MESSAGE(PLAN, plan, plan);
    char why[256], answer[8] = "";
    const int error = admin_ask(admin, &message, settings->timeout_ms * NS_PER_MS, why, NULL);
    if (!error)
        return true;
    tool_say("give-up: %s", error == ROWAN_EREFUSED ? why : error_sentence(error));
    if (error != ROWAN_EREFUSED || settings->json || !isatty(STDIN_FILENO)) {
        tool_say("give-up: nothing was given up; --yes does it without a question");
        return false;
    }
    fprintf(stderr, "give-up: type yes to go on: ");
    plan->to = fgets(answer, sizeof answer, stdin) && strcmp(answer, "yes\n") == 0;
    return plan->to;
}

/* Not the manager: whoever was given up may be unknown from then on, and who asks for that again is to hear that it is so. */
static bool may_give_up(const struct rowan_settings *settings, Rowan__Plan *plan)
{
    struct admin *admin;
    if (command_connect(settings, "give-up", &admin, NULL))
        return false;
    const struct cluster_config *config = admin_config(admin);
    const bool known = !plan->server || cluster_member(config, plan->server) ||
                       cluster_wants(config, plan->server);
    if (!known)
        tool_say("give-up: the cluster has no server %u (rowan status shows them)", plan->server);
    const bool may = known && (settings->yes || confirm(settings, plan, admin));
    admin_close(admin);
    return may;
}

int command_give_up(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    const bool server = strcmp(words[1], "server") == 0;
    plan.kind = ROWAN__PLAN__KIND__GIVE_UP;
    if ((!server && strcmp(words[1], "shard") != 0) ||
        !parse_number(words[2], server ? CLUSTER_MAX_SERVER : CLUSTER_MAX_SHARDS - 1,
                      server ? &plan.server : &plan.shard) ||
        (server && plan.server == 0) || settings->wait)
        return tool_usage("give-up is followed by shard or server and its number");
    plan.to = settings->yes; /* 0: nothing is lost, or the manager refuses */
    if (!may_give_up(settings, &plan))
        return EXIT_FAILED;
    return command_carry_out(settings, words[0], &plan, NULL, print_waiting);
}

/* --- balancing --- */

static int print_balance(const struct cluster_config *config, const Rowan__Plan *plan, bool json)
{
    const char *word = cluster_balance_name(config->balance);
    (void)plan;
    if (json)
        return tool_print_json(
            json_pack("{s:I, s:s}", "term", (json_int_t)config->term, "balance", word));
    printf("balancing is %s%s\n", word,
           config->balance == BALANCE_DRY_RUN
               ? ": the log of the configuration manager says what it would do (balance_would)"
               : "");
    return 0;
}

int command_balance(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    plan.kind = ROWAN__PLAN__KIND__BALANCE;
    while (plan.to < BALANCE_MODES &&
           strcmp(words[1], cluster_balance_name((enum cluster_balance)plan.to)) != 0)
        plan.to++;
    if (plan.to == BALANCE_MODES || settings->wait)
        return tool_usage("balance is followed by on, off or dry-run, and nothing to wait for");
    return command_carry_out(settings, words[0], &plan, NULL, print_balance);
}
