/* outbox_test.c - messages in front of a connection that has room for a number that the test says.
 */
#define TEST_FIXTURE reset, NULL

#include "cm/outbox.h"
#include "common/base/error.h"
#include "common/cluster/control.h"
#include "test/lib/unit.h"

static unsigned room;
static unsigned sent_count;
static uint32_t sent_tags[64], sent_ids[64];

static int send_if_room(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count)
{
    (void)conn;
    if (room == 0)
        return ROWAN_EAGAIN;
    room--;
    uint8_t bytes[256];
    size_t total = 0;
    for (unsigned i = 0; i < count; i++) {
        memcpy(bytes + total, iov[i].data, iov[i].bytes);
        total += iov[i].bytes;
    }
    Rowan__ControlMessage *message;
    assert_int_equal(control_decode(bytes, total, &sent_tags[sent_count], &message), ROWAN_OK);
    sent_ids[sent_count++] = message->client_id_is->client_id;
    control_free(message);
    return ROWAN_OK;
}

static const struct fabric_ops ops = {.send = send_if_room};
static struct fabric_conn conn = {.ops = &ops, .layout = VERSION_MESSAGES_HIGHEST};
static struct outbox outbox;

static int reset(void **state)
{
    (void)state;
    memset(&outbox, 0, sizeof outbox);
    room = sent_count = 0;
    return 0;
}

static int post(uint32_t id, uint32_t tag, bool push)
{
    struct outgoing *outgoing = outgoing_client_id(id, NULL, NULL);
    int error = outbox_post(&outbox, &conn, outgoing, tag, push);
    outgoing_release(outgoing);
    return error;
}

TEST(messages_leave_in_order_when_there_is_room)
{
    room = 1;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(post(i, 10 + i, false), ROWAN_OK);
    assert_int_equal(sent_count, 1);
    room = 2;
    assert_int_equal(outbox_flush(&outbox, &conn), ROWAN_EAGAIN);
    assert_int_equal(sent_count, 3);
    room = 1; /* what waits goes first */
    assert_int_equal(post(5, 15, false), ROWAN_OK);
    assert_int_equal(sent_count, 3);
    room = 9;
    assert_int_equal(outbox_flush(&outbox, &conn), ROWAN_OK);
    assert_int_equal(sent_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(sent_ids[i], i);
        assert_int_equal(sent_tags[i], 10 + i);
    }
}

TEST(a_full_outbox_says_so)
{
    for (uint32_t i = 0; i < OUTBOX_MAX_MESSAGES; i++)
        assert_int_equal(post(i, 1, false), ROWAN_OK);
    assert_int_equal(post(99, 1, false), ROWAN_EBUSY);
    outbox_clear(&outbox);
    assert_int_equal(outbox.count, 0);
}

TEST(news_replaces_older_news_that_waits)
{
    assert_int_equal(post(1, 7, false), ROWAN_OK);
    assert_int_equal(post(2, 0, true), ROWAN_OK);
    assert_int_equal(post(3, 8, false), ROWAN_OK);
    for (uint32_t id = 4; id < 100; id++)
        assert_int_equal(post(id, 0, true), ROWAN_OK);
    room = 9;
    assert_int_equal(outbox_flush(&outbox, &conn), ROWAN_OK);
    assert_int_equal(sent_count, 3);
    assert_int_equal(sent_ids[0], 1);
    assert_int_equal(sent_ids[1], 99);
    assert_int_equal(sent_ids[2], 3);
}

UNIT_MAIN(NULL, NULL)
