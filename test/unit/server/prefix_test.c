/* The versions that arrived, through prefix.h: by hand, and against a model that remembers each. */
#include "common/base/random.h"
#include "common/entry/entry.h"
#include "server/shard/prefix.h"
#include "test/lib/unit.h"

static uint64_t v(uint32_t epoch, uint64_t counter)
{
    return version_make(epoch, counter);
}

TEST(the_last_version_of_an_epoch_does_not_touch_the_next)
{
    struct prefix prefix;
    uint64_t end = (UINT64_C(1) << VERSION_COUNTER_BITS) - 1;
    prefix_init(&prefix, v(1, end - 1));
    prefix_add(&prefix, v(1, end));
    prefix_add(&prefix, v(2, 0));
    assert_int_equal(prefix.upto, v(1, end));
    assert_int_equal(prefix.count, 0);
    prefix_add(&prefix, UINT64_MAX);
    prefix_add(&prefix, UINT64_MAX);
    assert_int_equal(prefix.count, 1);
}

/* The lowest hole is asked for first: what comes below the others must find a range. */
TEST(with_too_many_ranges_a_lower_version_takes_the_place_of_the_highest)
{
    struct prefix prefix;
    prefix_init(&prefix, v(1, 0));
    for (uint64_t i = 1; i <= PREFIX_RANGES; i++)
        prefix_add(&prefix, v(1, 10 * i));
    assert_true(prefix_add(&prefix, v(1, 5)));
    assert_true(prefix_has(&prefix, v(1, 5)));
    assert_false(prefix_has(&prefix, v(1, 10 * PREFIX_RANGES)));
}

/* --- against a model --- */

enum { MODEL_EPOCHS = 4, MODEL_COUNTERS = 700 };

struct model {
    bool arrived[MODEL_EPOCHS][MODEL_COUNTERS + 1];
    uint32_t settled; /* epochs below it */
};

/* The prefix as the model has it: in the highest settled epoch, up to its first gap. */
static uint64_t model_upto(const struct model *model)
{
    uint64_t counter = 0;
    while (counter < MODEL_COUNTERS && model->arrived[model->settled][counter + 1])
        counter++;
    return v(model->settled, counter);
}

static bool model_has(const struct model *model, uint64_t version)
{
    return version_epoch(version) < model->settled ||
           model->arrived[version_epoch(version)][version_counter(version)];
}

/* What the tracker claims has arrived or is settled; when nothing was ever forgotten, what it knows
 * is the model's prefix exactly. */
static void compare(const struct prefix *prefix, const struct model *model, bool forgot)
{
    uint64_t upto = model_upto(model);
    assert_true(prefix->upto <= upto);
    if (!forgot)
        assert_int_equal(prefix->upto, upto);
    assert_true(prefix->count <= PREFIX_RANGES);
    uint64_t end = prefix->upto;
    for (uint32_t i = 0; i < prefix->count; i++) {
        const struct prefix_range *range = &prefix->ranges[i];
        assert_true(range->first > end + 1 && range->last >= range->first);
        assert_int_equal(version_epoch(range->first), version_epoch(range->last));
        for (uint64_t version = range->first; version <= range->last; version++)
            assert_true(model_has(model, version));
        end = range->last;
    }
    for (uint64_t counter = 0; counter <= MODEL_COUNTERS; counter++) {
        uint64_t first, last, commit = v(model->settled, counter);
        if (!prefix_hole(prefix, commit, &first, &last)) {
            assert_true(commit <= upto);
            continue;
        }
        assert_int_equal(first, prefix->upto + 1);
        assert_true(last >= first && last <= commit);
        if (forgot)
            continue;
        for (uint64_t version = first; version <= last; version++)
            assert_false(model_has(model, version));
        assert_true(last == commit || model_has(model, last + 1));
    }
}

/* Versions arrive out of order within a window, often twice. True if some were forgotten. */
static bool random_run(uint64_t seed, uint64_t window)
{
    struct random random;
    random_init(&random, seed);
    struct prefix prefix;
    struct model model = {.settled = 0};
    bool forgot = false;
    prefix_init(&prefix, v(0, 0));
    for (unsigned step = 0; step < 600; step++) {
        uint64_t dice = random_below(&random, 200);
        if (dice == 0 && model.settled + 1 < MODEL_EPOCHS) {
            prefix_settle(&prefix, ++model.settled);
        } else if (dice == 1) {
            prefix_settle(&prefix, (uint32_t)random_below(&random, model.settled + 1));
        } else {
            uint32_t epoch = model.settled;
            uint64_t base = version_counter(model_upto(&model));
            if (dice < 10 && epoch + 1 < MODEL_EPOCHS)
                epoch++, base = 0;
            uint64_t counter = base + random_below(&random, window);
            if (counter > MODEL_COUNTERS)
                counter = MODEL_COUNTERS;
            forgot |= prefix.count == PREFIX_RANGES;
            const bool had = prefix_has(&prefix, v(epoch, counter));
            assert_true(!had || counter == 0 || model.arrived[epoch][counter]);
            if (counter > 0)
                model.arrived[epoch][counter] = true;
            assert_false(prefix_add(&prefix, v(epoch, counter)) && had);
        }
        if (step % 8 == 0)
            compare(&prefix, &model, forgot);
    }
    /* Whatever was forgotten: coming again, it closes every hole. */
    for (uint64_t counter = 1; counter <= MODEL_COUNTERS; counter++)
        prefix_add(&prefix, v(model.settled, counter));
    assert_int_equal(prefix.upto, v(model.settled, MODEL_COUNTERS));
    return forgot;
}

TEST(random_arrivals_agree_with_a_model_that_remembers_each)
{
    unsigned forgetful = 0;
    for (uint64_t seed = 0; seed < 90; seed++) {
        print_message("# seed %lu\n", (unsigned long)seed);
        forgetful += random_run(seed, seed % 3 == 0 ? 600 : seed % 3 == 1 ? 20 : 4);
    }
    assert_in_range(forgetful, 10, 60);
}

UNIT_MAIN(NULL, NULL)
