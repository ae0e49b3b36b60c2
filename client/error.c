/* The public face of common/base/error.h. rowan.h comes first: it declares the enumerators itself,
 * and the asserts hold both lists together. */
#include "client/rowan.h"

#include "common/base/error.h"

#define ASSERT_SAME(name, number, sentence)                                                        \
    _Static_assert(name == -(number), "rowan.h and error.h disagree about " #name);
ERROR_TABLE(ASSERT_SAME)
_Static_assert((int)ERROR_LOWEST == (int)ROWAN_EACCESS, "a number is missing in error.h");

const char *rowan_error_sentence(int error)
{
    return error_sentence(error);
}

const char *rowan_error_name(int error)
{
    return error_name(error);
}
