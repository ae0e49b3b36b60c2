"""Processes of a local cluster, and the record of them in D/run/processes.json.

A record names a process by its id, its start time and the host's boot, so that a process of somebody else,
which got the same id later, is never taken for ours: a host that boots gives out the same ids at the same times.
"""

import dataclasses
import json
import os
import re
import select
import signal
import time

from . import settings
from .failure import Failure


@dataclasses.dataclass
class Process:
    name: str  # "cm", "cm2", ..., "s1", ..., "z1", ... (zookeeper.py)
    pid: int
    start: int  # field 22 of /proc/PID/stat: clock ticks after boot
    address: str
    pm_path: str = ""
    pm_bytes: int = 0
    boot: str = ""  # boot_id() at its start; a record of an earlier version lacks it, and the next
    command: list = dataclasses.field(default_factory=list)

    def state(self):
        """running, stopped (by a signal), or ended."""
        fields = stat_fields(self.pid)
        if not fields or int(fields[19]) != self.start or self.boot not in ("", boot_id()):
            return "ended"
        # The first thread may have ended before the others, which still have files and sockets open.
        if fields[0] in "ZX" and int(fields[17]) <= 1:
            return "ended"
        return "stopped" if fields[0] == "T" else "running"

    def alive(self):
        return self.state() != "ended"

    def server(self):
        return int(self.name[1:]) if self.name[0] == "s" else 0


def stat_fields(pid):
    """/proc/PID/stat from the state on (proc(5), field 3), or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid):
    fields = stat_fields(pid)
    return int(fields[19]) if fields else -1


def boot_id():
    """Of the host's present boot (random(4))."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: what was begun is undone."""


INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def catch_interrupts():
    for name in INTERRUPTS:
        signal.signal(name, interrupt)


def end_interrupts():
    """From now on they come too late: the work is done, or its clean-up must not be disturbed."""
    for name in INTERRUPTS:
        signal.signal(name, signal.SIG_IGN)


def raise_interrupted():
    end_interrupts()
    raise Interrupted("interrupted")


class Uninterrupted:
    """`with Uninterrupted():` what is inside happens whole; an interrupt comes behind it. Signals
    are not blocked, because a child would inherit that."""

    depth = 0
    pending = False

    def __enter__(self):
        Uninterrupted.depth += 1

    def __exit__(self, kind, *rest):
        Uninterrupted.depth -= 1
        if Uninterrupted.pending and not Uninterrupted.depth and kind is None:
            Uninterrupted.pending = False
            raise_interrupted()


def interrupt(signal_number, frame):
    """The handler of SIGINT, SIGTERM and SIGHUP."""
    if Uninterrupted.depth:
        Uninterrupted.pending = True
        return
    raise_interrupted()


def record_path(directory):
    return os.path.join(directory, "run", "processes.json")


def save(directory, processes):
    rows = [dataclasses.asdict(process) for process in processes]
    settings.write_whole(record_path(directory), json.dumps(rows, indent=1) + "\n")


def load(directory):
    """The recorded processes; [] if there is no record."""
    path = record_path(directory)
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
        if isinstance(rows, list):
            return [read_row(row) for row in rows]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        pass
    raise Failure(
        f"{path}, which tells what runs, is damaged; end what still runs of the cluster, and remove "
        "that file (nothing was touched)"
    )


def read_row(row):
    """Raises TypeError or ValueError."""
    found = Process(**row)
    for field in dataclasses.fields(Process):
        if type(getattr(found, field.name)) is not field.type:
            raise ValueError(field.name)
    if not re.fullmatch(r"cm|(cm|s|z)\d+", found.name):
        raise ValueError(found.name)
    return found


class Handle:
    """A process held by descriptor: signals reach it and nobody else."""

    def __init__(self, process):
        self.process = process
        self.fd = -1
        try:
            self.fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        if not process.alive():  # checked with the descriptor open: the id cannot be another process's
            self.close()

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def send(self, number):
        if self.fd >= 0:
            try:
                signal.pidfd_send_signal(self.fd, number)
            except ProcessLookupError:
                pass

    def ended(self, timeout_s):
        """True if the process has ended, after waiting for that."""
        if self.fd < 0:
            return True
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        if not poller.poll(max(0, int(timeout_s * 1000))):
            return False
        self.close()
        return True


def end_all(processes, seconds):
    """Ends processes by SIGINT (SIGTERM would let a server leave its shards to others first), and by SIGKILL what has not ended in time. Returns the names of
    those that had to be killed."""
    handles = [Handle(process) for process in processes]
    for handle in handles:
        # A stopped process would not get the signal. To others SIGCONT does harm: at exit a leak sanitizer
        # stops its process to read it, and would wait for ever after SIGCONT.
        stopped = handle.process.state() == "stopped"
        handle.send(signal.SIGINT)
        if stopped:
            handle.send(signal.SIGCONT)
    deadline = time.monotonic() + seconds
    killed = []
    for handle in handles:
        if not handle.ended(deadline - time.monotonic()):
            killed.append(handle.process.name)
            handle.send(signal.SIGKILL)
    for handle in handles:
        handle.ended(10)
        handle.close()
    return killed
