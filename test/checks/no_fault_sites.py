#!/usr/bin/python3
"""Fault sites (common/base/fault.h) and planted defects (test/sim) are in nothing that ships.

Usage: no_fault_sites.py SOURCE_ROOT BUILD_ROOT
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import objects
import sources
import tap

# What the simulator defines and the modules use only in its build.
NAMES = re.compile(r"fault_fires|mutant_is_on|fabric_segment_bytes")


def violations(pairs):
    found = []
    for (source, _), (defined, needed) in zip(pairs, objects.symbols([path for _, path in pairs])):
        found += [f"{source}: {name}" for name in defined | needed if NAMES.fullmatch(name)]
    return found


def compiled(folder, text, *options):
    source, made = os.path.join(folder, "a.c"), os.path.join(folder, "a.o")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    command = ["cc", "-std=gnu17", "-I", ROOT, "-c", *options, source, "-o", made]
    subprocess.run(command, check=True)
    return made


def machine_code(path):
    done = subprocess.run(["objdump", "-d", path], check=True, capture_output=True, text=True)
    return done.stdout.split("Disassembly", 1)[1]


WITH = """#include "common/base/fault.h"
int f(int x) { return FAULT(NO_MEMORY) ? -1 : x + 1; }
"""
MUTANT = """_Bool mutant_is_on(int mutant);
int f(int x) { return mutant_is_on(3) ? -1 : x + 1; }
"""
WITHOUT = "int f(int x) { return x + 1; }\n"


@tap.case
def no_shipped_object_has_a_fault_site_or_a_mutant():
    pairs = objects.shipped(ROOT, BUILD)
    tap.check(pairs, "no objects in", BUILD)
    bad = violations(pairs)
    tap.check(not bad, "\n" + "\n".join(bad))


@tap.case
def there_are_fault_sites_to_look_for_and_no_mutants():
    text = "".join(
        sources.text(ROOT, path)
        for path in sources.files(ROOT, ".c", ".h")
        if not path.startswith("test/")
    )
    names = set(re.findall(r"\bFAULT\((\w+)\)", text))
    tap.check(len(names) > 5, names)
    tap.equal(re.findall(r"(?i).*mutant.*", text), [])


@tap.case
def a_fault_site_costs_nothing_where_it_is_off():
    with tempfile.TemporaryDirectory() as folder:
        made = compiled(folder, WITH, "-O2")
        tap.equal(violations([("a.c", made)]), [])
        code = machine_code(made)
        tap.equal(code, machine_code(compiled(folder, WITHOUT, "-O2")))


@tap.case
def a_fault_site_and_a_mutant_are_found():
    with tempfile.TemporaryDirectory() as folder:
        made = compiled(folder, WITH, "-O2", "-DROWAN_SIM")
        tap.equal(violations([("a.c", made)]), ["a.c: fault_fires"])
        tap.equal(violations([("a.c", compiled(folder, MUTANT))]), ["a.c: mutant_is_on"])


if __name__ == "__main__":
    ROOT, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    sys.exit(tap.main())
