#!/usr/bin/python3
"""House rules: the top level, a README in each module, the licence, the format, the length of files and functions,
nothing left to do later. Usage: house.py SOURCE_ROOT
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import sources
import tap

MOST_LINES_A_FILE = 600
MOST_LINES_A_FUNCTION = 70
TOP_LEVEL = {
    "LICENSE", "README.md", "client", "cm", "common", "deploy", "meson.build", "meson_options.txt", "proto",
    "server", "test", "tools",
}  # fmt: skip
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def modules(root):
    """Every folder that holds source, and the modules above it; test/unit's are one module."""
    found = set()
    for path in sources.files(root, ".c", ".h", ".py", ".proto", ".sh"):
        folder = os.path.dirname(path)
        if folder.startswith("test/unit/"):
            folder = "test/unit"
        while folder:
            found.add(folder)
            folder = os.path.dirname(folder)
    return sorted(found)


def strays(paths):
    """The names in the top level that do not belong there."""
    tops = {path.split("/", 1)[0] for path in paths}
    return sorted(top for top in tops if top not in TOP_LEVEL and not top.startswith("."))


@tap.case
def the_top_level_holds_only_what_belongs_there():
    if not os.path.exists(os.path.join(ROOT, ".git")):
        tap.skip("not a clone: nobody says which files are ours")
    if not shutil.which("git"):
        tap.skip("git is not installed")
    # The clone may be another user's, as in a container.
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True
    )
    tap.equal(done.returncode, 0, done.stderr[:400])
    paths = [path for path in done.stdout.split("\0") if path]
    tap.check(paths, "git knows no file")
    tap.check(not strays(paths), "does not belong into the top level:", ", ".join(strays(paths)))


@tap.case
def a_planted_stray_is_found():
    tap.equal(strays(["x/log/cm.log", "server/main.c", ".ci/run", "core"]), ["core", "x"])


@tap.case
def every_module_has_a_readme():
    missing = [
        module for module in modules(ROOT) if not os.path.isfile(os.path.join(ROOT, module, "README.md"))
    ]
    tap.check(not missing, "no README.md in", ", ".join(missing))


@tap.case
def the_licence_is_apache_2():
    licence = sources.text(ROOT, "LICENSE")
    for piece in (
        "Apache License\n                           Version 2.0, January 2004",
        "3. Grant of Patent License.",
        "END OF TERMS AND CONDITIONS",
    ):
        tap.contains(licence, piece)


@tap.case
def the_readme_opens_with_the_two_commands():
    head = "\n".join(sources.text(ROOT, "README.md").splitlines()[:12])
    tap.contains(head, "tools/quickstart")
    tap.contains(head, "test/run-all")


@tap.case
def the_source_is_formatted_by_clang_format():
    program = shutil.which("clang-format") or shutil.which("clang-format-14")
    if not program:
        tap.skip("clang-format is not installed (tools/install-deps test)")
    paths = [os.path.join(ROOT, path) for path in sources.files(ROOT, ".c", ".h")]
    done = subprocess.run(
        [program, "--dry-run", "--Werror", "--style=file", *paths], capture_output=True, text=True
    )
    bad = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.MULTILINE)))
    tap.check(done.returncode == 0, "run clang-format -i on", *bad, done.stderr[:400])


@tap.case
def no_file_is_over_600_lines():
    bad = []
    for path in sources.files(ROOT, ".c", ".h", ".py"):
        lines = sources.text(ROOT, path).count("\n")
        if lines > MOST_LINES_A_FILE:
            bad.append(f"{path} has {lines}")
    tap.check(not bad, ", ".join(bad))


def long_functions(text):
    """(name, lines) of bodies over the limit; clang-format puts both braces into column 0."""
    found, start, name = [], None, ""
    for number, line in enumerate(text.splitlines()):
        if line == "{":
            start = number
        elif line.startswith("}") and start is not None:
            if number - start - 1 > MOST_LINES_A_FUNCTION:
                found.append((name, number - start - 1))
            start = None
        elif start is None and (match := re.search(r"(\w+)\(", line)) and line[:1].isalpha():
            name = match.group(1)
    return found


@tap.case
def no_function_is_over_70_lines():
    bad = []
    for path in sources.files(ROOT, ".c", ".h"):
        for name, lines in long_functions(sources.text(ROOT, path)):
            bad.append(f"{path}: {name} has {lines}")
    tap.check(not bad, ", ".join(bad))


@tap.case
def a_planted_long_function_is_found():
    body = "    x++;\n" * 71
    tap.equal(long_functions("int f(int x)\n{\n" + body + "}\n"), [("f", 71)])
    tap.equal(long_functions("int f(int x)\n{\n    x++;\n}\n" + body), [])


@tap.case
def nothing_is_left_to_do_later():
    bad = []
    for path in sources.files(ROOT, ".c", ".h", ".proto", "meson.build"):
        for number, line in enumerate(sources.text(ROOT, path).splitlines(), 1):
            if LEFT_OVER.search(line):
                bad.append(f"{path}:{number}")
    tap.check(not bad, ", ".join(bad))


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[1])
    sys.exit(tap.main())
