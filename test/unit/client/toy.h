/* toy.h - a CM and one server in a thread of the test, over the shm fabric: enough for the SDK's
 * outer shell, which makes its own fabric, sleeps and wakes. */
#ifndef CLIENT_TOY_H
#define CLIENT_TOY_H

#include <stdatomic.h>
#include <stdbool.h>

struct toy;

/* `directory` is empty and stays; the CM's address is written to its file `cm`. */
struct toy *toy_start(const char *directory);
void toy_stop(struct toy *toy);

/* While muted the server takes requests and answers none; what it took is answered afterwards. */
void toy_mute(struct toy *toy, bool muted);

#endif
