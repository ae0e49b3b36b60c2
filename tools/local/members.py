"""Single servers of a cluster that runs: one returns, is added, or is taken out. Where there are leases."""

import subprocess
import types

from . import cluster, memory, ports, process, settings
from .failure import Failure


def read(directory):
    """What `start` knows of a cluster, by its settings and the processes that run."""
    found = settings.read(directory)
    if not found or not found["lease_ms"]:
        raise Failure(
            "without leases a single server does not come, go or return: stop the cluster and start it again, or make "
            "one with --lease-ms"
        )
    options = types.SimpleNamespace(**found, directory=directory, saved=found)
    options.addresses = {one.name: one.address for one in cluster.require_record(directory)}
    return options


def launch(directory, one):
    """Starts the process of that record, which gets its id. Every other one of that name is forgotten."""
    with process.Uninterrupted():
        child = cluster.begin(directory, one.name, one.command)
        one.pid, one.start, one.boot = child.pid, process.start_time(child.pid), process.boot_id()
        others = [other for other in process.load(directory) if other.name != one.name]
        process.save(directory, others + [one])
    return one


def find(directory, word):
    one = cluster.find_process(directory, word)
    if not one.server():
        raise Failure(f"{one.name} is no server")
    return one


def plan(options, programs, verb, server):
    """What the manager has to agree to."""
    done = subprocess.run(
        [programs.find("rowan"), "--cm", cluster.list_of_managers(options), verb, str(server)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise Failure(done.stderr.strip().removeprefix("rowan: "))


def restart(directory, word):
    """The next process of a server that has ended. Returns its record."""
    with cluster.Lock(directory):
        one = find(directory, word)
        read(directory)
        if one.alive():
            raise Failure(f"{one.name} (process {one.pid}) is running: kill it first")
        return launch(directory, one)


def add(directory, programs):
    """One more server, with the next number. Returns its record."""
    with cluster.Lock(directory):
        options = read(directory)
        options.servers += 1
        number, name = options.servers, f"s{options.servers}"
        if number > cluster.LARGEST_SERVER:
            raise Failure(f"the largest number of a server is {cluster.LARGEST_SERVER}")
        place = memory.places(options)[-1]
        memory.check_space(options, [place])
        port = ports.assign([(name, (options.workers or 1) + 1)])[name] if settings.has_ports(options.fabric) else 0
        options.addresses[name] = cluster.address_of(options, name, port)
        plan(options, programs, "add", number)
        settings.write(options)
        return launch(directory, process.Process(
            name, 0, 0, options.addresses[name], place[0], options.pm_bytes,
            command=cluster.server_command(options, programs, number, place),
        ))  # fmt: skip


def remove(directory, word, programs):
    """Takes out a server that holds nothing, or does not run, and ends its process. Its number is not given again."""
    with cluster.Lock(directory):
        one = find(directory, word)
        options = read(directory)
        plan(options, programs, "remove", one.server())
        if one.server() not in options.removed:
            options.removed = options.removed + [one.server()]
        settings.write(options)
        process.end_all([one], cluster.STOP_SECONDS)
        process.save(directory, [other for other in process.load(directory) if other.name != one.name])
    return one
