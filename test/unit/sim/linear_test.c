/* Histories known to be good and known to be bad, and many small random ones whose verdict is compared
 * with that of a search that tries every order. */
#include "test/sim/linear.h"

#include "test/lib/register_history.h"
#include "test/lib/unit.h"

/* Operations, called and answered at these times. */
#define OP(what, how, from, to, ...)                                                               \
    {                                                                                              \
        .kind = HISTORY_##what, .outcome = HISTORY_##how, .called = from, .answered = to,          \
        __VA_ARGS__                                                                                \
    }
#define GET(from, to, what, seen)    OP(GET, DONE, from, to, .value = what, .version = seen)
#define GET_ABSENT(from, to)         OP(GET, ABSENT, from, to)
#define PUT(from, to, what, gave)    OP(PUT, DONE, from, to, .value = what, .version = gave)
#define PUT_UNKNOWN(from, to, what)  OP(PUT, UNKNOWN, from, to, .value = what)
#define PUT_OPEN(from, what)         OP(PUT, OPEN, from, 0, .value = what)
#define PUT_REJECTED(from, to, what) OP(PUT, REJECTED, from, to, .value = what)
#define PUT_IF(from, to, wants, what, gave)                                                        \
    OP(PUT_IF, DONE, from, to, .expected = wants, .value = what, .version = gave)
#define PUT_IF_MISSED(from, to, wants, what, seen)                                                 \
    OP(PUT_IF, MISMATCH, from, to, .expected = wants, .value = what, .version = seen)
#define PUT_IF_UNKNOWN(from, to, wants, what)                                                      \
    OP(PUT_IF, UNKNOWN, from, to, .expected = wants, .value = what)
#define DELETE(from, to)            OP(DELETE, DONE, from, to)
#define DELETE_TOLD(from, to, gave) OP(DELETE, DONE, from, to, .version = gave)
#define DELETE_ABSENT(from, to)     OP(DELETE, ABSENT, from, to)

/* The verdict; both searches agree, and a NO has a reason. */
static bool check(const struct history_op *ops, size_t count, const char *why)
{
    struct linear_result result;
    linear_check(ops, count, 0, &result);
    assert_int_not_equal(result.verdict, LINEAR_TOO_LONG);
    if ((result.verdict == LINEAR_YES) != register_history_is_linear(ops, count))
        fail_msg("the searches differ: %d %s", result.verdict, result.why);
    if (result.verdict == LINEAR_YES)
        return true;
    assert_true(result.stuck < count);
    if (why && !strstr(result.why, why))
        fail_msg("%s", result.why);
    return false;
}

#define GOOD(...)                                                                                  \
    assert_true(check((struct history_op[]){__VA_ARGS__},                                          \
                      sizeof((struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op),      \
                      NULL))
#define BAD(why, ...)                                                                              \
    assert_false(check((struct history_op[]){__VA_ARGS__},                                         \
                       sizeof((struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op),     \
                       why))

/* --- known outcomes --- */

TEST(a_history_of_nothing_is_good)
{
    struct linear_result result;
    linear_check(NULL, 0, 0, &result);
    assert_int_equal(result.verdict, LINEAR_YES);
    GOOD(GET_ABSENT(1, 2), DELETE_ABSENT(3, 4), PUT_IF_MISSED(5, 6, 9, 0xa, 0));
}

/* Whether a history is good is what small_histories_get_the_verdict_of_every_order compares; here is what is said of it. */
TEST(each_reason_is_named)
{
    BAD("two conditional puts took effect on one version", PUT(1, 2, 0xa, 1),
        PUT_IF(3, 6, 1, 0xb, 2), PUT_IF(4, 5, 1, 0xc, 3));
    BAD("though a version came between", PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2),
        PUT_IF(5, 6, 1, 0xc, 3));
    BAD("behind", PUT(1, 2, 0xa, 1), GET_ABSENT(3, 4));
    BAD("backwards", PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(5, 6, 0xa, 1));
    BAD("absence", DELETE(1, 2));
    BAD("a value that nobody wrote", GET(1, 2, 0xa, 1));
    BAD("one version has two values", PUT(1, 2, 0xa, 1), GET(3, 4, 0xb, 1));
    BAD("under another version", PUT(1, 2, 0xa, 1), GET(3, 4, 0xa, 2));
    BAD("before its write was called", GET(1, 2, 0xa, 1), PUT(3, 4, 0xa, 1));
    BAD("without a version", PUT(1, 2, 0xa, 0));
    BAD("had no effect, it was said", PUT_REJECTED(1, 2, 0xa), GET(3, 4, 0xa, 1));
    BAD("a version that nobody wrote", PUT(1, 2, 0xa, 1), PUT_IF(3, 4, 7, 0xb, 8));
    BAD("it missed the version that it expected", PUT(1, 2, 0xa, 1),
        PUT_IF_MISSED(3, 4, 1, 0xb, 1));
    BAD("it missed the absence that it expected", PUT_IF_MISSED(3, 4, 0, 0xb, 0));
    BAD("no higher version", PUT(1, 4, 0xa, 5), PUT_IF(2, 3, 5, 0xb, 3));
    BAD("two writes gave one version", PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 1));
    BAD("that a delete gave", PUT(1, 2, 0xa, 1), DELETE_TOLD(3, 4, 2), GET(5, 6, 0xa, 2));
    BAD("more versions have this value", PUT_UNKNOWN(1, 2, 0xa), PUT_UNKNOWN(3, 4, 0xa),
        GET(5, 6, 0xa, 1), GET(7, 8, 0xa, 2), GET(9, 10, 0xa, 3));
}

/* --- unknown outcomes --- */

TEST(a_write_of_unknown_outcome_may_be_seen_or_not)
{
    GOOD(PUT(1, 2, 0xa, 1), PUT_UNKNOWN(3, 4, 0xb), GET(5, 6, 0xa, 1), GET(7, 8, 0xa, 1));
    GOOD(PUT(1, 2, 0xa, 1), PUT_UNKNOWN(3, 4, 0xb), GET(5, 6, 0xb, 2), GET(7, 8, 0xb, 2));
    GOOD(PUT(1, 2, 0xa, 1), PUT_OPEN(3, 0xb), GET(5, 6, 0xa, 1), GET(7, 8, 0xb, 2));
    GOOD(PUT(1, 2, 0xa, 1), PUT_UNKNOWN(3, 4, 0xb), GET(5, 6, 0xa, 1), PUT(7, 8, 0xc, 2),
         GET(9, 10, 0xb, 3));
}

TEST(the_search_comes_back_to_a_place_with_other_writes_left)
{
    /* The conditional put of 0xb has to be the first version, though others could be. */
    GOOD(PUT_UNKNOWN(1, 2, 0xa), PUT_UNKNOWN(1, 3, 0xb), PUT_IF_UNKNOWN(1, 4, 0, 0xb),
         GET(5, 6, 0, 1), GET(7, 8, 0, 2), GET(9, 10, 0xb, 3));
    /* The one of 0xa has to be spared for the third. */
    GOOD(PUT_IF_UNKNOWN(1, 2, 0, 0xa), PUT_IF_UNKNOWN(1, 3, 99, 0xa), PUT_UNKNOWN(1, 4, 0xb),
         PUT_UNKNOWN(1, 5, 0xb), GET(6, 7, 0, 1), DELETE(8, 9), GET(10, 11, 0xa, 3),
         GET(12, 13, 0xb, 4));
    BAD(NULL, PUT_UNKNOWN(1, 2, 0xa), PUT_UNKNOWN(1, 3, 0xb), PUT_IF_UNKNOWN(1, 4, 9, 0xb),
        GET(5, 6, 0, 1), GET(7, 8, 0, 2), GET(9, 10, 0xb, 3));
}

TEST(what_was_rejected_or_read_without_an_answer_says_nothing)
{
    GOOD({.kind = HISTORY_GET, .outcome = HISTORY_UNKNOWN, .called = 1, .answered = 2},
         {.kind = HISTORY_GET, .outcome = HISTORY_OPEN, .called = 3},
         {.kind = HISTORY_GET, .outcome = HISTORY_REJECTED, .called = 4, .answered = 5},
         PUT_REJECTED(6, 7, 0xa), GET_ABSENT(8, 9));
}

/* --- many --- */

struct tally {
    uint32_t good, bad;
};

static void compare(const struct history *history, uint64_t seed, struct tally *tally)
{
    struct linear_result result;
    linear_check(history->ops, history->count, 0, &result);
    bool linear = register_history_is_linear(history->ops, history->count);
    if ((result.verdict == LINEAR_YES) != linear)
        fail_msg("seed %lu: every order says %d, the search %d %s", seed, linear, result.verdict,
                 result.why);
    tally->good += linear;
    tally->bad += !linear;
}

static struct register_options draw_options(uint64_t seed, struct random *random)
{
    struct register_options options = {.seed = seed};
    options.operations = 1 + (uint32_t)random_below(random, 10);
    options.clients = 1 + (uint32_t)random_below(random, 5);
    options.unknowns = (uint32_t)random_below(random, 6);
    options.gets = (uint32_t)random_below(random, 6);
    options.puts = 1 + (uint32_t)random_below(random, 4);
    options.put_ifs = (uint32_t)random_below(random, 5);
    options.deletes = (uint32_t)random_below(random, 5);
    options.short_in = (uint32_t)random_below(random, 4);
    options.unseen_in = (uint32_t)random_below(random, 5);
    options.tell_deletes = random_below(random, 2) == 0;
    options.version_gap = 1 + (uint32_t)random_below(random, 3);
    return options;
}

TEST(long_histories_are_judged_in_few_states)
{
    for (size_t i = 0; i < register_shape_count; i++) {
        const struct register_options *options = &register_shapes[i].options;
        uint64_t most = options->clients > 20 || options->unknowns > 50 ? 400000 : 100000;
        struct history history;
        struct linear_result result;
        register_history(options, &history);
        linear_check(history.ops, history.count, most, &result);
        if (result.verdict != LINEAR_YES)
            fail_msg("%s: %d %s", register_shapes[i].name, result.verdict, result.why);
        register_history_end_badly(&history);
        linear_check(history.ops, history.count, most, &result);
        if (result.verdict != LINEAR_NO)
            fail_msg("%s: %d", register_shapes[i].name, result.verdict);
        if (result.stuck < history.count - 3)
            fail_msg("%s: stuck at %zu: %s", register_shapes[i].name, result.stuck, result.why);
        history_fini(&history);
    }
}

TEST(a_search_that_takes_too_long_says_so)
{
    struct history history;
    struct linear_result result;
    register_history(&register_shapes[1].options, &history);
    linear_check(history.ops, history.count, 1000, &result);
    assert_int_equal(result.verdict, LINEAR_TOO_LONG);
    assert_int_equal(result.states, 1000);
    history_fini(&history);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(small_histories_get_the_verdict_of_every_order)
{
    uint64_t from = 1, to = 20000;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    struct tally tally = {0};
    for (uint64_t seed = from; seed <= to; seed++) {
        struct random random;
        random_init(&random, seed);
        struct register_options options = draw_options(seed, &random);
        struct history history;
        register_history(&options, &history);
        struct tally before = tally;
        compare(&history, seed, &tally);
        if (tally.bad != before.bad)
            fail_msg("seed %lu: linearizable by its making", seed);
        for (int i = 0; i < 3; i++) {
            register_history_spoil(&history, &random);
            compare(&history, seed, &tally);
        }
        history_fini(&history);
    }
    print_message("# good %u, bad %u\n", tally.good, tally.bad);
    assert_true(tally.bad > (to - from) / 2 && tally.good > to - from);
}

int main(void)
{
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("small_histories*");
    return unit_run(NULL, NULL);
}
