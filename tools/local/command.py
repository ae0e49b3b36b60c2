"""The command line of rowan-local."""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys

from . import cluster, members, memory, process, settings
from .failure import Failure, Usage

DURABILITY_MEANING = {
    "fence": "an acknowledged write is on the medium",
    "async": "a power loss may cost the last moments",
    "none": "the data survives a killed process, not a crash of this machine",
}

EPILOG = """\
Files: DIR/cm (the addresses of the CMs; `rowan` run inside DIR or with --dir DIR finds it), DIR/log,
DIR/s1.pm and so on (the data), DIR/run (only while it runs), DIR/cluster-key (if you put one there: the secret by
which servers and managers know each other, rowan-cm --help), DIR/rowan.conf (likewise: section [rowan] with user
and secret-file, where the cluster requires logins; rowan --help). In a directory that holds a stopped or
killed cluster, start goes on from its data: --servers, --replicas, --shards, --coord,
--zookeepers, --lease-ms, --pm and --pm-bytes are as they were then, and the others too if they are not given.
Exit codes: 0 done, 1 failed, 2 usage."""


class Parser(argparse.ArgumentParser):
    """argparse's mistakes as one sentence."""

    def error(self, message):
        raise Usage(message + "; see rowan-local --help")


def byte_count(text):
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes such as 512M or 4G")
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match.group(2)]


def number(least, most):
    def parse(text):
        if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most}")
        return int(text)

    return parse


def way_to_receive(text):
    if text == settings.NO_LONGER["verbs_receive"]:
        raise argparse.ArgumentTypeError(settings.RECEIVE_NO_LONGER)
    return text


def pm_place(text):
    path, colon, offset = text.rpartition(":")
    if not colon:
        return text, 0
    return path, byte_count(offset)


# Of start: (name, what stands for the value, how it is read, help). Where the values are words, they are settings.WORDS.
START_OPTIONS = (
    ("servers", "N", number(1, cluster.LARGEST_SERVER), "servers (default 3)"),
    ("replicas", "N", number(1, cluster.MOST_REPLICAS), "copies of each shard, primary included (default 3)"),
    ("shards", "N", number(0, cluster.MOST_SHARDS), "shards; 0: as many as fit the servers (default)"),
    ("fabric", None, str, "network: shm; tcp on free ports of 127.0.0.1; or verbs, which is RDMA and connects over such ports "
     "(default shm)"),
    ("coord", None, str, "where the CM keeps the configuration: in files, or in a ZooKeeper that is started with the cluster "
     "(default file)"),
    ("zookeepers", "N", number(1, 7), "with --coord zookeeper: its servers (default 1)"),
    ("managers", "N", number(1, cluster.MOST_MANAGERS), "CMs; one leads, and when it dies another one does (default 1)"),
    ("lease-ms", "N", number(0, 60000), "milliseconds of the servers' leases, 2 or more, by which one that fails is replaced "
     "(default 500); 0: none, and it is waited for"),
    ("pm-bytes", "N", byte_count, "persistent memory of each server in bytes, K, M, G or T; reserved at start "
     f"(default {memory.bytes_text(settings.DEFAULTS['pm_bytes'])}: about 13 million ZippyDB writes)"),
    ("pm", "PATH[:OFFSET]", pm_place, "directory for the PM files, or a device or file, of which the servers take one "
     "part after the other from OFFSET (default: DIR)"),
    ("durability", None, str, "what an acknowledged write survives: "
     + "; ".join(f"{word}: {text}" for word, text in DURABILITY_MEANING.items()) + " (default none)"),
    ("verbs-device", "NAME", str, "over verbs: the RDMA device (default: found by itself)"),
    ("verbs-receive", None, way_to_receive, "over verbs: how entries are received (default: the best that the device can)"),
    ("checkpoints", None, str, "servers write their index to the PM now and then, so that they start sooner (default yes)"),
    ("metrics", None, str, "CMs and servers answer Prometheus, each at a free port of 127.0.0.1; DIR/prometheus.json names them, "
     "for its file_sd_configs (default no)"),
    ("wear-model", None, str, "servers estimate what their writes would cost an Optane DIMM (rowan-dlwa shows it; default off)"),
    ("workers", "N", number(1, 64), "roles of each server that serve operations (default 1)"),
    ("digests", "N", number(1, 64), "roles of each server that index what landed (default 1)"),
    ("reactors", "N", number(1, 64), "threads of each server (default 1)"),
    ("landing-segments", "N", number(1, 1024), "4 MiB segments posted for landing entries (default 16)"),
    ("clean-below", "N", number(1, 95), "per cent of live bytes below which segments are cleaned (default 75)"),
)  # fmt: skip


def add_start_options(parser):
    for name, value, read, text in START_OPTIONS:
        words = [word for word in settings.WORDS.get(name.replace("-", "_"), ()) if word]
        parser.add_argument("--" + name, metavar=value, type=read, choices=words or None, help=text)
    parser.add_argument(
        "--recover", action="store_true",
        help="once, where the CM has lost the configuration: it takes the newest that the servers stored "
        "(see rowan-cm --help)",
    )  # fmt: skip
    parser.set_defaults(pm=(None, None), port=None, removed=None)


def make_parser():
    parser = Parser(
        prog="rowan-local",
        description="Runs a whole Rowan-KV cluster on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="store_true", help="print the release, and the formats that it reads"
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="|".join(ACTIONS), parser_class=Parser
    )
    for name, (_, text) in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text + ".", allow_abbrev=False)
        if name in ("kill", "restart", "remove"):
            action.add_argument("id", metavar="ID", help="number of the server")
        action.add_argument(
            "--dir", dest="directory", default="rowan-data", metavar="DIR",
            help="directory of the cluster (default ./rowan-data)",
        )  # fmt: skip
        action.add_argument(
            "--json", action="store_true", help="print one JSON object and nothing else"
        )
        if name == "start":
            add_start_options(action)
    return parser


def parse(arguments):
    options = make_parser().parse_args(arguments)
    options.directory = os.path.abspath(options.directory)
    if options.action == "start":
        options.pm, options.pm_offset = options.pm
        if options.pm is not None:
            options.pm = os.path.abspath(options.pm) if options.pm else ""
        zookeepers = options.zookeepers
        settings.complete(options)
        if zookeepers and options.coord != "zookeeper":
            raise Usage("--zookeepers is for --coord zookeeper")
        if options.replicas > options.servers:
            raise Usage(
                f"--replicas {options.replicas} needs as many servers, but --servers is "
                f"{options.servers}"
            )
    return options


def say(options, *lines):
    if not options.json:
        print(*lines, sep="\n", flush=True)


def report(options, found, *lines):
    """What an action did: an object with --json, else lines."""
    say(options, *lines)
    if options.json:
        print(json.dumps(found, indent=1), flush=True)


def shown_directory(directory):
    relative = os.path.relpath(directory)
    return directory if relative.startswith("..") else relative


def process_rows(processes):
    return [
        {
            "id": one.name,
            "pid": one.pid,
            "state": one.state(),
            "address": one.address,
            "pm": one.pm_path,
            "pm_bytes": one.pm_bytes,
        }
        for one in processes
    ]


def announce_start(options):
    if options.saved:
        say(options, f"going on from the data in {shown_directory(options.directory)}")
    say(
        options,
        f"starting {len(settings.numbers(options))} servers, {options.replicas} replicas, fabric "
        f"{options.fabric}, coordination {options.coord}, "
        f"{memory.bytes_text(options.pm_bytes)} of PM each",
        f"durability {options.durability}: {DURABILITY_MEANING[options.durability]}",
    )


def do_start(options, programs):
    processes = cluster.start(options, programs, lambda: announce_start(options))
    shown = shown_directory(options.directory)
    word = shlex.quote(shown)
    found = {
        "directory": options.directory,
        "cm": cluster.list_of_managers(options),
        "fabric": options.fabric,
        "from_data": options.saved is not None,
        "durability": options.durability,
        "processes": process_rows(processes),
    }
    report(
        options, found,
        f"the cluster in {shown} serves",
        f"  rowan --dir {word} put KEY VALUE     rowan-local status --dir {word}",
    )  # fmt: skip


def do_stop(options, programs):
    count, killed = cluster.stop(options.directory)
    for name in killed:
        print(f"rowan-local: {name} did not end on SIGINT and was killed", file=sys.stderr)
    found = {"directory": options.directory, "stopped": count, "killed": killed}
    report(
        options, found,
        f"stopped {count} processes; the data stays in {shown_directory(options.directory)}",
    )  # fmt: skip


def do_kill(options, programs):
    one = cluster.find_process(options.directory, options.id)
    handle = process.Handle(one)
    if handle.fd < 0:
        raise Failure(f"{one.name} is not running")
    handle.send(signal.SIGKILL)
    if not handle.ended(10):
        raise Failure(f"{one.name} (process {one.pid}) does not end")
    report(options, {"killed": one.name, "pid": one.pid}, f"killed {one.name} (process {one.pid})")


def do_restart(options, programs):
    one = members.restart(options.directory, options.id, programs)
    report(
        options, {"started": one.name, "pid": one.pid},
        f"started {one.name} (process {one.pid}); it fills, which `rowan shards` shows",
    )  # fmt: skip


def do_add(options, programs):
    one = members.add(options.directory, programs)
    report(
        options, {"started": one.name, "pid": one.pid},
        f"started {one.name} (process {one.pid}), which is a member and gets replicas of shards that lack some",
    )  # fmt: skip


def do_remove(options, programs):
    one = members.remove(options.directory, options.id, programs)
    report(
        options, {"removed": one.name, "pm": one.pm_path},
        f"removed {one.name}; what it held stays in {one.pm_path}, and nobody needs it",
    )  # fmt: skip


def do_status(options, programs):
    processes = cluster.require_record(options.directory)
    rows = process_rows(processes)
    command = [*programs.rowan(options.directory), "--dir", options.directory]
    if options.json:
        done = subprocess.run([*command, "--json", "status"], stdout=subprocess.PIPE, text=True)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = None
        report(options, {"directory": options.directory, "processes": rows, "cluster": found})
    else:
        print(f"{'id':<5}{'pid':>9}  {'state':<9}{'pm bytes':>12}  address")
        for row in rows:
            shown = row["pm_bytes"] or "-"
            print(f"{row['id']:<5}{row['pid']:>9}  {row['state']:<9}{shown:>12}  {row['address']}")
        print(flush=True)
        done = subprocess.run([*command, "status"])
    if done.returncode != 0 or any(row["state"] != "running" for row in rows):
        raise Failure("not every process is running and answering")


def show_version(programs):
    """This program has no formats of its own: it tells those of the programs that it starts."""
    done = subprocess.run([programs.find("rowan"), "--version"], stdout=subprocess.PIPE, text=True)
    print(done.stdout.replace("rowan ", "rowan-local ", 1), end="")
    return done.returncode


ACTIONS = {
    "start": (do_start, "start a new cluster, or a stopped one from its data"),
    "stop": (do_stop, "stop it; the data and the logs stay"),
    "status": (do_status, "the processes, and what rowan status says"),
    "kill": (do_kill, "end one server at once, as a crash would"),
    "restart": (do_restart, "let a killed server return"),
    "add": (do_add, "add a server to it while it runs"),
    "remove": (do_remove, "take a server out of it that was drained (rowan drain), or was killed"),
}


def main(arguments, here):
    process.catch_interrupts()
    try:
        if arguments[:1] == ["--version"]:
            return show_version(cluster.Programs(here))
        options = parse(arguments)
        do, _ = ACTIONS[options.action]
        do(options, cluster.Programs(here))
        return 0
    except (Usage, Failure, process.Interrupted) as error:
        print(f"rowan-local: {error}", file=sys.stderr)
        return 2 if isinstance(error, Usage) else 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"rowan-local: {where}{error.strerror}", file=sys.stderr)
        return 1
