/* mlx5_firmware.h - an mlx5 device played in a test: the firmware behind a struct mlx5_channel, which records
 * what comes and refuses what it is told to, and the NIC, which knows the queue's memory and nothing else,
 * and reads it big-endian, as a NIC does.
 */
#ifndef FABRIC_MLX5_FIRMWARE_H
#define FABRIC_MLX5_FIRMWARE_H

#include "common/base/error.h"
#include "common/fabric/mlx5/mlx5_queue.h"
#include "test/lib/asserts.h"

enum {
    CALLS = 64,
    PD = 0x111,
    CQ = 0x222,
    UAR = 0x333,
    UMEM = 0x444,
    QUEUE_NUMBER = 0x555,
    FIRST_PAIR = 0x600,
    KEY = 0xcafe,
    MAX_COMMAND = MLX5_CREATE_XRQ_IN_BYTES,
};

/* What the device has and can. */
static const struct mlx5_numbers numbers = {
    .pd = PD,
    .cq = CQ,
    .uar = UAR,
    .capabilities = {
        .has_striding = true, .has_tag_matching = true, .log_list = 6, .log_plain_queues = 10}};

enum call_kind { CALL_MAP, CALL_COMMAND, CALL_WATCH, CALL_RESOLVE, CALL_DESTROY, CALL_UNMAP };

struct call {
    enum call_kind kind;
    uint16_t opcode;
    size_t bytes;
    uint8_t in[MAX_COMMAND];
    void *object;
};

/* The firmware. Calls that can be refused are counted from 1. */
static struct firmware {
    struct mlx5_channel channel;
    struct call calls[CALLS];
    unsigned count;
    unsigned steps, refused_step; /* 0: none */
    uint16_t refused_opcode;      /* 0: none */
    bool refuses_in_answer;       /* the call works, and the answer says no */
    unsigned objects, maps, made;
    uint8_t *memory;
    size_t memory_bytes;
    uint64_t failures[4];
    unsigned failure_count;
    unsigned queues_watched; /* a bit of each kind */
} firmware;

/* --- the channel --- */

static struct call *record(enum call_kind kind, void *object)
{
    assert_true(firmware.count < CALLS);
    struct call *call = &firmware.calls[firmware.count++];
    *call = (struct call){.kind = kind, .object = object};
    return call;
}

static bool is_refused(void)
{
    return ++firmware.steps == firmware.refused_step;
}

static uint32_t number_for(uint16_t opcode)
{
    return opcode == MLX5_CMD_OP_CREATE_QP ? FIRST_PAIR + firmware.made : QUEUE_NUMBER;
}

static int fake_execute(struct mlx5_channel *channel, void **object, const void *in,
                        size_t in_bytes, void *out, size_t out_bytes)
{
    const uint8_t *bytes = in;
    uint8_t *answer = out;
    assert_ptr_equal(channel, &firmware.channel);
    assert_true(object && in_bytes <= MAX_COMMAND && out_bytes == MLX5_OUT_BYTES);
    struct call *call = record(CALL_COMMAND, *object);
    call->opcode = (uint16_t)(bytes[0] << 8 | bytes[1]);
    call->bytes = in_bytes;
    memcpy(call->in, in, in_bytes);
    bool refused = is_refused() || call->opcode == firmware.refused_opcode;
    if (refused) {
        answer[0] = 3;
        answer[7] = 0x42;
    }
    if (refused && !firmware.refuses_in_answer)
        return ROWAN_EUNSUPPORTED;
    if (!*object) {
        uint32_t number = number_for(call->opcode);
        if (!refused) {
            answer[9] = (uint8_t)(number >> 16);
            answer[10] = (uint8_t)(number >> 8);
            answer[11] = (uint8_t)number;
        }
        firmware.objects++;
        firmware.made++;
        *object = (void *)(uintptr_t)(0x1000 + firmware.made);
        call->object = *object;
    }
    return 0;
}

static void fake_destroy(struct mlx5_channel *channel, void *object)
{
    (void)channel;
    assert_true(object && firmware.objects > 0);
    record(CALL_DESTROY, object);
    firmware.objects--;
}

static int fake_map(struct mlx5_channel *channel, void *memory, size_t bytes, uint32_t *number,
                    void **handle)
{
    (void)channel;
    record(CALL_MAP, NULL);
    if (is_refused())
        return ROWAN_ENOMEM;
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_int_equal(bytes % 4096, 0);
    firmware.memory = memory;
    firmware.memory_bytes = bytes;
    firmware.maps++;
    *number = UMEM;
    *handle = memory;
    return 0;
}

static void fake_unmap(struct mlx5_channel *channel, void *handle)
{
    (void)channel;
    assert_ptr_equal(handle, firmware.memory);
    assert_int_equal(firmware.objects, 0); /* the firmware still reads it */
    record(CALL_UNMAP, NULL);
    firmware.maps--;
}

static int fake_watch(struct mlx5_channel *channel, void *object, enum mlx5_watched what,
                      uint64_t cookie)
{
    (void)channel;
    struct call *call = record(CALL_WATCH, object);
    call->opcode = (uint16_t)cookie;
    if (what != MLX5_WATCH_PAIR) { /* may fail: nothing follows from it */
        assert_true(cookie == MLX5_QUEUE_FAILED);
        firmware.queues_watched |= 1u << what;
        return firmware.refused_step ? ROWAN_EUNSUPPORTED : 0;
    }
    return is_refused() ? ROWAN_EUNSUPPORTED : 0;
}

static bool fake_failure(struct mlx5_channel *channel, uint64_t *cookie)
{
    (void)channel;
    if (!firmware.failure_count)
        return false;
    *cookie = firmware.failures[--firmware.failure_count];
    return true;
}

static void fake_close(struct mlx5_channel *channel)
{
    (void)channel;
}

static int fake_resolve(struct mlx5_channel *channel, const struct ibv_ah_attr *to,
                        struct mlx5_hop *hop)
{
    (void)channel;
    assert_int_equal(to->grh.dgid.raw[15], 9);
    record(CALL_RESOLVE, NULL);
    if (is_refused())
        return ROWAN_EUNREACHABLE;
    memcpy(hop->mac, "\x02\x01\x02\x03\x04\x05", 6);
    hop->limit = 61;
    return 0;
}

/* --- the NIC: knows the queue's memory and nothing else --- */

static struct nic {
    uint32_t elements; /* of the ring */
    uint32_t element;  /* being filled */
    uint32_t at;       /* bytes of it that are used */
    uint16_t used_up;  /* elements, modulo 2^16 */
    bool is_packed;    /* knows no strides */
} nic;

static uint64_t big_endian(const uint8_t *bytes, unsigned count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static const uint8_t *nic_element(void)
{
    return firmware.memory + (size_t)nic.element * 32;
}

/* How many elements it may use. */
static uint16_t nic_posted(void)
{
    const uint8_t *record = firmware.memory + (size_t)(nic.elements * 32 + 4095) / 4096 * 4096;
    assert_int_equal(big_endian(record, 2), 0);
    return (uint16_t)(big_endian(record + 2, 2) - nic.used_up);
}

static void nic_next_element(void)
{
    nic.element = (uint32_t)big_endian(nic_element() + 2, 2);
    assert_true(nic.element < nic.elements);
    nic.used_up++;
    nic.at = 0;
}

/* One packet, to the next stride. False: receiver not ready. */
static bool nic_receive(const void *packet, uint32_t bytes)
{
    if (nic_posted() == 0)
        return false;
    uint32_t length = (uint32_t)big_endian(nic_element() + 16, 4);
    if (nic.at + bytes > length) {
        nic_next_element();
        if (nic_posted() == 0)
            return false;
    }
    assert_int_equal(big_endian(nic_element() + 20, 4), KEY);
    uint8_t *to = (uint8_t *)(uintptr_t)big_endian(nic_element() + 24, 8);
    memcpy(to + nic.at, packet, bytes);
    nic.at += nic.is_packed ? bytes : (bytes + 63) / 64 * 64;
    return true;
}

/* As if so much had landed that the next packet does not fit any more. */
static void nic_fill_element(void)
{
    assert_true(nic_posted() > 0);
    nic.at = (uint32_t)big_endian(nic_element() + 16, 4);
}

static void firmware_reset(void)
{
    firmware = (struct firmware){.channel = {.numbers = numbers,
                                             .execute = fake_execute,
                                             .destroy = fake_destroy,
                                             .close = fake_close,
                                             .map = fake_map,
                                             .unmap = fake_unmap,
                                             .watch = fake_watch,
                                             .failure = fake_failure,
                                             .resolve = fake_resolve}};
}

#endif
