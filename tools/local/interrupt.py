"""Ctrl-C, SIGTERM and SIGHUP as an exception.

It is raised once: who is impatient and presses Ctrl-C again does not interrupt the clean-up. And it
is not raised inside `held`, so that a process is never started without being in the record.
"""

import contextlib
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """What was begun is to be taken back."""


class State:
    seen = False
    holders = 0
    raised = False


def raise_if_due():
    if State.seen and not State.raised and State.holders == 0:
        State.raised = True
        raise Interrupted()


def handle(signal_number, frame):
    State.seen = True
    raise_if_due()


def install():
    for number in SIGNALS:
        signal.signal(number, handle)


def over():
    """There is nothing left to take back. Python's end would let a late signal kill us with its code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held():
    """An interrupt that comes inside is raised at the end."""
    State.holders += 1
    try:
        yield
    finally:
        State.holders -= 1
        raise_if_due()
