/* memory_calls.c - linked into a program with --wrap (memory_calls in meson.build), which leads its requests for memory here. */
#include <stdlib.h>

#include "common/base/memory.h"

#define WRAP(type, name, parameters, given, bytes, ...)                                            \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        const type got = __real_##name(__VA_ARGS__);                                               \
        memory_asked(given, bytes);                                                                \
        return got;                                                                                \
    }

typedef void *pointer;

WRAP(pointer, malloc, (size_t bytes), got, bytes, bytes)
WRAP(pointer, calloc, (size_t count, size_t bytes), got, count *bytes, count, bytes)
WRAP(pointer, realloc, (void *old, size_t bytes), got || !bytes, bytes, old, bytes)
WRAP(pointer, aligned_alloc, (size_t align, size_t bytes), got, bytes, align, bytes)
WRAP(int, posix_memalign, (void **out, size_t align, size_t bytes), got == 0, bytes, out, align,
     bytes)
