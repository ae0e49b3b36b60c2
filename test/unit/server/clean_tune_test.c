/* The clean role's threshold, which changes while it runs. */
#include "clean_server.h"

enum { POLLS = 300 };

static void poll(void)
{
    uint64_t wake_ns = UINT64_MAX;
    for (unsigned i = 0; i < POLLS; i++)
        clean_poll(clean, now_ns, &wake_ns);
}

/* A committed segment of which two fifths are live. */
static uint64_t fill(struct image *image, uint64_t first)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint64_t i = first; image->suffix < STORE_SEGMENT_BYTES * 2 / 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%lu", i);
        write_entry(image, &(struct entry){.shard = LED,
                                           .version = v(1 + i),
                                           .key = key,
                                           .value_bytes = sizeof image->value});
    }
    store_transition(image->store, image->segment, SEGMENT_USED);
    store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    return image->segment;
}

static uint64_t segment_of(const struct image *image, const char *key)
{
    return store_segment_at(image->store, find(led, key));
}

TEST(another_threshold_holds_from_the_next_look_on)
{
    const uint64_t first = fill(image, 0), second = fill(image, 1000);
    begin_server(image, SEGMENTS - 5, false); /* so few are free that it cleans */
    clean_tune(clean, 30, false);
    poll();
    assert_int_equal(segment_of(image, "key-0"), first);
    assert_int_equal(segment_of(image, "key-1000"), second);
    clean_tune(clean, CLEAN_LIVE_PERCENT, false);
    poll();
    assert_int_not_equal(segment_of(image, "key-0"), first);
}

UNIT_MAIN(NULL, NULL)
