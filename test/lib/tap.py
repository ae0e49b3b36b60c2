"""Test cases in Python that report in TAP, the protocol that meson and test/run-all read.

A test file decorates its cases, named like sentences, and ends with tap.main():

    @tap.case
    def a_deleted_key_is_not_found():
        tap.equal(run("get", "a").code, 1)

A case that returns has passed; one that raises has failed, and its trace goes to standard error.
"""

import sys
import time
import traceback

_cases = []


class Failed(Exception):
    """An expectation that did not hold."""


class Skipped(Exception):
    """A case that cannot run here; the text says why."""


def case(function):
    _cases.append(function)
    return function


def only(words):
    """Forgets the cases whose names hold none of these words."""
    _cases[:] = [one for one in _cases if any(word in one.__name__ for word in words)]


def skip(reason):
    raise Skipped(reason)


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(piece) for piece in what) or "expected otherwise")


def equal(found, expected, *what):
    check(found == expected, *what, f"found {found!r}, expected {expected!r}")


def contains(text, piece, *what):
    check(piece in text, *what, f"{piece!r} is not in: {text!r}")


def wait_until(condition, seconds, what):
    """Waits for a condition, and fails when it does not come true in time. `what`: what is awaited, or what tells it then."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Failed(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(0.02)


def _run(number, function):
    began = time.monotonic()
    try:
        function()
        result, note = "ok", ""
    except Skipped as reason:
        result, note = "ok", f" # SKIP {reason}"
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        result, note = "not ok", ""
    print(f"# {time.monotonic() - began:.1f} s", flush=True)
    print(f"{result} {number} - {function.__name__}{note}", flush=True)
    return result == "ok"


def main(before=None, after=None):
    """Runs the cases in the order of the file; `before` and `after` run once around them. If
    `before` fails, every case has failed."""
    print(f"1..{len(_cases)}", flush=True)
    good = True
    try:
        try:
            if before:
                before()
        except Exception:
            traceback.print_exc()
            for number, function in enumerate(_cases, 1):
                print(f"not ok {number} - {function.__name__}", flush=True)
            return 1
        for number, function in enumerate(_cases, 1):
            good = _run(number, function) and good
    finally:
        if after:
            after()
    return 0 if good else 1
