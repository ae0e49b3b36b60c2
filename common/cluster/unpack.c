/* unpack.c - an allocator for protobuf-c that counts. Each block has its size in front, so that what
 * protobuf-c frees meanwhile (its tables of scanned fields) is added to the budget again. */
#include "common/cluster/unpack.h"

#include <stdlib.h>

#include "common/base/error.h"

/* The most that a valid message costs: a status of many idle shards has 6 bytes for each, which become
 * 64 in memory and up to 80 in protobuf-c's tables, which grow by doubling; that is 24 bytes for one.
 * The constant is for the head of any message. */
enum { BYTES_PER_BYTE = 32, BYTES_AT_LEAST = 64 << 10 };

struct budget {
    size_t left;
    int error; /* why an allocation was refused */
};

union block_head {
    size_t bytes;
    max_align_t align;
};

static void *budget_alloc(void *context, size_t bytes)
{
    struct budget *budget = context;
    if (bytes > budget->left) {
        budget->error = ROWAN_EFORMAT;
        return NULL;
    }
    union block_head *head = malloc(sizeof *head + bytes);
    if (!head) {
        budget->error = ROWAN_ENOMEM;
        return NULL;
    }
    head->bytes = bytes;
    budget->left -= bytes;
    return head + 1;
}

/* `context` is NULL when a message is freed after its budget is gone. */
static void budget_free(void *context, void *pointer)
{
    struct budget *budget = context;
    if (!pointer)
        return;
    union block_head *head = (union block_head *)pointer - 1;
    if (budget)
        budget->left += head->bytes;
    free(head);
}

int unpack_message(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t count,
                   ProtobufCMessage **out)
{
    struct budget budget = {.left = BYTES_AT_LEAST + BYTES_PER_BYTE * count,
                            .error = ROWAN_EFORMAT};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &allocator, count, bytes);
    if (!message)
        return budget.error;
    *out = message;
    return ROWAN_OK;
}

void unpack_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {budget_alloc, budget_free, NULL};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}
