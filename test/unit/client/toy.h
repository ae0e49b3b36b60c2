/* toy.h - a CM and one server in a thread of the test, over the shm fabric: enough for the SDK's
 * outer shell, which makes its own fabric, sleeps and wakes. */
#ifndef CLIENT_TOY_H
#define CLIENT_TOY_H

struct toy;

/* `directory` is empty and stays; the CM's address is written to its file `cm`. */
struct toy *toy_start(const char *directory);
void toy_stop(struct toy *toy);

/* The server answers so many requests from now on and keeps what else comes; -1: without limit, what
 * it kept first. */
void toy_allow(struct toy *toy, int answers);

#endif
