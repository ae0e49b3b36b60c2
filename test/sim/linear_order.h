/* linear_order.h - inside linear.c: the order that is being tried. Which operations are placed, which writes
 * with unknown outcome are used up, and who may be next. All of it is undone in reverse.
 */
#ifndef SIM_LINEAR_ORDER_H
#define SIM_LINEAR_ORDER_H

#include "test/sim/linear_plan.h"

struct linear_order {
    struct linear_plan plan; /* made before; `needed` of its classes counts groups not yet opened */

    /* Operations that are still to be placed, by answer: a list through the positions in `plan.ops`,
     * whose head is at plan.count. */
    uint32_t *later, *earlier;
    uint32_t *placed; /* in the order of placing */
    uint32_t placed_count;

    /* The same of deletes, by call, through the positions in `plan.deletes`. */
    uint32_t *later_delete, *earlier_delete;
    uint32_t *delete_of;      /* an operation's position there, or LINEAR_NONE */
    uint64_t *deletes_placed; /* bits */

    uint64_t *used_bits; /* by position in `plan.unknowns` */
    uint32_t *used;      /* in the order of use */
    uint32_t used_count;
    uint32_t *class_left; /* of each class, not used */
};

void linear_order_init(struct linear_order *order);
void linear_order_fini(struct linear_order *order); /* `plan` stays */

static inline const struct history_op *linear_order_op(const struct linear_order *order,
                                                       uint32_t op)
{
    return &order->plan.ops[op];
}

/* Of those that are still to be placed, the one that was answered first; plan.count: none is left. */
static inline uint32_t linear_order_head(const struct linear_order *order)
{
    return order->later[order->plan.count];
}

static inline bool linear_order_is_over(const struct linear_order *order)
{
    return linear_order_head(order) == order->plan.count;
}

/* Nobody who is still to be placed was answered before its call. */
static inline bool linear_order_may_be_next(const struct linear_order *order, uint32_t op)
{
    uint32_t head = linear_order_head(order);
    return head == order->plan.count ||
           linear_order_op(order, op)->called < linear_order_op(order, head)->answered;
}

/* The delete that may be next and was answered first, or LINEAR_NONE. */
uint32_t linear_order_first_delete(const struct linear_order *order);

void linear_order_place(struct linear_order *order, uint32_t op);

static inline bool linear_order_is_used(const struct linear_order *order, uint32_t unknown)
{
    return order->used_bits[unknown / 64] >> unknown % 64 & 1;
}

void linear_order_use(struct linear_order *order, uint32_t unknown);

/* Undoes until so many are placed and used. */
void linear_order_back(struct linear_order *order, uint32_t placed, uint32_t used);

static inline uint32_t linear_words(uint32_t bits)
{
    return (bits + 63) / 64;
}

static inline void linear_flip(uint64_t *bits, uint32_t bit)
{
    bits[bit / 64] ^= UINT64_C(1) << bit % 64;
}

/* Zeros; aborts without memory. `count` may be 0. */
void *linear_take(size_t count, size_t bytes);

#endif
