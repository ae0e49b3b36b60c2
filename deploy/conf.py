#!/usr/bin/env python3
"""Prints a configuration file of a program, every key explained, out of its --help: conf.py PROGRAM [KEY=VALUE ...]
A key that has a value here is set; the others stand there commented out, with their defaults."""

import os
import sys
import textwrap

sys.dont_write_bytecode = True

import helps  # noqa: E402


def main():
    program, given = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
    name = os.path.basename(program)
    found = helps.keys(helps.of(program))
    unknown = given.keys() - {key for key, _, _ in found}
    if unknown:
        raise SystemExit(f"conf.py: {name} has no key {', '.join(sorted(unknown))}")
    print(f"# Settings of {name}; {name}(8) and rowan.conf(5) say more. What is commented out has its default.\n[{name}]")
    for key, what, values in found:
        print()
        for line in textwrap.wrap(f"{what}; {values}", 96):
            print(f"# {line}")
        default = values.partition("default: ")[2] or ("no" if values == "off unless given" else "")
        print(f"{key} = {given[key]}" if key in given else f"# {key} = {default}".rstrip())


if __name__ == "__main__":
    main()
