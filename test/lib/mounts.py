"""Small file systems for tests, in a mount namespace of the command's own: a full disk, a directory
that even root cannot write."""

import os
import subprocess

# As root only the mounts are one's own; otherwise a user namespace makes root of us first.
UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def inside(place, options, words, before=""):
    """The command that runs `words` with a tmpfs of these mount options at `place`. `before`: shell
    text that runs there first."""
    script = f'mount -t tmpfs -o "$1" tmpfs "$2" || exit 125; shift 2; {before} exec "$@"'
    return [*UNSHARE, "sh", "-c", script, "sh", options, place, *words]


def why_not():
    """Why that cannot be done here; None if it can."""
    try:
        done = subprocess.run(inside("/mnt", "size=1m", ["true"]), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20)  # fmt: skip
    except OSError as error:
        return str(error)
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else None
