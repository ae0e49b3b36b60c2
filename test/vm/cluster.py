"""A cluster inside the machine, driven from here as a person drives one: rowan-local, rowan, rowan-ycsb."""

import json
import os
import time

import tap
from image import BUILD, SOURCE

LOCAL = os.path.join(SOURCE, "tools", "rowan-local")
TOOLS = os.path.join(BUILD, "tools")
COMMON = ("--durability", "fence", "--landing-segments", "4")


class Cluster:
    """`bench`: it is in its present machine. `options`: of the first rowan-local start. Loads are small, because the
    machine is slow."""

    def __init__(self, bench, name, *options):
        self.bench = bench
        self.directory = os.path.join("/pm", name)  # on memory too, so that it is there after a loss of power
        self.options = options
        self.acked = b""  # as the file of --acked
        self.load = None

    def run(self, *command, seconds=120, **more):
        return self.bench.machine.run(command, seconds, **more)

    def ok(self, *command, **more):
        done = self.run(*command, **more)
        tap.equal(done.code, 0, " ".join(map(str, command))[:200], done.both[-3000:])
        return done

    def rowan(self, *words, **more):
        return self.ok(os.path.join(TOOLS, "rowan"), "--dir", self.directory, *words, **more)

    def start(self, *options, **more):
        began = time.monotonic()
        done = self.run(LOCAL, "start", "--dir", self.directory, *options, **more)
        tap.equal(done.code, 0, "rowan-local start:", done.both, self.logs() if done.code else "")
        print(f"# {self.directory}: start in {time.monotonic() - began:.1f} s", flush=True)
        return done

    def start_new(self):
        return self.start("--lease-ms", "0", *COMMON, *self.options)

    def start_again(self, **more):
        tap.contains(self.start(**more).out, "going on from the data")

    def logs(self):
        return self.run("sh", "-c", 'for f in "$1"/log/*.log; do echo "--- $f"; tail -n 15 "$f"; done', "sh",
                        self.directory).both  # fmt: skip

    def stop(self):
        self.local("stop")

    def local(self, *words):
        self.ok(LOCAL, *words, "--dir", self.directory)

    def servers(self):
        return self.rowan("--json", "status").json()["servers"]

    def ycsb(self, workload, records, *more, threads=1, depth=32, seconds=120):
        done = self.ok(
            os.path.join(TOOLS, "rowan-ycsb"), "--dir", self.directory, "--workload", workload, "--records",
            records, "--threads", threads, "--depth", depth, "--json", *more, seconds=seconds,
        )  # fmt: skip
        found = done.json()
        tap.equal(found["errors"], 0, f"rowan-ycsb {workload}: errors")
        return found

    def verify(self):
        done = self.rowan("verify", seconds=200)
        tap.contains(done.out, "equal")
        print(f"# {self.directory}: {done.out.strip()}", flush=True)

    def pids(self):
        """{name: process id} of the servers and the CM."""
        record = self.ok("cat", self.directory + "/run/processes.json")
        return {one["name"]: str(one["pid"]) for one in json.loads(record.out)}

    def kill_all(self):
        """SIGKILL of every process at once."""
        pids = list(self.pids().values())
        tap.equal(len(pids), 4)
        self.ok("kill", "-9", *pids)
        self.ok("sh", "-c", 'for p in "$@"; do while [ -e /proc/$p ]; do usleep 10000; done; done', "sh", *pids)

    # --- acknowledged writes, recorded here, so that they outlive the machine ---

    def start_load(self, records, seed, seconds=600, timeout_ms=5000):
        """A load for this long, or as long as the machine lives. Its record of acknowledged writes is sent here while
        it runs, so that a loss of power does not lose it."""
        fifo = f"/tmp/acked-{os.path.basename(self.directory)}"
        self.ok("sh", "-c", 'rm -f "$1" && mkfifo "$1"', "sh", fifo)
        self.heard = b""
        self.pipe = self.bench.machine.start(["cat", fifo], on_output=self.hear)
        self.load = self.bench.machine.start(
            [os.path.join(TOOLS, "rowan-ycsb"), "--dir", self.directory, "--workload", "a", "--records",
             records, "--threads", "1", "--depth", "16", "--seconds", seconds, "--timeout-ms", timeout_ms,
             "--seed", seed, "--acked", fifo],
        )  # fmt: skip

    def hear(self, stream, data):
        self.heard += data

    def heard_writes(self):
        return max(0, len(self.heard) - HEADER_BYTES) // RECORD_BYTES

    def end_load(self):
        """The power has failed, or the load has ended: adds the acknowledged writes to the known ones."""
        tap.check(self.heard_writes() > 0, "no write was acknowledged")
        whole = HEADER_BYTES + self.heard_writes() * RECORD_BYTES
        self.acked += self.heard[HEADER_BYTES if self.acked else 0 : whole]
        print(f"# {self.directory}: {self.heard_writes()} writes acknowledged in this round", flush=True)

    def check(self):
        """Every write that was ever acknowledged is there."""
        self.ok("sh", "-c", "cat >/tmp/known.acked", input=self.acked)
        done = self.run(os.path.join(TOOLS, "rowan-ycsb"), "--dir", self.directory, "check", "/tmp/known.acked")
        tap.equal(done.code, 0, done.both[-3000:], self.logs() if done.code else "")
        return done


HEADER_BYTES = 48  # tools/rowan-ycsb/acked.c
RECORD_BYTES = 24
