"""The Debian packages of this tree: what lintian and abidiff say of them; and in a fresh Debian root, where apt installs
them, three servers and a manager, a program against the SDK, the man pages, completion, and what a purge leaves."""

import glob
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
sys.path[:0] = [HERE, os.path.join(TOP, "test", "lib"), os.path.join(TOP, "deploy")]

import helps  # noqa: E402
import machine  # noqa: E402
import tap  # noqa: E402
from packages import Unavailable  # noqa: E402

PACKAGES = {"rowan-server", "rowan-cm", "rowan-tools", "librowan0", "librowan-dev"}
PROGRAMS = {"rowan": 1, "rowan-ycsb": 1, "rowan-doctor": 1, "rowan-dlwa": 1, "rowan-server": 8, "rowan-cm": 8}
LOCAL_COMMANDS = ("start", "stop", "status", "kill", "restart", "add", "remove")
CM = "tcp:127.0.0.1:7400"

scratch = root = unavailable = folder = None


def before():
    global scratch, root, unavailable, folder
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = tempfile.mkdtemp(prefix="deploy-", dir=os.environ.get("ROWAN_TEST_SCRATCH"))
    try:
        folder = machine.packages()
        root = machine.Root(os.path.join(scratch, "root"))
    except Unavailable as reason:
        unavailable = f"there is no Debian root: {reason}"


def after():
    if root:
        root.close()
    shutil.rmtree(scratch)


def run(*words, **more):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)


def inside(*words, **more):
    """What a command in the root prints, which must end well."""
    if unavailable:
        tap.skip(unavailable)
    done = root.run(*words, **more)
    tap.equal(done.code, 0, *words, done.both[-3000:])
    return done.out


def file(name):
    """The one package of that name."""
    (found,) = glob.glob(os.path.join(folder, name + "_*.deb"))
    return found


def unpacked(name):
    place = os.path.join(scratch, name)
    tap.equal(run("dpkg-deb", "--extract", file(name), place).returncode, 0)
    return place


# --- the packages, looked at ---


@tap.case
def the_packages_are_those_that_are_documented():
    names = {os.path.basename(path).split("_")[0] for path in glob.glob(os.path.join(folder, "*.deb"))}
    tap.equal({name for name in names if not name.endswith("-dbgsym")}, PACKAGES)


@tap.case
def lintian_finds_neither_errors_nor_warnings():
    done = run("lintian", "--allow-root", "--fail-on", "error,warning", *(file(name) for name in sorted(PACKAGES)))
    tap.equal(done.returncode, 0, done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        print("# " + line)


def symbols_differ(table):
    (library,) = glob.glob(os.path.join(unpacked("librowan0"), "usr", "lib", "*", "librowan.so.0"))
    version = run("dpkg-deb", "--field", file("librowan0"), "Version").stdout.strip()
    return run("dpkg-gensymbols", "-plibrowan0", f"-v{version}", f"-e{library}", f"-I{table}", "-O/dev/null", "-c4",
               cwd=os.path.join(TOP, "deploy"))  # fmt: skip


@tap.case
def the_library_has_the_symbols_of_its_table_and_one_that_vanishes_is_an_error():
    table = os.path.join(TOP, "deploy", "debian", "librowan0.symbols")
    done = symbols_differ(table)
    tap.equal(done.returncode, 0, done.stdout + done.stderr)
    changed = os.path.join(scratch, "symbols")
    with open(table, encoding="ascii") as source, open(changed, "w", encoding="ascii") as target:
        target.write(source.read() + " rowan_that_was_there@ROWAN_0 0.0.1\n")  # older than what lacks it
    done = symbols_differ(changed)
    tap.check(done.returncode != 0, "a vanished symbol is no error")
    tap.contains(done.stdout + done.stderr, "rowan_that_was_there")


# --- the interface of the part before ---


def abi_changes(*sides):
    """What of (library, folder of its header) the second has changed of the first; new functions do not count."""
    (old, old_headers), (new, new_headers) = sides
    done = run("abidiff", "--drop-private-types", "--no-added-syms", "--suppressions", os.path.join(HERE, "abi.suppress"),
               "--headers-dir1", old_headers, "--headers-dir2", new_headers, old, new)  # fmt: skip
    tap.check(done.returncode & 3 == 0, "abidiff failed", done.stdout + done.stderr)
    return done.stdout if done.returncode else ""


def library_of(source, name):
    """librowan of a tree, with what abidiff reads, and the folder of its header alone."""
    build, headers = os.path.join(scratch, name), os.path.join(scratch, name + "-headers")
    os.mkdir(headers)
    shutil.copy(os.path.join(source, "client", "rowan.h"), headers)
    for words in (("meson", "setup", build, source, "-Doptimization=0", "-Ddebug=true"),
                  ("ninja", "-C", build, "client/librowan.so.0.1.0")):  # fmt: skip
        done = run(*words)
        tap.equal(done.returncode, 0, *words, done.stdout[-3000:] + done.stderr[-3000:])
    return os.path.join(build, "client", "librowan.so.0.1.0"), headers


def planted(field):
    """A library whose struct has this field more, and the folder of its header."""
    place = tempfile.mkdtemp(dir=scratch)
    with open(os.path.join(place, "it.h"), "w", encoding="ascii") as header:
        header.write(f"struct it {{ int a; {field} }}; int of(struct it *it);\n")
    with open(os.path.join(place, "it.c"), "w", encoding="ascii") as source:
        source.write('#include "it.h"\nint of(struct it *it) { return it->a; }\n')
    done = run("cc", "-shared", "-fPIC", "-g", "-o", "it.so", "it.c", cwd=place)
    tap.equal(done.returncode, 0, done.stderr)
    return os.path.join(place, "it.so"), place


@tap.case
def a_program_of_the_part_before_finds_in_the_library_what_it_was_compiled_for():
    tap.check(abi_changes(planted(""), planted("long b;")), "abidiff is silent about a struct that has grown")
    with open(os.path.join(os.path.dirname(HERE), "before"), encoding="ascii") as file:
        commit = file.read().strip()
    if run("git", "-C", TOP, "cat-file", "-e", commit + "^{commit}").returncode != 0:
        tap.skip(f"the history of this tree does not hold {commit}, the last commit of the part before")
    source = os.path.join(scratch, "before")
    os.mkdir(source)
    done = run("sh", "-ec", 'git -C "$1" archive "$2" >"$3.tar"; tar -x -f "$3.tar" -C "$3"', "sh", TOP, commit, source)
    tap.equal(done.returncode, 0, done.stderr)
    tap.equal(abi_changes(library_of(source, "build-before"), library_of(TOP, "build-now")), "")


# --- in a root ---


@tap.case
def apt_installs_them_with_what_they_need():
    if unavailable:
        tap.skip(unavailable)
    for path in glob.glob(os.path.join(folder, "*.deb")):
        shutil.copy(path, root.path("/root"))
    files = ["/root/" + os.path.basename(file(name)) for name in sorted(PACKAGES)]
    root.install(*files, "bash-completion", "gcc", "libc6-dev", "man-db", "pkg-config")
    tap.equal(inside("stat", "--format", "%U:%G %a", "/etc/rowan", "/var/lib/rowan"), "root:rowan 750\nrowan:rowan 700\n")
    for name in ("rowan", "rowan-local", "rowan-ycsb", "rowan-doctor", "rowan-dlwa", "rowan-server", "rowan-cm"):
        tap.check(inside(name, "--version").startswith(("rowan", name)), name)


# --- man pages ---


def flat(text):
    return re.sub(r"\s+", " ", text)


def lacking(page, help_text, heading="OPTIONS"):
    """What a page, as it is read, lacks of --help, and what it has too much in the section of that heading."""
    _, about, options, _ = helps.parts(help_text)
    table = re.search(rf"^{heading}$(.*?)(^\S|\Z)", page, re.M | re.S)[1]
    words = flat(table)
    wrong = [line for line in about if heading == "OPTIONS" and flat(line.partition("   ")[0]).strip() not in flat(page)]
    for key, value, what, values in options:
        if flat(f" --{key} {value} {what}; {values}." if values else f" --{key} {value} {what}.").replace("  ", " ") not in words:
            wrong.append("--" + key)
    return wrong + sorted(set(re.findall(r"^ +--([a-z-]+)", table, re.M)) - {key for key, *_ in options})


def page(name, section):
    return inside("env", "MANWIDTH=1000", "man", "--no-hyphenation", "--pager=cat", str(section), name)


@tap.case
def each_program_has_a_page_that_says_what_its_help_says():
    for name, section in PROGRAMS.items():
        text, told = page(name, section), inside(name, "--help")
        tap.equal(lacking(text, told), [], name)
        key = re.search(r"^ +--([a-z-]+)", text.partition("\nOPTIONS\n")[2], re.M)[1]
        tap.check(lacking(text.replace("--" + key, "--other"), told), "a page without a key passes for right")
        tap.check(lacking(text, told.replace("  --" + key, "  --other")), "a page with a key too much passes for right")
        tap.check(lacking(text, told.replace("; default: ", "; default: 1")) or "default: " not in told, "a default may be wrong")
    told = inside("rowan-server", "--check", "FILE", "--help")
    tap.equal(lacking(page("rowan-server", 8), told, "OPTIONS OF rowan-server --check FILE"), [])


@tap.case
def the_page_of_rowan_local_has_the_help_of_each_command():
    text = flat(page("rowan-local", 1))
    for words in ((), *((command,) for command in LOCAL_COMMANDS)):
        tap.contains(text, flat(inside("env", "COLUMNS=80", "rowan-local", *words, "--help")))
    tap.equal(set(re.search(r"^ +((?:[a-z]+\|)+[a-z]+)$", inside("rowan-local", "--help"), re.M)[1].split("|")), set(LOCAL_COMMANDS))


@tap.case
def the_page_of_the_files_has_every_key_of_every_section():
    sections = re.split(r"^SECTION \[(.*)\]$", page("rowan.conf", 5), flags=re.M)
    told = dict(zip(sections[1::2], map(flat, sections[2::2])))
    tap.equal(set(told), set(PROGRAMS))
    for name, text in told.items():
        for key, what, values in helps.keys(inside(name, "--help")):
            tap.contains(text, f" {key} {what}; {values}.", name)


@tap.case
def the_page_of_the_library_has_each_function():
    text = page("rowan", 3)
    names = re.findall(r"^ROWAN_API.*?(rowan_[a-z_]+)\(", inside("cat", "/usr/include/rowan.h"), re.M)
    tap.check(len(names) > 10, names)
    for name in names:
        tap.contains(text, name + "(")


# --- completion ---


def completed(*words):
    script = r""". /usr/share/bash-completion/bash_completion
_completion_loader "$1"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
"$(complete -p "$1" | sed 's/.*-F \([^ ]*\) .*/\1/')" "$1" "${!#}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"""
    return set(inside("bash", "-c", script, "bash", *words).split())


@tap.case
def bash_completes_commands_options_and_choices():
    commands = set(re.findall(r"^  ([a-z]+) ", inside("rowan", "--help"), re.M))
    tap.equal(completed("rowan", ""), commands)
    tap.equal(completed("rowan", "s"), {"status", "shards", "split", "set"})
    tap.equal(completed("rowan-local", ""), set(LOCAL_COMMANDS))
    tap.check({"--servers", "--fabric"} <= completed("rowan-local", "start", "--"))
    tap.equal(completed("rowan-server", "--durability", ""), {"fence", "async", "none"})
    tap.equal(completed("rowan-doctor", "--fabric", "t"), {"tcp"})
    for name in PROGRAMS:
        keys = {"--" + key for key, *_ in helps.parts(inside(name, "--help"))[2]}
        tap.equal(completed(name, "--"), keys, name)


# --- a cluster by hand ---

servers = {}  # name: process


def configure(name, template, **values):
    """/etc/rowan/NAME.conf out of the installed one, with these keys set, which must be there, commented out or not."""
    text = inside("cat", "/usr/share/rowan/" + template)
    for key, value in values.items():
        key = key.replace("_", "-")
        text, count = re.subn(rf"^(# )?{key} =.*$", f"{key} = {value}", text, flags=re.M)
        tap.equal(count, 1, key)
    inside("tee", f"/etc/rowan/{name}.conf", text=text)


def start(program, name):
    """As user rowan, as the unit does."""
    script = 'echo $$ >/run/$2.pid; exec setpriv --reuid rowan --regid rowan --init-groups "$1" --config /etc/rowan/$2.conf'
    with open(os.path.join(scratch, name + ".log"), "wb") as log:
        servers[name] = subprocess.Popen(root.words("sh", "-c", script, "sh", program, name), stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log)  # fmt: skip


def logs():
    return "".join(f"{name}: " + open(os.path.join(scratch, name + ".log"), encoding="utf-8").read()[-1500:] for name in servers)


@tap.case
def three_servers_and_a_manager_start_by_hand_on_the_installed_settings():
    if unavailable:
        tap.skip(unavailable)
    inside("cp", "/usr/share/rowan/cm.conf", "/etc/rowan/cm.conf")
    start("rowan-cm", "cm")
    for number, name in enumerate(("one", "two", "three"), 1):
        configure(name, "server.conf", server=number, address=f"tcp:127.0.0.1:{7400 + 10 * number}",
                  pm=f"/var/lib/rowan/server-{number}.pm", pm_bytes="96M", landing_segments=4)  # fmt: skip
        start("rowan-server", name)
    tap.wait_until(lambda: root.run("rowan", "--cm", CM, "--wait", "--timeout-ms", "20000", "shards").code == 0, 120, logs)
    inside("rowan", "--cm", CM, "put", "by hand", "it is there")
    tap.equal(inside("rowan", "--cm", CM, "get", "by hand"), "it is there")


@tap.case
def a_program_compiled_with_pkg_config_puts_and_gets():
    inside("sh", "-ec", 'cd /root; cp /usr/share/doc/librowan-dev/examples/sync.c .; mkdir -p first; echo "$1" >first/cm; '
           "cc -Wall -Werror -o sync sync.c $(pkg-config --cflags --libs rowan)", "sh", CM)  # fmt: skip
    tap.contains(inside("/root/sync", "/root/first"), "hello, rowan")
    tap.contains(inside("ldd", "/root/sync"), "librowan.so.0 => /lib/x86_64-linux-gnu/librowan.so.0")


@tap.case
def a_signal_ends_each_of_them():
    if unavailable:
        tap.skip(unavailable)
    tap.equal(len(servers), 4)
    for name in ("one", "two", "three", "cm"):
        inside("sh", "-c", f"kill -INT $(cat /run/{name}.pid)")
    for name, process in servers.items():
        tap.equal(process.wait(timeout=60), 0, name, logs())


# --- and away ---


@tap.case
def a_purge_leaves_data_and_what_an_administrator_wrote_and_nothing_else():
    inside("apt-get", "purge", "--yes", *PACKAGES, seconds=300)
    found = inside("find", "/", "-xdev", "-name", "*rowan*", "-not", "-path", "/root/*", "-not", "-path", "/proc/*").split()
    tap.equal(set(found), {"/etc/rowan", "/var/lib/rowan"})
    tap.equal(set(inside("ls", "/etc/rowan").split()), {"cm.conf", "one.conf", "two.conf", "three.conf"})
    tap.check({f"server-{number}.pm" for number in (1, 2, 3)} <= set(inside("ls", "/var/lib/rowan").split()))
    # The user stays, as it does with Debian's packages: what it owns does.
    holding = inside("sh", "-c", "grep -rl rowan /etc | grep -v ^/etc/rowan/").split()
    tap.equal({path.rstrip("-") for path in holding}, {"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"})


sys.exit(tap.main(before, after))
