/* asserts.h - cmocka's, with the headers that it wants first and those that nearly every test uses. */
#ifndef TEST_LIB_ASSERTS_H
#define TEST_LIB_ASSERTS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#endif
