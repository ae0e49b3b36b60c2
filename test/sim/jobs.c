/* A child for each run. Its result comes over a pipe, which it fills in one write; what it prints goes to a file
 * without name. A child whose pipe ends without a result has crashed. */
#include "test/sim/jobs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"

enum {
    GRACE_S = 3,         /* for a child that ran into its limit to tell where it is */
    HUNG_CODE = 124,     /* as of timeout(1) */
    TEXT_MOST = 1 << 20, /* bytes kept of what a child wrote */
    PIPE_WHOLE = 4096,   /* bytes that a pipe takes in one piece (PIPE_BUF of pipe(7)) */
};

_Static_assert(sizeof(struct run_result) <= PIPE_WHOLE, "a result is written in one piece");

struct lane {
    struct job job;
    pid_t pid; /* 0: free */
    int result, text;
    int64_t end_s; /* of the monotonic clock: killed then */
};

static int64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* --- the child --- */

/* The run is over in any case. What a handler must not call may be called here, because the signal came out of
 * the program itself (SIGABRT), or else the parent's patience ends (SIGALRM). */
static void on_end(int number)
{
    signal(number, SIG_DFL);
    fprintf(stderr, number == SIGALRM ? "no end in time; " : "aborted; ");
    run_tell_end(stderr);
    fflush(NULL);
    if (number == SIGALRM)
        _exit(HUNG_CODE);
    raise(number);
}

static void run_job(const struct jobs_options *options, const struct job *job,
                    struct run_result *result)
{
    const struct run_options run = {.seed = job->seed,
                                    .failovers = job->failovers,
                                    .mutant = job->mutant,
                                    .trace = options->trace ? stdout : NULL,
                                    .story = stdout};
    run_seed(&run, result);
    fflush(stdout);
}

static _Noreturn void be_child(const struct jobs_options *options, const struct job *job,
                               const struct lane *lane, const int pipe_ends[2])
{
    struct run_result result;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pipe_ends[0]);
    if (lane->text >= 0) {
        dup2(lane->text, STDOUT_FILENO);
        dup2(lane->text, STDERR_FILENO);
    }
    signal(SIGABRT, on_end);
    signal(SIGALRM, on_end);
    alarm((unsigned)options->limit_s);
    run_job(options, job, &result);
    ssize_t written = write(pipe_ends[1], &result, sizeof result);
    ASSERT(written == sizeof result);
    if (result.failure.kind != FAILURE_NONE)
        _exit(0); /* what it holds was not taken down */
    exit(0);      /* a sanitizer may find a leak */
}

/* --- the parent --- */

static int start(const struct jobs_options *options, const struct job *job, struct lane *lane)
{
    int pipe_ends[2];
    *lane = (struct lane){.job = *job, .text = -1};
    if (pipe(pipe_ends))
        return errno;
    if (!options->trace)
        lane->text = memfd_create("rowan-sim", MFD_CLOEXEC);
    fflush(NULL);
    lane->pid = fork();
    if (lane->pid == 0)
        be_child(options, job, lane, pipe_ends);
    int error = lane->pid < 0 ? errno : 0;
    close(pipe_ends[1]);
    lane->result = pipe_ends[0];
    lane->end_s = now_s() + (int64_t)options->limit_s + GRACE_S;
    if (error) {
        lane->pid = 0;
        close(pipe_ends[0]);
        if (lane->text >= 0)
            close(lane->text);
    }
    return error;
}

static char *read_text(int file)
{
    off_t bytes = file >= 0 ? lseek(file, 0, SEEK_END) : 0;
    off_t from = bytes > TEXT_MOST ? bytes - TEXT_MOST : 0;
    char *text = calloc(1, (size_t)(bytes - from) + 1);
    ASSERT(text);
    if (bytes > 0 && pread(file, text, (size_t)(bytes - from), from) < 0)
        text[0] = '\0';
    return text;
}

/* The line that names the reason, if there is one. */
static void find_reason(const char *text, char *out, size_t room)
{
    static const char *const words[] = {"assert_failed", "ERROR: ", "runtime error:"};
    out[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *at = strstr(text, words[i]);
        if (at) {
            snprintf(out, room, ": %.*s", (int)strcspn(at, "\n"), at);
            return;
        }
    }
}

static void tell_crash(struct job_result *result, int status)
{
    struct failure *failure = &result->run.failure;
    char reason[240];
    find_reason(result->text, reason, sizeof reason);
    result->run = (struct run_result){0};
    bool hung = (WIFEXITED(status) && WEXITSTATUS(status) == HUNG_CODE) ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (hung)
        failure_set(failure, FAILURE_CRASH, "hang", 0, UINT32_MAX, UINT32_MAX,
                    "no end within the time for one seed%s", reason);
    else if (WIFSIGNALED(status))
        failure_set(failure, FAILURE_CRASH, "crash", 0, UINT32_MAX, UINT32_MAX, "%s%s",
                    strsignal(WTERMSIG(status)), reason);
    else
        failure_set(failure, FAILURE_CRASH, "crash", 0, UINT32_MAX, UINT32_MAX,
                    "the process ended with exit code %d%s", WEXITSTATUS(status), reason);
}

static void finish(const struct jobs_options *options, struct lane *lane)
{
    struct job_result result = {.job = lane->job};
    int status = 0;
    ssize_t bytes = read(lane->result, &result.run, sizeof result.run);
    close(lane->result);
    while (waitpid(lane->pid, &status, 0) < 0 && errno == EINTR)
        ;
    lane->pid = 0;
    result.text = read_text(lane->text);
    if (lane->text >= 0)
        close(lane->text);
    if (bytes != sizeof result.run || status != 0)
        tell_crash(&result, status);
    options->done(options->context, &result);
    free(result.text);
}

/* Until a child has something to say or has to be killed. */
static void await(const struct jobs_options *options, struct lane *lanes, uint32_t count)
{
    struct pollfd files[JOBS_MOST];
    for (uint32_t i = 0; i < count; i++)
        files[i] = (struct pollfd){.fd = lanes[i].pid ? lanes[i].result : -1, .events = POLLIN};
    poll(files, count, 1000);
    for (uint32_t i = 0; i < count; i++) {
        if (!lanes[i].pid)
            continue;
        if (!files[i].revents && now_s() >= lanes[i].end_s)
            kill(lanes[i].pid, SIGKILL);
        if (files[i].revents)
            finish(options, &lanes[i]);
    }
}

static void run_here(const struct jobs_options *options)
{
    static char nothing[1];
    struct job_result result = {.text = nothing};
    while (options->next(options->context, &result.job)) {
        run_job(options, &result.job, &result.run);
        options->done(options->context, &result);
    }
}

int jobs_run(const struct jobs_options *options)
{
    struct lane lanes[JOBS_MOST] = {0};
    struct job job;
    uint32_t running = 0;
    int error = 0;
    ASSERT(options->jobs <= JOBS_MOST);
    if (options->jobs == 0) {
        run_here(options);
        return 0;
    }
    for (;;) {
        running = 0;
        for (uint32_t i = 0; i < options->jobs; i++) {
            if (!lanes[i].pid && !error && options->next(options->context, &job))
                error = start(options, &job, &lanes[i]);
            running += lanes[i].pid != 0;
        }
        if (running == 0)
            return error;
        await(options, lanes, options->jobs);
    }
}
