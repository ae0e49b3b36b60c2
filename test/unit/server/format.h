/* format.h - a store made at once, on a map whose fences are done when they start. Include after cmocka.h. */
#ifndef TEST_UNIT_SERVER_FORMAT_H
#define TEST_UNIT_SERVER_FORMAT_H

#include "server/store/store.h"

/* What store_format_start answers. */
static inline int store_format(struct pm *pm, const struct store_identity *identity)
{
    struct store_format format;
    int error = store_format_start(pm, identity, &format);

    if (!error)
        assert_int_equal(store_format_poll(&format), 1);
    return error;
}

#endif
