"""The machine itself: an emulator process with two devices of persistent memory, whose files outlive it.

Commands go in and results come out over a virtio port (inside/agent); the kernel's messages go to a file. The power is
cut by SIGKILL of the emulator. A machine does not outlive the process that started it."""

import base64
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import image
from kernel import Unavailable

EMULATOR = "qemu-system-x86_64"
MEMORY_MIB = 2048
BOOT_SECONDS = 300
PR_SET_PDEATHSIG = 1


class Died(Exception):
    """The machine ended by itself."""


class Late(Exception):
    """A command's deadline has passed."""


class Result:
    """As of subprocess, with text."""

    def __init__(self, code, out, err):
        self.code = code
        self.out = out.decode(errors="replace")
        self.err = err.decode(errors="replace")
        self.both = self.out + self.err

    def json(self):
        return json.loads(self.out)


class Job:
    """A command at work inside."""

    def __init__(self, machine, number, on_output):
        self.machine = machine
        self.number = number
        self.code = None
        self.data = {"out": b"", "err": b""}
        self.on_output = on_output

    def result(self, seconds):
        """Waits for its end."""
        end = time.monotonic() + seconds
        with self.machine.changed:
            while self.code is None:
                self.machine.require_life()
                left = end - time.monotonic()
                if left <= 0:
                    raise Late(f"not done after {seconds} s: {self.text()[-3000:]}")
                self.machine.changed.wait(min(left, 1))
        return Result(self.code, self.data["out"], self.data["err"])

    def text(self):
        return (self.data["out"] + self.data["err"]).decode(errors="replace")

    def ended(self):
        return self.code is not None

    def signal(self, number):
        self.machine.send({"job": self.number, "signal": int(number)})


class Memory:
    """The files behind the machine's persistent memory. They keep their bytes however the machine ends. Unlike real
    PM they never lose what was not flushed. `labels`: room for the labels of namespaces, as real ones have, 16 MiB of each. Without, the
    whole of a device is one."""

    def __init__(self, folder, mib=(768, 768), labels=False):
        os.makedirs(folder, exist_ok=True)
        self.more = ",label-size=16M" if labels else ""
        self.paths = [os.path.join(folder, f"pm{number}.img") for number in range(len(mib))]
        for path, size in zip(self.paths, mib):
            if not os.path.exists(path):
                with open(path, "wb") as file:
                    file.truncate(size << 20)

    def arguments(self):
        words = []
        for number, path in enumerate(self.paths):
            backend = f"memory-backend-file,id=pm{number},share=on,mem-path={path},size={os.path.getsize(path)}"
            words += ["-object", backend, "-device", f"nvdimm,memdev=pm{number},id=nvdimm{number}{self.more}"]
        return words

    def bytes(self):
        return sum(map(os.path.getsize, self.paths))


def die_with_parent():
    """Between fork and exec of the emulator: it gets SIGKILL when we end in any way."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Machine:
    """`source`: an image.Image; `memory`: a Memory. `console`: a file for the kernel's messages; None: our terminal.
    Returns when commands can be run."""

    def __init__(self, source, memory, console, cpus=2):
        self.console = console
        self.changed = threading.Condition()
        self.ready = None
        self.jobs = {}
        self.began = time.monotonic()
        ours, theirs = socket.socketpair()
        self.socket = ours
        serial = ["-serial", f"file:{console}"] if console else ["-serial", "mon:stdio"]
        command = [
            EMULATOR, "-machine", "q35,nvdimm=on", "-accel", "tcg,thread=multi", "-cpu", "max",
            "-smp", str(cpus), "-m", f"{MEMORY_MIB},slots=4,maxmem={MEMORY_MIB + (memory.bytes() >> 20) + 1024}M",
            *memory.arguments(),
            "-display", "none", "-nodefaults", "-no-user-config", "-no-reboot", *serial,
            "-kernel", source.kernel, "-initrd", source.initial,
            "-append", "console=ttyS0 quiet panic=1 random.trust_cpu=on mitigations=off "
            "tsc=reliable "  # the emulator's is, which the kernel cannot know; other clocks are 1000 times slower
            "no_timer_check",  # on a busy host the timer's test at boot gets too few ticks, and the boot hangs
            "-drive", f"if=virtio,format=raw,readonly=on,file={source.disk}",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=commands,fd={theirs.fileno()}",
            "-device", "virtserialport,chardev=commands,name=rowan",
        ]  # fmt: skip
        try:
            with theirs:
                self.child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL if console else None,
                    stderr=subprocess.PIPE if console else None, text=True,
                    pass_fds=[theirs.fileno()], preexec_fn=die_with_parent,
                )  # fmt: skip
        except FileNotFoundError:
            raise Unavailable(f"the program {EMULATOR} is not there: tools/install-deps vm") from None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.cut()
            raise

    # --- messages from the machine ---

    def read(self):
        buffer = b""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                data = b""
            with self.changed:
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self.handle(json.loads(line))
                self.changed.notify_all()
            if not data:
                return

    def handle(self, message):
        if "ready" in message:
            self.ready = message["ready"]
            return
        job = self.jobs[message["job"]]
        if "code" in message:
            job.code = message["code"]
            return
        data = base64.b64decode(message["data"])
        job.data[message["stream"]] += data
        if job.on_output:
            job.on_output(message["stream"], data)

    def require_life(self):
        if self.child.poll() is not None:
            raise Died(f"the machine ended (exit code {self.child.returncode}): {self.last_words()}")

    def last_words(self):
        text = self.child.stderr.read() if self.child.stderr else ""
        if self.console and os.path.exists(self.console):
            with open(self.console, encoding="utf-8", errors="replace") as file:
                text += file.read()[-2000:]
        return text.strip()

    def wait_until_ready(self):
        end = self.began + BOOT_SECONDS
        with self.changed:
            while self.ready is None:
                self.require_life()
                if time.monotonic() > end:
                    raise Died(f"not up after {BOOT_SECONDS} s: {self.console_text()[-2000:]}")
                self.changed.wait(0.2)
        self.boot_seconds = time.monotonic() - self.began

    def console_text(self):
        if not self.console:
            return ""
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return file.read()

    # --- messages to it ---

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def start(self, command, directory="/root", environment=None, input=b"", on_output=None):
        """Starts a command inside, beside others."""
        with self.changed:
            number = len(self.jobs) + 1
            self.jobs[number] = job = Job(self, number, on_output)
        self.send(
            {"job": number, "command": list(map(str, command)), "directory": directory,
             "environment": environment or {}, "input": base64.b64encode(input).decode()}
        )  # fmt: skip
        return job

    def run(self, command, seconds=120, **more):
        """Runs a command inside to its end."""
        job = self.start(command, **more)
        try:
            return job.result(seconds)
        except Late as late:
            job.signal(signal.SIGKILL)  # else it would slow down the next command
            raise Late(f"{' '.join(map(str, command))}: {late}") from None

    def power_off(self, seconds=30):
        """Syncs what has been written; then the machine ends."""
        if self.child.poll() is None:
            self.socket.shutdown(socket.SHUT_WR)
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        self.cut()

    def cut(self):
        """The power fails."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.socket.close()
        self.reader.join(10)
        if self.child.stderr:
            self.child.stderr.close()


class Bench:
    """A place with an image, persistent memory, and machines that are booted on them, one after the other."""

    def __init__(self, source, folder=None, mib=(768, 768), labels=False):
        self.source = source
        self.made = None if folder else tempfile.mkdtemp(prefix="t", dir=scratch())
        self.folder = folder or self.made
        self.memory = Memory(self.folder, mib, labels)
        self.machine = None
        self.boots = 0

    def boot(self, **more):
        self.boots += 1
        console = os.path.join(self.folder, f"console-{self.boots}.log")
        self.machine = Machine(self.source, self.memory, console, **more)
        return self.machine

    def close(self):
        if self.machine:
            self.machine.cut()
        if self.made:
            shutil.rmtree(self.made, ignore_errors=True)


def scratch():
    place = os.environ.get("ROWAN_TEST_SCRATCH") or os.path.join(image.TOP, "build", "vm")
    os.makedirs(place, exist_ok=True)
    return place
