"""The command line of rowan-local."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys

from . import cluster, members, memory, process, settings
from .failure import Failure, Usage

EPILOG = """\
Files: DIR/cm (the addresses of the CMs; `rowan` run inside DIR or with --dir DIR finds it), DIR/log,
DIR/s1.pm and so on (the data), DIR/run (only while it runs), DIR/cluster-key (if you put one there: the secret by
which servers and managers know each other, rowan-cm --help), DIR/rowan.conf (likewise: section [rowan] with user
and secret-file, where the cluster requires logins; rowan --help). In a directory that holds a stopped or
killed cluster, start goes on from its data: --servers, --replicas, --shards, --coord,
--zookeepers, --lease-ms, --pm and --pm-bytes are as they were then, and the others too if they are not given. If
shards wait for data that is gone, it leaves the cluster running, says what to do, and ends with 1.
Exit codes: 0 done, 1 failed, 2 usage."""


class Parser(argparse.ArgumentParser):
    """argparse's mistakes as one sentence."""

    def error(self, message):
        raise Usage(message + "; see rowan-local --help")


def add_start_options(parser):
    for name, _, value, read, text in settings.OPTIONS:
        words, value = (value, None) if isinstance(value, tuple) else (None, value)
        parser.add_argument("--" + name, metavar=value, type=read, choices=words, help=text)
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
    if lines and not options.json:
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
        f"durability {options.durability}: {settings.DURABILITY_MEANING[options.durability]}",
    )


def do_start(options, programs):
    processes, waits = cluster.start(options, programs, lambda: announce_start(options))
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
    if waits:
        report(options, found)
        raise Failure(waits)
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
    one = cluster.find_server(options.directory, options.id)
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
