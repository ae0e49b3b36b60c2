#!/usr/bin/python3
"""deploy/ansible as ansible-lint and ansible itself judge it, without hosts or network, and with Debian's builtin modules only; and
deploy/systemd."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.append(os.path.join(TOP, "test", "lib"))

import tap  # noqa: E402

PLAYBOOKS = os.path.join(TOP, "deploy", "ansible")
BUILTIN = "ansible.builtin."


def run(folder, program, *words):
    if not shutil.which(program):
        tap.skip(f"{program} is not installed (tools/install-deps deploy)")
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run([program, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, "HOME": home, "ANSIBLE_LOCAL_TEMP": home, "ANSIBLE_NOCOLOR": "1"})  # fmt: skip


def lint(folder):
    return run(folder, "ansible-lint", "--offline", "--nocolor", "--profile", "production", "--strict")


def books(folder):
    return sorted(glob.glob(os.path.join(folder, "*.yml")))


def foreign(text):
    """Modules that are not builtin: names with two dots in front of a colon."""
    return [name for name in re.findall(r"^ *(?:- )?(\w+\.\w+\.\w+):", text, re.M) if not name.startswith(BUILTIN)]


@tap.case
def ansible_lint_finds_nothing():
    done = lint(PLAYBOOKS)
    tap.equal(done.returncode, 0, done.stdout[-5000:], done.stderr[-3000:])


@tap.case
def a_planted_mistake_is_found():
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "ansible")
        shutil.copytree(PLAYBOOKS, copy)
        with open(os.path.join(copy, "stop.yml"), "a", encoding="utf-8") as file:
            file.write("    - ansible.builtin.shell: true\n")
        done = lint(copy)
        tap.check(done.returncode != 0 and "stop.yml" in done.stdout, done.stdout[-2000:], done.stderr[-2000:])
    tap.equal(foreign("- name: x\n  ansible.posix.mount:\n  ansible.builtin.file:\n"), ["ansible.posix.mount"])


@tap.case
def only_builtin_modules_are_used():
    paths = glob.glob(os.path.join(PLAYBOOKS, "**", "*.yml"), recursive=True)
    tap.check(paths, "no playbooks in", PLAYBOOKS)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            tap.equal(foreign(file.read()), [], path)


@tap.case
def ansible_understands_every_playbook_with_every_inventory():
    for inventory in books(os.path.join(PLAYBOOKS, "inventory")):
        done = run(PLAYBOOKS, "ansible-playbook", "--inventory", inventory, "--syntax-check", *books(PLAYBOOKS))
        tap.equal(done.returncode, 0, inventory, done.stdout[-2000:], done.stderr[-2000:])


@tap.case
def no_unit_lets_its_process_leave_a_core_file():
    paths = glob.glob(os.path.join(TOP, "deploy", "systemd", "*.service"))
    tap.equal(len(paths), 2)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            tap.contains(file.read(), "\nLimitCORE=0\n", path)


if __name__ == "__main__":
    sys.exit(tap.main())
