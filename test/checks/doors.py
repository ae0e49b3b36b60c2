#!/usr/bin/python3
"""The table of doors in the guide: each test that it names is there, and each figure is that of the code. Usage: doors.py SOURCE_ROOT
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import sources
import tap

GUIDE = "deploy/guide/security.md"
FABRIC, TCP, SHM, ENDPOINT = "common/fabric/fabric.h", "common/fabric/tcp/tcp.h", "common/fabric/shm/", "common/metrics/endpoint.c"
FIGURES = (  # what the table says, and what the code does
    ("one of 1,024 places for who has said nothing", TCP, "TCP_MAX_HALF_OPEN = 1024"),
    ("at most 5 s of it", TCP, "TCP_HANDSHAKE_NS (5 * NS_PER_S)"),
    ("for the next after 200 ms", TCP, "TCP_HALF_OPEN_NS (200 * NS_PER_MS)"),
    ("a guest: one of 1,024 places", FABRIC, "FABRIC_MAX_GUESTS = 1024"),
    ("512 of one address", FABRIC, "FABRIC_MAX_GUESTS_OF_ONE = 512"),
    ("5 s to log in", FABRIC, "FABRIC_GUEST_NS (5 * NS_PER_S)"),
    ("of at most 1 KiB", FABRIC, "FABRIC_GUEST_BYTES = 1024"),
    ("16 messages of all guests in a millisecond", "common/fabric/tcp/tcp_guest.c", "GUESTS_AT_ONCE = 16"),
    ("the 256 in the landing zone", FABRIC, "FABRIC_MAX_ZONE_SENDERS = 256"),
    ("the 4,096 places of who has logged in", "cm/state.h", "CM_MAX_CLIENTS = 4096"),
    ("the last 64 of them for admins", "cm/state.h", "CM_ADMIN_CLIENTS = 64"),
    ("the 256 that only servers get", "cm/state.h", "FABRIC_MAX_GUESTS + 256"),
    ("4,096 at once", "cm/quota.h", "QUOTA_BURST = 4096"),
    ("and 32 a second from then on", "cm/quota.h", "QUOTA_A_SECOND = 32"),
    ("the last 512 of the process", "common/reactor/descriptors.h", "DESCRIPTORS_KEPT = 512"),
    ("one of 64 connections", ENDPOINT, "MAX_CONNECTIONS = 64"),
    ("10 s without a word", ENDPOINT, "IDLE_SECONDS = 10"),
    ("4,096 connections with rings", SHM + "shm_layout.h", "SHM_MAX_CONNS = 4096"),
    ("rings of 256 KiB", SHM + "shm_layout.h", "SHM_RING_BYTES = 256 << 10"),
    ("5 s until the handshake is done", SHM + "shm.h", "SHM_HANDSHAKE_NS (5 * NS_PER_S)"),
    ("200 warnings at once", "common/base/log_limiter.h", "LOG_BURST = 200"),
    ("2 a second, then a count", "common/base/log_limiter.c", "[LOG_WARN] = {LOG_BURST, NS_PER_S / 2}"),
)


def rows(page):
    """The cells of each door."""
    table = page.split("\n## Doors\n")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def unknown_tests(page, cases):
    """Doors that no test knocks at, and names that are no test's."""
    found = []
    for door, _, _, tests in rows(page):
        names = set(re.findall(r"`(\w+)`", tests))
        found += sorted(names - cases) + ([] if names or tests == "none" else [door])
    return found


def wrong_figures(page, figures):
    told = " ".join(cost for _, _, cost, _ in rows(page))
    code = lambda path: re.sub(r"\s+", " ", sources.text(ROOT, path))  # noqa: E731
    return [text for text, path, piece in figures if text not in told or piece not in code(path)]


@tap.case
def each_door_has_tests_that_knock_and_they_are_there():
    cases = set()
    for path in sources.files(ROOT, ".c", ".py"):
        if path.startswith("test/"):
            cases |= set(re.findall(r"^(?:\w*TEST\w*\(|@tap\.case\ndef )(\w+)", sources.text(ROOT, path), re.MULTILINE))
    page = sources.text(ROOT, GUIDE)
    tap.check(len(rows(page)) > 10, rows(page))
    tap.equal(unknown_tests(page, cases), [])


@tap.case
def each_figure_is_that_of_the_code():
    tap.equal(wrong_figures(sources.text(ROOT, GUIDE), FIGURES), [])


@tap.case
def a_planted_name_and_a_planted_figure_are_found():
    page = "\n## Doors\n\n| d | w | c | t |\n| - | - | - | - |\n| a | | 3 s | `there` |\n| b | x | 4 s | `gone` |\n| c | | 5 s | |\n## T\n"
    tap.equal(unknown_tests(page, {"there"}), ["gone", "c"])
    figures = [(text, FABRIC, piece) for text, piece in (("3 s", "FABRIC_H"), ("4 s", "not there"), ("6 s", "FABRIC_H"))]
    tap.equal(wrong_figures(page, figures), ["4 s", "6 s"])


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[1])
    sys.exit(tap.main())
