"""Processes on addresses of their own: each in a network namespace, all joined by one bridge.

Needs root, or user namespaces, and ip(8). Each namespace is held by a process of this test and goes with it; the host's own
network is not touched."""

import os
import shutil
import signal
import subprocess
import sys

from harness import environment, program, run, scratch, tap

NODES = {"cm": "10.77.0.1", "s1": "10.77.0.2", "s2": "10.77.0.3", "s3": "10.77.0.4",
         "client": "10.77.0.5", "zk": "10.77.0.6"}  # fmt: skip
PORT = 7000
PM_BYTES = "512M"
NOBODY = "02:00:00:00:00:01"  # a hardware address that no node has


class Holder:
    """A process that does nothing in a network namespace of its own, and so keeps that alive."""

    def __init__(self, inside):
        self.child = subprocess.Popen([*inside, "sh", "-c", "echo ready; exec sleep 3600"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)  # fmt: skip
        self.ready = self.child.stdout.readline() == b"ready\n"

    def why(self):
        return self.child.stderr.read().decode().strip() or "unshare failed"

    def end(self):
        self.child.kill()
        self.child.communicate()


class Network:
    """A namespace with a bridge, and one for each node, joined to it by a pair of links."""

    def __init__(self):
        """Skips where it cannot be made."""
        if not shutil.which("ip"):
            tap.skip("ip(8) is not installed (package iproute2)")
        self.holders = []
        self.users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        first = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        self.bridge = self.hold(first)
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")
        self.nodes = {name: self.hold([*self.enter(self.bridge), "unshare", "--net"]) for name in NODES}
        for name, address in NODES.items():
            self.ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                    str(self.nodes[name].child.pid))  # fmt: skip
            self.ip("link", "set", f"to-{name}", "master", "br0", "up")
            for words in (("addr", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                          ("link", "set", "lo", "up")):  # fmt: skip
                self.ip(*words, at=self.nodes[name])

    def hold(self, inside):
        holder = Holder(inside)
        self.holders.append(holder)
        if not holder.ready:
            reason = holder.why()
            self.end()
            tap.skip(f"no network namespaces can be made here: {reason}")
        return holder

    def enter(self, holder):
        return ["nsenter", "--target", str(holder.child.pid), *self.users, "--net"]

    def inside(self, name, words):
        return [*self.enter(self.nodes[name]), *words]

    def ip(self, *words, at=None):
        done = run([*self.enter(at or self.bridge), "ip", *words], seconds=20)
        if done.code != 0:
            self.end()
            tap.skip(f"ip {' '.join(words)}: {done.err.strip()}")

    def link(self, name, state):
        self.ip("link", "set", f"to-{name}", state)

    def cut(self, sender, receiver):
        """What one node sends to the other is lost from now on, without a sign of it."""
        self.ip("neigh", "replace", NODES[receiver], "lladdr", NOBODY, "nud", "permanent", "dev", "eth0", at=self.nodes[sender])

    def heal(self, sender, receiver):
        self.ip("neigh", "del", NODES[receiver], "dev", "eth0", at=self.nodes[sender])

    def end(self):
        for holder in reversed(self.holders):
            holder.end()


class Cluster:
    """Three servers and a CM, each in its namespace; what work.py needs of a cluster. `more`: for the CM. `others`: {node: command}, begun
    before."""

    def __init__(self, network, coord=None, more=(), others=None):
        self.network = network
        self.directory = os.path.join(scratch(), "apart")
        os.makedirs(os.path.join(self.directory, "coord"))
        self.children = {}
        self.cm = f"tcp:{NODES['cm']}:{PORT}"
        with open(os.path.join(self.directory, "cm"), "w", encoding="utf-8") as file:
            file.write(self.cm + "\n")
        for name, words in (others or {}).items():
            self.start(name, words)
        self.start("cm", [program("rowan-cm"), "--address", self.cm, "--cluster-servers", "1,2,3", "--replicas", "3",
                          *(coord or ("--coord", "file", "--coord-dir", os.path.join(self.directory, "coord"))), *more])  # fmt: skip
        for number in (1, 2, 3):
            name = f"s{number}"
            self.start(name, [program("rowan-server"), "--server", str(number), "--cm", self.cm,
                              "--address", f"tcp:{NODES[name]}:{PORT}", "--pm",
                              os.path.join(self.directory, name + ".pm"), "--pm-bytes", PM_BYTES,
                              "--durability", "none", "--spin-us", "0"])  # fmt: skip
        try:
            tap.wait_until(lambda: self.rowan("put", "ready", "yes").code == 0, 120, "the cluster serves")
        except tap.Failed:
            print(self.last_logs(), file=sys.stderr)
            self.end()
            raise

    def start(self, name, words):
        command = self.network.inside(name, words)
        with open(os.path.join(self.directory, name + ".log"), "wb") as log:
            self.children[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )

    def client(self, words):
        return self.network.inside("client", words)

    def rowan(self, *words, seconds=120, **more):
        return run(self.client([program("rowan"), "--cm", self.cm, *words]), seconds=seconds, **more)

    def last_logs(self):
        return "\n".join(f"--- {name}:\n{self.log(name)[-1500:]}" for name in self.children)

    def log(self, name):
        with open(os.path.join(self.directory, name + ".log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        for name, child in self.children.items():  # SIGTERM would let servers leave one after the other
            child.send_signal(signal.SIGINT if name[0] == "s" else signal.SIGTERM)
        codes = {}
        for name, child in self.children.items():
            try:
                codes[name] = child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                codes[name] = child.wait()
        return codes
