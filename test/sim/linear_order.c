/* Lists from which elements are taken and put back in reverse (Knuth's dancing links). */
#include "test/sim/linear_order.h"

#include <stdlib.h>

#include "common/base/assert.h"

static void unlink_from(uint32_t *later, uint32_t *earlier, uint32_t element)
{
    later[earlier[element]] = later[element];
    earlier[later[element]] = earlier[element];
}

/* `element` still knows between which two it was. */
static void link_back(uint32_t *later, uint32_t *earlier, uint32_t element)
{
    later[earlier[element]] = element;
    earlier[later[element]] = element;
}

void linear_order_place(struct linear_order *order, uint32_t op)
{
    unlink_from(order->later, order->earlier, op);
    order->placed[order->placed_count++] = op;
    uint32_t number = order->delete_of[op];
    if (number == LINEAR_NONE)
        return;
    unlink_from(order->later_delete, order->earlier_delete, number);
    linear_flip(order->deletes_placed, number);
}

static void take_back(struct linear_order *order)
{
    uint32_t op = order->placed[--order->placed_count];
    link_back(order->later, order->earlier, op);
    uint32_t number = order->delete_of[op];
    if (number == LINEAR_NONE)
        return;
    link_back(order->later_delete, order->earlier_delete, number);
    linear_flip(order->deletes_placed, number);
}

void linear_order_use(struct linear_order *order, uint32_t unknown)
{
    uint32_t class = order->plan.unknowns[unknown].class;
    ASSERT(!linear_order_is_used(order, unknown));
    linear_flip(order->used_bits, unknown);
    order->used[order->used_count++] = unknown;
    if (class != LINEAR_NONE)
        order->class_left[class]--;
}

static void use_back(struct linear_order *order)
{
    uint32_t unknown = order->used[--order->used_count];
    uint32_t class = order->plan.unknowns[unknown].class;
    linear_flip(order->used_bits, unknown);
    if (class != LINEAR_NONE)
        order->class_left[class]++;
}

void linear_order_back(struct linear_order *order, uint32_t placed, uint32_t used)
{
    while (order->placed_count > placed)
        take_back(order);
    while (order->used_count > used)
        use_back(order);
}

uint32_t linear_order_first_delete(const struct linear_order *order)
{
    uint32_t end = order->plan.delete_count, best = LINEAR_NONE;
    for (uint32_t i = order->later_delete[end]; i != end; i = order->later_delete[i]) {
        uint32_t op = order->plan.deletes[i];
        if (!linear_order_may_be_next(order, op))
            break;
        if (best == LINEAR_NONE ||
            linear_order_op(order, op)->answered < linear_order_op(order, best)->answered)
            best = op;
    }
    return best;
}

void *linear_take(size_t count, size_t bytes)
{
    void *taken = calloc(count ? count : 1, bytes);
    ASSERT(taken);
    return taken;
}

static void link_lists(struct linear_order *order)
{
    const struct linear_plan *plan = &order->plan;
    uint32_t head = (uint32_t)plan->count, last = head;
    for (uint32_t i = 0; i <= plan->known_count; i++) {
        uint32_t next = i < plan->known_count ? plan->by_answer[i] : head;
        order->later[last] = next;
        order->earlier[next] = last;
        last = next;
    }
    for (uint32_t i = 0; i < plan->count; i++)
        order->delete_of[i] = LINEAR_NONE;
    for (uint32_t i = 0; i <= plan->delete_count; i++) {
        order->later_delete[i] = i == plan->delete_count ? 0 : i + 1;
        order->earlier_delete[i] = i == 0 ? plan->delete_count : i - 1;
        if (i < plan->delete_count)
            order->delete_of[plan->deletes[i]] = i;
    }
}

void linear_order_init(struct linear_order *order)
{
    const struct linear_plan *plan = &order->plan;
    order->later = linear_take(plan->count + 1, sizeof *order->later);
    order->earlier = linear_take(plan->count + 1, sizeof *order->earlier);
    order->placed = linear_take(plan->count, sizeof *order->placed);
    order->delete_of = linear_take(plan->count, sizeof *order->delete_of);
    order->later_delete = linear_take((size_t)plan->delete_count + 1, sizeof *order->later_delete);
    order->earlier_delete =
        linear_take((size_t)plan->delete_count + 1, sizeof *order->earlier_delete);
    order->deletes_placed =
        linear_take(linear_words(plan->delete_count), sizeof *order->deletes_placed);
    order->used_bits = linear_take(linear_words(plan->unknown_count), sizeof *order->used_bits);
    order->used = linear_take(plan->unknown_count, sizeof *order->used);
    order->class_left = linear_take(plan->class_count, sizeof *order->class_left);
    for (uint32_t i = 0; i < plan->class_count; i++)
        order->class_left[i] = plan->classes[i].count;
    link_lists(order);
}

void linear_order_fini(struct linear_order *order)
{
    free(order->later);
    free(order->earlier);
    free(order->placed);
    free(order->delete_of);
    free(order->later_delete);
    free(order->earlier_delete);
    free(order->deletes_placed);
    free(order->used_bits);
    free(order->used);
    free(order->class_left);
}
