/* pm_peer_test.c - a file whose owner was killed, and the peers that it had let in: processes of
 * their own, stopped or slow, that could still store there. Nobody opens the file before they are
 * gone.
 */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"
#include "test/unit/pm/pm_fixture.h"

enum { LOG_BYTES = 4096, LATE = 7 * PAGE };

static int real_stderr;
static pid_t owner, peer;
static int sent_pipe[2];

/* --- processes --- */

static void run_owner(const struct pm_open_options *options, int socket)
{
    struct pm *pm;

    if (pm_open(options, &pm) != 0)
        _exit(12);
    if (socket_send(socket, "d", 1, &pm->fd, 1) != 0)
        _exit(10);
    if (write(sent_pipe[1], "s", 1) != 1)
        _exit(13);
    for (;;)
        pause();
}

/* Where a peer is stopped. */
enum stage { BEFORE_IT_RECEIVES, WITH_THE_DESCRIPTOR, WITH_THE_MAP };

static void run_peer(int socket, enum stage stage)
{
    struct pm *pm;
    int fds[SHM_MAX_FDS];
    unsigned count;
    char byte;

    if (stage == BEFORE_IT_RECEIVES)
        raise(SIGSTOP);
    if (socket_receive(socket, &byte, 1, fds, &count) != 0 || count != 1)
        _exit(11);
    if (stage == WITH_THE_DESCRIPTOR)
        raise(SIGSTOP);
    if (pm_open_peer(fds[0], 0, MAP_BYTES, PM_FENCE, NULL, &pm) != 0)
        _exit(14);
    if (stage == WITH_THE_MAP)
        raise(SIGSTOP);
    pm_store(pm, LATE, "late", 4);
    pm_close(pm);
    _exit(0);
}

/* A child that ends with us. */
static pid_t start(int close_fd)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(close_fd);
    }
    return child;
}

/* An owner that has let one peer in and was killed, when the peer has been stopped at `stage`. */
static void kill_owner_of(const struct pm_open_options *options, enum stage stage)
{
    int sockets[2], status;
    char byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    peer = start(sockets[0]);
    if (peer == 0)
        run_peer(sockets[1], stage);
    close(sockets[1]);
    assert_int_equal(pipe2(sent_pipe, O_CLOEXEC), 0);
    owner = start(sent_pipe[0]);
    if (owner == 0)
        run_owner(options, sockets[0]);
    close(sockets[0]);
    close(sent_pipe[1]);
    assert_int_equal(read(sent_pipe[0], &byte, 1), 1);
    assert_int_equal(waitpid(peer, &status, WUNTRACED), peer);
    assert_true(WIFSTOPPED(status));
    kill(owner, SIGKILL);
    assert_int_equal(waitpid(owner, NULL, 0), owner);
    close(sent_pipe[0]);
}

static void end_peer(int signal_number, int expected_exit)
{
    int status;

    kill(peer, signal_number);
    assert_int_equal(waitpid(peer, &status, 0), peer);
    if (expected_exit >= 0)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == expected_exit);
}

/* --- the log --- */

static int catch_log(void **state)
{
    int fd;

    setup(state);
    real_stderr = dup(STDERR_FILENO);
    fd = open(temp_dir_at(&dir, "log"), O_RDWR | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    return 0;
}

static int release_log(void **state)
{
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    return teardown(state);
}

static bool log_has(const char *text)
{
    char log[LOG_BYTES];
    const ssize_t bytes = pread(STDERR_FILENO, log, sizeof log - 1, 0);

    assert_true(bytes >= 0);
    log[bytes] = '\0';
    return strstr(log, text);
}

/* --- cases --- */

static int open_again(struct pm_open_options options, unsigned wait_ms)
{
    struct pm *pm = NULL;
    int error;

    options.create = 0;
    options.peers_wait_ms = wait_ms;
    error = pm_open(&options, &pm);
    pm_close(pm);
    return error;
}

static void a_stopped_peer_keeps_the_file_until_it_is_gone(struct pm_open_options options)
{
    char pid[32];

    kill_owner_of(&options, WITH_THE_MAP);
    assert_int_equal(open_again(options, 0), ROWAN_EINUSE);
    snprintf(pid, sizeof pid, " pid=%d ", (int)peer);
    assert_true(log_has("pm_in_use "));
    assert_true(log_has(pid));
    assert_int_equal(open_again(options, 3), ROWAN_EINUSE);
    end_peer(SIGKILL, -1);
    assert_int_equal(open_again(options, 5000), 0);
}

#undef TEST_FIXTURE
#define TEST_FIXTURE catch_log, release_log

TEST(a_stopped_peer_keeps_a_file_on_disk)
{
    a_stopped_peer_keeps_the_file_until_it_is_gone(options_of("pm", 1));
}

TEST(a_stopped_peer_keeps_a_file_in_memory)
{
    struct pm_open_options options = options_of("pm", 1);
    char path[64];

    snprintf(path, sizeof path, "/dev/shm/rowan-pm-peer-%d", (int)getpid());
    options.path = path;
    unlink(path);
    a_stopped_peer_keeps_the_file_until_it_is_gone(options);
    unlink(path);
}

TEST(a_stopped_peer_keeps_its_part_of_a_shared_file_alone)
{
    struct pm_open_options low = options_of("device", 0), high = low;
    int fd = open(low.path, O_RDWR | O_CREAT | O_EXCL, 0600);

    assert_int_equal(ftruncate(fd, 2 * MAP_BYTES), 0);
    close(fd);
    high.offset = MAP_BYTES;
    kill_owner_of(&low, WITH_THE_MAP);
    assert_int_equal(open_again(high, 0), 0);
    assert_int_equal(open_again(low, 0), ROWAN_EINUSE);
    end_peer(SIGKILL, -1);
    assert_int_equal(open_again(low, 5000), 0);
}

TEST(a_peer_that_has_not_mapped_the_file_yet_keeps_it_too)
{
    struct pm_open_options options = options_of("pm", 1);

    kill_owner_of(&options, WITH_THE_DESCRIPTOR);
    assert_int_equal(open_again(options, 0), ROWAN_EINUSE);
    end_peer(SIGKILL, -1);
    assert_int_equal(open_again(options, 5000), 0);
}

TEST(a_descriptor_on_its_way_to_a_peer_keeps_the_file_too)
{
    struct pm_open_options options = options_of("pm", 1);

    kill_owner_of(&options, BEFORE_IT_RECEIVES);
    assert_int_equal(open_again(options, 0), ROWAN_EINUSE);
    assert_true(log_has(" pid=unknown "));
    end_peer(SIGKILL, -1);
    assert_int_equal(open_again(options, 5000), 0);
}

static void *wake_peer_when_awaited(void *awaited)
{
    *(bool *)awaited = WAIT_FOR(log_has("pm_waits_for_peer "));
    kill(peer, SIGCONT);
    return NULL;
}

TEST(an_opener_waits_for_a_peer_that_leaves_and_sees_its_last_store)
{
    struct pm_open_options options = options_of("pm", 1);
    bool awaited = false;
    pthread_t thread;
    struct pm *pm;

    kill_owner_of(&options, WITH_THE_MAP);
    options.create = 0;
    options.peers_wait_ms = 60000;
    assert_int_equal(pthread_create(&thread, NULL, wake_peer_when_awaited, &awaited), 0);
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_memory_equal(pm_at(pm, LATE), "late", 4);
    pthread_join(thread, NULL);
    assert_true(awaited);
    end_peer(SIGCONT, 0);
    pm_close(pm);
}

TEST(an_owner_locks_no_peer_out_and_is_named_to_the_next)
{
    struct pm_open_options options = options_of("pm", 1);
    struct pm *pm, *peers[3];
    char pid[32];

    assert_int_equal(pm_open(&options, &pm), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pm_open_peer(dup(pm->fd), 0, MAP_BYTES, PM_FENCE, NULL, &peers[i]), 0);
    assert_int_equal(open_again(options, 0), ROWAN_EINUSE);
    snprintf(pid, sizeof pid, " pid=%d ", (int)getpid());
    assert_true(log_has(pid));
    pm_close(pm);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(open_again(options, 0), ROWAN_EINUSE);
        pm_close(peers[i]);
    }
    assert_int_equal(open_again(options, 0), 0);
}

UNIT_MAIN(NULL, NULL)
