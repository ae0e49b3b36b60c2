/* The table of a worker's writes, through op.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/worker/op.h"

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

static struct op *open_op(struct fixture *f, uint64_t hash, bool conditional)
{
    struct op *op = op_open(&f->table, hash, &f->client);
    assert_non_null(op);
    op->conditional = conditional;
    return op;
}

static void a_plain_write_starts_beside_others_in_flight(void **state)
{
    struct fixture *f = *state;
    struct op *first = open_op(f, 7, false);
    assert_true(op_may_start(&f->table, first));
    first->state = OP_IN_FLIGHT;
    struct op *second = open_op(f, 7, false);
    assert_true(op_may_start(&f->table, second));
}

static void a_conditional_write_waits_for_one_in_flight(void **state)
{
    struct fixture *f = *state;
    struct op *first = open_op(f, 7, false);
    first->state = OP_IN_FLIGHT;
    struct op *other_key = open_op(f, 7 + OP_BUCKETS, true);
    assert_true(op_may_start(&f->table, other_key));
    struct op *conditional = open_op(f, 7, true);
    assert_false(op_may_start(&f->table, conditional));
    op_close(&f->table, first);
    assert_true(op_may_start(&f->table, conditional));
}

static void later_writes_queue_behind_a_waiting_conditional_one(void **state)
{
    struct fixture *f = *state;
    struct op *first = open_op(f, 7, false);
    first->state = OP_IN_FLIGHT;
    struct op *conditional = open_op(f, 7, true);
    struct op *plain = open_op(f, 7, false);
    assert_false(op_may_start(&f->table, plain));
    assert_ptr_equal(op_next_waiting(&f->table, 7), conditional);
    op_close(&f->table, first);
    conditional->state = OP_IN_FLIGHT;
    assert_true(op_may_start(&f->table, plain));
    assert_ptr_equal(op_next_waiting(&f->table, 7), plain);
}

static void a_write_that_waits_for_its_reply_holds_nobody_up(void **state)
{
    struct fixture *f = *state;
    struct op *first = open_op(f, 7, false);
    first->state = OP_REPLYING;
    assert_true(op_may_start(&f->table, open_op(f, 7, true)));
}

static void a_full_table_gives_no_record_until_one_is_closed(void **state)
{
    struct fixture *f = *state;
    struct op *last = NULL;
    for (uint32_t i = 0; i < OP_TABLE_SIZE; i++)
        last = open_op(f, i * 31, false);
    assert_null(op_open(&f->table, 1, &f->client));
    assert_int_equal(f->table.used, OP_TABLE_SIZE);
    assert_int_equal(f->client.ops, OP_TABLE_SIZE);
    op_close(&f->table, last);
    assert_non_null(op_open(&f->table, 1, &f->client));
}

static void a_forgotten_client_leaves_its_writes_alone(void **state)
{
    struct fixture *f = *state;
    struct op *a = open_op(f, 1, false), *b = open_op(f, 2, false), *c = open_op(f, 3, false);
    op_forget_client(b);
    assert_null(b->client);
    assert_int_equal(f->client.ops, 2);
    op_close(&f->table, c);
    assert_ptr_equal(f->client.first, a);
    op_close(&f->table, b);
    op_close(&f->table, a);
    assert_null(f->client.first);
    assert_int_equal(f->table.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_plain_write_starts_beside_others_in_flight, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_conditional_write_waits_for_one_in_flight, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(later_writes_queue_behind_a_waiting_conditional_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_write_that_waits_for_its_reply_holds_nobody_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_full_table_gives_no_record_until_one_is_closed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_forgotten_client_leaves_its_writes_alone, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
