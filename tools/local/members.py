"""Single servers of a cluster that runs: one returns, is added, or is taken out. Where there are leases."""

import json
import os
import subprocess
import time
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
        try:
            forget(directory, one, one)
        except BaseException:  # a full disk: nobody would know of it
            child.kill()
            child.wait()
            raise


def forget(directory, one, *more):
    """The record of processes has `more` in place of that one."""
    process.save(directory, [other for other in process.load(directory) if other.name != one.name] + list(more))


def rowan(options, programs, *words):
    return subprocess.run(
        [*programs.rowan(options.directory), "--cm", cluster.list_of_managers(options), *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


def plan(options, programs, verb, server):
    """What the manager has to agree to."""
    done = rowan(options, programs, verb, str(server))
    if done.returncode != 0:
        raise Failure(done.stderr.strip().removeprefix("rowan: "))


def ask(options, programs):
    """(who is a member, who may be one) as the manager says; the second is empty if it knows no list, or does not answer."""
    found = json.loads(rowan(options, programs, "--timeout-ms", "1000", "--json", "status").stdout or "{}")
    return [one["server"] for one in found.get("servers", [])], found.get("wanted", [])


def restart(directory, word, programs):
    """The next process of a server that has ended. Returns its record."""
    with cluster.lock(directory):
        one = cluster.find_server(directory, word)
        options = read(directory)
        if one.alive():
            raise Failure(f"{one.name} (process {one.pid}) is running: kill it first")
        present, wanted = ask(options, programs)
        number = one.server()
        if wanted and number not in wanted + present:
            raise Failure(
                f"{one.name} was drained or removed, and may not join: let it in (rowan add {number}), or take it out "
                f"(rowan-local remove {number})"
            )
        if "--metrics" in one.command:
            at = one.command.index("--metrics") + 1
            if not ports.is_free(ports.of(one.command[at])):
                one.command[at] = ports.address(ports.find(1))
        launch(directory, one)
        cluster.write_targets(directory)
        return one


def wait_until_member(options, programs, one):
    deadline = time.monotonic() + cluster.START_SECONDS
    while one.server() not in ask(options, programs)[0]:
        log = cluster.log_path(options.directory, one.name)
        if not one.alive():
            raise Failure(f"{one.name} did not start: {cluster.last_sentence(log, 1)} (log: {log})")
        if time.monotonic() > deadline:
            raise Failure(f"{one.name} has not joined after {cluster.START_SECONDS} s (log: {log})")
        time.sleep(0.05)


def undo_add(options, programs, one, made):
    """It is no server of the cluster, as before; unless it has got shards meanwhile, which the manager says."""
    with process.Uninterrupted():
        plan(options, programs, "remove", one.server())
        options.servers -= 1
        settings.write(options)
        process.end_all([one] if one.pid else [], cluster.STOP_SECONDS)
        forget(options.directory, one)
        if made:
            cluster.remove(one.pm_path)


def add(directory, programs):
    """One more server, with the next number, until it is a member. Returns its record."""
    with cluster.lock(directory):
        options = read(directory)
        options.servers += 1
        number, name = options.servers, f"s{options.servers}"
        if number > settings.LARGEST_SERVER:
            raise Failure(f"the largest number of a server is {settings.LARGEST_SERVER}")
        place = memory.places(options)[-1]
        made = not os.path.lexists(place[0])
        memory.check_space(options, [place])
        counts = [(name, (options.workers or 1) + 1)] if settings.has_ports(options.fabric) else []
        counts += [(cluster.metrics_name(name), 1)] if options.metrics == "yes" else []
        found = ports.assign(counts) if counts else {}
        options.addresses[name] = cluster.address_of(options, name, found.get(name))
        options.addresses |= {each: ports.address(port) for each, port in found.items() if each != name}
        plan(options, programs, "add", number)
        settings.write(options)
        one = process.Process(
            name, 0, 0, options.addresses[name], place[0], options.pm_bytes,
            command=cluster.server_command(options, programs, number, place),
        )  # fmt: skip
        try:
            launch(directory, one)
            wait_until_member(options, programs, one)
            cluster.write_targets(directory)
        except BaseException:
            undo_add(options, programs, one, made)
            raise
        return one


def remove(directory, word, programs):
    """Takes out a server that holds nothing, or does not run, and ends its process. Its number is not given again."""
    with cluster.lock(directory):
        one = cluster.find_server(directory, word)
        options = read(directory)
        plan(options, programs, "remove", one.server())
        if one.server() not in options.removed:
            options.removed = options.removed + [one.server()]
        settings.write(options)
        process.end_all([one], cluster.STOP_SECONDS)
        forget(directory, one)
        cluster.write_targets(directory)
    return one
