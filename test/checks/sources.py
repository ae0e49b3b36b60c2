"""Our files, which the checks read."""

import os

# Not source: left by a build, a checkout or a cluster.
PASSED_OVER = {"build", "rowan-data", "__pycache__", "subprojects"}


def files(root, *endings):
    """Paths relative to `root`, in order, of all files with one of the endings."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in PASSED_OVER and not name.startswith((".", "build-"))
        )
        for name in sorted(names):
            if name.endswith(endings):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def text(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()
