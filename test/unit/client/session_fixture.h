/* session_fixture.h - one session on a stage, and the last completion, for the cases of a test program.
 * Include once. */
#ifndef TEST_UNIT_CLIENT_SESSION_FIXTURE_H
#define TEST_UNIT_CLIENT_SESSION_FIXTURE_H

#include "test/lib/unit.h"
#include "test/unit/client/stage.h"

static struct stage stage;
__attribute__((unused)) static struct rowan_completion last;
static unsigned completions;

static inline void note(const struct rowan_completion *completion)
{
    last = *completion;
    completions++;
}

static inline int open_stage(void **state)
{
    (void)state;
    completions = 0;
    last = (struct rowan_completion){.status = 1};
    stage_open(&stage, 4, 0);
    return 0;
}

static inline int close_stage(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

static inline int post(enum message_type type, const char *key, rowan_callback callback)
{
    static char room[64];
    struct session_request request = {
        .type = type, .key = key, .key_bytes = strlen(key), .callback = callback};

    if (type == MESSAGE_GET) {
        request.room = room;
        request.room_bytes = sizeof room;
    } else if (type != MESSAGE_DELETE) {
        request.value = "value";
        request.value_bytes = 5;
    }
    return session_post(stage.session, &request);
}

/* Posts what is sent at once, and polls. */
static inline void submit(enum message_type type, const char *key, rowan_callback callback)
{
    assert_int_equal(post(type, key, callback), 0);
    stage_run(&stage);
}

/* The same, and the server has taken it. */
static inline struct request sent(enum message_type type, const char *key)
{
    submit(type, key, note);
    return stage_request(&stage);
}

static inline void answer(struct request *request, int status, uint64_t version, uint64_t term)
{
    stage_answer(request, status, version, term, NULL, 0);
    stage_run(&stage);
}

#undef TEST_FIXTURE
#define TEST_FIXTURE open_stage, close_stage

#endif
