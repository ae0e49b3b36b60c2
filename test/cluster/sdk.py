#!/usr/bin/python3
"""The SDK as a program's author meets it: what a staged installation exports, and the programs in client/README.md,
which compile by copy and paste against it, and run against a cluster (the issue's Show 9)."""

import glob
import os
import re
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
    for words in (("start", "--pm-bytes", "96M", "--landing-segments", "4"), ("status",), ("stop",)):
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


def command(name):
    """How the README compiles that program."""
    return next(line for line in "".join(blocks("sh")).splitlines() if line.startswith(f"cc {name}.c "))


def run_made(made, directory):
    return subprocess.run([made, directory], cwd=directory, env=staged_environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)  # fmt: skip


def compile_and_run(name, text):
    folder = os.path.join(scratch(), name + "-program")
    os.mkdir(folder)
    with open(os.path.join(folder, name + ".c"), "w", encoding="utf-8") as file:
        file.write(text)
    words = 'cc() { command cc -Wall -Wextra -Werror "$@"; }; ' + command(name)
    done = subprocess.run(["sh", "-ec", words], cwd=folder, env=staged_environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    tap.equal(done.returncode, 0, done.stdout + done.stderr)
    made = os.path.join(folder, name)
    done = run_made(made, folder)  # no cluster is there
    tap.check(done.returncode > 0, done.returncode)
    tap.contains(done.stderr, "open: not found")
    done = run_made(made, cluster.directory)
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
def the_library_exports_what_rowan_h_declares_and_nothing_else():
    library = find("lib*/**/librowan.so.0")[0]
    names = run(["nm", "-D", "--defined-only", "--format=posix", library]).out.splitlines()
    exported = {line.split()[0].split("@")[0] for line in names if line.split()[1] != "A"}
    with open(os.path.join(SOURCE, "client", "rowan.h"), encoding="utf-8") as file:
        declared = set(re.findall(r"^ROWAN_API.*?(rowan_[a-z_]+)\(", file.read(), re.MULTILINE))
    tap.check(declared)
    tap.equal(exported, declared)
    tap.contains(run(["readelf", "-d", library]).out, "soname: [librowan.so.0]")


@tap.case
def the_readme_shows_the_examples_as_they_are():
    for name, text in zip(("sync", "async"), programs()):
        with open(os.path.join(SOURCE, "client", "examples", name + ".c"), encoding="utf-8") as file:
            tap.equal(text, file.read(), name)


@tap.case
def the_synchronous_program_compiles_by_copy_and_paste_and_runs():
    compile_and_run("sync", programs()[0])


@tap.case
def the_asynchronous_program_compiles_by_copy_and_paste_and_runs():
    compile_and_run("async", programs()[1])


@tap.case
def the_cluster_is_equal_and_stops_cleanly():
    cluster.ok("verify")
    cluster.stop()


sys.exit(tap.main(before))
