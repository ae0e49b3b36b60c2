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

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/coord/coord_asked.h"
#include "common/coord/coord_store.h"
#include "common/reactor/reactor.h"
#include "common/reactor/thread.h"

#define INSPECT_PERIOD_NS (100 * NS_PER_MS)
#define CAS_RETRY_NS      (5 * NS_PER_MS)
#define LOCKED_NS         NS_PER_S

enum { JOB_SLOTS = 4 };

struct coord_op {
    enum asked_state *state;
    uint64_t due_ns; /* not before */
    uint64_t job;    /* the helper's, while running; they count from 1 */
    int error;       /* the result */
};

struct coord_file;

/* Runs on the helper thread. */
typedef void op_function(struct coord_file *file);

struct coord_file {
    struct coord_asked asked;
    struct coord_store store; /* the helper's */

    struct {
        op_function *runs[JOB_SLOTS]; /* of job n at n mod JOB_SLOTS */
        _Atomic uint64_t posted;      /* written by the owner */
        _Atomic uint64_t done;        /* written by the helper; what these jobs wrote is visible */
        sem_t waiting;
        pthread_t thread;
    } helper;

    struct {
        struct coord_op op;
        uint8_t *image;
        size_t bytes;
        uint64_t version;
    } read;

    struct {
        struct coord_op op;
        uint8_t *image;
        uint64_t locked_ns; /* since then another one has the lock; 0: nobody */
        bool told;
    } cas;

    /* Runs every INSPECT_PERIOD_NS while somebody watches or stands for election. */
    struct {
        enum asked_state state;
        struct coord_op op; /* its error is that of reading the version */
        bool watches;
        bool stands;
        uint64_t version;
        int lead_error; /* 0: leads */
    } inspect;

    int election_error; /* of the last attempt: logged when it changes */
};

static void run_read(struct coord_file *file)
{
    file->read.op.error =
        coord_store_read(&file->store, file->read.image, &file->read.bytes, &file->read.version);
}

static void run_cas(struct coord_file *file)
{
    file->cas.op.error = coord_store_cas(&file->store, file->asked.cas.expected, file->cas.image,
                                         file->asked.cas.bytes);
}

static void run_inspect(struct coord_file *file)
{
    file->inspect.op.error = 0;
    if (file->inspect.watches)
        file->inspect.op.error = coord_store_peek(&file->store, &file->inspect.version);
    if (file->inspect.stands)
        file->inspect.lead_error = coord_store_lead(&file->store);
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
        if (file->asked.reactor)
            reactor_wake(file->asked.reactor);
    }
}

/* True when `op` was running and is no more. */
static bool op_ended(struct coord_file *file, struct coord_op *op)
{
    if (*op->state != ASKED_RUNNING ||
        atomic_load_explicit(&file->helper.done, memory_order_acquire) < op->job)
        return false;
    *op->state = ASKED_FREE;
    return true;
}

static bool answer_read(struct coord_file *file)
{
    int error;

    if (!op_ended(file, &file->read.op))
        return false;
    error = file->read.op.error;
    if (error)
        coord_answer_read(&file->asked, error, NULL, 0, 0);
    else
        coord_answer_read(&file->asked, 0, file->read.image + sizeof(struct coord_header),
                          file->read.bytes, file->read.version);
    return true;
}

/* For as long as who has the lock stands still nothing is stored, and nobody else says so. */
static void note_lock(struct coord_file *file, uint64_t now_ns)
{
    if (file->cas.locked_ns == 0) {
        file->cas.locked_ns = now_ns;
        file->cas.told = false;
    }
    if (file->cas.told || now_ns < file->cas.locked_ns + LOCKED_NS)
        return;
    file->cas.told = true;
    log_event(LOG_WARN, "coord_locked",
              "reason=\"another process has locked the stored value, and stands still: see which "
              "has value.lock open, and let it go on or end it\"");
}

static bool answer_cas(struct coord_file *file, uint64_t now_ns)
{
    if (!op_ended(file, &file->cas.op))
        return false;
    if (file->cas.op.error == ROWAN_EAGAIN) {
        note_lock(file, now_ns);
        file->asked.cas.state = ASKED_WAITING;
        file->cas.op.due_ns = now_ns + CAS_RETRY_NS;
        return true;
    }
    file->cas.op.due_ns = file->cas.locked_ns = 0;
    coord_answer_cas(&file->asked, file->cas.op.error);
    return true;
}

static void answer_watch(struct coord_file *file)
{
    /* A value that cannot be read has changed: the read that follows says how. */
    if (file->asked.watch.changed && file->inspect.watches &&
        (file->inspect.op.error || file->inspect.version != file->asked.watch.version))
        coord_answer_watch(&file->asked);
}

static void answer_election(struct coord_file *file)
{
    const int error = file->inspect.lead_error;

    if (!file->inspect.stands)
        return;
    if (error != file->election_error && error != 0 && error != ROWAN_EAGAIN)
        log_event(LOG_ERROR, "coord_election_failed", "error=%s", error_name(error));
    file->election_error = error;
    coord_answer_leads(&file->asked, error == 0);
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
    if (*op->state != ASKED_WAITING)
        return false;
    if (op->due_ns > now_ns) {
        wake_at(wake_ns, op->due_ns);
        return false;
    }
    *op->state = ASKED_RUNNING;
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
    if (!file->asked.watch.changed && !file->asked.election.leader)
        return false;
    if (file->inspect.state == ASKED_FREE)
        file->inspect.state = ASKED_WAITING;
    if (file->inspect.state == ASKED_WAITING) {
        file->inspect.watches = file->asked.watch.changed != NULL;
        file->inspect.stands = file->asked.election.leader != NULL;
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
                                          .read = coord_asked_read,
                                          .cas = coord_asked_cas,
                                          .watch = coord_asked_watch,
                                          .elect = coord_asked_elect,
                                          .poll = file_poll};

int coord_open_file(const char *directory, struct reactor *reactor, struct coord **out)
{
    struct coord_file *file = calloc(1, sizeof(*file));
    int error = ROWAN_ENOMEM;
    int failed;

    if (!file)
        return ROWAN_ENOMEM;
    file->asked.coord.ops = &file_ops;
    file->asked.reactor = reactor;
    file->read.op.state = &file->asked.read.state;
    file->cas.op.state = &file->asked.cas.state;
    file->inspect.op.state = &file->inspect.state;
    file->read.image = malloc(COORD_IMAGE_BYTES + 1); /* see coord_store_read */
    file->cas.image = malloc(COORD_IMAGE_BYTES);
    if (!file->read.image || !file->cas.image)
        goto fail_free;
    file->asked.cas.value = file->cas.image + sizeof(struct coord_header);
    error = coord_store_open(&file->store, directory);
    if (error)
        goto fail_free;
    failed = sem_init(&file->helper.waiting, 0, 0);
    ASSERT(failed == 0); /* sem_init(3): only a start value over the limit can fail */
    error = thread_start(&file->helper.thread, "coord", run_helper, file);
    if (error)
        goto fail_close;
    *out = &file->asked.coord;
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
