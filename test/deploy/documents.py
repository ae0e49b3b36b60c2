"""Runs every command of README.md and of the guide, in the order of the pages, as root in one fresh Debian root that holds
a copy of this tree. The rule: a command stands in a block that begins with ```sh; each block is a case, and what a page
sets (its directory, its variables) lasts to the end of the page. A block that cannot be run here has a line above it,
<!-- not run: REASON -->, and is skipped with that reason. An indented block would be run by nobody and is a failure.
--pages: only that the pages keep to the rule, without a root."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(TOP, "test", "lib")]

import machine  # noqa: E402
import tap  # noqa: E402
from packages import Unavailable  # noqa: E402

GUIDE = "deploy/guide/"
PAGES = ("README.md", GUIDE + "README.md", GUIDE + "how-it-works.md", GUIDE + "operating.md", GUIDE + "watching.md",
         GUIDE + "tuning.md",
         GUIDE + "security.md",
         GUIDE + "limits.md")  # fmt: skip
TREE = "/root/rowan-kv"
PACKAGES = "packages"  # where the guide has them built
# A word on a line of its own tells how far a page is. The commands read nothing.
BLOCK = "set -eu -o pipefail\n{{\n{commands}\n}} </dev/null >&2\necho done\n"

ONLY_PAGES = sys.argv[1:] == ["--pages"]
scratch = root = unavailable = None
shells = {}  # page: the shell that runs it


def inside(function):
    """A case that needs the root."""
    return function if ONLY_PAGES else tap.case(function)


def before():
    global scratch, root, unavailable
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = tempfile.mkdtemp(prefix="documents-", dir=os.environ.get("ROWAN_TEST_SCRATCH"))
    try:
        root = machine.Root(os.path.join(scratch, "root"))
    except Unavailable as reason:
        unavailable = f"there is no Debian root: {reason}"
        return
    machine.copy_tree(root.path(TREE))
    with open(root.path("/etc/apt/apt.conf.d/answers"), "w", encoding="ascii") as file:
        file.write('APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n')


def after():
    for shell in shells.values():
        shell.stdin.close()
        shell.wait()
    if root:
        root.close()
    shutil.rmtree(scratch)


def blocks(text):
    """[(line, commands, why they are not run or None)] of a page."""
    found = []
    for match in re.finditer(r"^(?:<!-- not run: (.*?) -->\n)?```sh\n(.*?)^```$", text, re.M | re.S):
        found.append((text.count("\n", 0, match.start(2)) + 1, match[2], match[1]))
    return found


def stray(text):
    """Lines that look like commands, and that the rule does not see."""
    prose = re.sub(r"^(?:<!-- not run: [^\n]+ -->\n(?=```sh\n))?```.*?^```$", "", text, flags=re.M | re.S)
    return re.findall(r"^(?:    |\t).*|.*```.*|^ *\$ .*|.*<!-- not run.*", prose, re.M)


def run_block(page, commands):
    if page not in shells:
        errors = tempfile.TemporaryFile(dir=scratch)
        shells[page] = subprocess.Popen(root.words("bash", "-c", f"cd {TREE} && exec bash -s", online=True), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=errors, text=True)  # fmt: skip
        shells[page].log = errors
    shell = shells[page]
    shell.log.seek(0, os.SEEK_END)
    began = shell.log.tell()
    tap.check(shell.poll() is None, "not reached: a block above it failed")
    shell.stdin.write(BLOCK.format(commands=commands))
    shell.stdin.flush()
    if shell.stdout.readline() != "done\n":
        code = shell.wait()
        shell.log.seek(began)
        raise tap.Failed(f"ended with {code}:\n{commands}\n" + shell.log.read().decode(errors="replace")[-6000:])


def case(page, line, commands, reason):
    def one():
        if unavailable or reason:
            tap.skip(unavailable or reason)
        run_block(page, commands)

    words = re.sub(r"\W+", "_", commands.strip().split("\n")[0].partition("  ")[0])[:60].strip("_")
    one.__name__ = f"{page.replace('/', '_')}_line_{line}_{words}"
    tap.case(one)


def main():
    for page in PAGES:
        with open(os.path.join(TOP, page), encoding="utf-8") as file:
            text = file.read()

        def every_command_is_in_a_block_that_is_run(page=page, text=text):
            tap.equal(stray(text), [], page)

        tap.case(every_command_is_in_a_block_that_is_run)
        for block in blocks(text) if not ONLY_PAGES else ():
            case(page, *block)


@tap.case
def commands_that_stray_are_found():
    tap.equal(blocks("a\n```sh\nx\ny\n```\n<!-- not run: why -->\n```sh\nz\n```\n"), [(3, "x\ny\n", None), (8, "z\n", "why")])
    for text in ("    tools/quickstart\n", "$ ls\n", "<!-- not run: why -->\n\n```sh\n```\n", "```sh\nls\n"):
        tap.check(stray(text), text)


@inside
def a_command_that_fails_is_a_failure():
    if unavailable:
        tap.skip(unavailable)
    for commands in ("false", "false\ntrue", "false | cat", "echo $nothing"):
        try:
            run_block("planted " + commands, commands)
        except tap.Failed:
            continue
        raise tap.Failed(f"passed: {commands}")


@tap.case
def the_guide_has_every_page():
    names = {name for name in os.listdir(os.path.join(TOP, GUIDE)) if name.endswith(".md")}
    tap.equal({GUIDE + name for name in names}, set(PAGES) - {"README.md"})


main()


@inside
def the_packages_that_were_built_on_the_way_serve_the_other_tests():
    if unavailable:
        tap.skip(unavailable)
    machine.keep(root.path(f"{TREE}/{PACKAGES}"))


sys.exit(tap.main() if ONLY_PAGES else tap.main(before, after))
