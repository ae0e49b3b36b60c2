"""The object files of a build, and the names in them."""

import json
import os
import subprocess


def symbols(path):
    """(defined, needed) names of an object file."""
    listing = subprocess.run(
        ["nm", "--format=posix", path], check=True, capture_output=True, text=True
    ).stdout
    defined, needed = set(), set()
    for line in listing.splitlines():
        name, kind = line.split()[:2]
        name = name.split("@")[0]
        if kind in "Uvw":
            needed.add(name)
        else:
            defined.add(name)
    return defined, needed


def shipped(source_root, build_root):
    """(source path from the top, object path) of what was built for the programs that ship: nothing of the tests or of
    the simulator's own build of the modules."""
    with open(os.path.join(build_root, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = []
    for command in commands:
        source = os.path.realpath(os.path.join(command["directory"], command["file"]))
        source = os.path.relpath(source, os.path.realpath(source_root))
        if source.startswith((os.pardir, "build", "test/")) or command["output"].startswith("test/"):
            continue
        made = os.path.join(command["directory"], command["output"])
        if os.path.exists(made):
            found.append((source, made))
    return found
