#!/usr/bin/env python3
"""How tests come by packages of the distribution (test/lib/packages.py), with an apt-get that is a script."""

import os
import subprocess
import sys
import tempfile

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib")
sys.path.insert(0, LIB)
import tap

# It writes down what it was asked for. A download works when there are lists, and `update` makes these unless there
# is a file "offline".
APT = """#!/bin/sh
echo "$*" >> "$APT_HOME/asked"
case "$*" in
*update)
    [ ! -e "$APT_HOME/offline" ] || { echo 'E: no network' >&2; exit 100; }
    touch "$APT_HOME/lists" ;;
*download*)
    [ -e "$APT_HOME/lists" ] || { echo 'E: 404 Not Found' >&2; exit 100; }
    for package; do :; done
    touch "${package}_1_all.deb" ;;
esac
"""


class Host:
    """A process that downloads a package with `download`; all of a host's have one run."""

    def __init__(self, place):
        self.place = place
        self.run = os.path.join(place, "run")
        os.mkdir(self.run)
        path = os.path.join(place, "apt-get")
        with open(path, "w", encoding="utf-8") as file:
            file.write(APT)
        os.chmod(path, 0o755)

    def download(self, package, root=True):
        program = (
            f"import os, sys; sys.path.insert(0, {LIB!r}); os.geteuid = lambda: {0 if root else 1000}\n"
            f"import packages\n"
            f"try: packages.download({package!r}, {os.path.join(self.place, package)!r}); print('there')\n"
            f"except packages.Unavailable as reason: print(reason)\n"
        )
        more = {"PATH": self.place + ":" + os.environ["PATH"], "APT_HOME": self.place, "ROWAN_TEST_RUN": self.run}
        return subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout.strip()

    def updates(self):
        with open(os.path.join(self.place, "asked"), encoding="utf-8") as file:
            return sum(line.rstrip().endswith(" update") for line in file)

    def touch(self, name):
        with open(os.path.join(self.place, name), "w", encoding="utf-8"):
            pass


def on_a_host(function):
    def case():
        with tempfile.TemporaryDirectory() as place:
            function(Host(place))

    case.__name__ = function.__name__
    return tap.case(case)


@on_a_host
def lists_that_are_there_are_not_fetched_anew(host):
    host.touch("lists")
    tap.equal(host.download("a"), "there")
    tap.equal(host.updates(), 0)


@on_a_host
def old_lists_are_fetched_anew_once(host):
    tap.equal(host.download("a"), "there")
    tap.equal(host.download("b"), "there")
    tap.equal(host.updates(), 1)


@on_a_host
def an_update_that_fails_is_not_tried_again_and_says_what_to_do(host):
    host.touch("offline")
    for package in ("a", "b"):
        said = host.download(package)
        tap.contains(said, "E: no network")
        tap.contains(said, "then run apt-get update")
    tap.equal(host.updates(), 1)


@on_a_host
def who_is_not_root_is_told_the_command(host):
    tap.contains(host.download("a", root=False), "sudo apt-get update")
    tap.equal(host.updates(), 0)


tap.main()
