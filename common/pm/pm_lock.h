/* pm_lock.h - who may use a range of a file: one owner, and the peers that it let in. Nobody outside
 * common/pm includes it.
 *
 * Both are locks of open file descriptions (fcntl(2)), so they end with the last descriptor of
 * theirs, wherever that is: in a process, stopped or not, or in a socket on its way to one.
 */
#ifndef PM_PM_LOCK_H
#define PM_PM_LOCK_H

#include <stdint.h>

/* Where the second half of the lockable range begins: byte b there stands for the peers of byte b of
 * the file. So no map may reach beyond it. */
#define PM_LOCK_PEERS (UINT64_C(1) << 62)

/* pm_lock_own: locks the range for its owner, through `fd`, against other owners at once; and
 * against peers that a former owner let in, for which it waits up to `wait_ms`. On failure the log
 * tells who holds it, as far as /proc knows. Errors: ROWAN_EINUSE EIO ENOMEM. */
int pm_lock_own(int fd, const char *path, uint64_t offset, uint64_t bytes, unsigned wait_ms);

/* pm_lock_read: locks the range for one who only reads, against owners. ROWAN_EINUSE: there is one. */
int pm_lock_read(int fd, const char *path, uint64_t offset, uint64_t bytes);

/* pm_lock_admit: the owner, whose lock is `own_fd`, lets peers in: all who get `peer_fd`, which must
 * be another description. Errors: ROWAN_EIO ENOMEM. */
int pm_lock_admit(int own_fd, int peer_fd, const char *path, uint64_t offset, uint64_t bytes);

/* pm_lock_join: a peer's lock through a description of its own, taken while it has a descriptor that
 * pm_lock_admit knew: so there is no moment without a lock. Errors: ROWAN_EINUSE (somebody opens the
 * file: `fd` is not an owner's) EIO ENOMEM. */
int pm_lock_join(int fd, const char *path, uint64_t offset, uint64_t bytes);

#endif
