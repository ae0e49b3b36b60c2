/* rowan.h - the C SDK of Rowan-KV, a sharded, replicated key-value store for small objects.
 *
 * Link with -lrowan (pkg-config rowan).
 *
 * THREADS. A `struct rowan` is a session. It belongs to one thread at a time: two threads must not
 * be inside calls of the same session at once. Open one session per thread; sessions share nothing.
 * After a fork only one of the two processes may go on using a session; the other may close it.
 *
 * KEYS AND VALUES are bytes. A key has 1 to ROWAN_MAX_KEY_BYTES bytes, a value 0 to
 * ROWAN_MAX_VALUE_BYTES.
 *
 * WHAT HOLDS ON RETURN. When a write returns 0 (or its completion says 0) it is durable on every
 * full replica of its shard, as the servers' `durability` setting defines durable, and visible to
 * every read that starts afterwards, from any client. Reads are linearizable per key: they never
 * return an older value than an earlier read did, nor one whose write could still be undone.
 *
 * ERRORS are 0 or a negative ROWAN_E* of the list below. ROWAN_EUNKNOWN alone says that a write may
 * or may not have taken effect; every other error says that it did not.
 *
 * RETRIES. When a connection breaks, or a server restarts, the SDK sends what has no answer again,
 * for as long as the operation's timeout; the servers recognise it, so it takes effect once at most,
 * and the answer is that of the one time it did: a conditional put does not fail because of itself.
 * ROWAN_EUNKNOWN is left for a write that was sent and had no answer when its timeout was over, and
 * for one that is sent again and of which the servers had no memory to note whether it took effect.
 */
#ifndef ROWAN_H
#define ROWAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROWAN_MAX_KEY_BYTES   1024
#define ROWAN_MAX_VALUE_BYTES 1048576
#define ROWAN_MAX_TIMEOUT_MS  60000

#if defined(__GNUC__)
#define ROWAN_API __attribute__((visibility("default")))
#else
#define ROWAN_API
#endif

enum rowan_error {
    ROWAN_OK = 0,
    ROWAN_ENOTFOUND = -1,  /* the key has no value */
    ROWAN_EVERSION = -2,   /* a conditional put met another version */
    ROWAN_EFULL = -3,      /* a replica's persistent memory is full; nothing was written */
    ROWAN_EUNKNOWN = -4,   /* the write may or may not have taken effect */
    ROWAN_ETIMEDOUT = -5,  /* no answer in time: nothing was changed */
    ROWAN_EKEYSIZE = -6,   /* a key must have 1 to 1024 bytes */
    ROWAN_EVALUESIZE = -7, /* a value may have at most 1048576 bytes */
    ROWAN_EBUFFER = -8,    /* the caller's buffer is too small; the value's size was reported */
    ROWAN_EBUSY =
        -9, /* the server had too many operations waiting, or was making space; not started */
    ROWAN_EEPOCH = -10,        /* internal: the SDK fetches the configuration and tries again */
    ROWAN_ENOTMINE = -11,      /* internal, likewise */
    ROWAN_EUNREACHABLE = -12,  /* no connection to the CM or server */
    ROWAN_ECLOSED = -13,       /* the connection was closed before the operation was sent */
    ROWAN_EREFUSED = -14,      /* not a member of this cluster */
    ROWAN_ECLUSTER = -15,      /* the address belongs to another cluster */
    ROWAN_EFORMAT = -16,       /* unknown or damaged format */
    ROWAN_EDAMAGED = -17,      /* the stored object's checksum does not match */
    ROWAN_EINVALID = -18,      /* an argument is out of range */
    ROWAN_ENOMEM = -19,        /* out of memory */
    ROWAN_EIO = -20,           /* a system call or a network device failed */
    ROWAN_EINUSE = -21,        /* in use by another process */
    ROWAN_EEXISTS = -22,       /* it exists already */
    ROWAN_EAGAIN = -23,        /* no room for another operation: poll, then post again */
    ROWAN_ECONFIG = -24,       /* a configuration key or value is not allowed */
    ROWAN_EUNSUPPORTED = -25,  /* not supported by this build or host */
    ROWAN_ETOOMANY = -26,      /* a fixed limit is reached */
    ROWAN_ENOSPACE = -27,      /* the file system has not enough free space */
    ROWAN_EPERMISSION = -28,   /* no permission */
    ROWAN_EINCOMPATIBLE = -29, /* the cluster's version has no format in common with this one */
    ROWAN_EADDRESS = -30,      /* an address does not begin with its fabric (shm: tcp: verbs:) */
    ROWAN_ENOTLEADING = -31,   /* none of the configuration managers that answer leads */
    ROWAN_EREMOVED = -32,      /* internal: a server that was removed has to start again */
    ROWAN_ELOGIN = -33,        /* the cluster does not know this user and secret, or asks for one */
    ROWAN_EACCESS = -34        /* the user may not do this, or not with this key */
};

/* The sentence a user reads for `error`. Static storage; any thread. */
ROWAN_API const char *rowan_error_sentence(int error);

/* "ROWAN_ENOTFOUND" for -1 and so on. Static storage; any thread. */
ROWAN_API const char *rowan_error_name(int error);

/* "MAJOR.MINOR.PATCH". */
ROWAN_API const char *rowan_version(void);

struct rowan;

/* How to open a session. rowan_options_init gives the defaults; set `cm` or `directory`. */
struct rowan_options {
    const char *cm; /* addresses of the configuration managers, 1 to 8 of one fabric with commas
                                 between them (tcp:10.0.0.1:7000,tcp:10.0.0.2:7000), as the file D/cm
                                 holds them: a session goes on to the next one until it finds who leads */
    const char *directory;    /* or the directory of a rowan-local cluster */
    uint32_t depth;           /* operations outstanding at once, 1 to 65536; default 64 */
    uint32_t timeout_ms;      /* of each operation, retries included; 1 to 60000, default 10000 */
    uint32_t open_timeout_ms; /* of rowan_open; default 10000 */
    uint32_t spin_us;         /* how long a waiting call polls before it sleeps; default 20 */
    const char *user; /* whom to log in as, where the cluster has users; NULL or "": nobody */
    const char *secret_file; /* then: the file that holds that user's secret, which others than its
                                 owner and group may not read; it is read by rowan_open only */
    uint32_t reserved[4];    /* 0 */
};

ROWAN_API void rowan_options_init(struct rowan_options *options);

/* rowan_open: connects to the CM that leads, gets a client id and the configuration. Blocks up to
 * open_timeout_ms. *out is the caller's, to be closed. Errors: ROWAN_EINVALID (an option is out of
 * range, or `reserved` is not 0: were the options initialized?) ENOTFOUND (`directory` has no file
 * `cm`, or there is no `secret_file`) EPERMISSION (`secret_file`) ELOGIN (at once: the cluster asks
 * for a user, or does not know this one with this secret) EADDRESS ETOOMANY (of addresses) EUNREACHABLE ENOTLEADING ETIMEDOUT (the cluster has no
 * configuration yet) EUNSUPPORTED (of the address's kind) ENOMEM EIO. */
ROWAN_API int rowan_open(const struct rowan_options *options, struct rowan **out);

/* rowan_close: NULL is fine. Outstanding operations are dropped without completion: for those
 * writes the outcome is unknown. Wait for them first (rowan_wait_all). */
ROWAN_API void rowan_close(struct rowan *rowan);

/* --- one operation, waited for ---
 *
 * Each may be called while asynchronous operations are outstanding; it polls the session, so
 * callbacks of others may run inside. Buffers are read or written only during the call. From inside
 * a callback every call that waits is refused with ROWAN_EINVALID. */

/* rowan_get: copies the value into `value` (room for `value_room` bytes). *value_bytes is its size,
 * also with ROWAN_EBUFFER, when nothing is copied; *version is that of the object. Both may be
 * NULL. Errors: ROWAN_ENOTFOUND EBUFFER EKEYSIZE ETIMEDOUT EDAMAGED. */
ROWAN_API int rowan_get(struct rowan *rowan, const void *key, size_t key_bytes, void *value,
                        size_t value_room, size_t *value_bytes, uint64_t *version);

/* rowan_put: *version (may be NULL) is that of the object written.
 * Errors: ROWAN_EFULL EUNKNOWN ETIMEDOUT EKEYSIZE EVALUESIZE. */
ROWAN_API int rowan_put(struct rowan *rowan, const void *key, size_t key_bytes, const void *value,
                        size_t value_bytes, uint64_t *version);

/* rowan_put_if_version: writes only if the object's version is `expected`; 0 means: only if the key
 * has no value. Otherwise ROWAN_EVERSION, with the version that is there in *version (0: none).
 * Errors beside those of rowan_put: ROWAN_EDAMAGED. */
ROWAN_API int rowan_put_if_version(struct rowan *rowan, const void *key, size_t key_bytes,
                                   const void *value, size_t value_bytes, uint64_t expected,
                                   uint64_t *version);

/* rowan_del: ROWAN_ENOTFOUND if the key had no value. Errors beside: ROWAN_EFULL EUNKNOWN ETIMEDOUT
 * EKEYSIZE EDAMAGED. */
ROWAN_API int rowan_del(struct rowan *rowan, const void *key, size_t key_bytes);

/* --- many operations, waited for ---
 *
 * They run side by side, in no particular order, and are not atomic together. Returns 0 if every
 * one has status 0, else the first status that is not. Each op tells its own.
 * Errors beside: ROWAN_EINVALID (`reserved` is not 0: nothing was done). */

struct rowan_op {
    const void *key;
    size_t key_bytes;
    void *value;          /* get: where the value goes; put: what is written (not changed) */
    size_t value_room;    /* get: room at `value` */
    size_t value_bytes;   /* get: set to the value's size; put: size of the value */
    uint64_t version;     /* set to the object's version */
    int status;           /* set */
    uint32_t reserved[5]; /* 0, as an initializer leaves it */
};

ROWAN_API int rowan_multi_get(struct rowan *rowan, struct rowan_op *ops, size_t count);
ROWAN_API int rowan_multi_put(struct rowan *rowan, struct rowan_op *ops, size_t count);

/* --- asynchronous ---
 *
 * A post copies the key; a put's value must stay unchanged, and a get's buffer must stay, until the
 * completion. The completion comes from rowan_poll or any other call that polls the session: by the
 * callback if one was given, else as an element of rowan_poll's array. Posts never block; with
 * `depth` operations outstanding, or completed and not yet fetched by rowan_poll, they answer
 * ROWAN_EAGAIN; also when 131,072 operations were posted since the oldest that is outstanding, and
 * for a moment every 4,000,000,000 operations. Operations that are outstanding together take effect
 * in any order. Arguments are checked at once; everything else is in the completion. An operation's
 * timeout runs from the first poll after its post. */

struct rowan_completion {
    int status;
    uint32_t reserved[3]; /* 0 */
    void *context;        /* as posted */
    void *value;          /* get: the buffer that was posted */
    size_t value_bytes;   /* get: the value's size */
    uint64_t version;     /* as in the calls above */
};

/* May post further operations; must not close the session nor wait (rowan_poll and the calls above
 * answer ROWAN_EINVALID there). `completion` is valid during the call. */
typedef void (*rowan_callback)(const struct rowan_completion *completion);

ROWAN_API int rowan_post_get(struct rowan *rowan, const void *key, size_t key_bytes, void *value,
                             size_t value_room, rowan_callback callback, void *context);
ROWAN_API int rowan_post_put(struct rowan *rowan, const void *key, size_t key_bytes,
                             const void *value, size_t value_bytes, rowan_callback callback,
                             void *context);
ROWAN_API int rowan_post_put_if_version(struct rowan *rowan, const void *key, size_t key_bytes,
                                        const void *value, size_t value_bytes, uint64_t expected,
                                        rowan_callback callback, void *context);
ROWAN_API int rowan_post_del(struct rowan *rowan, const void *key, size_t key_bytes,
                             rowan_callback callback, void *context);

/* rowan_poll: sends what was posted, takes in answers, runs callbacks. Waits up to timeout_ms (0:
 * not at all, -1: without limit) until at least one operation completed; with none outstanding it
 * returns at once. Returns how many elements of `completions` it filled (at most `max`; further
 * ones stay for the next call), or a negative error. Operations with a callback are not among them.
 */
ROWAN_API int rowan_poll(struct rowan *rowan, struct rowan_completion *completions, int max,
                         int timeout_ms);

/* How many operations are posted and not completed. */
ROWAN_API uint32_t rowan_outstanding(const struct rowan *rowan);

/* rowan_wait_all: polls until none is outstanding (callbacks run; completions without a callback
 * stay for rowan_poll). Every operation ends by its own timeout, so this returns, unless callbacks
 * go on posting. */
ROWAN_API int rowan_wait_all(struct rowan *rowan);

/* rowan_wait_any: for one thread with several sessions, each of which may have operations outstanding:
 * polls them all (so callbacks run), and if none had anything to do waits until one has, or
 * timeout_us is over (-1: without limit). Returns 0; it may return early. What completed is found as
 * after rowan_poll with timeout 0. `spin_us` is that of the first session. Errors: ROWAN_EINVALID
 * (count is not 1 to ROWAN_MAX_WAIT, or inside a callback) EIO. */
#define ROWAN_MAX_WAIT 256
ROWAN_API int rowan_wait_any(struct rowan *const *sessions, size_t count, int64_t timeout_us);

#ifdef __cplusplus
}
#endif

#endif
