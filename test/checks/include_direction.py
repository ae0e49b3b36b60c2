#!/usr/bin/python3
"""Includes point one way (design, section 2):

    proto <- common <- server, client, cm <- tools        server never includes cm
    inside common: base <- reactor <- pm, coord <- fabric; entry, auth and metrics use base, fabric auth and metrics, too,
    cluster base, auth, proto and fabric
    inside server: store, index <- shard <- command.h <- role.h <- worker, digest <- clean <- control
    inside server/worker: see WORKER_LAYERS

test/ may include everything; nothing includes test/. Usage: include_direction.py SOURCE_ROOT
"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import sources
import tap

# A module, and the modules it may include besides itself. A file belongs to the module whose name is the longest
# prefix of its path.
COMMON = {
    "common/base": {"proto"},
    "common/entry": {"common/base"},
    "common/auth": {"common/base"},
    "common/metrics": {"common/base"},
    "common/cluster": {"common/base", "common/auth", "common/fabric", "proto"},
    "common/reactor": {"common/base"},
    "common/pm": {"common/base", "common/reactor"},
    "common/coord": {"common/base", "common/reactor"},
    "common/fabric": {"common/base", "common/auth", "common/metrics", "common/reactor", "common/pm"},
}
BELOW = set(COMMON) | {"proto"}
STORES = BELOW | {"server/store", "server/index"}
SHARED = STORES | {"server/common.h", "server/shard"}
ROLES = SHARED | {"server/command.h"}
OWNERS = ROLES | {"server/role.h"}
SERVER = {
    "server/store": BELOW,
    "server/index": BELOW,
    "server/common.h": BELOW | {"server/store"},
    "server/shard": STORES | {"server/common.h"},
    "server/command.h": SHARED,
    "server/role.h": ROLES,
    "server/options.h": BELOW,
    "server/check": BELOW | {"server/store"},
    "server/worker": OWNERS,
    "server/digest": OWNERS,
    "server/clean": OWNERS | {"server/worker"},
    "server/wear.h": STORES | {"server/common.h"},
    "server/control": OWNERS | {"server/worker", "server/digest", "server/clean", "server/options.h", "server/wear.h"},
}
ALLOWED = {
    "proto": set(),
    **COMMON,
    **SERVER,
    "server": BELOW | set(SERVER),
    "cm": BELOW,
    "client": BELOW,
    "tools": BELOW | {"client", "server", "cm"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Of these files in server/worker each includes only headers of those before it.
WORKER_LAYERS = ["counts", "state", "trace", "reply", "read", "peer", "commit", "settled", "write", "client", "fetch",
                 "reconcile_take", "reconcile", "fill", "split", "epoch"]
WORKER_FILE = re.compile(r"server/worker/worker(?:_(\w+))?\.[ch]$")
GENERATED = {"control.pb-c.h": "proto", "proto/control.pb-c.h": "proto", "release.h": "common/base"}


def module_of(path):
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if name in ALLOWED or name == "test":
            return name
    return None


def layer_of(path):
    match = WORKER_FILE.match(path)
    if not match or path.endswith("/worker.h"):
        return None
    return WORKER_LAYERS.index(match[1]) if match[1] else len(WORKER_LAYERS)


def climbs(path, target):
    mine, other = layer_of(path), layer_of(target)
    return mine is not None and other is not None and other > mine


def violations(root):
    found = []
    for path in sources.files(root, ".c", ".h"):
        module = module_of(path)
        if module == "test":
            continue
        if module is None:
            found.append(f"{path}: lies in no module that the design names")
            continue
        for target in INCLUDE.findall(sources.text(root, path)):
            aim = GENERATED.get(target) or module_of(target)
            if target not in GENERATED and not os.path.exists(os.path.join(root, target)):
                found.append(f'{path}: "{target}" is no path from the top of the tree')
            elif aim != module and aim not in ALLOWED[module]:
                found.append(f'{path}: {module} may not include "{target}"')
            elif climbs(path, target):
                found.append(f'{path}: "{target}" is of a layer above it')
    return found


@tap.case
def includes_point_one_way():
    bad = violations(ROOT)
    tap.check(not bad, "\n" + "\n".join(bad))


def planted(path, line):
    with tempfile.TemporaryDirectory() as root:
        for header in ("cm/cm.h", "server/index/index.h", "common/pm/pm.h", "test/lib/lib.h",
                       "server/worker/worker_write.h"):  # fmt: skip
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
        ("server/store/bad.c", '#include "server/index/index.h"'),
        ("server/digest/bad.c", '#include "server/worker/worker_write.h"'),
        ("server/worker/worker_peer.c", '#include "server/worker/worker_write.h"'),
        ("client/bad.c", '#include "test/lib/lib.h"'),
        ("client/bad.c", '#include "rowan.h"'),
        ("proto/bad.h", '#include "common/pm/pm.h"'),
        ("elsewhere/bad.h", ""),
    ]:
        tap.equal(len(planted(path, line)), 1, path, line)
    tap.equal(planted("server/good.c", '#include "common/pm/pm.h"'), [])
    tap.equal(planted("server/worker/worker_client.c", '#include "server/worker/worker_write.h"'), [])
    tap.equal(planted("test/unit/good.c", '#include "cm/cm.h"'), [])


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[1])
    sys.exit(tap.main())
