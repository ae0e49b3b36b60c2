/* Histories cut in two by a loss, known to be good and known to be bad. Times and numbers of events are the same; the
 * loss is at 100, and versions behind it are 1000 and more. */
#include "test/sim/linear_loss.h"

#include "test/lib/unit.h"

enum { LOSS = 100, BEHIND = 1000 };

#define OP(what, how, from, to, ...)                                                               \
    {                                                                                              \
        .kind = HISTORY_##what, .outcome = HISTORY_##how, .called = from, .answered = to,          \
        .called_ns = from, .answered_ns = to, __VA_ARGS__                                          \
    }
#define GET(from, to, what, seen)   OP(GET, DONE, from, to, .value = what, .version = seen)
#define GET_ABSENT(from, to)        OP(GET, ABSENT, from, to)
#define PUT(from, to, what, gave)   OP(PUT, DONE, from, to, .value = what, .version = gave)
#define PUT_UNKNOWN(from, to, what) OP(PUT, UNKNOWN, from, to, .value = what)
#define PUT_IF(from, to, wants, what, gave)                                                        \
    OP(PUT_IF, DONE, from, to, .expected = wants, .value = what, .version = gave)
#define PUT_IF_UNKNOWN(from, to, wants, what)                                                      \
    OP(PUT_IF, UNKNOWN, from, to, .expected = wants, .value = what)
#define DELETE(from, to) OP(DELETE, DONE, from, to)

static bool check(const struct history_op *ops, size_t count, uint32_t turned_back)
{
    const struct linear_loss loss = {.at_ns = LOSS, .version = BEHIND};
    struct linear_result result;
    uint32_t times;
    linear_check_losses(ops, count, &loss, 1, 0, &result, &times);
    assert_int_not_equal(result.verdict, LINEAR_TOO_LONG);
    if (result.verdict == LINEAR_YES)
        assert_int_equal(times, turned_back);
    else
        assert_true(result.stuck < count && result.why[0]);
    return result.verdict == LINEAR_YES;
}

#define CHECK(back, ...)                                                                           \
    check((struct history_op[]){__VA_ARGS__},                                                      \
          sizeof((struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op), back)
#define SAME(...) assert_true(CHECK(0, __VA_ARGS__))
#define BACK(...) assert_true(CHECK(1, __VA_ARGS__))
#define BAD(...)  assert_false(CHECK(0, __VA_ARGS__))

TEST(behind_a_loss_a_key_has_any_version_that_it_had)
{
    SAME(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(101, 102, 0xb, 2));
    BACK(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(101, 102, 0xa, 1));
    BACK(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET_ABSENT(101, 102));
    BACK(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), PUT_IF(101, 102, 1, 0xc, 1001));
    SAME(PUT(1, 2, 0xa, 1), PUT_IF(101, 102, 0, 0xc, 1001), GET(103, 104, 0xc, 1001));
}

TEST(a_deleted_key_may_come_back_with_a_loss)
{
    BACK(PUT(1, 2, 0xa, 1), OP(DELETE, DONE, 3, 4, .version = 2), GET(101, 102, 0xa, 1));
    BAD(PUT(1, 2, 0xa, 1), OP(DELETE, DONE, 3, 4, .version = 2), GET(101, 102, 0xa, 2));
}

TEST(a_write_of_unknown_outcome_is_there_behind_a_loss_or_is_not)
{
    SAME(PUT_UNKNOWN(1, 2, 0xa), GET(101, 102, 0xa, 5));
    SAME(PUT_UNKNOWN(1, 2, 0xa), GET(101, 102, 0xa, 1001));
    SAME(PUT_UNKNOWN(1, 2, 0xa), GET_ABSENT(101, 102));
    BACK(PUT(1, 2, 0xa, 1), PUT_IF_UNKNOWN(3, 4, 1, 0xb), GET_ABSENT(101, 102));
    SAME(PUT(1, 2, 0xa, 1), PUT_IF_UNKNOWN(101, 102, 1, 0xb), GET(103, 104, 0xb, 1001));
}

TEST(behind_a_loss_it_is_a_register_again)
{
    BAD(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(101, 102, 0xa, 1), GET(103, 104, 0xb, 2));
    BAD(PUT(1, 2, 0xa, 1), GET(101, 102, 0xa, 1), GET_ABSENT(103, 104));
    BAD(PUT(1, 2, 0xa, 1), GET_ABSENT(101, 102), GET(103, 104, 0xa, 1));
    BAD(PUT(1, 2, 0xa, 1), PUT(101, 102, 0xb, 1001), GET(103, 104, 0xa, 1));
    BAD(PUT(1, 2, 0xa, 1), DELETE(101, 102), GET(103, 104, 0xa, 1));
}

TEST(in_front_of_a_loss_nothing_is_lost)
{
    BAD(PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(5, 6, 0xa, 1), GET_ABSENT(101, 102));
    BAD(PUT(1, 2, 0xa, 1), GET_ABSENT(3, 4));
}

TEST(a_version_that_nobody_wrote_is_none_behind_a_loss_either)
{
    BAD(PUT(1, 2, 0xa, 1), GET(101, 102, 0xb, 1));
    BAD(PUT(1, 2, 0xa, 1), GET(101, 102, 0xa, 2));
    BAD(PUT(1, 2, 0xa, 1), GET(101, 102, 0xb, 2), PUT_UNKNOWN(103, 104, 0xb));
    BAD(GET(101, 102, 0xa, 1));
}

TEST(a_version_says_on_which_side_of_the_loss_it_was_given)
{
    SAME(PUT(1, 102, 0xa, 1), GET_ABSENT(103, 104));
    SAME(PUT(1, 102, 0xa, 1001), GET(103, 104, 0xa, 1001));
    BAD(PUT(1, 102, 0xa, 1001), GET_ABSENT(103, 104));
    BAD(PUT(1, 2, 0xa, 1001));
    BAD(PUT(101, 102, 0xa, 1));
    BACK(PUT(1, 2, 0xa, 1), GET(3, 102, 0xa, 1), GET_ABSENT(103, 104));
    BAD(PUT(1, 101, 0xa, 1001), GET(2, 102, 0xa, 1001), GET_ABSENT(103, 104));
}

TEST(losses_one_after_another_cut_a_history_in_as_many_parts)
{
    const struct linear_loss losses[] = {{.at_ns = 100, .version = 1000},
                                         {.at_ns = 200, .version = 2000}};
    const struct history_op ops[] = {PUT(1, 2, 0xa, 1), PUT(3, 4, 0xb, 2), GET(101, 102, 0xb, 2),
                                     PUT(103, 104, 0xc, 1001), GET(201, 202, 0xa, 1)};
    struct linear_result result;
    uint32_t turned_back;
    linear_check_losses(ops, 5, losses, 2, 0, &result, &turned_back);
    assert_int_equal(result.verdict, LINEAR_YES);
    assert_int_equal(turned_back, 1);
    linear_check_losses(ops, 5, losses, 1, 0, &result, &turned_back);
    assert_int_equal(result.verdict, LINEAR_NO);
    linear_check_losses(ops, 5, losses, 0, 0, &result, &turned_back);
    assert_int_equal(result.verdict, LINEAR_NO);
}

UNIT_MAIN(NULL, NULL)
