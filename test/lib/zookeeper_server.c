/* zookeeper_server.c - see zookeeper_server.h. */
#include "test/lib/zookeeper_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/random.h"
#include "test/lib/asserts.h"
#include "test/lib/wait.h"

#define JAR "/usr/share/java/zookeeper.jar"

const char *zookeeper_server_missing(void)
{
    if (access(JAR, R_OK))
        return "no " JAR " (Debian's libzookeeper-java)";
    return system("java -version >/dev/null 2>&1") ? "no java (Debian's default-jre-headless)"
                                                   : NULL;
}

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool is_free(unsigned port)
{
    struct sockaddr_in address = loopback(port);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    bool free_now = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return free_now;
}

/* Outside of the range that the kernel gives to connections: while the server is away, none of them takes its port, and
 * none meets itself there. */
static unsigned free_port(void)
{
    unsigned lowest = 0, port;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%u", &lowest), 1);
    fclose(file);
    if (lowest < 11000) /* it has nearly all: then one of them */
        lowest = 65536;
    do {
        uint32_t drawn;
        random_entropy(&drawn, sizeof drawn);
        port = 10000 + drawn % (lowest - 10000);
    } while (!is_free(port));
    return port;
}

void zookeeper_server_init(struct zookeeper_server *server)
{
    temp_dir_init(&server->dir);
    server->port = free_port();
    server->pid = 0;
    FILE *file = fopen(temp_dir_at(&server->dir, "zoo.cfg"), "w");
    assert_non_null(file);
    fprintf(file,
            "tickTime=200\nmaxSessionTimeout=60000\ndataDir=%s\nclientPort=%u\nclientPortAddress="
            "127.0.0.1\n"
            "admin.enableServer=false\nforceSync=no\n",
            server->dir.path, server->port);
    assert_int_equal(fclose(file), 0);
}

static void run_java(const struct zookeeper_server *server)
{
    int log = open(temp_dir_at(&server->dir, "log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process */
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(1);
    execlp("java", "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", JAR,
           "org.apache.zookeeper.server.quorum.QuorumPeerMain",
           temp_dir_at(&server->dir, "zoo.cfg"), (char *)NULL);
    _exit(1);
}

static bool listens(const struct zookeeper_server *server)
{
    struct sockaddr_in address = loopback(server->port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    bool connected = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return connected;
}

void zookeeper_server_start(struct zookeeper_server *server)
{
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0)
        run_java(server);
    assert_true(WAIT_FOR(listens(server) || waitpid(server->pid, NULL, WNOHANG) != 0));
    assert_true(listens(server));
}

void zookeeper_server_kill(struct zookeeper_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
    server->pid = 0;
}

void zookeeper_server_delete(const struct zookeeper_server *server, const char *path)
{
    char command[512];
    snprintf(command, sizeof command,
             "java -cp " JAR " org.apache.zookeeper.ZooKeeperMain -server 127.0.0.1:%u delete %s "
             ">>%s 2>&1",
             server->port, path, temp_dir_at(&server->dir, "log"));
    assert_int_equal(system(command), 0);
}

/* The client reads commands from its input when it is given none. */
void zookeeper_server_acl(const struct zookeeper_server *server, const char *login,
                          const char *path, char *out, size_t out_bytes)
{
    char command[512], said[4096];
    snprintf(command, sizeof command,
             "printf 'addauth digest %s\\ngetAcl %s\\nquit\\n' | java -cp " JAR
             " org.apache.zookeeper.ZooKeeperMain -server 127.0.0.1:%u 2>>%s",
             login, path, server->port, temp_dir_at(&server->dir, "log"));
    FILE *client = popen(command, "r");
    assert_non_null(client);
    said[fread(said, 1, sizeof said - 1, client)] = '\0';
    assert_int_equal(pclose(client), 0);
    const char *acl = strchr(said, '\'');
    assert_non_null(acl);
    snprintf(out, out_bytes, "%s", acl);
}

void zookeeper_server_fini(struct zookeeper_server *server)
{
    zookeeper_server_kill(server);
    temp_dir_fini(&server->dir);
}
