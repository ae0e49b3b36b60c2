#!/usr/bin/python3
"""Settings that change while servers and managers run: by `rowan set`, and by SIGHUP."""

import functools
import os
import signal
import subprocess
import sys

from harness import Cluster, environment, expect, program, run, scratch, tap

SMALL = ("--pm-bytes", "96M", "--landing-segments", "4")
SERVER_KEYS = {
    "cm", "clean-below", "fill-rate", "trace-one-in", "checkpoints", "spin-us", "stop-timeout", "log-bytes", "log-level"
}  # fmt: skip
MANAGER_KEYS = {"max-shards", "balance-above", "start-wait", "goodbye-wait", "spin-us", "log-bytes", "log-level"}
SECONDS = 30


def in_force(rowan, *whom):
    """{who: its settings}, as `rowan set` tells them."""
    done = rowan("--json", "set", *whom)
    tap.equal(done.code, 0, done.both)
    return {one.get("server") or one["manager"]: one["settings"] for one in done.json()["settings"]}


# --- rowan set, on a cluster with two managers ---


def before():
    global cluster
    cluster = Cluster("set", "--managers", "2", "--lease-ms", "2000", *SMALL)


def of_servers():
    return {who: told for who, told in in_force(cluster.rowan).items() if isinstance(who, int)}


def of_managers():
    return in_force(cluster.rowan, "manager")


@tap.case
def what_is_in_force_is_told_of_each_server_and_manager():
    tap.equal(sorted(of_servers()), [1, 2, 3])
    tap.equal({frozenset(told) for told in of_servers().values()}, {frozenset(SERVER_KEYS)})
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        tap.equal(sorted(of_managers()), sorted(file.read().strip().split(",")))
    tap.equal({frozenset(told) for told in of_managers().values()}, {frozenset(MANAGER_KEYS)})
    tap.equal({told["clean-below"] for told in of_servers().values()}, {"75"})
    out = cluster.ok("set").out
    for piece in ("server 2\n", "  clean-below = 75\n", "  max-shards = 1000\n"):
        tap.contains(out, piece)


@tap.case
def help_says_which_keys_change():
    for name, live in (("rowan-server", SERVER_KEYS), ("rowan-cm", MANAGER_KEYS)):
        lines = run([program(name), "--help"]).out.splitlines()
        said = {lines[at - 2].split()[0][2:] for at, line in enumerate(lines) if "changes while it runs" in line}
        tap.equal(said, live, name)


@tap.case
def a_setting_of_one_server_changes_there_alone():
    said = cluster.ok("set", "2", "clean-below=60").out
    for piece in ("server 2: clean-below = 60", "until the next start or SIGHUP", "give it at the start to keep it"):
        tap.contains(said, piece)
    tap.equal([told["clean-below"] for _, told in sorted(of_servers().items())], ["75", "60", "75"])
    tap.contains(cluster.log("s2"), "setting_changed node=server-2 key=clean-below from=75 to=60")
    tap.check("setting_changed" not in cluster.log("s1"), cluster.log("s1")[-500:])


@tap.case
def a_setting_of_all_servers_changes_at_each():
    tap.equal(cluster.ok("set", "checkpoints=no").out.count("checkpoints = no"), 3)
    tap.equal({told["checkpoints"] for told in of_servers().values()}, {"no"})


@tap.case
def the_list_of_managers_of_a_server_changes_and_a_wrong_one_is_refused():
    before = of_servers()[1]["cm"]
    longer = f"{before},{before.split(',')[0]}9"
    cluster.ok("set", "1", f"cm={longer}")
    expect(cluster.rowan("set", "1", "cm=nowhere"), 1, "cannot use the CM's address nowhere")
    tap.equal(of_servers()[1]["cm"], longer)


@tap.case
def another_log_level_holds_at_once():
    cluster.ok("set", "3", "log-level=error")
    cluster.ok("set", "3", "clean-below=61")
    tap.check("to=61" not in cluster.log("s3"), cluster.log("s3")[-500:])
    cluster.ok("set", "3", "log-level=info")
    cluster.ok("set", "3", "clean-below=62")
    tap.contains(cluster.log("s3"), "key=clean-below from=61 to=62")


@tap.case
def how_many_shards_there_may_be_changes_at_every_manager():
    tap.equal(cluster.ok("set", "manager", "max-shards=24").out.count("max-shards = 24"), 2)
    expect(cluster.rowan("split", "0"), 1, "24 shards already")
    cluster.ok("set", "manager", "max-shards=25")
    cluster.ok("--wait", "split", "0")
    expect(cluster.rowan("split", "1"), 1, "25 shards already")


@tap.case
def a_start_waits_as_long_as_the_setting_of_now_says():
    cluster.ok("set", "manager", "start-wait=1")
    cluster.kill(["s1", "s2", "s3"])
    for name in "s1", "s2":
        cluster.launch(name)
    tap.wait_until(lambda: cluster.rowan("status").code == 0, 25, cluster.last_logs)  # as it was made it waits for 30 s
    cluster.launch("s3")
    tap.wait_until(lambda: len(cluster.status()["servers"]) == 3, SECONDS, "server 3 is back")


@tap.case
def a_server_that_does_not_answer_is_named_and_the_others_change():
    cluster.kill(["s3"])
    done = cluster.rowan("set", "clean-below=50")
    expect(done, 1, "server 3: ")
    tap.equal(done.out.count("clean-below = 50"), 2)
    cluster.launch("s3")
    tap.wait_until(lambda: cluster.rowan("--json", "set", "3").code == 0, SECONDS, "server 3 is back")
    tap.equal(of_servers()[3]["clean-below"], "75")  # as at its start
    cluster.stop()


# --- SIGHUP, to a server and a manager that share a file ---

FILE = """[rowan-cm]
address = shm:{place}/cm
coord-dir = {place}
cluster-servers = 1
replicas = 1
shards = 4
lease-ms = 0
{cm}
[rowan-server]
server = 1
cm = shm:{place}/cm
address = shm:{place}/s1
pm = {place}/s1.pm
pm-bytes = 96M
landing-segments = 4
durability = none
{server}
"""


class Pair:
    def __init__(self, name, err=None):
        self.place = os.path.join(scratch(), name)
        self.path = os.path.join(self.place, "pair.conf")
        os.mkdir(self.place)
        self.write("max-shards = 100", "clean-below = 70")
        self.processes = {}
        for which in ("rowan-cm", "rowan-server"):
            with open(self.log_path(which), "wb") as log:
                self.processes[which] = subprocess.Popen(
                    [program(which), "--config", self.path], stdin=subprocess.DEVNULL, stdout=log, stderr=err or log,
                    env=environment(),
                )  # fmt: skip
        tap.wait_until(lambda: self.rowan("put", "key", "value").code == 0, SECONDS, "the pair serves")

    def write(self, cm, server):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(FILE.format(place=self.place, cm=cm, server=server))
        os.rename(self.path + ".new", self.path)

    def log_path(self, which):
        return os.path.join(self.place, which + ".log")

    def log(self, which):
        with open(self.log_path(which), encoding="utf-8") as file:
            return file.read()

    def rowan(self, *words):
        return run([program("rowan"), "--cm", f"shm:{self.place}/cm", *words])

    def in_force(self):
        told = in_force(self.rowan)
        return told[1], told[f"shm:{self.place}/cm"]

    def hang_up(self):
        """Both, until each has said what became of it. Returns what they said."""
        begun = {which: len(self.log(which)) for which in self.processes}
        for process in self.processes.values():
            process.send_signal(signal.SIGHUP)
        ends = (" settings_read ", " settings_refused ")
        said = {}
        for which in self.processes:
            tap.wait_until(lambda w=which: any(end in self.log(w)[begun[w]:] for end in ends), SECONDS, which)
            said[which] = self.log(which)[begun[which]:]
        return said["rowan-server"], said["rowan-cm"]

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for which, process in self.processes.items():
            tap.equal(process.wait(SECONDS), 0, which, self.log(which)[-1000:])


def on_a_pair(function, err=None):
    """A case with a pair of its own, which ends with it."""

    def with_pair():
        pair = Pair(function.__name__[:20], err)
        try:
            function(pair)
            pair.stop()
        finally:
            for process in pair.processes.values():
                process.kill()
                process.wait()

    with_pair.__name__ = function.__name__
    return tap.case(with_pair)


@on_a_pair
def what_changed_in_the_file_is_in_force_and_what_cannot_change_is_told(pair):
    pair.write("max-shards = 50\nlog-level = debug",
               "clean-below = 55\nstop-timeout = 3\nworkers = 2\nspin-us = 7")  # fmt: skip
    server, cm = pair.hang_up()
    told = pair.in_force()
    tap.equal([told[0][key] for key in ("clean-below", "stop-timeout", "spin-us")], ["55", "3", "7"])
    tap.equal([told[1][key] for key in ("max-shards", "log-level")], ["50", "debug"])
    tap.contains(server, 'key=workers detail="workers changes only at a restart"')
    tap.contains(server, f"file={pair.path} changed=3 kept=1")
    tap.contains(cm, f"file={pair.path} changed=2 kept=0")
    tap.equal(pair.rowan("--json", "status").json()["servers"][0]["workers"], 1)
    tap.equal(pair.rowan("get", "key").out.strip(), "value")


@on_a_pair
def a_file_with_a_mistake_is_refused_whole_and_its_line_is_named(pair):
    before = pair.in_force()
    pair.write("max-shards = 50\nlog-level = loud", "clean-below = 55\nspeed = 9")
    server, cm = pair.hang_up()
    tap.contains(server, f"{pair.path}: line ")
    tap.contains(server, "unknown key speed; rowan-server --help lists the keys")
    tap.contains(cm, "log-level must be one of error|warn|info|debug")
    tap.check("setting_changed" not in server + cm, server + cm)
    tap.equal(pair.in_force(), before)
    os.unlink(pair.path)
    server, cm = pair.hang_up()
    for said in (server, cm):
        tap.contains(said, "cannot open the configuration file")
    tap.equal(pair.in_force(), before)


@on_a_pair
def what_was_set_holds_until_the_file_is_read_again(pair):
    said = pair.rowan("set", "1", "clean-below=40").out
    tap.contains(said, f"write it to {pair.path} to keep it")
    tap.equal(pair.in_force()[0]["clean-below"], "40")
    pair.hang_up()
    tap.equal(pair.in_force()[0]["clean-below"], "70")


@on_a_pair
def a_log_that_was_renamed_is_left_for_a_new_one(pair):
    for which in pair.processes:
        os.rename(pair.log_path(which), pair.log_path(which) + ".away")
        with open(pair.log_path(which), "w", encoding="utf-8"):
            pass  # logrotate's "create"
    for said in pair.hang_up():
        tap.contains(said, "settings_read")


def no_signal_ends(pair):
    for which in pair.processes.values():
        if which.stderr:
            which.stderr.close()  # nobody reads the log any more
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGHUP):
            which.send_signal(number)
    tap.equal(pair.rowan("set", "1", "clean-below=40").code, 0)  # and a line of the log
    tap.equal(pair.rowan("get", "key").out.strip(), "value")


@on_a_pair
def signals_that_ask_for_nothing_end_nothing(pair):
    no_signal_ends(pair)


@functools.partial(on_a_pair, err=subprocess.PIPE)
def who_reads_the_log_may_die(pair):
    no_signal_ends(pair)


sys.exit(tap.main(before))
