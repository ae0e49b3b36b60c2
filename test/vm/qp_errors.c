/* qp_errors.c - breaks a process's queue pairs from inside, as a link or a device would. Preloaded
 * (LD_PRELOAD) into unchanged programs.
 *
 * It keeps a list of the queue pairs that the process has made. Each SIGURG moves one of those that can
 * send into the error state, the next one in turn. Then it appends a line to the file $QP_ERRORS_LOG.PID:
 * "qp=NUMBER type=rc|ud", or "none" if there is none. So the sender of the signal can wait for it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PAIRS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_qp *pairs[MAX_PAIRS];
static unsigned pair_count, turn;
static sem_t asked;
static int log_fd = -1;

static void *next_symbol(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
    struct ibv_qp *(*create)(struct ibv_pd *, struct ibv_qp_init_attr *);
    *(void **)&create = next_symbol("ibv_create_qp");
    struct ibv_qp *pair = create(pd, attributes);
    pthread_mutex_lock(&lock);
    if (pair && pair_count < MAX_PAIRS)
        pairs[pair_count++] = pair;
    pthread_mutex_unlock(&lock);
    return pair;
}

int ibv_destroy_qp(struct ibv_qp *pair)
{
    int (*destroy)(struct ibv_qp *);
    *(void **)&destroy = next_symbol("ibv_destroy_qp");
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < pair_count; i++) {
        if (pairs[i] == pair)
            pairs[i] = pairs[--pair_count];
    }
    pthread_mutex_unlock(&lock);
    return destroy(pair);
}

/* With the lock, so that nobody destroys it meanwhile. */
static int break_one(char *line, size_t line_bytes)
{
    for (unsigned tries = 0; tries < pair_count; tries++) {
        struct ibv_qp *pair = pairs[turn++ % pair_count];
        struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR}, found;
        struct ibv_qp_init_attr made;
        if (ibv_query_qp(pair, &found, IBV_QP_STATE, &made) || found.qp_state != IBV_QPS_RTS)
            continue;
        if (ibv_modify_qp(pair, &attributes, IBV_QP_STATE))
            continue;
        return snprintf(line, line_bytes, "qp=%u type=%s\n", pair->qp_num,
                        made.qp_type == IBV_QPT_RC ? "rc" : "ud");
    }
    return snprintf(line, line_bytes, "none\n");
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        char line[64];
        while (sem_wait(&asked)) {
        }
        pthread_mutex_lock(&lock);
        int bytes = break_one(line, sizeof line);
        pthread_mutex_unlock(&lock);
        if (write(log_fd, line, (size_t)bytes) != bytes)
            abort();
    }
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    sem_post(&asked);
}

__attribute__((constructor)) static void begin(void)
{
    const char *prefix = getenv("QP_ERRORS_LOG");
    char path[512];
    pthread_t thread;
    sigset_t all, before;
    if (!prefix)
        return;
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (log_fd < 0 || sem_init(&asked, 0, 0) || pthread_create(&thread, NULL, serve, NULL))
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGURG, &action, NULL);
}
