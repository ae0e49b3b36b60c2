"""Builds, starts a three-server cluster with three replicas, loads it, runs YCSB load, a, b, c and
prints the figures. Started by tools/quickstart, which installs what is missing.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tools"))

from local import process  # noqa: E402
from local.failure import Failure  # noqa: E402

BUILD = os.path.join(TOP, "build", "release")
LOCAL = os.path.join(TOP, "tools", "rowan-local")

# What is built: without the tests.
PROGRAMS = ("server/rowan-server", "cm/rowan-cm", "tools/rowan", "tools/rowan-ycsb")

FABRICS = ("shm", "tcp")
WORKLOADS = ("load", "a", "b", "c")
CLUSTER = {
    "durability": "none",  # one machine: see what rowan-local says about it
    "servers": 3,
    "replicas": 3,
}
LOAD = {"profile": "zippydb", "records": 1_000_000, "threads": 2, "depth": 64}


def say(text):
    print(text, file=sys.stderr, flush=True)


def call(command, **more):
    """(exit code, output) of a command. If we are interrupted, it ends before us, politely, and
    takes back what it did."""
    child = None
    try:
        with process.Uninterrupted():
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
        text, _ = child.communicate()
        return child.returncode, text
    except BaseException:
        with process.Uninterrupted():
            if child:
                child.terminate()
                child.wait()
        raise


def run_logged(command, log, what, environment=None):
    with open(log, "ab") as file:
        code, _ = call(command, cwd=TOP, stdout=file, stderr=subprocess.STDOUT, env=environment)
    if code != 0:
        with open(log, encoding="utf-8", errors="replace") as file:
            print("".join(file.readlines()[-20:]), file=sys.stderr)
        raise Failure(f"{what} failed (its last lines are above; all of them: {log})")


def build():
    os.makedirs(os.path.join(TOP, "build", "logs"), exist_ok=True)
    log = os.path.join(TOP, "build", "logs", "quickstart-build.log")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(log)
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        shutil.rmtree(BUILD, ignore_errors=True)
        setup = ["meson", "setup", BUILD, "--buildtype=release", "-Dtests=false"]
        run_logged(setup, log, "meson setup", {"CC": "gcc", **os.environ})
    run_logged(["ninja", "-C", BUILD, *PROGRAMS], log, "the build")


def local(action, directory, *arguments, out=sys.stderr):
    """In a session of its own: Ctrl-C on a terminal would end a `stop` half-way."""
    code, _ = call(
        [LOCAL, action, "--dir", directory, *arguments],
        env={**os.environ, "ROWAN_BIN": BUILD}, stdout=out, start_new_session=True,
    )  # fmt: skip
    return code


def flags(**settings):
    return [word for name, value in settings.items() for word in ("--" + name, str(value))]


def run_phase(directory, workload, seconds):
    command = [
        os.path.join(BUILD, "tools", "rowan-ycsb"), "--json",
        *flags(dir=directory, workload=workload, **LOAD),
    ]  # fmt: skip
    if workload != "load":  # which ends with the last record
        command += ["--seconds", str(seconds)]
    code, text = call(command, stdout=subprocess.PIPE, text=True)
    try:
        found = json.loads(text)
    except ValueError:
        raise Failure(f"rowan-ycsb --workload {workload} failed (exit code {code})") from None
    return phase_of(workload, found, code)


KINDS = ("put", "get")
FIGURES = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")


def phase_of(workload, found, code):
    """One phase of our JSON from what rowan-ycsb printed."""
    kept = ("ops_per_second", "operations", "seconds", "errors")
    phase = {"workload": workload, **{name: found[name] for name in kept}, "exit_code": code}
    for kind in KINDS:
        if kind in found:
            phase[kind] = {figure: found[kind][figure] for figure in FIGURES}
    both = [phase[kind] for kind in KINDS if kind in phase]
    for figure in ("p50_us", "p99_us"):
        phase[figure] = max((kind[figure] for kind in both), default=None)
    return phase


def print_table(phases, fabric):
    print()
    print(
        "YCSB on {servers} servers, {replicas} replicas, {fabric}, durability {durability}, "
        "{profile} objects, {records} records, {threads} threads x {depth} outstanding".format(
            fabric=fabric, **CLUSTER, **LOAD
        )
    )
    print(f"{'phase':<7}{'ops/s':>10}{'put p50':>10}{'put p99':>10}{'get p50':>10}{'get p99':>10}"
          f"{'errors':>8}   (latencies in us)")  # fmt: skip
    for phase in phases:
        row = f"{phase['workload']:<7}{phase['ops_per_second']:>10,.0f}"
        for kind in KINDS:
            for figure in ("p50_us", "p99_us"):
                value = phase.get(kind, {}).get(figure)
                row += f"{'-' if value is None else format(value, ',.0f'):>10}"
        print(row + f"{phase['errors']:>8}")
    sys.stdout.flush()


def run(options, directory):
    began = time.monotonic()
    say("quickstart: building (build/release)")
    build()
    say(f"quickstart: built after {time.monotonic() - began:.0f} s; starting the cluster")
    if local("start", directory, *flags(fabric=options.fabric, **CLUSTER)) != 0:
        raise Failure("the cluster did not start (the reason is above)")
    phases = []
    for workload in WORKLOADS:
        say(f"quickstart: workload {workload}")
        phases.append(run_phase(directory, workload, options.seconds))
    print_table(phases, options.fabric)
    found = {
        "fabric": options.fabric,
        **CLUSTER,
        **LOAD,
        "cores": len(os.sched_getaffinity(0)),
        "phases": phases,
    }
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    bad = [phase["workload"] for phase in phases if phase["errors"] or phase["exit_code"]]
    if bad:
        raise Failure(f"there were errors in: {', '.join(bad)}")


def parse():
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="Installs what is missing, builds, runs a three-server cluster with three "
        "replicas on this machine, loads ZippyDB-sized objects, runs YCSB load, a, b, c and "
        "prints a table.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage.",
    )
    parser.add_argument(
        "--seconds", type=float, default=10, metavar="N", help="of each of a, b, c (default 10)"
    )
    parser.add_argument(
        "--fabric", choices=FABRICS, default=FABRICS[0], help="network (default shm)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if not 0.1 <= options.seconds <= 3600:
        parser.error("--seconds must lie between 0.1 and 3600")
    if options.json:
        options.json = os.path.abspath(options.json)
        folder = os.path.dirname(options.json)
        if not os.access(folder, os.W_OK) or os.path.isdir(options.json):
            parser.error(f"--json {options.json} cannot be written")
    return options


def main():
    options = parse()
    process.catch_interrupts()
    os.makedirs(os.path.join(TOP, "build"), exist_ok=True)
    directory = tempfile.mkdtemp(prefix="quickstart-", dir=os.path.join(TOP, "build"))
    code = 1
    try:
        run(options, directory)
        code = 0
    except Failure as failure:
        say(f"quickstart: {failure}")
        say_logs(directory)
    except process.Interrupted:
        say("quickstart: interrupted")
    finally:
        with process.Uninterrupted():
            if os.path.exists(os.path.join(directory, "run")):
                local("stop", directory, out=subprocess.DEVNULL)
            shutil.rmtree(directory, ignore_errors=True)
    return code


def say_logs(directory):
    """The cluster's directory goes away, so the ends of its logs are shown here."""
    logs = os.path.join(directory, "log")
    for name in sorted(os.listdir(logs)) if os.path.isdir(logs) else []:
        with open(os.path.join(logs, name), encoding="utf-8", errors="replace") as file:
            lines = file.readlines()[-5:]
        say(f"--- the end of {name}:\n" + "".join(lines).rstrip())


if __name__ == "__main__":
    sys.exit(main())
