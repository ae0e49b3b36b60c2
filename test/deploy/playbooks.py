#!/usr/bin/python3
"""deploy/ansible against machines with systemd that have nothing of Rowan-KV: three become a cluster (each with a manager, a member of a
ZooKeeper ensemble and a server), are upgraded, joined by a fourth and left by it, all but the first under load. No client sees an error,
nothing is lost, and what cannot be done safely is refused with a sentence.

ROWAN_PACKAGES: a folder with the packages of this tree, instead of building them."""

import functools
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "cluster")]

import debs  # noqa: E402
import hosts  # noqa: E402
import machine  # noqa: E402
from harness import environment, program, run  # noqa: E402
from hosts import Unavailable, tap  # noqa: E402
from work import History  # noqa: E402

PLAYBOOKS = os.path.join(hosts.TOP, "deploy", "ansible")
NAMES = ("kv1", "kv2", "kv3", "kv4")  # the first three as in inventory/example.yml
RECORDS = "5000"
ZOOKEEPER = ("default-jre-headless", "libzookeeper-java")  # what the role installs
NEXT = "+next"  # of the version that is upgraded to
SETTINGS = {
    "ansible_user": "root",
    "rowan_lease_ms": 2000,  # this machine is shared: none is to be found silent that is only slow
    "rowan_pm_bytes": "128M",  # in memory
    "rowan_server_settings": {"landing-segments": 4, "spin-us": 0},
    "rowan_wait_seconds": 120,
    "rowan_zookeeper_java": "-Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Load(threading.Thread):
    """Workload a without a pause, as runs of a few seconds each: an error in one of them ends it."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.command = [program("rowan-ycsb"), "--dir", directory, "--records", RECORDS, "--acked", directory + ".acked", "--json"]
        self.over = threading.Event()
        self.wrong = None
        self.operations, self.longest_us = 0, 0
        self.once("--workload", "load")
        self.start()

    def once(self, *words):
        done = run([*self.command, *words], seconds=120)
        found = done.json() if done.out.startswith("{") else {}
        if done.code != 0 or found.get("errors") != 0:
            self.wrong = done.both[-3000:]
        return found

    def run(self):
        try:
            while not self.over.is_set() and not self.wrong:
                found = self.once("--workload", "a", "--seconds", "3", "--rate", "300", "--seed", str(time.monotonic_ns()))
                self.operations += found.get("operations", 0)
                self.longest_us = max([self.longest_us] + [found[kind]["max_us"] for kind in ("get", "put") if kind in found])
        except Exception as error:  # the thread has nobody else to tell it to
            self.wrong = repr(error)

    def require_good(self):
        tap.equal(self.wrong, None, "a client saw an error:")

    def end(self):
        self.over.set()
        self.join(150)
        self.require_good()


class Deployment:
    """Machines and the cluster on them, as an operator has them: by ansible-playbook, rowan and ssh."""

    def __init__(self, root, packages):
        self.hosts = hosts.Hosts(root)
        self.folder = self.hosts.folder
        self.directory = os.path.join(self.folder, "cluster")
        self.packages = packages
        self.load = self.history = None
        began = time.monotonic()
        for number, name in enumerate(NAMES, 1):
            self.hosts.boot(name, number)
        for one in self.hosts.all.values():
            one.await_boot()
        print(f"# {len(NAMES)} machines: up after {time.monotonic() - began:.1f} s", flush=True)
        os.mkdir(self.directory)
        with open(os.path.join(self.directory, "cm"), "w", encoding="utf-8") as file:
            file.write(",".join(f"tcp:{self.hosts.all[name].address}:7400" for name in NAMES[:3]) + "\n")
        with open(os.path.join(self.folder, "cluster-key"), "w", encoding="ascii") as file:
            file.write("the key of this cluster\n")
        settings = {**SETTINGS, "rowan_cluster_key_file": file.name}
        self.inventory("hosts", {"hosts": {one.name: {"ansible_host": one.address} for one in self.hosts.all.values()
                                           if one.name != "kv4"}, "vars": settings})  # fmt: skip
        self.inventories = [os.path.join(PLAYBOOKS, "inventory", "example.yml"), "hosts.json"]

    def inventory(self, name, group):
        with open(os.path.join(self.folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump({"all": group}, file)

    def with_a_fourth(self):
        """Into the inventory, as an operator writes it."""
        address = self.hosts.all["kv4"].address
        self.inventory("fourth", {"children": {"rowan_servers": {"hosts": {"kv4": {"ansible_host": address, "rowan_numbers": [4]}}}}})
        self.inventories.append("fourth.json")

    def without_the_first(self):
        self.inventory("drained", {"hosts": {"kv1": {"rowan_numbers": []}}})
        self.inventories.append("drained.json")

    def ansible(self, book, *words, **extra):
        """Its Result, with `changed` and `failed` by host."""
        extra.setdefault("rowan_packages_dir", self.packages)
        command = ["ansible-playbook", *words, "--extra-vars", json.dumps(extra), os.path.join(PLAYBOOKS, book)]
        command[1:1] = [f"--inventory={path}" for path in self.inventories]
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900,
            env={**environment(), "HOME": self.folder, "ANSIBLE_CONFIG": os.path.join(PLAYBOOKS, "ansible.cfg"),
                 "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_ARGS": " ".join(self.hosts.ssh())},
        )  # fmt: skip
        recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", done.stdout, re.M)
        done.changed = {name: int(changed) for name, changed, _, _ in recap}
        done.failed = {name: int(away) + int(failed) for name, _, away, failed in recap}
        print(f"# {book} {' '.join(words)}: exit code {done.returncode} after {time.monotonic() - began:.1f} s, changed {done.changed}",
              flush=True)  # fmt: skip
        return done

    def does(self, book, *words, **more):
        done = self.ansible(book, *words, **more)
        tap.equal(done.returncode, 0, done.stdout[-6000:], done.stderr[-2000:], self.logs())
        tap.check(done.failed and not any(done.failed.values()), done.stdout[-3000:])
        return done

    def refuses(self, sentence, book, *words, **more):
        """And changes nothing."""
        before = self.term()
        done = self.ansible(book, *words, **more)
        tap.check(done.returncode != 0, book, words, more, "is done, and should be refused")
        tap.contains(" ".join(done.stdout.split()), sentence)
        tap.check(not any(done.changed.values()), done.stdout[-3000:])
        tap.equal(self.term(), before, book, more)

    # --- the cluster ---

    def rowan(self, *words, **more):
        return run([program("rowan"), "--dir", self.directory, *words], **more)

    def term(self):
        return self.rowan("--json", "status").json()["term"]

    def healthy(self, servers):
        done = self.rowan("--json", "status")
        tap.equal(done.code, 0, done.both[-2000:])
        status = done.json()
        tap.equal(sorted(one["server"] for one in status["servers"] if one["reachable"]), servers)
        tap.equal([status["under_replicated"], status["filling"], status["recovering"]], [0, 0, 0])
        return status

    def on(self, name, *words):
        done = run(self.hosts.all[name].words(*words))
        tap.equal(done.code, 0, name, words, done.both[-2000:])
        return done.out

    def logs(self):
        """The end of every unit's journal."""
        said = []
        for one in self.hosts.all.values():
            done = run(one.words("journalctl", "--no-pager", "--lines", "25", "--unit", "'rowan-*'", "--unit", "zookeeper"))
            said.append(f"--- {one.name}:\n{done.both[-4000:]}")
        return "\n".join(said)

    # --- clients ---

    def begin_load(self):
        self.load = Load(self.directory)
        self.history = History(self, "history", pause_ms=100)

    def goes_on(self):
        before = self.load.operations
        self.history.wait_for_progress()
        tap.wait_until(lambda: self.load.wrong or self.load.operations > before, 60, "the load goes on")
        self.load.require_good()

    def judge(self):
        """No client saw an error, every acknowledged write is there, each key was a register, the replicas are equal."""
        self.load.end()
        self.history.finish()
        print(f"# {self.load.operations} operations, no errors, the longest {self.load.longest_us / 1000:.0f} ms", flush=True)
        self.nothing_is_lost()

    def nothing_is_lost(self):
        done = run([program("rowan-ycsb"), "--dir", self.directory, "check", self.directory + ".acked"], seconds=120)
        tap.equal(done.code, 0, done.both[-3000:], self.logs())
        done = self.rowan("verify", seconds=120)
        tap.equal(done.code, 0, done.both[-3000:], self.logs())

    def end(self):
        if self.history:
            self.history.kill()
        if self.load:
            self.load.over.set()
            self.load.join(150)
        self.hosts.end()


unavailable, here, broken = hosts.why_not(), None, []


def before():
    global here
    if not unavailable:
        here = Deployment(os.environ["ROWAN_TEST_ROOT"], os.environ["ROWAN_PACKAGES"])


def after():
    if here:
        here.end()


def step(function):
    """A case that goes on from where the one before has ended."""

    @functools.wraps(function)
    def case():
        if unavailable:
            tap.skip(unavailable)
        tap.check(not broken, "a step before has failed")
        broken.append(function)
        function()
        broken.clear()

    return tap.case(case)


@step
def a_dry_run_on_bare_hosts_changes_nothing():
    done = here.ansible("site.yml", "--check")
    tap.equal(done.returncode, 0, done.stdout[-6000:], done.stderr[-2000:])
    for name in NAMES[:3]:
        tap.equal(here.on(name, "ls -d /etc/rowan /var/cache/rowan /etc/zookeeper/conf/myid 2>/dev/null || true"), "")


@step
def what_cannot_be_deployed_is_refused_on_bare_hosts():
    for sentence, extra in (
        ("3 servers cannot hold 4 replicas", {"rowan_replicas": 4}),
        ("holds nothing, and has to hold", {"rowan_packages_dir": here.directory}),
    ):
        done = here.ansible("site.yml", **extra)
        tap.check(done.returncode != 0, extra)
        tap.contains(" ".join(done.stdout.split()), sentence)
        tap.check(not any(done.changed.values()), done.stdout[-3000:])


@step
def bare_hosts_become_a_cluster_that_serves():
    here.does("site.yml")
    here.healthy([1, 2, 3])
    managers = ",".join(f"tcp:{here.hosts.all[name].address}:7400" for name in NAMES[:3])
    here.on("kv1", f"rowan --cm {managers} put greeting hello")
    tap.equal(here.on("kv3", f"rowan --cm {managers} get greeting").strip(), "hello")


@step
def a_second_run_changes_nothing():
    done = here.does("site.yml")
    tap.equal(done.changed, dict.fromkeys(NAMES[:3], 0), done.stdout[-6000:])


@step
def what_is_not_safe_is_refused_and_changes_nothing():
    here.refuses("Name a server of the inventory that is to leave", "drain.yml", rowan_number=9)
    here.refuses("Name a server of the inventory that is to join", "add.yml")
    here.refuses("Without server 2 there are 2 servers for the 3 replicas", "drain.yml", rowan_number=2)
    here.on("kv3", "systemctl stop rowan-server@server-3")
    here.refuses("have not all their replicas", "upgrade.yml")
    here.on("kv3", "systemctl start rowan-server@server-3")
    tap.equal(here.rowan("--wait", "shards").code, 0)


@step
def an_upgrade_under_load_is_seen_by_no_client():
    newer = os.path.join(here.folder, "newer")
    version = debs.with_suffix(here.packages, NEXT, newer)
    here.begin_load()
    here.does("upgrade.yml", rowan_packages_dir=newer)
    here.goes_on()
    here.healthy([1, 2, 3])
    for number, name in enumerate(NAMES[:3], 1):
        tap.equal(here.on(name, "dpkg-query --show --showformat '${Version} ' rowan-server rowan-cm rowan-tools").split(), [version] * 3)
        for unit in ("rowan-cm@cm", f"rowan-server@server-{number}"):
            path = here.on(name, f"readlink /proc/$(systemctl show --value --property MainPID {unit})/exe").strip()
            tap.check(path.startswith("/usr/bin/rowan-") and "deleted" not in path, name, unit, "runs", path)
    here.packages = newer
    done = here.does("upgrade.yml")
    tap.equal(done.changed, dict.fromkeys(NAMES[:3], 0), done.stdout[-6000:])


@step
def a_server_joins_under_load():
    here.with_a_fourth()
    here.does("add.yml", rowan_number=4)
    here.goes_on()
    here.healthy([1, 2, 3, 4])


@step
def a_server_leaves_under_load():
    here.does("drain.yml", rowan_number=1)
    here.goes_on()
    here.healthy([2, 3, 4])
    tap.equal(here.on("kv1", "systemctl is-active rowan-server@server-1 || true").strip(), "inactive")
    here.refuses("Server 1 of the inventory is not of the cluster", "site.yml")


@step
def nothing_is_lost():
    here.judge()


@step
def playbooks_log_in_where_that_is_required():
    managers = ",".join(f"tcp:{here.hosts.all[name].address}:7400" for name in NAMES[:3])
    here.on("kv1", f"rowan --cm {managers} user add ann admin /root/ann.secret && printf '[rowan]\\nuser = ann\\nsecret-file = "
            f"/root/ann.secret\\n' >/root/rowan.conf && rowan --config /root/rowan.conf --cm {managers} login required")  # fmt: skip
    here.without_the_first()
    tap.check(here.ansible("upgrade.yml").returncode != 0, "a playbook that does not log in is let in")
    here.does("upgrade.yml", rowan_login_file="/root/rowan.conf")
    done = here.does("upgrade.yml", rowan_login_file="/root/rowan.conf")
    tap.equal(done.changed, dict.fromkeys(NAMES, 0), done.stdout[-6000:])
    here.on("kv1", f"rowan --config /root/rowan.conf --cm {managers} login open")


@step
def a_cluster_that_was_stopped_starts_again_with_its_data():
    here.does("stop.yml")
    for name in NAMES:
        tap.equal(here.on(name, "systemctl list-units --no-legend --state active 'rowan-*.service'"), "")
    here.does("site.yml")
    here.healthy([2, 3, 4])
    tap.equal(here.rowan("get", "greeting").out.strip(), "hello")
    here.nothing_is_lost()
    done = here.does("benchmark.yml", rowan_benchmark_records=1000, rowan_benchmark_seconds=1, rowan_benchmark_workloads=["a"])
    tap.check(re.search(r"a: \d+ operations a second, 0 errors", done.stdout), done.stdout[-3000:])


def main():
    global unavailable
    if not unavailable and not hosts.is_inside():
        try:
            packages = os.path.abspath(os.environ.get("ROWAN_PACKAGES") or machine.packages())
            return hosts.enter(ROWAN_PACKAGES=packages, ROWAN_TEST_ROOT=hosts.base([*ZOOKEEPER, *debs.depends(packages)]))
        except Unavailable as reason:
            unavailable = str(reason)
    return tap.main(before, after)


if __name__ == "__main__":
    sys.exit(main())
