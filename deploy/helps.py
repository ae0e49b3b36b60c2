"""What a program's --help says, for pages and files that are made of it: common/base/config.c writes the options."""

import os
import re
import subprocess


def of(program, *words):
    done = subprocess.run([program, *words, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "80"})  # fmt: skip
    if done.returncode != 0 or not done.stdout:
        raise SystemExit(f"{os.path.basename(program)} --help failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def parts(text):
    """(usage, lines of the description, [(key, VALUE or "", what it is, what it may be or "")], closing lines)."""
    head, _, rest = text.partition("\n\n")
    usage, *about = head.split("\n")
    table, _, end = rest.partition("\n\n")
    found = re.findall(r"^  --([a-z-]+) ?(\S*)\n      (.*)(?:\n      (.*))?$", table, re.M)
    if not usage.startswith("Usage: ") or not found or len(found) != len(re.findall("^  --", table, re.M)):
        raise SystemExit("a --help is not of the form that deploy/helps.py reads:\n" + text)
    return usage[len("Usage: ") :], about, found, end.split("\n")


def keys(text):
    """[(key, what it is, what it may be)] of what may stand in a file."""
    return [(key, what, values) for key, _, what, values in parts(text)[2] if key not in ("config", "help", "version")]
