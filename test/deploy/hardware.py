#!/usr/bin/python3
"""The roles rowan_pm and rowan_rdma in the virtual machine of test/vm, which has an RDMA device and three regions of
persistent memory: one holds a devdax namespace, one what may be a file system, and one nothing yet. Their first tasks, which
install packages, have no place there."""

import glob
import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
TEST = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TEST, "vm"), os.path.join(TEST, "lib")]

import image  # noqa: E402
import machine  # noqa: E402
import tap  # noqa: E402
from kernel import Unavailable  # noqa: E402

BIN = os.environ.get("ROWAN_BIN") or os.path.join(image.TOP, "build", "gcc-plain")
PACKAGES = "/usr/lib/python3/dist-packages"
NEEDED = ("ansible", "cryptography", "[Jj]inja2", "[Jj]inja2-*", "markupsafe", "packaging", "resolvelib", "yaml")
ROLES = os.path.join(image.SOURCE, "deploy", "ansible", "roles")
BOOK = "- hosts: localhost\n  gather_facts: false\n  roles: [rowan_defaults, {}]\n"
DEVDAX, FILES, FREE = ("region0", "region1", "region2")
MADE = """umount /pm || true
ndctl destroy-namespace --force all
ndctl disable-region all
ndctl init-labels --force all
ndctl enable-region all
ndctl create-namespace --mode devdax --region region0
ndctl create-namespace --mode fsdax --region region1
echo of somebody >/dev/pmem1"""
bench = None
unavailable = None


def before():
    global bench, unavailable
    try:
        folders = [path for name in NEEDED for path in glob.glob(os.path.join(PACKAGES, name))] + ["/usr/lib/locale/C.utf8"]
        if not os.path.isdir(os.path.join(PACKAGES, "ansible")):
            raise Unavailable("ansible is not there: tools/install-deps deploy")
        bench = machine.Bench(image.Image(BIN, ["ansible-playbook", "ibv_devices"], folders), mib=(272, 272, 272), labels=True)
        one = bench.boot()
        print(f"# Linux {one.ready} up in {one.boot_seconds:.1f} s", flush=True)
        done = one.run(["sh", "-ec", MADE])
        tap.equal(done.code, 0, done.both)
    except Unavailable as reason:
        unavailable = f"there is no virtual machine: {reason}"


def after():
    if bench:
        bench.close()


def namespaces():
    """{region: modes of what is made of it}"""
    listed = bench.machine.run(["ndctl", "list", "--regions", "--namespaces", "--idle"])
    tap.equal(listed.code, 0, listed.both)
    return {one["dev"]: [made["mode"] for made in one["namespaces"] if made["size"]] for one in json.loads(listed.out)["regions"]}


def run(role, first, *words):
    """From that task of the role on."""
    if unavailable:
        tap.skip(unavailable)
    write = bench.machine.run(["sh", "-c", "cat >/root/book.yml"], input=BOOK.format(role).encode())
    tap.equal(write.code, 0, write.both)
    return bench.machine.run(
        ["ansible-playbook", "--inventory", "localhost,", "--connection", "local", "--start-at-task", first, *words, "book.yml"],
        seconds=300, environment={"ANSIBLE_ROLES_PATH": ROLES, "HOME": "/root", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})  # fmt: skip


def role(region, *words):
    wanted = json.dumps({"rowan_pm_region": region})
    return run("rowan_pm", "List regions and namespaces", "--extra-vars", wanted, *words)


def changes(count, done):
    tap.equal(done.code, 0, done.both)
    tap.contains(done.out, f"changed={count} ")


def refuses(sentence, done):
    was = namespaces()
    tap.check(done.code != 0, done.both)
    tap.contains(" ".join(done.both.split()), sentence)
    tap.equal(was, {DEVDAX: ["devdax"], FILES: ["fsdax"], FREE: []})


@tap.case
def a_region_is_named_where_there_are_several():
    refuses("has 3 regions of persistent memory that could be meant", role(""))


@tap.case
def what_may_be_data_is_left_as_it_is():
    refuses("mode fsdax, which may be somebody's data", role(FILES))
    tap.equal(bench.machine.run(["head", "-n", "1", "/dev/pmem1"]).out, "of somebody\n")


@tap.case
def what_is_a_device_already_stays_as_it_is():
    changes(0, role(DEVDAX))


@tap.case
def a_free_region_becomes_a_device_once():
    changes(1, role(FREE, "--check"))
    tap.equal(namespaces()[FREE], [])
    changes(1, role(FREE))
    tap.equal(namespaces(), {DEVDAX: ["devdax"], FILES: ["fsdax"], FREE: ["devdax"]})
    changes(0, role(FREE))


@tap.case
def a_host_without_an_rdma_device_is_refused():
    changes(0, run("rowan_rdma", "List RDMA devices"))
    tap.equal(bench.machine.run(["rdma", "link", "delete", "rxe0"]).code, 0)
    done = run("rowan_rdma", "List RDMA devices")
    tap.check(done.code != 0, done.both)
    tap.contains(" ".join(done.both.split()), "localhost has no RDMA device that works (ibv_devices)")


if __name__ == "__main__":
    sys.exit(tap.main(before, after))
