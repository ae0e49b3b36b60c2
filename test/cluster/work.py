"""Clients at work beside a test that does harm: counters (counters.c), clients whose history is judged (history.c) and
rowan-ycsb, and what must be true of them afterwards."""

import contextlib
import os
import re
import signal
import subprocess
import threading

from harness import environment, program, run, tap

SHARED = 32  # counters.c
HISTORY_THREADS = 3  # history.c


class Clients:
    """Processes that work until their standard input ends, and say "progress N" now and then."""

    def __init__(self, *commands):
        self.children = []
        self.outputs = []
        for words in commands:
            self.outputs.append([])
            self.children.append(
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env=environment())  # fmt: skip
            )
        self.readers = [
            threading.Thread(target=self.read, args=pair, daemon=True)
            for pair in zip(self.children, self.outputs)
        ]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def read(child, lines):
        for line in child.stdout:
            lines.append(line)

    def pids(self):
        return [child.pid for child in self.children if child.poll() is None]

    def operations(self):
        """Of each process, as far as it has said."""
        found = []
        for lines in self.outputs:
            said = [line for line in lines if line.startswith("progress ")]
            found.append(int(said[-1].split()[1]) if said else 0)
        return found

    @contextlib.contextmanager
    def stopped(self):
        """They stand still within; what they have asked for ends without them."""
        for child in self.children:
            child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for child in self.children:
                child.send_signal(signal.SIGCONT)

    def wait_for_progress(self, seconds=60, count=None, meanwhile=lambda: None):
        """Until each process, or the first `count`, has done something since now."""
        before = self.operations()

        def moved():
            meanwhile()
            tap.equal(len(self.pids()), len(self.children), self.text())
            return all(now > then for now, then in list(zip(self.operations(), before))[:count])

        tap.wait_until(moved, seconds, "every client has done something")

    def text(self):
        return "\n".join("".join(lines[-20:]) for lines in self.outputs)

    def kill(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def end(self, seconds=60, tolerated=None):
        """Lets them end. Returns what each has said. Each must have seen no error but `tolerated` ones."""
        for child in self.children:
            child.stdin.close()
        texts = []
        for child, lines, reader in zip(self.children, self.outputs, self.readers):
            try:
                child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise tap.Failed(type(self).__name__, "did not end:", self.text()) from None
            reader.join(10)
            texts.append("".join(line for line in lines if not line.startswith("progress ")))
            errors = [line for line in lines if line.startswith("error") and not (tolerated and line.rstrip().endswith(tolerated))]
            tap.check(child.returncode == 0 or (tolerated and child.returncode == 1 and not errors), texts[-1][-20000:])
            print(f"# {type(self).__name__}:", lines[-1].strip(), flush=True)
        return texts


class Counters(Clients):
    """Processes of counters.c, that count together."""

    def __init__(self, cluster, name, processes=2, timeout_ms=10000, pause_us=1000,
                 wrap=lambda words: words):  # fmt: skip
        super().__init__(*(
            wrap([program("cluster_counters"), cluster.directory, f"{name}-{number}", str(timeout_ms), str(pause_us)])
            for number in range(processes)
        ))  # fmt: skip

    def finish(self, seconds=60):
        """Lets them end. Each must have seen no error. Returns (acknowledged, unknown) by counter."""
        acknowledged, unknown = [0] * SHARED, [0] * SHARED
        for text in self.end(seconds=seconds):
            tap.contains(text, "errors=0 ")
            for number, good, maybe in re.findall(
                r"^counter (\d+) acknowledged=(\d+) unknown=(\d+)$", text, re.MULTILINE
            ):
                acknowledged[int(number)] += int(good)
                unknown[int(number)] += int(maybe)
        return acknowledged, unknown


class History(Clients):
    """Processes of history.c: its keys must have been registers. `wraps`: one process for each."""

    def __init__(self, cluster, name, keys=16, timeout_ms=60000, pause_ms=25, wraps=(lambda words: words,)):
        self.files = [f"{cluster.directory}-{name}-{number}.operations" for number in range(len(wraps))]
        super().__init__(*(
            wrap([program("cluster_history"), "record", path, cluster.directory, name,
                  *map(str, (HISTORY_THREADS * number, keys, timeout_ms, pause_ms))])
            for number, (wrap, path) in enumerate(zip(wraps, self.files))
        ))  # fmt: skip

    def finish(self, tolerated=None):
        """Lets them end, and judges. The judge must refuse a stale read that is planted, each time."""
        self.end(tolerated=tolerated)
        for word, code in (("judge", 0), ("stale", 1)):
            done = run([program("cluster_history"), word, *self.files], seconds=300)
            tap.equal(done.code, code, word, done.both[:20000])
        tap.contains(done.out, "not linearizable")


def counter_value(cluster, number):
    done = cluster.rowan("get", f"counter-{number}", text=False)
    tap.equal(done.code, 0, f"counter {number}:", done.err)
    tap.equal(len(done.out), 8, f"counter {number}")
    return int.from_bytes(done.out, "little")


def counters_add_up(cluster, acknowledged, unknown, before=None):
    """No lost and no doubled operation: each counter's value is what was acknowledged, and what is
    unknown may be in it or not. Returns the values."""
    values = [counter_value(cluster, number) for number in range(SHARED)]
    for number, value in enumerate(values):
        least = acknowledged[number] + (before[number] if before else 0)
        tap.check(value >= least, f"counter {number}: lost: {value}, acknowledged {least}")
        most = least + unknown[number]
        tap.check(value <= most, f"counter {number}: doubled: {value}, at most {most} were put")
    tap.check(min(acknowledged) > 0, "a counter was never counted:", acknowledged)
    return values


class Load:
    """rowan-ycsb again and again, until it is told to finish. `may_not_start`: links fail for longer than
    it waits for its first connection; a run that could not start says so, and another is started."""

    def __init__(self, cluster, records, seconds=4, timeout_ms=10000, wrap=lambda words: words,
                 may_not_start=False, more=()):  # fmt: skip
        self.command = wrap([
            program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "a", "--records",
            str(records), "--threads", "1", "--depth", "8", "--json", "--seconds", str(seconds),
            "--timeout-ms", str(timeout_ms), *more,
        ])  # fmt: skip
        self.may_not_start = may_not_start
        self.ending = False
        self.failure = None
        self.child = None
        self.operations = 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        seed = 0
        while not self.ending and not self.failure:
            seed += 1
            self.child = subprocess.Popen(
                [*self.command, "--seed", str(seed)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
            )  # fmt: skip
            out, err = self.child.communicate()
            if self.may_not_start and not out and b"no connection to the server" in err:
                continue
            if self.child.returncode != 0:
                self.failure = (out + err).decode(errors="replace")[-3000:]
                return
            found = re.search(rb'"operations": (\d+)', out)
            self.operations += int(found.group(1))

    def pids(self):
        return [self.child.pid] if self.child and self.child.poll() is None else []

    def finish(self, seconds=120):
        """It must have seen no error."""
        self.ending = True
        self.thread.join(seconds)
        tap.check(not self.thread.is_alive(), "rowan-ycsb did not end")
        tap.check(not self.failure, "rowan-ycsb:", self.failure)
        tap.check(self.operations > 0, "rowan-ycsb did nothing")

    def kill(self):
        self.ending = True
        if self.child and self.child.poll() is None:
            self.child.kill()
        self.thread.join(20)


def anonymous_bytes(pid):
    """Private memory of a process: not its PM, nor what it shares."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise tap.Failed(f"process {pid} tells no RssAnon")


def chosen_seed():
    """Of what a test does at random; ROWAN_SEED runs one again."""
    seed = int(os.environ.get("ROWAN_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"# ROWAN_SEED={seed}", flush=True)
    return seed
