/* assert.h - asserts that stay on in release builds.
 *
 * They are for mistakes of the programmer. Bytes from network, disk or a person are checked and
 * answered with an error, never asserted on.
 */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

/* Logs the expression and its place, then aborts. */
_Noreturn void assert_failed(const char *expression, const char *file, int line);

#define ASSERT(expression)                                                                         \
    (__builtin_expect(!!(expression), 1) ? (void)0 : assert_failed(#expression, __FILE__, __LINE__))

#ifndef NDEBUG
#define ASSERT_COSTLY(expression) ASSERT(expression)
#else
#define ASSERT_COSTLY(expression) ((void)sizeof(!!(expression)))
#endif

#endif
