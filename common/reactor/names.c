/* names.c - see names.h. Names are kept for the life of the process: there are a few, those of its settings and of the cluster.
 *
 *   a name: WANTED --the thread takes it up--> looked up --> known, or not --AGAIN_NS later, when asked for--> WANTED
 */
#include "common/reactor/names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/reactor/thread.h"

enum { NAMES_MAX = 512 };

#define AGAIN_NS      (10 * NS_PER_S) /* one that is known */
#define AGAIN_SOON_NS NS_PER_S        /* one that is not */

struct name {
    char host[NAMES_HOST_BYTES], number[NAMES_NUMBER_BYTES]; /* number "": not known */
    bool wanted, told;  /* told: the log says that it is not known */
    uint64_t looked_ns; /* 0: never */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct name names[NAMES_MAX];
static unsigned count;
static bool started;

static bool look_up(const char *host, char number[NAMES_NUMBER_BYTES])
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;

    if (getaddrinfo(host, NULL, &hints, &found))
        return false;
    const bool known = getnameinfo(found->ai_addr, found->ai_addrlen, number, NAMES_NUMBER_BYTES,
                                   NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo(found);
    return known;
}

/* With the lock. What was known stays, where the resolver fails later. */
static void note(struct name *name, bool known, const char *number)
{
    if (known && strcmp(name->number, number) != 0)
        log_event(LOG_INFO, "name_found", "host=%s address=%s", name->host, number);
    else if (!known && !name->told)
        log_event(LOG_WARN, "name_unknown",
                  "host=%s detail=\"it cannot be looked up: see DNS and /etc/hosts\"", name->host);
    if (known)
        snprintf(name->number, sizeof name->number, "%s", number);
    name->told = !known;
    name->wanted = false;
    name->looked_ns = clock_now_ns(clock_system());
    pthread_cond_broadcast(&changed);
}

static struct name *next_wanted(void)
{
    for (unsigned i = 0; i < count; i++) {
        if (names[i].wanted)
            return &names[i];
    }
    return NULL;
}

static void *run(void *argument)
{
    char number[NAMES_NUMBER_BYTES] = "";

    pthread_mutex_lock(&lock);
    for (;;) {
        struct name *const name = next_wanted();
        if (!name) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        const bool known = look_up(name->host, number);
        pthread_mutex_lock(&lock);
        note(name, known, number);
    }
    return argument;
}

/* With the lock. */
static int want(struct name *name)
{
    pthread_t thread;

    if (!started) {
        const int error = thread_start(&thread, "names", run, NULL);
        if (error)
            return error;
        pthread_detach(thread); /* the resolver may hold it for longer than the process lives */
        started = true;
    }
    name->wanted = true;
    pthread_cond_broadcast(&changed);
    return 0;
}

/* With the lock. NULL: there are too many. */
static struct name *find(const char *host)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(names[i].host, host) == 0)
            return &names[i];
    }
    if (count == NAMES_MAX)
        return NULL;
    snprintf(names[count].host, sizeof names[count].host, "%s", host);
    return &names[count++];
}

static int look(const char *host, char number[NAMES_NUMBER_BYTES])
{
    struct name *const name = find(host);
    if (!name)
        return ROWAN_ETOOMANY;
    const uint64_t again_ns = name->number[0] ? AGAIN_NS : AGAIN_SOON_NS;
    if (!name->wanted &&
        (!name->looked_ns || clock_now_ns(clock_system()) >= name->looked_ns + again_ns)) {
        const int error = want(name);
        if (error)
            return error;
    }
    if (!name->number[0])
        return name->looked_ns ? ROWAN_EUNREACHABLE : ROWAN_EAGAIN;
    strcpy(number, name->number);
    return 0;
}

int names_look(const char *host, char number[NAMES_NUMBER_BYTES])
{
    struct in6_addr ignored;

    if (strlen(host) >= NAMES_HOST_BYTES)
        return ROWAN_EINVALID;
    if (inet_pton(AF_INET, host, &ignored) == 1 || inet_pton(AF_INET6, host, &ignored) == 1) {
        snprintf(number, NAMES_NUMBER_BYTES, "%s", host);
        return 0;
    }
    pthread_mutex_lock(&lock);
    const int error = look(host, number);
    pthread_mutex_unlock(&lock);
    return error;
}

void names_wait(void)
{
    pthread_mutex_lock(&lock);
    while (next_wanted())
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
