/* How a shard's load spreads over slots and keys, through work.h. */
#include "server/shard/work.h"

#include "common/cluster/slot.h"
#include "test/lib/unit.h"

enum { FIRST = 100, LAST = 199 };

/* So many requests of one key of that slot. */
static void ask(struct work *work, uint32_t slot, uint32_t requests)
{
    char key[24];
    uint32_t bytes, number = 0;
    do
        bytes = (uint32_t)snprintf(key, sizeof key, "key %u", number++);
    while (slot_of_key(key, bytes) != slot);
    for (uint32_t i = 0; i < requests; i++)
        work_sample(work, number, key, bytes);
}

static void assert_split(struct work *work, uint32_t slot, uint32_t samples)
{
    work_look(work);
    assert_int_equal(work->spread.split, slot);
    assert_int_equal(work->spread.samples, samples);
}

TEST(a_shard_is_split_where_its_load_is_halved)
{
    struct work work = {0};
    assert_int_equal(work_init(&work, FIRST, LAST), 0);
    work_look(&work);
    assert_int_equal(work.spread.split, 0);
    ask(&work, 110, 10);
    ask(&work, 120, 20);
    ask(&work, 190, 31);
    ask(&work, LAST + 1, 1000); /* of a client with a wrong map */
    assert_split(&work, 190, 61);
    assert_split(&work, 190, 30); /* they fade */
    work_fini(&work);
}

/* Next to the hot slot, not next to a cold one with as much on that side. */
TEST(a_hot_slot_is_alone_after_two_splits)
{
    struct work work = {0}, high = {0}, alone = {0};
    assert_int_equal(work_init(&work, FIRST, LAST), 0);
    ask(&work, 110, 2);
    ask(&work, 150, 100);
    ask(&work, 160, 1);
    assert_split(&work, 150, 103);
    assert_int_equal(work.spread.hot_slot, 150);
    assert_int_equal(work.spread.key_samples, 100);
    assert_int_equal(strncmp(work.spread.key, "key ", 4), 0);
    assert_int_equal(work_init(&high, 150, LAST), 0);
    ask(&high, 150, 100);
    ask(&high, 160, 1);
    assert_split(&high, 151, 101);
    assert_int_equal(work_init(&alone, 150, 150), 0);
    ask(&alone, 150, 100);
    assert_split(&alone, 0, 100);
    work_fini(&work);
    work_fini(&high);
    work_fini(&alone);
}

UNIT_MAIN(NULL, NULL)
