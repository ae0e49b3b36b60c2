"""What the comparisons in this folder share: builds, their clusters, and measuring them in turn.

A cluster is made anew for each round, and only one runs at a time: so nothing that one round filled or warmed
up is there in the next, and memory is needed for one. With PM files in memory they are written once before the
start, as a device would be there: else each first write to a page pays for the page.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
from local.cluster import Failure, Programs  # noqa: E402

QUANTILES = [f"{kind}_{quantile}" for kind in ("put", "get") for quantile in ("p50_us", "p99_us")]


def end_on_signals():
    """A comparison that is ended removes what it made."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))


def run(command, seconds=300, environment=None):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                              check=False, env={**os.environ, **(environment or {})})  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)} did not end in {seconds} s") from None
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


class Build:
    """A build directory and the sources it was made of; without a name the one that rowan-local finds."""

    def __init__(self, folder=None):
        self.source, self.environment = ROOT, {}
        if folder:
            self.folder = os.path.abspath(folder)
            self.environment = {"ROWAN_BIN": self.folder}
            try:
                with open(os.path.join(self.folder, "meson-info", "meson-info.json"), encoding="utf-8") as file:
                    self.source = json.load(file)["directories"]["source"]
            except (OSError, ValueError, KeyError) as error:
                raise Failure(f"{folder} is no build directory of meson: {error}") from None
        else:
            ycsb = Programs(os.path.join(ROOT, "tools")).find("rowan-ycsb")
            self.folder = os.path.dirname(os.path.dirname(ycsb))

    def program(self, *path):
        found = os.path.join(self.folder, *path)
        if not os.access(found, os.X_OK):
            raise Failure(f"{found} is not there; build it first")
        return found

    def local(self, *arguments):
        return run([os.path.join(self.source, "tools", "rowan-local"), *arguments], environment=self.environment)


class Cluster:
    """A cluster of a build, loaded. `options`: place, pm_mib, cold, servers, records, profile, threads, seconds."""

    def __init__(self, options, build, fabric, durability, balance=True):
        self.options, self.build, self.fabric, self.durability = options, build, fabric, durability
        with contextlib.ExitStack() as undo:
            self.directory = self.folder(undo, None)
            place = self.place = self.folder(undo, options.place)
            if not options.cold:
                for server in range(1, options.servers + 1):
                    run(["dd", "if=/dev/zero", f"of={place}/s{server}.pm", "bs=1M", "status=none",
                         f"count={options.pm_mib}"])  # fmt: skip
            undo.callback(build.local, "stop", "--dir", self.directory)
            build.local("start", "--dir", self.directory, "--fabric", fabric, "--durability", durability, "--pm", place,
                        "--pm-bytes", f"{options.pm_mib}M", "--servers", str(options.servers),
                        "--replicas", str(min(3, options.servers)), *getattr(options, "start_arguments", ()))  # fmt: skip
            if not balance:
                run([build.program("tools", "rowan"), "--dir", self.directory, "balance", "off"])
            self.ycsb("load", 4, 64)
            self.undo = undo.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.undo.close()

    @staticmethod
    def folder(undo, place):
        made = tempfile.mkdtemp(prefix="rowan-bench-", dir=place)
        undo.callback(shutil.rmtree, made, ignore_errors=True)
        return made

    def ycsb(self, workload, connections, depth, rate=0, operations=0):
        options = self.options
        command = [
            self.build.program("tools", "rowan-ycsb"), "--dir", self.directory, "--workload", workload, "--profile",
            options.profile, "--records", str(options.records), "--threads",
            str(min(connections, options.threads)), "--connections", str(connections), "--depth",
            str(depth), "--rate", str(int(rate)), "--json",
        ]  # fmt: skip
        if operations:
            command += ["--operations", str(operations)]
        elif workload != "load":
            command += ["--seconds", str(options.seconds)]
        found = json.loads(run(command, seconds=1800 if operations else 300))
        self.durability = found["durability"]  # a file system in memory knows but one
        if found["errors"]:
            raise Failure(f"rowan-ycsb {workload}: {found['errors']} errors: {found['errors_by_name']}")
        return found


def figures_of(found):
    """Of what rowan-ycsb printed."""
    figures = {"ops_per_second": found["ops_per_second"]}
    for name in QUANTILES:
        kind, _, quantile = name.partition("_")
        figures[name] = found.get(kind, {}).get(quantile)
    return figures


def medians(rows):
    """Of each figure, over the rounds."""
    out = {}
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        out[name] = statistics.median(values) if values else None
    return out


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="" if text else "\r", file=sys.stderr, flush=True)


def in_turn(rounds, sides):
    """`sides`: by name, functions that give [(case, {figure: number})]. {(name, case): medians}."""
    found = {}
    for turn in range(rounds):
        for name, side in sides.items():
            progress(f"round {turn + 1} of {rounds}: {name}")
            for case, figures in side():
                found.setdefault((name, case), []).append(figures)
    progress("")
    return {what: medians(rows) for what, rows in found.items()}


def load_average(before):
    return f"{os.cpu_count()} cores; load average {before:.1f} before, {os.getloadavg()[0]:.1f} after"


def add_cluster_arguments(parser):
    parser.add_argument("--place", help="directory for the PM files (default: /dev/shm)")
    parser.add_argument("--cold", action="store_true", help="do not write the PM files before")
    parser.add_argument("--pm-mib", type=int, default=512, help="of each server (default: 512)")
    parser.add_argument("--threads", type=int, default=1, help="of the load generator, at most (default 1)")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--records", type=int, default=100000)
    parser.add_argument("--profile", default="zippydb")
    parser.add_argument("--seconds", type=float, default=1, help="of each run (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
