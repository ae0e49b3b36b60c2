"""Starting and stopping the processes of a local cluster.

What lies in its directory D:

    D/cm              the CMs' addresses, once the cluster serves; gone when it is stopped
    D/cluster.json    what it was started with (settings.py)
    D/prometheus.json where metrics are told, for Prometheus; gone when it is stopped
    D/run/            processes.json and the sockets; gone when it is stopped
    D/log/            cm.log, cm2.log, ..., s1.log, ...; cm-before.log, ... of the run before
    D/coord/          the CMs' configuration; or D/zookeeper/, with that of its ZooKeeper servers
    D/s1.pm ...       the servers' persistent memory
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

from . import memory, ports, process, settings, zookeeper
from .failure import Failure

START_SECONDS = 120
SCAN_BYTES_A_SECOND = 128 << 20  # of a start on data on a slow disk
STOP_SECONDS = 15
TELL_SECONDS = 2  # from one line about a long start to the next
LOG_BYTES = "32M"  # of a process, half of them in the log before
MOST_ADDRESS_BYTES = 255  # CLUSTER_MAX_ADDRESS_BYTES
TRIES_FOR_PORTS = 3
# An index has no two neighbouring objects in one small page: fewer misses of the TLB, fewer faults of a start.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
OF_A_RUN = ("cm", "run", "prometheus.json")
OF_A_CLUSTER = ("cluster.json", "coord", "zookeeper")


class AddressInUse(Failure):
    """A server found one of the ports that were free a moment ago in use."""


class Programs:
    """Finds rowan-server and the others: in $ROWAN_BIN, beside rowan-local, in the build
    directories of this source tree, in $PATH. ROWAN_BIN may be a build directory."""

    def __init__(self, here):
        self.folders = []
        if os.environ.get("ROWAN_BIN"):
            self.add_build(os.environ["ROWAN_BIN"])
            return
        self.folders.append(here)
        builds = os.path.join(here, "..", "build")
        if os.path.isdir(builds):
            for name in ("release", "gcc-plain", *sorted(os.listdir(builds))):
                self.add_build(os.path.join(builds, name))

    def add_build(self, folder):
        self.folders += [os.path.join(folder, module) for module in ("", "server", "cm", "tools")]

    def find(self, name):
        for folder in self.folders:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return os.path.realpath(path)
        path = shutil.which(name)
        if not path:
            raise Failure(
                f"the program {name} is not there: build first (tools/quickstart, or meson setup "
                "build/release --buildtype=release && ninja -C build/release), or name its "
                "directory in ROWAN_BIN"
            )
        return path

    def rowan(self, directory):
        """The command `rowan`, and who it logs in as, if somebody put that into the directory."""
        settings_file = os.path.join(directory, "rowan.conf")
        return [self.find("rowan"), *(["--config", settings_file] if os.path.exists(settings_file) else [])]


@contextlib.contextmanager
def lock(directory):
    """One rowan-local at a time in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"another rowan-local is at work in {directory}; wait for it") from None
        yield
    finally:
        os.close(fd)


# --- start ---


def check_directory(options):
    """Refuses a directory that holds a running cluster, something else, or half a cluster."""
    directory = options.directory
    check_nothing_runs(directory)
    names = set(os.listdir(directory))
    if options.saved:
        check_data(options)
    elif any(re.fullmatch(r"s\d+\.pm", name) for name in names):
        raise Failure(
            f"{directory} holds PM files and no cluster.json, which tells what they belong to; restore "
            "it, or name another directory with --dir (nothing was touched)"
        )
    elif names - {"log", "cluster-key", "rowan.conf"}:
        raise Failure(
            f"{directory} is not empty and holds no cluster; name another directory with --dir"
        )


def check_nothing_runs(directory):
    processes = process.load(directory)
    alive = [one.name for one in processes if one.alive()]
    if not alive:
        return
    stop_it = f"stop it with: rowan-local stop --dir {shlex.quote(directory)}"
    if len(alive) == len(processes):
        raise Failure(f"a cluster is running in {directory} already; {stop_it}")
    raise Failure(f"a part of the cluster in {directory} still runs ({', '.join(alive)}); {stop_it}")


def check_data(options):
    """All that a stopped cluster needs to be started again is there."""
    coord = os.path.join(options.directory, "coord" if options.coord == "file" else "zookeeper")
    if not options.recover and (not os.path.isdir(coord) or not os.listdir(coord)):
        raise Failure(
            f"{coord}, which tells how the data is spread over the servers, is gone; restore it, or start with "
            "--recover, or name another directory with --dir (nothing was touched)"
        )
    for server, (path, _) in zip(settings.numbers(options), memory.places(options)):
        if not os.path.exists(path) and memory.is_of_devices(path):
            raise Failure(f"the device {path}, with the data of server {server}, is gone (nothing was touched)")
        if not any(os.path.exists(one) for one, _ in memory.places(options)):
            raise Failure(
                f"{path} is gone, and no server's data is there; bring it back, or, if all is lost, make a new cluster: "
                "name another directory with --dir (nothing was touched)"
            )
        if not os.path.exists(path):
            raise Failure(
                f"{path}, the data of server {server}, is gone; bring it back, or, if it is lost, let the "
                "server begin without data, and the others go on with theirs: truncate -s "
                f"{options.pm_bytes} {shlex.quote(path)} (nothing was touched)"
            )


def check_addresses(options):
    directory = options.directory
    longest = len(os.fsencode(f"shm:{directory}/run/s{settings.LARGEST_SERVER}"))
    if options.fabric == "shm" and longest > MOST_ADDRESS_BYTES:
        raise Failure(
            f"the path {directory} is too long for the addresses in it by "
            f"{longest - MOST_ADDRESS_BYTES} bytes; name a shorter one with --dir"
        )
    if options.fabric == "shm" and "," in directory:
        raise Failure(
            f"the path {directory} has a comma, which stands between two addresses; name another one with --dir, or "
            "give --fabric tcp"
        )


def spin_arguments(options):
    """More threads than cores must not spin."""
    if options.servers * (options.reactors or 1) + options.managers >= len(os.sched_getaffinity(0)):
        return ["--spin-us", "0"]
    return []


def given_arguments(options, *names):
    """The settings of these names that were given."""
    given = [(name, getattr(options, name)) for name in names]
    return [word for name, value in given if value for word in (settings.flag(name), str(value))]


def metrics_name(name):
    return f"{name}-metrics"


def key_arguments(options, setting):
    """If the operator has put one there."""
    key = os.path.join(options.directory, "cluster-key")
    return [setting, key] if os.path.exists(key) else []


def common_arguments(options, name):
    """Of a CM or a server."""
    return [
        "--address", options.addresses[name],
        *key_arguments(options, "--cluster-key"),
        "--log-bytes", LOG_BYTES,
        *(["--metrics", options.addresses[metrics_name(name)]] if options.metrics == "yes" else []),
        *given_arguments(options, "verbs_device"),
    ]  # fmt: skip


def write_targets(directory):
    """Where metrics are told, as file_sd_configs of Prometheus wants it; the file is there if they are anywhere."""
    found = [
        {"targets": [one.command[one.command.index("--metrics") + 1]],
         "labels": {"job": "rowan-server", "server": str(one.server())} if one.server() else {"job": "rowan-cm", "manager": one.name}}
        for one in process.load(directory) if "--metrics" in one.command
    ]  # fmt: skip
    if found:
        settings.write_whole(os.path.join(directory, "prometheus.json"), json.dumps(found, indent=1) + "\n")


def manager_names(options):
    return ["cm"] + [f"cm{number}" for number in range(2, options.managers + 1)]


def list_of_managers(options):
    """As servers and clients are told."""
    return ",".join(options.addresses[name] for name in manager_names(options))


def cm_command(options, programs, name):
    with_zookeeper = options.coord == "zookeeper"
    return [
        programs.find("rowan-cm"),
        *common_arguments(options, name),
        "--coord", options.coord,
        *(["--zookeeper", zookeeper.ensemble(options), *key_arguments(options, "--zookeeper-key")] if with_zookeeper
          else ["--coord-dir", os.path.join(options.directory, "coord")]),
        "--cluster-servers", ",".join(map(str, settings.numbers(options))),
        "--replicas", str(options.replicas),
        "--shards", str(options.shards),
        *(["--recover"] if options.recover else []),
        "--lease-ms", str(options.lease_ms),
    ]  # fmt: skip


def server_command(options, programs, server, place):
    path, offset = place
    return [
        programs.find("rowan-server"),
        *common_arguments(options, f"s{server}"),
        "--server", str(server),
        "--cm", list_of_managers(options),
        "--pm", path,
        "--pm-offset", str(offset),
        "--pm-bytes", str(options.pm_bytes),
        "--durability", options.durability,
        *spin_arguments(options),
        *given_arguments(options, "verbs_receive", "workers", "digests", "reactors",
                         "landing_segments", "clean_below", "checkpoints", "wear_model"),
    ]  # fmt: skip


def address_of(options, name, port):
    place = ports.address(port) if settings.has_ports(options.fabric) else os.path.join(options.directory, "run", name)
    return f"{options.fabric}:{place}"


def choose_addresses(options):
    """{name: address}. Over tcp and verbs, endpoint i of a process listens on its port + i: a server has one
    for each worker and one for its control role, a CM has one."""
    managers = manager_names(options)
    names = managers + [f"s{server}" for server in settings.numbers(options)]
    zookeepers = zookeeper.names(options)
    counts = [(name, zookeeper.PORTS_EACH) for name in zookeepers]
    metrics = [metrics_name(name) for name in names] if options.metrics == "yes" else []
    counts += [(name, 1) for name in metrics]
    if settings.has_ports(options.fabric):
        endpoints = (options.workers or 1) + 1
        counts = [(name, 1 if name in managers else endpoints) for name in names] + counts
    assigned = ports.assign(counts, options.port) if counts else {}
    if settings.has_ports(options.fabric):
        options.port = assigned["cm"]
    addresses = {name: address_of(options, name, assigned.get(name)) for name in names}
    return addresses | {name: ports.address(assigned[name]) for name in metrics + zookeepers}


def log_path(directory, name):
    return os.path.join(directory, "log", name + ".log")


def begin(directory, name, command):
    """The process, with a log of its own; the log of the one before it is kept."""
    log = log_path(directory, name)
    if os.path.exists(log):
        os.rename(log, log_path(directory, name + "-before"))
    with open(log, "wb") as file:
        return subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True, env={**HUGE_PAGES, **os.environ},
        )  # fmt: skip


class Starter:
    """Starts processes one by one, and can undo all of it."""

    def __init__(self, options, programs, announce):
        self.options = options
        self.announce = announce
        self.programs = programs
        self.directory = options.directory
        self.places = memory.places(options)
        self.before = [path for path, _ in self.places if os.path.exists(path)]
        self.children = {}  # name -> Popen
        self.processes = []
        self.waits = None  # a sentence: what this cluster, which runs, does not serve

    def spawn(self, name, command, pm_path):
        # Uninterrupted: else a child could start that nobody knows of.
        with process.Uninterrupted():
            child = begin(self.directory, name, command)
            self.children[name] = child
            self.processes.append(
                process.Process(
                    name, child.pid, process.start_time(child.pid), self.options.addresses[name],
                    pm_path, self.options.pm_bytes if pm_path else 0, process.boot_id(), list(command),
                )  # fmt: skip
            )
            process.save(self.directory, self.processes)

    def check_children(self):
        for name, child in list(self.children.items()):
            if child.poll() is None:
                continue
            log = log_path(self.directory, name)
            who = {"c": f"the CM {name[2:]}".rstrip(), "z": f"ZooKeeper {name[1:]}"}.get(name[0], f"server {name[1:]}")
            said = last_sentence(log, child.returncode)
            if self.options.saved and NO_MEMBER in said:
                del self.children[name]
                print(f"{who} was drained or removed and is left out: rowan-local remove {name[1:]} forgets it, rowan add "
                      f"{name[1:]} lets it in", file=sys.stderr)  # fmt: skip
                continue
            raise (AddressInUse if was_in_use(log, said) else Failure)(f"{who} did not start: {said} (log: {log})")

    def start_zookeepers(self, deadline):
        """Until they listen; the CM waits until they answer."""
        names = zookeeper.names(self.options)
        for name in names:
            zookeeper.write_config(self.options, name)
            self.spawn(name, zookeeper.command(self.options, name), "")
        self.wait(
            lambda: all(ports.listens(ports.of(self.options.addresses[name])) for name in names),
            deadline, f"ZooKeeper does not listen after {START_SECONDS} s (logs: {self.directory}/log)",
        )  # fmt: skip
        self.check_children()

    def wait(self, listens, deadline, late):
        while not listens():
            self.check_children()
            if time.monotonic() > deadline:
                raise Failure(late)
            time.sleep(0.01)

    def cm_listens(self, name):
        """On shm its sockets are named after it."""
        if settings.has_ports(self.options.fabric):
            return ports.listens(ports.of(self.options.addresses[name]))
        return any(file.startswith(name + ".") for file in os.listdir(os.path.join(self.directory, "run")))

    def rowan(self, *words):
        return [*self.programs.rowan(self.directory), "--cm", list_of_managers(self.options), *words]

    def ask(self, *words):
        return subprocess.run(self.rowan("--json", *words), stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def find_waiting(self):
        """A sentence if all that can be served is, and shards wait for servers that came without their data; else None."""
        found = json.loads(self.ask("status").stdout or "{}")
        servers = found.get("servers", [])
        kept = [one["server"] for one in servers if one.get("kept")]  # not told by an earlier version
        silent = [one for one in servers if not one["reachable"] and one["server"] not in kept]
        if not kept or silent or found["recovering"] > found["waiting"]:
            return None
        said = {server: self.ask("give-up", "server", str(server)).stderr for server in kept}
        lost = [str(server) for server in kept if IS_LOST in said[server]]
        if not lost or not all(IS_LOST in one or IS_HERE in one for one in said.values()):
            return None
        if len(lost) == 1:
            who, server = f"the data of server {lost[0]}, which", lost[0]
        else:
            who, server = f"the data of servers {', '.join(lost)}, each of which", "ID"
        return (
            f"the cluster runs, and {found['waiting']} of {found['shards']} shards are not served: they wait for {who} "
            "came without, or did not come yet; bring that back, or, only if it is lost, go on without: rowan --dir "
            f"{shlex.quote(self.directory)} give-up server {server}"
        )

    def wait_until_it_serves(self, deadline):
        """`rowan status` answers for every server, and no shard is recovering; or self.waits says what waits for lost data."""
        command = self.rowan("status")
        answer = "it never answered"
        told = time.monotonic()
        while True:
            late = f"the cluster does not serve in time; rowan status: {answer} (logs: {self.directory}/log)"
            probe = None
            try:
                with process.Uninterrupted():  # else it could outlive us
                    probe = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE, text=True,
                    )  # fmt: skip
                self.wait(lambda probe=probe: probe.poll() is not None, deadline, late)
                answer = probe.stderr.read().strip() or answer
            finally:
                if probe:
                    probe.kill()
                    probe.communicate()
            self.check_children()
            if probe.returncode == 0:
                return
            if time.monotonic() > told + TELL_SECONDS:
                told = time.monotonic()
                self.waits = self.find_waiting()
                if self.waits:
                    return
                print(answer, file=sys.stderr)
            time.sleep(0.05)

    def commands(self):
        """[(name, command, PM file)], the CMs first. All programs are looked up here."""
        options = self.options
        options.addresses = choose_addresses(options)
        self.programs.find("rowan")
        managers = [(name, cm_command(options, self.programs, name), "") for name in manager_names(options)]
        return managers + [
            (f"s{n}", server_command(options, self.programs, n, place), place[0])
            for n, place in zip(settings.numbers(options), self.places)
        ]

    def run(self):
        memory.check_space(self.options, self.places)
        commands = self.commands()
        self.announce()
        if not self.options.saved:
            settings.write(self.options)
        remove(os.path.join(self.directory, "cm"))  # of a run that was killed
        for tries in range(1, TRIES_FOR_PORTS + 1):
            try:
                self.launch(commands)
                break
            except AddressInUse:
                has_ports = (
                    settings.has_ports(self.options.fabric) or zookeeper.names(self.options) or self.options.metrics == "yes"
                )
                if not has_ports or tries == TRIES_FOR_PORTS:
                    raise
                self.end()
                commands = self.commands()
        settings.write(self.options)
        write_targets(self.directory)
        settings.write_whole(os.path.join(self.directory, "cm"), list_of_managers(self.options) + "\n")

    def launch(self, commands):
        """Returns when the cluster serves, or all of it that can."""
        data = self.options.pm_bytes * self.options.servers if self.options.saved else 0
        deadline = time.monotonic() + START_SECONDS + data // SCAN_BYTES_A_SECOND
        remove(os.path.join(self.directory, "run"))  # dead sockets of a run that was killed
        for name in ("run", "log", "coord" if self.options.coord == "file" else "zookeeper"):
            os.makedirs(os.path.join(self.directory, name), mode=0o700 if name == "run" else 0o777, exist_ok=True)
        self.start_zookeepers(deadline)
        for command in commands[: self.options.managers]:
            self.spawn(*command)
        for name in manager_names(self.options):  # servers that find nobody try again, but not at once
            late = f"the CM does not listen after {START_SECONDS} s (log: {log_path(self.directory, name)})"
            self.wait(lambda name=name: self.cm_listens(name), deadline, late)
        for command in commands[self.options.managers :]:
            self.spawn(*command)
        self.wait_until_it_serves(deadline)

    def end(self):
        """Ends what was started."""
        with process.Uninterrupted():
            process.end_all(self.processes, STOP_SECONDS)
            for child in self.children.values():
                child.wait()
            self.children = {}
            self.processes = []

    def undo(self):
        """Ends what was started and removes what was made; logs stay, and data of an earlier run."""
        with process.Uninterrupted():
            self.end()
            for name in OF_A_RUN if self.options.saved else OF_A_RUN + OF_A_CLUSTER:
                remove(os.path.join(self.directory, name))
            for path, _ in self.places:
                if path.endswith(".pm") and path not in self.before:
                    remove(path)


def start(options, programs, announce):
    """`announce` is called when nothing stands against the start any more. Returns the processes, and a sentence if shards wait
    for data that is gone."""
    made = not os.path.isdir(options.directory)
    try:
        os.makedirs(options.directory, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make {options.directory}: {error.strerror}") from None
    if not os.access(options.directory, os.W_OK | os.X_OK):
        raise Failure(f"{options.directory} is not writable")
    try:
        with lock(options.directory):
            if settings.read(options.directory) != options.saved:
                raise Failure(f"another rowan-local was at work in {options.directory}; try again")
            check_directory(options)
            check_addresses(options)
            if options.coord == "zookeeper":
                zookeeper.check_installed()
            starter = Starter(options, programs, announce)
            try:
                starter.run()
                process.end_interrupts()  # a cluster that serves is not undone
            except BaseException:
                starter.undo()
                raise
    except BaseException:
        if made and not os.listdir(options.directory):
            os.rmdir(options.directory)
        raise
    return starter.processes, starter.waits


# Of a server or the CM, for the address that it was given (error_sentence(ROWAN_EINUSE)).
IN_USE = re.compile(
    r"rowan-(server|cm): cannot (use the address|serve at|answer Prometheus at) \S+: the file or address is in use"
)


# Of a member that shards wait for, when rowan asks the manager whether to give it up (cm/manage_plan.c): it is not here, or has
# none of the data; or it has some. Anything else: it may still come.
IS_LOST = "is lost for good"
IS_HERE = "is here, and waits for others with what it has"

# Of a server that the manager took out and rowan-local did not (cm/refusal.c).
NO_MEMBER = "or it was removed (rowan add lets it in"


def was_in_use(log, said):
    """ZooKeeper says it in a stack trace."""
    with open(log, encoding="utf-8", errors="replace") as file:
        return IN_USE.match(said) or "java.net.BindException" in file.read()


def last_sentence(log, code):
    """What the program said to a person; else its last line, be it a log event or a crash."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    said = [line for line in lines if line.startswith(("rowan-server: ", "rowan-cm: "))]
    if lines:
        return (said or lines[-1:])[0]
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


# --- stop, kill ---


def require_record(directory):
    processes = process.load(directory)
    if not processes:
        raise Failure(f"no cluster is running in {directory}")
    return processes


def stop(directory):
    """Returns (how many were running, names of those that had to be killed)."""
    if not os.path.isdir(directory):
        raise Failure(f"no cluster is running in {directory}")
    with lock(directory):
        processes = require_record(directory)
        running = [one for one in processes if one.alive()]
        # Servers first: one that loses its CM has something to complain about, and a CM that loses its ZooKeeper.
        killed = []
        for kind in "scz":
            killed += process.end_all([one for one in running if one.name[0] == kind], STOP_SECONDS)
        left = [one.name for one in running if one.alive()]
        if left:
            raise Failure(f"could not end {', '.join(left)}, not even by SIGKILL")
        for name in OF_A_RUN:
            remove(os.path.join(directory, name))
    return len(running), killed


def find_server(directory, word):
    servers = [one for one in require_record(directory) if one.server()]
    for one in servers:
        if word in (one.name, str(one.server())):
            return one
    numbers = ", ".join(str(one.server()) for one in servers)
    raise Failure(f"the cluster in {directory} has no server {word}; it has {numbers}")
