"""Runs rowan-sim for the tests of this folder.

Set by meson: ROWAN_SIM (the program), ROWAN_SIM_DIVISOR (numbers are divided by it in sanitized builds).
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True

import tap  # noqa: E402

PROGRAM = os.environ["ROWAN_SIM"]
DIVISOR = int(os.environ.get("ROWAN_SIM_DIVISOR", "1"))


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def hash(self):
        found = re.search(r"trace hash ([0-9a-f]{16})$", self.out, re.MULTILINE)
        tap.check(found, "no trace hash in", self.out[-400:], self.err[-400:])
        return found.group(1)

    def number(self, what):
        found = re.search(rf"(\d+) {what}", self.out)
        tap.check(found, f"no number of {what} in", self.out[-400:], self.err[-400:])
        return int(found.group(1))


def sim(*arguments, seconds=1200):
    done = subprocess.run(
        [PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )
    return Result(done)


def show(text):
    """Lines of a result that a reader of the test's output should see."""
    for line in text.splitlines():
        print("# " + line, flush=True)
