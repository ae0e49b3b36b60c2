"""Packages of the distribution that tests read: downloaded and unpacked, never installed.

Lists of packages grow old; a download fails then. They are fetched anew (`apt-get update`) once in a run, by whichever
test meets it first, and the others learn what came of it: test/run-all gives its run a folder, ROWAN_TEST_RUN, where
that is noted. Without one each process is a run of its own.
"""

import contextlib
import fcntl
import glob
import os
import re
import subprocess

OPTIONS = ["-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
UPDATED = "updated"

_noted = None  # what came of the update, where the run has no folder


class Unavailable(Exception):
    """A test has not what it needs; the text says why, and what to do."""


def command(words, seconds=300, **more):
    """The output of a command that must succeed."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=seconds, **more)  # fmt: skip
    except FileNotFoundError:
        raise Unavailable(f"the program {words[0]} is not there: tools/install-deps vm") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(words)} took longer than {seconds} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise Unavailable(f"{' '.join(words[:4])} failed: {last}")
    return done.stdout


# --- the lists ---


def try_update():
    """UPDATED, or why not and what to do."""
    if os.geteuid() != 0:
        return "the lists of packages are old, and only root may fetch them anew: sudo apt-get update"
    try:
        command(["apt-get", *OPTIONS, "update"])
    except Unavailable as reason:
        return f"{reason}; look at the network and /etc/apt/sources.list, then run apt-get update"
    return UPDATED


@contextlib.contextmanager
def note_of_run():
    """The file that says what came of the update; nobody else looks at it meanwhile. None: there is none."""
    folder = os.environ.get("ROWAN_TEST_RUN")
    if not folder:
        yield None
        return
    with open(os.path.join(folder, "apt-get-update"), "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def update():
    """Fetches the lists anew, unless this run has already."""
    global _noted
    with note_of_run() as file:
        outcome = (file.read() if file else _noted) or try_update()
        if file and not file.tell():
            file.write(outcome)
        _noted = outcome
    if outcome != UPDATED:
        raise Unavailable(outcome)


def with_lists(function):
    """What the function gives; with new lists if it finds nothing with those that are there."""
    try:
        return function()
    except Unavailable:
        update()
        return function()


# --- packages ---


def depends_on(package, pattern):
    """The first package of that name (a regular expression) that a package depends on."""

    def look():
        found = re.findall(rf"^\s*Depends: ({pattern})$", command(["apt-cache", "depends", package]), re.M)
        if not found:
            raise Unavailable(f"apt knows no package {pattern} that {package} depends on; is this Debian?")
        return found[0]

    return with_lists(look)


def download(package, folder):
    """The package's file, in that folder."""
    os.makedirs(folder, exist_ok=True)
    with_lists(lambda: command(["apt-get", *OPTIONS, "download", package], cwd=folder, seconds=600))
    found = glob.glob(os.path.join(folder, package + "_*.deb"))
    if len(found) != 1:
        raise Unavailable(f"apt-get download {package} left no package in {folder}; remove it and try again")
    return found[0]
