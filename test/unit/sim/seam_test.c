#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/sim/cluster.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "common/base/log.h"
#include "test/sim/digests.h"

static void finish(struct sim_cluster *cluster, uint64_t objects)
{
    struct sim_digests digests;
    bool agree = sim_digests_agree(cluster, 10 * NS_PER_S, &digests);
    if (!agree)
        print_error("%s\n", digests.why);
    assert_true(agree);
    assert_int_equal(digests.objects, objects);
    sim_cluster_destroy(cluster);
}

static void what_was_put_is_got_until_it_is_deleted(void **state)
{
    (void)state;
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){.seed = 1});
    char value[16];
    size_t bytes;
    uint64_t version, got_version;
    assert_int_equal(sim_get(cluster, 0, "key", 3, value, sizeof value, NULL, NULL),
                     ROWAN_ENOTFOUND);
    assert_int_equal(sim_put(cluster, 0, "key", 3, "value", 5, &version), 0);
    assert_int_equal(sim_get(cluster, 0, "key", 3, value, sizeof value, &bytes, &got_version), 0);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "value", 5);
    assert_true(version > 0 && version == got_version);
    assert_int_equal(sim_del(cluster, 0, "key", 3), 0);
    assert_int_equal(sim_get(cluster, 0, "key", 3, value, sizeof value, NULL, NULL),
                     ROWAN_ENOTFOUND);
    assert_int_equal(sim_del(cluster, 0, "key", 3), ROWAN_ENOTFOUND);
    finish(cluster, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_got_until_it_is_deleted),
    };
    log_set_level(LOG_DEBUG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
