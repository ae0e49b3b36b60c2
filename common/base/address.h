/* address.h - the form of addresses. Pure: no name is looked up. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>

enum { ADDRESS_HOST_BYTES = 254 };

/* HOST:PORT or [HOST]:PORT taken apart. The port; 0: it has not that form. */
unsigned address_split(const char *text, char host[ADDRESS_HOST_BYTES], bool *bracketed);

/* What is wrong with the form of an address, as a sentence; NULL: nothing, as far as the fabric is known here. */
const char *address_wrong(const char *address);

/* Only processes of this host reach it: shm, loopback. */
bool address_is_local(const char *address);

/* A sentence on the error with which the fabric did not open, or could not listen at, an address. */
const char *address_why(int error);

#endif
