#!/usr/bin/python3
"""librowan.so exports nothing but the functions of client/rowan.h, and all of them.

Usage: exports.py SOURCE_ROOT LIBRARY
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import sources
import tap


def exported(library):
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[0].split("@")[0] for line in listing.splitlines()}


def declared():
    header = sources.text(ROOT, "client/rowan.h")
    return set(re.findall(r"^ROWAN_API [^;(]*?(\w+)\(", header, re.MULTILINE))


@tap.case
def the_library_exports_exactly_the_functions_of_rowan_h():
    found = exported(LIBRARY)
    tap.check(len(declared()) > 10, "rowan.h declares almost nothing?")
    tap.equal(sorted(found - declared()), [], "exported, but not declared")
    tap.equal(sorted(declared() - found), [], "declared, but not exported")


if __name__ == "__main__":
    ROOT, LIBRARY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    sys.exit(tap.main())
