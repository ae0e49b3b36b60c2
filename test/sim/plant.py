#!/usr/bin/python3
"""Plants the defects of mutants.table into the simulator's copy of the sources (README.md, "Mutants").

Usage: plant.py names TABLE OUT          a header with the list of mutants
       plant.py copy TABLE SOURCE OUT    a copy of SOURCE in which each of its defects stands behind a switch

Where no mutant is on, a copy does what its source does, on the same lines of the same file.
"""

import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))


class Unclear(Exception):
    pass


def mutants(table):
    """(name, checkers, seed, what it does, [(file, text, text instead)]) of each."""
    found, file = [], None
    with open(table, encoding="utf-8") as lines:
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line or line.startswith("#"):
                continue
            if line.startswith("- "):
                found[-1][-1].append([file, line[2:], None])
            elif line.startswith("+") and found[-1][-1] and found[-1][-1][-1][2] is None:
                found[-1][-1][-1][2] = line[1:].strip()
            elif re.fullmatch(r"[^|]+\|( *unit [^|]+\| *-|[^|]+\| *f?\d+) *\|[^|]+", line):
                found.append((*[part.strip() for part in line.split("|")], []))
            elif found and os.path.isfile(os.path.join(ROOT, line)):
                file = line
            else:
                raise Unclear(f"{table}:{number}: neither a mutant, nor a file, nor a text: {line}")
    for name, *_, places in found:
        if not places or any(place[2] is None for place in places):
            raise Unclear(f"{table}: {name} lacks a place, or a place the text instead")
    return found


def constant(name):
    return "MUTANT_" + name.upper().replace("-", "_")


def pattern(text):
    return r"\s*".join(re.escape(token) for token in re.findall(r"\w+|\S", text))


def find(text, source, name, path):
    """Where in the source the part lies that is replaced."""
    before, part, after = re.fullmatch(r"(?:(.*)\[\[)?(.*?)(?:\]\](.*))?", text).groups()
    whole = rf"{pattern(before or '')}\s*({pattern(part)})\s*{pattern(after or '')}"
    found = list(re.finditer(whole, source))
    if len(found) != 1:
        raise Unclear(f"mutant {name}: its text is {len(found)} times in {path}, not once: {text}")
    return found[0].span(1)


def switched(name, old, new):
    switch = f"mutant_is_on({constant(name)})"
    if old.endswith((";", "}")):
        return f"{{ if ({switch}) {{ {new} }} else {{ {old} }} }}"
    return f"({switch} ? ({new}) : ({old}))"


def planted(source, path, rows):
    edits = sorted(
        (find(text, source, name, path), name, instead)
        for name, *_, places in rows
        for file, text, instead in places
        if file == path
    )
    at, parts = 0, []
    for (start, end), name, instead in edits:
        if start < at:
            raise Unclear(f"mutant {name}: its text in {path} overlaps another mutant's")
        parts += [source[at:start], switched(name, source[start:end], instead)]
        at = end
    return "".join(parts + [source[at:]])


def names(table, out):
    rows = [
        f'    X({constant(name)}, "{name}", "{checkers}", {seed.lstrip("f-") or 0}, {int(seed[0] == "f")}, "{what}")'
        for name, checkers, seed, what, _ in mutants(table)
    ]
    text = "/* X(constant, name, checkers that should catch it, a seed that does, with --failovers 100?, what it does wrong) */\n"
    text += "#define MUTANTS(X) \\\n" + " \\\n".join(rows) + "\n"
    with open(out, "w", encoding="utf-8") as file:  # also if nothing changes: all copies are made again
        file.write(text)


def copy(table, source, out):
    path = os.path.relpath(os.path.realpath(source), ROOT)
    with open(source, encoding="utf-8") as file:
        whole = file.read()
    text = planted(whole, path, mutants(table))
    head = '#include "test/sim/mutant.h"\n' if text != whole else ""
    text = f'{head}#line 1 "{source}"\n{text}'
    if not os.path.exists(out) or open(out, encoding="utf-8").read() != text:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    try:
        {"names": names, "copy": copy}[sys.argv[1]](*sys.argv[2:])
    except Unclear as unclear:
        sys.exit(str(unclear))
