/* coord_file.c - the coordination seam on one directory of one machine. Functions that block
 * (coord_store.c) run on a helper thread, one after another. The owner posts them, sees that they are
 * done, and answers, all in coord_poll.
 *
 * 1. While an operation is running its result and its buffer belong to the helper, else to the
 *    owner. Operations are posted at the end of a poll only, so that a callback that asks again
 *    does not overwrite the value it was shown.
 * 2. A watch fires when the stored version differs from the last one that this handle had answered when
 *    the watch was set. So no change between a read and a watch is missed, in either order.
 * 3. The helper never waits for another process: a stopped one must not hold up coord_close.
 * 4. done <= posted <= done + 3, for there are three operations and each is posted once at a time. The
 *    semaphore is raised once for each, and once more by coord_close: a helper that wakes and finds all
 *    that was posted done has been told to end.
 *
 *   free --ask--> waiting --due, posted--> running --done--> free
 *                    ^                        |
 *                    +--- lock was taken -----+
 */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/coord/coord.h"
#include "common/coord/coord_store.h"
#include "common/reactor/reactor.h"
#include "common/reactor/thread.h"

#define INSPECT_PERIOD_NS (100 * NS_PER_MS)
#define CAS_RETRY_NS      (5 * NS_PER_MS)

enum { JOB_SLOTS = 4 };

enum op_state { OP_FREE, OP_WAITING, OP_RUNNING };

struct coord_op {
    enum op_state state;
    uint64_t due_ns; /* not before */
    uint64_t job;    /* the helper's, while running; they count from 1 */
    int error;       /* the result */
};

struct coord_file;

/* Runs on the helper thread. */
typedef void op_function(struct coord_file *file);

struct coord_file {
    struct coord coord;
    struct coord_store store; /* the helper's */
    struct reactor *reactor;
    uint64_t known_version; /* the last one that was answered; 0: none */

    struct {
        op_function *runs[JOB_SLOTS]; /* of job n at n mod JOB_SLOTS */
        _Atomic uint64_t posted;      /* written by the owner */
        _Atomic uint64_t done;        /* written by the helper; what these jobs wrote is visible */
        sem_t waiting;
        pthread_t thread;
    } helper;

    struct {
        struct coord_op op;
        coord_read_done *done;
        void *context;
        uint8_t *image;
        size_t bytes;
        uint64_t version;
    } read;

    struct {
        struct coord_op op;
        coord_cas_done *done;
        void *context;
        uint8_t *image;
        size_t bytes;
        uint64_t expected;
    } cas;

    /* Runs every INSPECT_PERIOD_NS while somebody watches or stands for election. */
    struct {
        struct coord_op op; /* its error is that of reading the version */
        bool watches;
        bool stands;
        uint64_t version;
        int lead_error; /* 0: leads */
    } inspect;

    struct {
        coord_changed *changed; /* NULL: not set */
        void *context;
        uint64_t version; /* another one fires it */
    } watch;

    struct {
        coord_leader *leader; /* NULL: does not stand */
        void *context;
        bool leads;
        int error; /* of the last attempt: logged when it changes */
    } election;
};

static void run_read(struct coord_file *file)
{
    file->read.op.error =
        coord_store_read(&file->store, file->read.image, &file->read.bytes, &file->read.version);
}

static void run_cas(struct coord_file *file)
{
    file->cas.op.error =
        coord_store_cas(&file->store, file->cas.expected, file->cas.image, file->cas.bytes);
}

static void run_inspect(struct coord_file *file)
{
    file->inspect.op.error = 0;
    if (file->inspect.watches)
        file->inspect.op.error = coord_store_peek(&file->store, &file->inspect.version);
    if (file->inspect.stands)
        file->inspect.lead_error = coord_store_lead(&file->store);
}

static void wake(struct coord_file *file)
{
    if (file->reactor)
        reactor_wake(file->reactor);
}

static void *run_helper(void *argument)
{
    struct coord_file *file = argument;

    for (uint64_t done = 0;;) {
        while (sem_wait(&file->helper.waiting) != 0)
            ASSERT(errno == EINTR);
        if (atomic_load_explicit(&file->helper.posted, memory_order_acquire) == done)
            return NULL; /* 4 */
        done++;
        file->helper.runs[done % JOB_SLOTS](file);
        atomic_store_explicit(&file->helper.done, done, memory_order_release);
        wake(file);
    }
}

/* The next poll posts it. */
static void request(struct coord_file *file, struct coord_op *op)
{
    op->state = OP_WAITING;
    op->due_ns = 0;
    wake(file);
}

static int file_read(struct coord *coord, coord_read_done *done, void *context)
{
    struct coord_file *file = (struct coord_file *)coord;

    if (file->read.op.state != OP_FREE)
        return ROWAN_EAGAIN;
    file->read.done = done;
    file->read.context = context;
    request(file, &file->read.op);
    return 0;
}

static int file_cas(struct coord *coord, uint64_t expected_version, const void *value, size_t bytes,
                    coord_cas_done *done, void *context)
{
    struct coord_file *file = (struct coord_file *)coord;

    if (bytes > COORD_MAX_VALUE_BYTES)
        return ROWAN_EINVALID;
    if (file->cas.op.state != OP_FREE)
        return ROWAN_EAGAIN;
    file->cas.done = done;
    file->cas.context = context;
    file->cas.expected = expected_version;
    file->cas.bytes = bytes;
    if (bytes > 0)
        memcpy(file->cas.image + sizeof(struct coord_header), value, bytes);
    request(file, &file->cas.op);
    return 0;
}

static int file_watch(struct coord *coord, coord_changed *changed, void *context)
{
    struct coord_file *file = (struct coord_file *)coord;

    if (file->watch.changed)
        return ROWAN_EAGAIN;
    file->watch.changed = changed;
    file->watch.context = context;
    file->watch.version = file->known_version;
    wake(file);
    return 0;
}

static int file_elect(struct coord *coord, coord_leader *leader, void *context)
{
    struct coord_file *file = (struct coord_file *)coord;

    if (file->election.leader)
        return ROWAN_EAGAIN;
    file->election.leader = leader;
    file->election.context = context;
    wake(file);
    return 0;
}

/* True when `op` was running and is no more. */
static bool op_ended(struct coord_file *file, struct coord_op *op)
{
    if (op->state != OP_RUNNING ||
        atomic_load_explicit(&file->helper.done, memory_order_acquire) < op->job)
        return false;
    op->state = OP_FREE;
    return true;
}

static bool answer_read(struct coord_file *file)
{
    int error;

    if (!op_ended(file, &file->read.op))
        return false;
    error = file->read.op.error;
    if (error) {
        file->read.done(file->read.context, error, NULL, 0, 0);
        return true;
    }
    file->known_version = file->read.version;
    file->read.done(file->read.context, 0, file->read.image + sizeof(struct coord_header),
                    file->read.bytes, file->read.version);
    return true;
}

static bool answer_cas(struct coord_file *file, uint64_t now_ns)
{
    uint64_t version = 0;

    if (!op_ended(file, &file->cas.op))
        return false;
    if (file->cas.op.error == ROWAN_EAGAIN) {
        file->cas.op.state = OP_WAITING;
        file->cas.op.due_ns = now_ns + CAS_RETRY_NS;
        return true;
    }
    if (file->cas.op.error == 0) {
        version = file->cas.expected + 1;
        file->known_version = version;
    }
    file->cas.done(file->cas.context, file->cas.op.error, version);
    return true;
}

static void answer_watch(struct coord_file *file)
{
    coord_changed *changed = file->watch.changed;

    /* A value that cannot be read has changed: the read that follows says how. */
    if (!changed || !file->inspect.watches ||
        (file->inspect.op.error == 0 && file->inspect.version == file->watch.version))
        return;
    file->watch.changed = NULL;
    changed(file->watch.context);
}

static void answer_election(struct coord_file *file)
{
    bool leads = file->inspect.lead_error == 0;

    if (!file->inspect.stands)
        return;
    if (file->inspect.lead_error != file->election.error) {
        file->election.error = file->inspect.lead_error;
        if (file->election.error != 0 && file->election.error != ROWAN_EAGAIN)
            log_event(LOG_ERROR, "coord_election_failed", "error=%s",
                      error_name(file->election.error));
    }
    if (leads == file->election.leads)
        return;
    file->election.leads = leads;
    file->election.leader(file->election.context, leads);
}

static bool answer_inspect(struct coord_file *file)
{
    if (!op_ended(file, &file->inspect.op))
        return false;
    answer_watch(file);
    answer_election(file);
    return true;
}

static bool post_op(struct coord_file *file, struct coord_op *op, op_function *run, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    if (op->state != OP_WAITING)
        return false;
    if (op->due_ns > now_ns) {
        wake_at(wake_ns, op->due_ns);
        return false;
    }
    op->state = OP_RUNNING;
    op->job = atomic_load_explicit(&file->helper.posted, memory_order_relaxed) + 1;
    ASSERT(op->job - atomic_load_explicit(&file->helper.done, memory_order_acquire) <
           JOB_SLOTS); /* 4 */
    file->helper.runs[op->job % JOB_SLOTS] = run;
    atomic_store_explicit(&file->helper.posted, op->job, memory_order_release);
    sem_post(&file->helper.waiting);
    return true;
}

static bool post_inspect(struct coord_file *file, uint64_t now_ns, uint64_t *wake_ns)
{
    if (!file->watch.changed && !file->election.leader)
        return false;
    if (file->inspect.op.state == OP_FREE)
        file->inspect.op.state = OP_WAITING;
    if (file->inspect.op.state == OP_WAITING) {
        file->inspect.watches = file->watch.changed != NULL;
        file->inspect.stands = file->election.leader != NULL;
    }
    if (!post_op(file, &file->inspect.op, run_inspect, now_ns, wake_ns))
        return false;
    file->inspect.op.due_ns = now_ns + INSPECT_PERIOD_NS;
    return true;
}

static enum poll_result file_poll(struct coord *coord, uint64_t now_ns, uint64_t *wake_ns)
{
    struct coord_file *file = (struct coord_file *)coord;
    /* In the order in which they ran, so that known_version ends as the later one's. */
    const bool cas_ran_first = file->cas.op.job < file->read.op.job;
    bool busy = false;

    if (cas_ran_first)
        busy |= answer_cas(file, now_ns);
    busy |= answer_read(file);
    if (!cas_ran_first)
        busy |= answer_cas(file, now_ns);
    busy |= answer_inspect(file);
    busy |= post_op(file, &file->read.op, run_read, now_ns, wake_ns);
    busy |= post_op(file, &file->cas.op, run_cas, now_ns, wake_ns);
    busy |= post_inspect(file, now_ns, wake_ns);
    return busy ? POLL_BUSY : POLL_IDLE;
}

static void file_close(struct coord *coord)
{
    struct coord_file *file = (struct coord_file *)coord;

    sem_post(&file->helper.waiting); /* 4 */
    pthread_join(file->helper.thread, NULL);
    sem_destroy(&file->helper.waiting);
    coord_store_close(&file->store);
    free(file->cas.image);
    free(file->read.image);
    free(file);
}

static const struct coord_ops file_ops = {.close = file_close,
                                          .read = file_read,
                                          .cas = file_cas,
                                          .watch = file_watch,
                                          .elect = file_elect,
                                          .poll = file_poll};

int coord_open_file(const char *directory, struct reactor *reactor, struct coord **out)
{
    struct coord_file *file = calloc(1, sizeof(*file));
    int error = ROWAN_ENOMEM;
    int failed;

    if (!file)
        return ROWAN_ENOMEM;
    file->coord.ops = &file_ops;
    file->reactor = reactor;
    file->read.image = malloc(COORD_IMAGE_BYTES + 1); /* see coord_store_read */
    file->cas.image = malloc(COORD_IMAGE_BYTES);
    if (!file->read.image || !file->cas.image)
        goto fail_free;
    error = coord_store_open(&file->store, directory);
    if (error)
        goto fail_free;
    failed = sem_init(&file->helper.waiting, 0, 0);
    ASSERT(failed == 0); /* sem_init(3): only a start value over the limit can fail */
    error = thread_start(&file->helper.thread, "coord", run_helper, file);
    if (error)
        goto fail_close;
    *out = &file->coord;
    return 0;

fail_close:
    sem_destroy(&file->helper.waiting);
    coord_store_close(&file->store);
fail_free:
    free(file->cas.image);
    free(file->read.image);
    free(file);
    return error;
}
