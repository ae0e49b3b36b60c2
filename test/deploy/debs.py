"""Debian packages of this tree, for tests that install them."""

import glob
import os
import re
import tempfile

from hosts import command

NAMES = ("librowan0", "rowan-tools", "rowan-cm", "rowan-server")  # those that hosts get


def depends(folder):
    """Names of the packages that those of the folder depend on and that are not among them."""
    names = set()
    own = {field(path, "Package") for path in files(folder)}
    for path in files(folder):
        for one in field(path, "Depends").split(","):
            names.add(re.split(r"[ :|(]", one.strip())[0])
    return sorted(names - own - {""})


def files(folder):
    return [path for name in NAMES for path in glob.glob(os.path.join(folder, name + "_*.deb"))]


def field(path, name):
    return command(["dpkg-deb", "--field", path, name]).strip()


def with_suffix(folder, suffix, out):
    """Makes packages of a higher version of them, of which a program differs from before in its file alone. Returns that version."""
    os.makedirs(out)
    for path in files(folder):
        with tempfile.TemporaryDirectory(dir=out) as root:
            command(["dpkg-deb", "--raw-extract", path, root])
            control = os.path.join(root, "DEBIAN", "control")
            with open(control, encoding="utf-8") as file:
                text = file.read()
            version = re.search(r"^Version: (.*)$", text, re.M).group(1)
            text = text.replace(f"Version: {version}\n", f"Version: {version}{suffix}\n").replace(f"(= {version})", f"(= {version}{suffix})")
            with open(control, "w", encoding="utf-8") as file:
                file.write(text)
            name = os.path.basename(path).replace(f"_{version}_", f"_{version}{suffix}_")
            command(["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, os.path.join(out, name)])
    return version + suffix
