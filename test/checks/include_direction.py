#!/usr/bin/python3
"""Includes point one way (design, section 2):

    proto <- common <- server, client, cm <- tools        server never includes cm
    inside common: base <- reactor <- pm, coord <- fabric; entry and cluster use base (and proto)

test/ may include everything; nothing includes test/. Usage: include_direction.py SOURCE_ROOT
"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import sources
import tap

# A room, and the rooms it may include besides itself. A room's name is the longest prefix here.
# client/rowan.h is the public header and stands for itself.
COMMON = {
    "common/base": set(),
    "common/entry": {"common/base"},
    "common/cluster": {"common/base", "proto"},
    "common/reactor": {"common/base"},
    "common/pm": {"common/base", "common/reactor"},
    "common/coord": {"common/base", "common/reactor"},
    "common/fabric": {"common/base", "common/reactor", "common/pm"},
}
BELOW = set(COMMON) | {"proto"}
ALLOWED = {
    "proto": set(),
    **COMMON,
    "server": BELOW,
    "cm": BELOW,
    "client": BELOW,
    "tools": BELOW | {"client", "server", "cm"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
GENERATED = {"control.pb-c.h": "proto", "proto/control.pb-c.h": "proto"}


def room_of(path):
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if name in ALLOWED or name == "test":
            return name
    return None


def violations(root):
    found = []
    for path in sources.files(root, ".c", ".h"):
        room = room_of(path)
        if room == "test":
            continue
        if room is None:
            found.append(f"{path}: lies in no room that the design names")
            continue
        for target in INCLUDE.findall(sources.text(root, path)):
            aim = GENERATED.get(target) or room_of(target)
            if target not in GENERATED and not os.path.exists(os.path.join(root, target)):
                found.append(f'{path}: "{target}" is no path from the top of the tree')
            elif aim != room and aim not in ALLOWED[room]:
                found.append(f'{path}: {room} may not include "{target}"')
    return found


@tap.case
def includes_point_one_way():
    bad = violations(ROOT)
    tap.check(not bad, "\n" + "\n".join(bad))


def planted(path, line):
    with tempfile.TemporaryDirectory() as root:
        for header in ("cm/cm.h", "server/index/index.h", "common/pm/pm.h", "test/lib/lib.h"):
            os.makedirs(os.path.dirname(os.path.join(root, header)), exist_ok=True)
            open(os.path.join(root, header), "w").close()
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w") as file:
            file.write(line + "\n")
        return violations(root)


@tap.case
def a_planted_include_against_the_direction_is_found():
    for path, line in [
        ("server/bad.c", '#include "cm/cm.h"'),
        ("common/entry/bad.c", '#include "common/pm/pm.h"'),
        ("common/pm/bad.h", ' #  include "server/index/index.h"'),
        ("client/bad.c", '#include "test/lib/lib.h"'),
        ("client/bad.c", '#include "rowan.h"'),
        ("proto/bad.h", '#include "common/pm/pm.h"'),
        ("elsewhere/bad.h", ""),
    ]:
        tap.equal(len(planted(path, line)), 1, path, line)
    tap.equal(planted("server/good.c", '#include "common/pm/pm.h"'), [])
    tap.equal(planted("test/unit/good.c", '#include "cm/cm.h"'), [])


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[1])
    sys.exit(tap.main())
