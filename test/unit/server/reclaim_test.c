/* Who still needs a segment: the rules, in one thread. */
#include "server/store/reclaim.h"
#include "test/lib/unit.h"

static struct reclaim reclaim;
static struct reclaim_role one, two;

/* Two roles that have left. */
static void begin(void)
{
    reclaim_init(&reclaim);
    reclaim_join(&reclaim, &one);
    reclaim_join(&reclaim, &two);
    reclaim_leave(&one, RECLAIM_NOTHING);
    reclaim_leave(&two, RECLAIM_NOTHING);
}

TEST(what_nobody_may_hold_is_over_at_once)
{
    begin();
    assert_true(reclaim_is_over(&reclaim, reclaim_retire(&reclaim)));
}

TEST(a_role_that_joined_holds_until_it_leaves)
{
    begin();
    struct reclaim_role third;
    reclaim_join(&reclaim, &third);
    const uint64_t ticket = reclaim_retire(&reclaim);

    assert_false(reclaim_is_over(&reclaim, ticket));
    reclaim_enter(&reclaim, &third);
    assert_false(reclaim_is_over(&reclaim, ticket));
    reclaim_leave(&third, RECLAIM_NOTHING);
    assert_true(reclaim_is_over(&reclaim, ticket));
}

TEST(who_entered_before_holds_it_up_and_who_enters_later_does_not)
{
    begin();
    reclaim_enter(&reclaim, &one);
    const uint64_t ticket = reclaim_retire(&reclaim);

    reclaim_enter(&reclaim, &two);
    assert_false(reclaim_is_over(&reclaim, ticket));
    reclaim_leave(&one, RECLAIM_NOTHING);
    assert_true(reclaim_is_over(&reclaim, ticket));
    assert_false(
        reclaim_is_over(&reclaim, reclaim_retire(&reclaim))); /* the other is still inside */
}

TEST(what_is_kept_from_poll_to_poll_is_held_since_it_was_found)
{
    begin();
    const uint64_t found = reclaim_enter(&reclaim, &one);
    reclaim_leave(&one, found);
    const uint64_t first = reclaim_retire(&reclaim), later = reclaim_enter(&reclaim, &one);

    assert_true(later > found);
    reclaim_leave(&one, found); /* still */
    const uint64_t second = reclaim_retire(&reclaim);
    assert_false(reclaim_is_over(&reclaim, first));
    reclaim_enter(&reclaim, &one);
    assert_int_equal(reclaim_since(&one), found);
    reclaim_leave(&one, later); /* the older is let go, what was found in the poll between is not */
    assert_true(reclaim_is_over(&reclaim, first));
    assert_false(reclaim_is_over(&reclaim, second));
    reclaim_enter(&reclaim, &one);
    reclaim_leave(&one, RECLAIM_NOTHING);
    assert_true(reclaim_is_over(&reclaim, second));
}

UNIT_MAIN(NULL, NULL)
