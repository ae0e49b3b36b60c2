/* verbs_devices.h - for tests that open the backend's device on devices made of software. */
#ifndef TEST_VERBS_DEVICES_H
#define TEST_VERBS_DEVICES_H

#include "common/fabric/verbs/verbs.h"
#include "test/lib/asserts.h"
#include "test/lib/soft_verbs.h"

static struct verbs_obstacle why;

static inline int reset(void **state)
{
    (void)state;
    soft_verbs_configure(NULL);
    soft_verbs_fail_call(0, 0);
    memset(&why, 0, sizeof why);
    return 0;
}

static inline void configure(struct soft_device_config first, struct soft_device_config second)
{
    const struct soft_config config = {.seed = 1, .devices = {first, second}};

    soft_verbs_configure(&config);
}

static inline struct verbs_device *open_for(const char *host,
                                            const struct fabric_verbs_options *options)
{
    struct verbs_device *device = NULL;

    assert_int_equal(verbs_device_try(host, options, &device, &why), 0);
    assert_non_null(device);
    return device;
}

#endif
