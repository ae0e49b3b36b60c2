/* The table of a worker's writes, through op.h. */
#define TEST_FIXTURE setup, teardown
#define TEST_STATE   struct fixture *f

#include "server/worker/write_op.h"
#include "test/lib/unit.h"

struct fixture {
    struct write_table table;
    struct client_link client;
};

static int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.client = {.kind = LINK_CLIENT}};
    *state = &fixture;
    return write_table_init(&fixture.table);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    write_table_fini(&f->table);
    return 0;
}

static struct write_op *open_op(struct fixture *f, uint64_t hash, bool conditional)
{
    struct write_op *op = write_op_open(&f->table, hash, &f->client);
    assert_non_null(op);
    op->conditional = conditional;
    return op;
}

TEST(a_plain_write_starts_beside_others_in_flight)
{
    struct write_op *first = open_op(f, 7, false);
    assert_true(write_op_may_start(&f->table, first));
    first->state = WRITE_OP_IN_FLIGHT;
    struct write_op *second = open_op(f, 7, false);
    assert_true(write_op_may_start(&f->table, second));
}

TEST(a_conditional_write_waits_for_one_in_flight)
{
    struct write_op *first = open_op(f, 7, false);
    first->state = WRITE_OP_IN_FLIGHT;
    struct write_op *other_key = open_op(f, 7 + WRITE_OP_BUCKETS, true);
    assert_true(write_op_may_start(&f->table, other_key));
    struct write_op *conditional = open_op(f, 7, true);
    assert_false(write_op_may_start(&f->table, conditional));
    write_op_close(&f->table, first);
    assert_true(write_op_may_start(&f->table, conditional));
}

TEST(later_writes_queue_behind_a_waiting_conditional_one)
{
    struct write_op *first = open_op(f, 7, false);
    first->state = WRITE_OP_IN_FLIGHT;
    struct write_op *conditional = open_op(f, 7, true);
    struct write_op *plain = open_op(f, 7, false);
    assert_false(write_op_may_start(&f->table, plain));
    assert_ptr_equal(write_op_next_waiting(&f->table, 7), conditional);
    write_op_close(&f->table, first);
    conditional->state = WRITE_OP_IN_FLIGHT;
    assert_true(write_op_may_start(&f->table, plain));
    assert_ptr_equal(write_op_next_waiting(&f->table, 7), plain);
}

TEST(a_write_that_waits_for_its_reply_holds_nobody_up)
{
    struct write_op *first = open_op(f, 7, false);
    first->state = WRITE_OP_REPLYING;
    assert_true(write_op_may_start(&f->table, open_op(f, 7, true)));
}

TEST(a_full_table_gives_no_record_until_one_is_closed)
{
    struct write_op *last = NULL;
    for (uint32_t i = 0; i < WRITE_OP_TABLE_SIZE; i++)
        last = open_op(f, i * 31, false);
    assert_null(write_op_open(&f->table, 1, &f->client));
    assert_int_equal(f->table.used, WRITE_OP_TABLE_SIZE);
    assert_int_equal(f->client.ops, WRITE_OP_TABLE_SIZE);
    write_op_close(&f->table, last);
    assert_non_null(write_op_open(&f->table, 1, &f->client));
}

TEST(a_forgotten_client_leaves_its_writes_alone)
{
    struct write_op *a = open_op(f, 1, false), *b = open_op(f, 2, false), *c = open_op(f, 3, false);
    write_op_forget_client(b);
    assert_null(b->client);
    assert_int_equal(f->client.ops, 2);
    write_op_close(&f->table, c);
    assert_ptr_equal(f->client.writes.first, a);
    write_op_close(&f->table, b);
    write_op_close(&f->table, a);
    assert_null(f->client.writes.first);
    assert_int_equal(f->table.used, 0);
}

UNIT_MAIN(NULL, NULL)
