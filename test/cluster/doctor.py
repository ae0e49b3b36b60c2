#!/usr/bin/python3
"""rowan-doctor on hosts that are made up, one for each of its verdicts, and on this one."""

import json
import os
import shutil
import sys
import tempfile

from harness import program, run, scratch, tap

MIB = 1 << 20
CLASS = "sys/class/infiniband"
ND = "sys/bus/nd/devices"
DAX = "sys/bus/dax/devices"
NOBODY = 65534
FLAGS = "fpu sse2 pclmulqdq sse4_1 sse4_2 clflush clflushopt clwb constant_tsc"


class Host:
    """A tree of files, at first of a host with a ConnectX and devdax that lacks nothing."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="host", dir=scratch())
        self.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
                   f"model\t\t: 85\nmodel name\t: Xeon\nflags\t\t: {FLAGS}\n\n")  # fmt: skip
        clock = "sys/devices/system/clocksource/clocksource0"
        self.write(f"{clock}/current_clocksource", "tsc\n")
        self.write(f"{clock}/available_clocksource", "tsc hpet\n")
        self.limits()
        self.write("proc/self/status", "Name:\tx\nVmPin:\t       0 kB\nCapEff:\t0000000000000000\n")
        huge = "sys/kernel/mm/hugepages/hugepages-2048kB"
        self.write(f"{huge}/nr_hugepages", "64\n")
        self.write(f"{huge}/free_hugepages", "60\n")
        self.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
        self.write("proc/sys/net/ipv4/ip_local_reserved_ports", "\n")
        self.write("proc/net/tcp", "  sl  local_address rem_address   st\n")
        self.write("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
        self.write("usr/bin/ipmctl", "", 0o755)
        self.nic()
        self.pm()

    def write(self, path, text, mode=0o644):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(full, mode)

    def remove(self, path):
        full = os.path.join(self.root, path)
        shutil.rmtree(full) if os.path.isdir(full) and not os.path.islink(full) else os.remove(full)

    def link(self, path, target):
        full, aim = os.path.join(self.root, path), os.path.join(self.root, target)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.makedirs(aim, exist_ok=True)
        os.symlink(os.path.relpath(aim, os.path.dirname(full)), full)

    def limits(self, locked="unlimited", descriptors="65536"):
        self.write("proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\n"
                   f"Max open files            1024                 {descriptors}                files\n"
                   f"Max locked memory         {locked}              {locked}              bytes\n")  # fmt: skip

    def nic(self, name="mlx5_0", state="4: ACTIVE", bus="3b", number=0):
        place = f"sys/devices/pci0000:3a/0000:3a:00.0/0000:{bus}:00.0"
        self.write(f"{CLASS}/{name}/fw_ver", "16.35.2000\n")
        self.link(f"{CLASS}/{name}/device", place)
        self.write(f"{place}/numa_node", "0\n")
        port = f"{CLASS}/{name}/ports/1"
        self.write(f"{port}/state", f"{state}\n")
        self.write(f"{port}/link_layer", "Ethernet\n")
        gids = [("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
                ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
                ("0000:0000:0000:0000:0000:ffff:0a01:0101", "IB/RoCE v1"),
                ("0000:0000:0000:0000:0000:ffff:0a01:0101", "RoCE v2"),
                ("0000:0000:0000:0000:0000:0000:0000:0000", None)]  # fmt: skip
        for i, (gid, kind) in enumerate(gids):
            self.write(f"{port}/gids/{i}", f"{gid}\n")
            if kind:
                self.write(f"{port}/gid_attrs/types/{i}", f"{kind}\n")
                self.write(f"{port}/gid_attrs/ndevs/{i}", f"eth{number}\n")
        self.write(f"sys/class/infiniband_verbs/uverbs{number}/ibdev", f"{name}\n")
        self.write(f"dev/infiniband/uverbs{number}", "", 0o666)
        self.write(f"sys/class/net/eth{number}/mtu", "4200\n")

    def pm(self):
        self.write(f"{ND}/namespace0.0/size", f"{512 * MIB}\n")
        self.write(f"{ND}/namespace0.0/mode", "dax\n")
        self.write(f"{ND}/namespace0.0/numa_node", "0\n")
        self.write(f"{ND}/namespace0.1/size", "0\n")
        self.write(f"{ND}/dax0.0/namespace", "namespace0.0\n")
        self.write(f"{ND}/dax0.0/align", f"{2 * MIB}\n")
        self.write(f"{ND}/region0/persistence_domain", "memory_controller\n")
        self.write(f"{DAX}/dax0.0/size", f"{500 * MIB}\n")
        self.write(f"{DAX}/dax0.0/align", f"{2 * MIB}\n")
        self.write(f"{DAX}/dax0.0/numa_node", "0\n")
        self.link(f"{DAX}/dax0.0/driver", "sys/bus/dax/drivers/device_dax")
        self.write("dev/dax0.0", "", 0o666)

    def without_pm(self):
        for path in (ND, DAX, "dev/dax0.0"):
            self.remove(path)

    def fsdax(self, options):
        self.without_pm()
        self.write(f"{ND}/namespace0.0/size", f"{512 * MIB}\n")
        self.write(f"{ND}/namespace0.0/mode", "memory\n")
        self.write("proc/self/mounts", f"/dev/pmem0 /mnt/pm ext4 {options} 0 0\n")

    def asked(self, *words, **more):
        done = run([program("rowan-doctor"), "--root", self.root, "--json", *words], **more)
        return Report(done)


class Report:
    def __init__(self, done):
        tap.equal(done.err, "", "nothing on standard error")
        self.code = done.code
        object_ = json.loads(done.out)
        tap.equal(sorted(object_), ["checks", "fits"])
        self.fits = object_["fits"]
        self.checks = {one["name"]: one for one in object_["checks"]}
        tap.equal(len(self.checks), len(object_["checks"]), "each name once")

    def is_ok(self, name):
        tap.check(name in self.checks, name, "is not told:", sorted(self.checks))
        tap.equal(self.checks[name]["verdict"], "ok", self.checks[name])
        tap.equal(self.checks[name]["blocks"], [])

    def says(self, name, verdict, blocks, detail, mend):
        tap.check(name in self.checks, name, "is not told:", sorted(self.checks))
        found = self.checks[name]
        tap.equal(found["verdict"], verdict, found)
        tap.equal(found["blocks"], blocks, found)
        tap.contains(found["detail"], detail)
        tap.contains(found["mend"], mend)


@tap.case
def a_host_that_lacks_nothing_fits_every_fabric():
    report = Host().asked("--port", "7000")
    tap.equal(report.code, 0)
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": True})
    for name, found in report.checks.items():
        if not name.startswith("ddio"):
            report.is_ok(name)
    tap.contains(report.checks["rdma-gid-mlx5_0/1"]["detail"], "GID index 3 is taken: ::ffff:10.1.1.1")
    tap.contains(report.checks["rdma-mtu-mlx5_0/1"]["detail"], "4096 bytes")
    tap.contains(report.checks["pm-namespace0.0"]["detail"], "mode devdax, alignment 2097152")


PORT = f"{CLASS}/mlx5_0/ports/1"
DOMAIN = f"{ND}/region0/persistence_domain"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000\n"
FREE_PAGES = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"

# What a host has that lacks one thing, and the finding: name, verdict, fabrics in whose way it stands, words of the
# detail and of what mends it.
FINDINGS = (
    ({f"{PORT}/state": "1: DOWN\n"}, "rdma-port-mlx5_0/1", "wrong", ["verbs"], "is down", "ip link set eth0 up"),
    ({f"{PORT}/state": "2: INIT\n"}, "rdma-port-mlx5_0/1", "wrong", ["verbs"], "no subnet manager", "opensm"),
    ({f"{PORT}/gids/{i}": NO_GID for i in range(4)}, "rdma-gid-mlx5_0/1", "missing", ["verbs"], "has no GID",
     "ip addr add"),
    ({"sys/class/infiniband_verbs": None}, "rdma-access-mlx5_0", "missing", ["verbs"], "ib_uverbs",
     "modprobe ib_uverbs"),
    ({"sys/class/net/eth0/mtu": "1000\n"}, "rdma-mtu-mlx5_0/1", "wrong", [], "512 bytes", "ip link set eth0 mtu 4200"),
    ({FREE_PAGES: "0\n"}, "hugepages", "missing", [], "no huge page", "sysctl vm.nr_hugepages=128"),
    ({f"{ND}/namespace0.0/mode": "raw\n"}, "pm-namespace0.0", "wrong", [], "mode raw",
     "ndctl create-namespace -f -e namespace0.0 -m devdax"),
    ({f"{ND}/dax0.0/align": "4096\n"}, "pm-namespace0.0", "wrong", [], "alignment of 4096", "--align 2M"),
    ({f"{DAX}/dax0.0/driver": None}, "devdax-dax0.0", "wrong", [], "no driver", "modprobe device_dax"),
    ({DOMAIN: "\n"}, "power-fail-region0", "unknown", [], "does not say", ""),
    ({DOMAIN: None}, "power-fail-region0", "unknown", [], "does not say", ""),
    ({f"{DAX}/dax0.0/numa_node": "1\n"}, "numa", "wrong", [], "at NUMA node 0, persistent memory at 1",
     "--cpunodebind=1"),
    ({"proc/cpuinfo": f"flags\t\t: {FLAGS} hypervisor\n", CLOCK: "kvm-clock\n"}, "clock-pause", "wrong", [],
     "does not count the time", "lease-ms to six times"),
    ({"proc/cpuinfo": f"flags\t\t: {FLAGS} hypervisor\n"}, "clock-pause", "wrong", [], "clock source tsc: it may not", "lease-ms"),
    ({CLOCK: "hpet\n"}, "clock", "wrong", [], "clock source hpet", "echo tsc >"),
)  # fmt: skip


@tap.case
def each_finding_is_told_with_what_mends_it():
    for changes, name, verdict, blocks, detail, mend in FINDINGS:
        host = Host()
        for path, text in changes.items():
            if text is None:
                host.remove(path)
            else:
                host.write(path, text)
        report = host.asked()
        report.says(name, verdict, blocks, detail, mend)
        tap.equal((report.fits["tcp"], report.fits["verbs"] and bool(blocks)), (True, False), name)
    host = Host()
    host.write("sys/class/net/eth0/mtu", "1500\n")
    host.limits(descriptors="1024")
    host.remove(f"{DAX}/dax0.0/driver")
    host.link(f"{DAX}/dax0.0/driver", "sys/bus/dax/drivers/kmem")
    report = host.asked()
    report.is_ok("rdma-mtu-mlx5_0/1")
    report.says("descriptors", "wrong", [], "at most 1024", "LimitNOFILE")
    report.says("devdax-dax0.0", "wrong", [], "ordinary memory", "daxctl reconfigure-device")
    host.fsdax("rw,relatime")
    host.asked().says("mount-pmem0", "wrong", [], "without dax", "mount -o dax /dev/pmem0 /mnt/pm")
    report = Host().asked("--fabric", "verbs", "--device", "mlx5_9")
    tap.equal(report.code, 1)
    report.says("rdma-device", "missing", ["verbs"], "named mlx5_9", "rdma link")


@tap.case
def ddio_is_unknown_and_the_root_port_is_named_with_how_to_look():
    host = Host()
    host.asked().says("ddio-mlx5_0", "unknown", [], "cannot be read from here", "setpci -s 0000:3a:00.0 180.b")
    host.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nflags\t\t: sse2 sse4_2 clwb\n")
    host.asked().says("ddio-mlx5_0", "unknown", [], "cannot be read", "BIOS")
    host.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nflags\t\t: sse2 sse4_2 clwb\n")
    host.asked().says("ddio-mlx5_0", "unknown", [], "platform's manual", "")
    host.remove(f"{CLASS}/mlx5_0/device")
    host.asked().says("ddio-mlx5_0", "unknown", [], "no PCI device", "")
    host.write(f"{ND}/region0/persistence_domain", "cpu_cache\n")
    host.asked().is_ok("ddio")


@tap.case
def without_rdma_device_verbs_does_not_fit_and_the_others_do():
    host = Host()
    host.remove(CLASS)
    report = host.asked()
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": False})
    tap.equal(report.code, 0)
    report.says("rdma-device", "missing", ["verbs"], "no RDMA device", "modprobe rdma_rxe")
    tap.equal(host.asked("--fabric", "verbs").code, 1)
    alone = host.asked("--fabric", "tcp")
    tap.equal(alone.fits, {"tcp": True})
    tap.equal([name for name in alone.checks if name.startswith("rdma")], [])


@tap.case
def a_bad_device_beside_a_good_one_stands_in_nobodys_way():
    host = Host()
    host.nic(name="mlx5_1", state="1: DOWN", bus="3c", number=1)
    report = host.asked("--fabric", "verbs")
    tap.equal(report.code, 0)
    report.says("rdma-port-mlx5_1/1", "wrong", [], "is down", "ip link set eth1 up")


@tap.case
def files_that_this_user_may_not_open_are_told():
    if os.geteuid() != 0:
        tap.skip("needs root, to become nobody")
    host = Host()
    for folder in (os.environ.get("ROWAN_TEST_SCRATCH"), scratch(), host.root):
        if folder:
            os.chmod(folder, 0o755)
    os.chmod(os.path.join(host.root, "dev/infiniband/uverbs0"), 0o600)
    os.chmod(os.path.join(host.root, "dev/dax0.0"), 0o600)
    try:
        report = host.asked(user=NOBODY, group=NOBODY)
    except PermissionError:
        tap.skip("nobody may not run the programs of this build")
    if run(["test", "-r", os.path.join(host.root, "proc/self/limits")], user=NOBODY, group=NOBODY).code:
        tap.skip("nobody may not look below the folder of this tree")
    report.says("rdma-access-mlx5_0", "wrong", ["verbs"], "no permission to open /dev/infiniband/uverbs0", "chmod 666")
    report.says("devdax-dax0.0", "wrong", [], "may not read and write /dev/dax0.0", "chown")


@tap.case
def locked_memory_is_held_against_what_a_server_registers():
    host = Host()
    host.limits(locked=8 * MIB)
    report = host.asked("--pm-bytes", "64M")
    report.says("memlock", "wrong", ["verbs"], "67108864 bytes must be locked", "LimitMEMLOCK=infinity")
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": False})
    host.asked("--pm-bytes", "8M").is_ok("memlock")
    host.write("proc/self/status", "VmPin:\t       4 kB\nCapEff:\t0000000000000000\n")
    host.asked("--pm-bytes", "8M").says("memlock", "wrong", ["verbs"], "4096 are already", "ulimit -l")
    host.write("proc/self/status", "VmPin:\t       4 kB\nCapEff:\t0000000000004000\n")
    host.asked("--pm-bytes", "64G").is_ok("memlock")
    host.remove("proc/self/status")
    host.asked().says("memlock", "unknown", [], "cannot be read", "")


@tap.case
def files_on_dax_cannot_be_pinned_by_a_nic():
    host = Host()
    host.fsdax("rw,relatime,dax=always")
    report = host.asked()
    report.is_ok("mount-pmem0")
    report.says("pm-for-rdma", "wrong", ["verbs"], "none that a NIC can pin", "-m devdax")
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": False})


@tap.case
def a_host_without_persistent_memory_fits_all_the_same():
    host = Host()
    host.without_pm()
    host.remove("usr/bin/ipmctl")
    report = host.asked()
    report.says("pm", "missing", [], "no persistent memory", "ndctl")
    report.says("ipmctl", "missing", [], "write amplification", "apt-get install ipmctl")
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": True})


@tap.case
def a_cpu_without_instructions_for_checksums_is_slow():
    host = Host()
    host.write("proc/cpuinfo", "flags\t\t: fpu sse2 sse4_1 clflush\n")
    report = host.asked()
    report.says("cpu-instructions", "wrong", [], "no sse4.2", "qemu")
    report.says("cpu-flush", "wrong", [], "neither clwb nor clflushopt", "qemu")
    tap.equal(report.fits, {"shm": True, "tcp": True, "verbs": True})


@tap.case
def ports_that_others_hold_or_the_kernel_gives_away_are_told():
    host = Host()
    host.write("proc/net/tcp", "  sl  local_address rem_address   st\n"
               "   0: 0100007F:1B5A 00000000:0000 0A 00000000:00000000 00:00000000\n"
               "   1: 0100007F:1B5E 0100007F:9999 01 00000000:00000000 00:00000000\n")  # fmt: skip
    host.asked("--port", "7000").says("ports", "wrong", ["tcp", "verbs"], "listens on port 7002", "ss -ltnp")
    host.asked("--port", "7003").is_ok("ports")
    host.write("proc/net/tcp6", "  sl  local_address rem_address   st\n   0: 00000000000000000000000000000000:"
               "1B5C 00000000000000000000000000000000:0000 0A 00000000:00000000\n")  # fmt: skip
    host.asked("--port", "7003").says("ports", "wrong", ["tcp", "verbs"], "listens on port 7004", "ss -ltnp")
    host.asked("--port", "65530").says("ports", "wrong", ["tcp", "verbs"], "beyond 65535", "lower")
    host.asked("--port", "40000").says("ports", "wrong", [], "port 40000 lies in the kernel's own range",
                                       "ip_local_reserved_ports=40000-40015")  # fmt: skip
    host.write("proc/sys/net/ipv4/ip_local_reserved_ports", "8080,40000-40015\n")
    host.asked("--port", "40000").is_ok("ports")
    host.asked("--port", "40008").says("ports", "wrong", [], "port 40016", "8080,40000-40015,40008-40023")
    host.write("proc/sys/net/ipv4/ip_local_port_range", "1024\t65535\n")
    host.asked().says("ports", "wrong", [], "leaves none", "ip_local_port_range=")


@tap.case
def an_empty_tree_makes_everything_missing_or_unknown():
    host = Host()
    shutil.rmtree(host.root)
    os.makedirs(host.root)
    report = host.asked("--port", "7000")
    for name, found in report.checks.items():
        tap.check(found["verdict"] in ("missing", "unknown"), found)


@tap.case
def here_shm_and_tcp_fit_and_every_finding_comes_with_what_mends_it():
    done = run([program("rowan-doctor"), "--json"])
    report = Report(done)
    tap.equal(done.code, 0)
    tap.check(report.fits["shm"] and report.fits["tcp"], report.fits)
    tap.equal(report.fits["verbs"], not any("verbs" in one["blocks"] for one in report.checks.values()))
    if not os.path.isdir("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
        report.says("rdma-device", "missing", ["verbs"], "no RDMA device on this host", "rdma link add")
    for one in report.checks.values():
        tap.check(one["mend"] or not one["blocks"], one)
    text = run([program("rowan-doctor")])
    tap.equal(text.code, 0)
    tap.contains(text.out, "\nshm    fits this host\ntcp    fits this host\n")


@tap.case
def a_word_that_is_no_setting_is_usage():
    done = run([program("rowan-doctor"), "--fabric", "carrier-pigeon"])
    tap.equal(done.code, 2)
    tap.equal(done.out, "")
    tap.contains(done.err, "all|shm|tcp|verbs")


sys.exit(tap.main())
