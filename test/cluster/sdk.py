#!/usr/bin/python3
"""The programs in client/README.md compile by copy and paste against a staged installation, and run
against a cluster (the issue's Show 9)."""

import glob
import os
import re
import shlex
import subprocess
import sys

from harness import BIN, SOURCE, Cluster, environment, run, scratch, tap


def before():
    global cluster, staged
    cluster = Cluster("sdk", "--pm-bytes", "256M")
    staged = os.path.join(scratch(), "staged")


@tap.case
def the_sdk_installs():
    done = run(["meson", "install", "-C", BIN, "--no-rebuild", "--destdir", staged])
    tap.equal(done.code, 0, done.both)
    for pattern in ("lib*/**/librowan.so", "include/**/rowan.h", "lib*/**/rowan.pc"):
        tap.equal(len(find(pattern)), 1, pattern)


@tap.case
def the_installed_rowan_local_finds_its_code_and_the_programs_beside_it():
    place = os.path.join(scratch(), "installed")
    bare = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": staged_environment()["LD_LIBRARY_PATH"]}
    for words in (("start", "--pm-bytes", "64M", "--landing-segments", "4"), ("status",), ("stop",)):
        done = subprocess.run(
            [find("bin/rowan-local")[0], *words, "--dir", place], env=bare,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        tap.equal(done.returncode, 0, done.stdout + done.stderr)


def find(pattern):
    return glob.glob(os.path.join(staged, "usr", "local", pattern), recursive=True)


def blocks(language):
    with open(os.path.join(SOURCE, "client", "README.md"), encoding="utf-8") as file:
        text = file.read()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def programs():
    return [block for block in blocks("c") if "int main(" in block]


def staged_environment():
    """pkg-config and the loader look into the staging directory instead of /."""
    return {
        **environment(),
        "PKG_CONFIG_PATH": os.path.dirname(find("lib*/**/rowan.pc")[0]),
        "PKG_CONFIG_SYSROOT_DIR": staged,
        "LD_LIBRARY_PATH": os.path.dirname(find("lib*/**/librowan.so")[0]),
    }


def compile_and_run(number, text):
    folder = os.path.join(scratch(), f"program{number}")
    os.mkdir(folder)
    source, made = os.path.join(folder, "program.c"), os.path.join(folder, "program")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "rowan"], env=staged_environment(),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    done = run(["cc", "-Wall", "-Wextra", "-Werror", "-o", made, source, *shlex.split(flags)])
    tap.equal(done.code, 0, done.both)
    done = subprocess.run(
        [made, cluster.directory], cwd=cluster.directory, env=staged_environment(),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    tap.equal(done.returncode, 0, done.stdout[-1000:] + done.stderr[-1000:])
    print("\n".join("# " + line for line in done.stdout.splitlines()[-5:]))


@tap.case
def the_readme_has_a_synchronous_and_an_asynchronous_program():
    texts = programs()
    tap.equal(len(texts), 2)
    tap.contains(texts[0], "rowan_put(")
    tap.contains(texts[1], "rowan_post_")
    tap.contains(texts[1], "64")


@tap.case
def the_synchronous_program_compiles_by_copy_and_paste_and_runs():
    compile_and_run(1, programs()[0])


@tap.case
def the_asynchronous_program_compiles_by_copy_and_paste_and_runs():
    compile_and_run(2, programs()[1])


@tap.case
def the_cluster_is_equal_and_stops_cleanly():
    cluster.ok("verify")
    cluster.stop()


sys.exit(tap.main(before))
