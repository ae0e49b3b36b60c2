"""The object files of a build, and the names in them."""

import json
import os
import subprocess


def symbols(paths):
    """(defined, needed) names of each of these object files: by one nm for all, as starting one takes longer than it works."""
    listing = subprocess.run(["nm", "--format=posix", "--print-file-name", *paths], check=True, capture_output=True, text=True).stdout
    found = {path: (set(), set()) for path in paths}
    for line in listing.splitlines():
        path, _, symbol = line.rpartition(": ")
        name, kind = symbol.split()[:2]
        found[path][kind in "Uvw"].add(name.split("@")[0])
    return [found[path] for path in paths]


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
