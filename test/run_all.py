"""Builds everything and runs every test. Started by test/run-all, which installs what is missing.

README.md says what each of the six builds is for. Each stage prints its minutes beside its budget. Long output
goes to build/logs/. The last line is "N passed, N failed, N skipped", counted in test cases.
"""

import argparse
import functools
import glob
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(TOP, "build", "logs")
sys.path += [os.path.join(TOP, "tools"), os.path.join(TOP, "test", "lib")]
sys.dont_write_bytecode = True

import targets  # noqa: E402
from local import process  # noqa: E402

SANITIZE = {
    "plain": ["--buildtype=release"],  # as it ships
    "slow": ["--buildtype=release", "-Doptimization=0", "-Db_ndebug=true"],
    # One wrong shift must fail a test, not only print.
    "asan": ["-Db_sanitize=address,undefined", "-Dc_args=-fno-sanitize-recover=all"],
    "tsan": ["-Db_sanitize=thread"],
}
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "abort_on_error=0:exitcode=99:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=98:second_deadlock_stack=1",
}

SIMULATOR = "test/sim/rowan-sim"
# What is shipped.
PROGRAMS = (
    "server/rowan-server",
    "cm/rowan-cm",
    "tools/rowan",
    "tools/rowan-ycsb",
    "tools/rowan-doctor",
    "tools/rowan-dlwa",
)

# The TAP comments of these tests are results: tables, figures.
SHOWN = ("sim_seeds", "sim_mutants", "vm", "instructions", "cluster_soak")


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.broken = []  # stages that did not do their work
        self.failures = []  # what each failed test said, for the end of the output

    def broke(self, stage):
        """A stage that did not do its work counts as one failure in the last line."""
        self.broken.append(stage)
        self.failed += 1

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def say(text=""):
    print(text, flush=True)


def tail(text, lines):
    return "\n".join("    " + line for line in text.rstrip().splitlines()[-lines:])


# --- commands ---


def run_command(command, log, environment=None, seconds=1500):
    """Runs a command with its output in build/logs/LOG. Returns its exit code; -1 for too long."""
    with Command(command, log, environment) as running:
        return running.code(seconds)


class Command:
    """A command at work, with its output in build/logs/LOG. Behind the `with` it is not any more."""

    def __init__(self, command, log, environment=None):
        self.log = log
        self.child = None
        try:
            with process.Uninterrupted(), open(os.path.join(LOGS, log), "ab") as file:
                self.child = subprocess.Popen(
                    command,
                    cwd=TOP,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                )
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.child and self.child.returncode is None:
            with process.Uninterrupted():
                end_child(self.child)

    def code(self, seconds):
        """Waits for its end. -1 for too long."""
        try:
            return self.child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_child(self.child)
            with open(os.path.join(LOGS, self.log), "ab") as file:
                file.write(f"\nended after {seconds} s\n".encode())
            return -1


def end_child(child):
    """Ends a child and its own session: first politely, as meson ends its tests on SIGTERM."""
    try:
        os.kill(child.pid, signal.SIGTERM)
        child.wait(timeout=10)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def log_text(log):
    with open(os.path.join(LOGS, log), encoding="utf-8", errors="replace") as file:
        return file.read()


# --- builds ---


def build_folder(compiler, kind):
    return os.path.join("build", f"{compiler}-{kind}")


def build_log(compiler, kind):
    return f"build-{compiler}-{kind}.log"


def build(compiler, kind, *files, suite=None):
    """Configures and compiles: these files and what the tests of a suite need, all without both. Raises nothing:
    returns what is wrong, or None."""
    wrong = configure(compiler, kind)
    if wrong:
        return wrong
    folder = build_folder(compiler, kind)
    try:
        files += targets.of_suite(os.path.join(TOP, folder), suite) if suite else ()
    except subprocess.CalledProcessError as error:
        return f"meson tells nothing about {folder}: {error}"
    with compile_all(compiler, kind, *files) as compiling:
        return compiled(compiling, compiler, kind)


def configure(compiler, kind):
    """Returns what is wrong, or None."""
    folder, log = build_folder(compiler, kind), build_log(compiler, kind)
    if not os.path.exists(os.path.join(TOP, folder, "build.ninja")):
        shutil.rmtree(os.path.join(TOP, folder), ignore_errors=True)
        setup = ["meson", "setup", folder, *SANITIZE[kind]]
        if kind in ("asan", "tsan"):
            setup.append("-Doptimization=1")
        if compiler == "clang":
            setup += ["-Db_lundef=false", "-Dfuzz=" + ("true" if kind == "asan" else "false")]
        if run_command(setup, log, {"CC": compiler}, 120) != 0:
            return f"meson could not configure {folder}:\n" + tail(log_text(log), 15)
    return None


def compile_all(compiler, kind, *files, before=()):
    """Begins to compile these files, all without any."""
    return Command([*before, "ninja", "-C", build_folder(compiler, kind), *files], build_log(compiler, kind))


def compiled(compiling, compiler, kind):
    """Waits for the end. Returns what is wrong, or None."""
    folder, log = build_folder(compiler, kind), build_log(compiler, kind)
    if compiling.code(900) != 0:
        errors = [
            line
            for line in log_text(log).splitlines()
            if re.search(r"\berror:|FAILED|undefined reference", line)
        ]
        return f"{folder} does not compile:\n" + tail("\n".join(errors) or log_text(log), 25)
    return None


# --- results ---


def count_tap(text):
    """(passed, failed names, skipped reasons) of the TAP lines in a test's output."""
    passed, failed, skipped = 0, [], []
    for match in re.finditer(r"^(not )?ok\b *\d* *-? *(.*)$", text, re.MULTILINE):
        bad, name = match.group(1), match.group(2).strip()
        skip = re.search(r"# *SKIP\S*\s*(.*)$", name, re.IGNORECASE)
        if skip:  # cmocka prints "not ok" for these, with the name after the mark
            skipped.append(name[: skip.start()].strip(" -") + ": " + (skip.group(1) or "?"))
        elif bad:
            failed.append(name)
        else:
            passed += 1
    return passed, failed, skipped


def planned(text):
    plan = re.search(r"^1\.\.(\d+)", text, re.MULTILINE)
    return int(plan.group(1)) if plan else None


def count_result(result, count):
    """Adds one of meson's results (a line of testlog.json) to the count, and reports the rest."""
    name, out, err = result["name"], result.get("stdout") or "", result.get("stderr") or ""
    passed, failed, skipped = count_tap(out)
    cases = passed + len(failed) + len(skipped)
    code, verdict = result.get("returncode"), result["result"]
    if cases == 0 and verdict == "SKIP":
        skipped = [name]
    elif cases == 0 and verdict == "OK":
        passed = 1
    elif not failed and (
        code != 0 or verdict in ("TIMEOUT", "INTERRUPT", "ERROR") or cases != (planned(out) or cases)
    ):
        failed = [f"the program as a whole ({verdict}, exit code {code})"]
    if name.rsplit(" ", 1)[-1] in SHOWN:
        for line in re.findall(r"^# (.*)$", out, re.MULTILINE):
            if not re.fullmatch(r"\d+\.\d s", line):
                say("  " + line)
    count.passed += passed
    count.failed += len(failed)
    count.skipped += len(skipped)
    for reason in skipped:
        say(f"  SKIPPED {name}: {reason}")
    for case in failed:
        say(f"  FAILED  {name}: {case}")
    if failed:
        shown = "\n".join(line for line in out.splitlines() if not line.startswith("ok "))
        say(tail(shown, 30))
        say(tail(err, 60))
        said = (err.strip() or shown.strip() or "it said nothing").splitlines()
        first = next((at for at, line in enumerate(said) if re.match(r"[\w.]*(Failed|Error|Exception):", line)), len(said) - 1)
        why = " / ".join(itertools.takewhile(lambda line: not line.startswith("Traceback"), said[first:]))
        why = why if len(why) <= 1400 else f"{why[:400]} [...] {why[-1000:]}"
        count.failures.append(f"FAILED {name}: {', '.join(failed)}: {why}")


def meson_test(folder, name, selection, count, seconds):
    """Runs tests of a build and counts their cases. Returns what is wrong with the run, or None."""
    logs = os.path.join(TOP, folder, "meson-logs")
    for old in glob.glob(os.path.join(logs, f"{name}*")):
        os.unlink(old)
    command = ["meson", "test", "-C", folder, "--no-rebuild", "--logbase", name, *selection]
    if folder.endswith("-tsan") and subprocess.run(["setarch", "-R", "true"]).returncode == 0:
        # clang 14's TSan does not know the memory layout of kernels with more random bits.
        command += ["--wrapper", "setarch -R"]
    scratch = tempfile.mkdtemp(prefix="t", dir=os.path.join(TOP, "build"))
    log = f"test-{os.path.basename(folder)}-{name}.log"
    environment = {**SANITIZER_ENVIRONMENT, "ROWAN_TEST_SCRATCH": scratch}
    try:
        code = run_command(command, log, environment, seconds)
    finally:
        with process.Uninterrupted():
            sweep(scratch)
    paths = glob.glob(os.path.join(logs, f"{name}*.json"))
    results = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            results += [json.loads(line) for line in file]
    failed_before = count.failed
    for result in results:
        count_result(result, count)
    if code == -1:
        return f"the tests of {folder} were ended after {seconds} s; see build/logs/{log}"
    if not results and not re.search(r"No suitable tests|No tests", log_text(log)):
        return f"meson ran no tests in {folder}:\n" + tail(log_text(log), 15)
    if code != 0 and count.failed == failed_before:
        if not any("SKIP" in (result.get("stdout") or "") for result in results):
            return f"meson test failed in {folder} (exit code {code}); see build/logs/{log}"
    return None


def equal_runs(count):
    """The simulator built by gcc with optimisation, and by clang without: the same seeds, the same runs."""
    found = []
    for compiler, kind in (("gcc", "plain"), ("clang", "slow")):
        program = os.path.join(TOP, build_folder(compiler, kind), "test", "sim", "rowan-sim")
        log = f"equal-{compiler}.log"
        code = run_command([program, "--seeds", "1:4"], log, None, 300)
        line = re.search(r"trace hash [0-9a-f]{16}$", log_text(log), re.MULTILINE)
        if code != 0 or not line:
            return f"rowan-sim built by {compiler} ended with {code}:\n" + tail(log_text(log), 15)
        found.append(line.group(0))
    same = found[0] == found[1]
    count.passed += same
    count.failed += not same
    say(f"  gcc: {found[0]}, clang: {found[1]}" + ("" if same else ": NOT EQUAL"))
    return None


def sweep(scratch):
    """Ends clusters that an interrupted test left in its scratch directory, and removes that."""
    for record in glob.glob(os.path.join(scratch, "**", "run", "processes.json"), recursive=True):
        folder = os.path.dirname(os.path.dirname(record))
        subprocess.run(
            [os.path.join(TOP, "tools", "rowan-local"), "stop", "--dir", folder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    shutil.rmtree(scratch, ignore_errors=True)


# --- stages ---


class Stages:
    def __init__(self, count):
        self.count = count
        self.table = []

    def run(self, name, budget_minutes, function, *arguments):
        say(f"== {name}")
        began = time.monotonic()
        before = (self.count.passed, self.count.failed, self.count.skipped)
        wrong = function(*arguments)
        minutes = (time.monotonic() - began) / 60
        if wrong:
            say(f"  BROKEN {wrong}")
            self.count.broke(name)
        cases = [
            now - then
            for now, then in zip(
                (self.count.passed, self.count.failed, self.count.skipped), before
            )
        ]
        over = "  OVER BUDGET" if minutes > budget_minutes else ""
        note = f", {cases[0]} passed, {cases[1]} failed, {cases[2]} skipped" if any(cases) else ""
        say(f"   {minutes:.1f} minutes (budget {budget_minutes:.1f}){note}{over}")
        self.table.append((name, minutes, budget_minutes))
        return not wrong

    def print_table(self):
        say()
        say(f"{'stage':<44}{'minutes':>8}{'budget':>8}")
        for name, minutes, budget in self.table:
            say(f"{name:<44}{minutes:>8.1f}{budget:>8.1f}{'  over' if minutes > budget else ''}")
        total = sum(row[1] for row in self.table)
        say(f"{'all':<44}{total:>8.1f}{sum(row[2] for row in self.table):>8.1f}")


def run_stages(stages, quick):
    count = stages.count
    plain, asan, tsan = (build_folder(*of) for of in (("gcc", "plain"), ("clang", "asan"), ("clang", "tsan")))
    is_built = stages.run("build gcc-plain", 1.2, build, "gcc", "plain")
    if is_built:
        both = ["--suite", "unit", "--suite", "checks"]
        stages.run("unit tests and checks, gcc-plain", 1.4, meson_test, plain, "unit", both, count, 600)
    if quick:
        return
    if is_built:
        sim = ["--suite", "sim"]
        stages.run("simulator, gcc-plain", 1.5, meson_test, plain, "sim", sim, count, 900)
        mutants = ["--suite", "mutants"]
        stages.run("mutants, gcc-plain", 1.0, meson_test, plain, "mutants", mutants, count, 1800)
        rest = []
        for suite in ("unit", "checks", "sim", "mutants", "vm", "deploy"):
            rest += ["--no-suite", suite]
        stages.run("clusters, gcc-plain", 10.5, meson_test, plain, "rest", rest, count, 2400)
        bench = ["--benchmark"]
        stages.run("benches, gcc-plain", 1.0, meson_test, plain, "bench", bench, count, 600)
        if os.environ.get("ROWAN_TEST_DEPLOY"):
            deploy = ["--suite", "deploy"]
            name = "packages and their machines, gcc-plain"
            stages.run(name, 14.0, meson_test, plain, "deploy", deploy, count, 3600)
        else:
            count.skipped += 1
            say("  SKIPPED deploy: ROWAN_TEST_DEPLOY=1 runs it; it makes Debian machines, and takes a quarter of an hour more")
    if stages.run("configure clang-asan", 0.3, configure, "clang", "asan"):
        # The virtual machine waits much, and comes first: it judges no times.
        with compile_all("clang", "asan", before=("nice", "-n", "19")) as compiling:
            if is_built:
                machine = ["--suite", "vm"]
                name = "virtual machine, gcc-plain, and build clang-asan"
                stages.run(name, 5.8, meson_test, plain, "vm", machine, count, 900)
            is_asan_built = stages.run("rest of build clang-asan", 0.3, compiled, compiling, "clang", "asan")
        if is_asan_built:
            rest = ["--no-suite", "mutants"]
            name = "all but benches and mutants, clang-asan"
            stages.run(name, 4.8, meson_test, asan, "all", rest, count, 1800)
    only_threaded = functools.partial(build, "clang", "tsan", suite="threaded")
    if stages.run("build clang-tsan", 0.7, only_threaded):
        threaded = ["--suite", "threaded"]
        stages.run("threaded, clang-tsan", 0.5, meson_test, tsan, "threaded", threaded, count, 900)
    for compiler, kind in (("gcc", "asan"), ("gcc", "tsan")):  # gcc-plain has compiled the tests
        stages.run(f"build {compiler}-{kind}", 0.3, build, compiler, kind, *PROGRAMS)
    # clang-asan has compiled the rest.
    if stages.run("build clang-slow", 0.2, build, "clang", "slow", SIMULATOR):
        stages.run("equal runs of both compilers", 0.2, equal_runs, count)


def main():
    parser = argparse.ArgumentParser(
        prog="run-all",
        description="Installs what is missing, builds, runs every test, prints minutes per stage.",
        epilog='The last line is "N passed, N failed, N skipped". Exit code 0: nothing failed.',
    )
    parser.add_argument(
        "--quick", action="store_true", help="only the unit tests and checks, built by gcc"
    )
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, process.interrupt)
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    os.environ["ROWAN_TEST_RUN"] = LOGS  # what is done once in a run (test/lib/packages.py)
    count = Count()
    stages = Stages(count)
    try:
        run_stages(stages, arguments.quick)
    except process.Interrupted:
        say("interrupted")
        count.broke("interrupted")
    stages.print_table()
    for failure in count.failures:
        say(failure)
    if count.broken:
        say("broken: " + ", ".join(count.broken))
    if count.passed + count.failed == 0 and not count.broken:
        count.broke("no test ran")
    say(count.line())
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
