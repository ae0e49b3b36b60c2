"""What a cluster was started with: D/cluster.json, the defaults, and what may change between runs."""

import argparse
import json
import os
import re
import shlex

from .failure import Failure

# What the data on disk is made of. A cluster that is started again keeps it.
OF_THE_DATA = ("servers", "replicas", "shards", "coord", "zookeepers", "pm_bytes", "pm", "pm_offset", "lease_ms")
# All else each run may choose anew; left out, it stays as it was.

LARGEST_SERVER = 64
MOST_REPLICAS = 7  # CLUSTER_MAX_REPLICAS
MOST_SHARDS = 16384  # CLUSTER_MAX_SHARDS
MOST_MANAGERS = 8  # MANAGERS_MAX
NO_LONGER = {"verbs_receive": "connection"}  # words that cluster.json of an earlier version may have
RECEIVE_NO_LONGER = (
    'verbs_receive "connection" is gone, for every RDMA NIC has shared receive queues: give '
    "--verbs-receive auto"
)
DURABILITY_MEANING = {
    "fence": "an acknowledged write is on the medium",
    "async": "a power loss may cost the last moments",
    "none": "the data survives a killed process, not a crash of this machine",
}


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
    if text == NO_LONGER["verbs_receive"]:
        raise argparse.ArgumentTypeError(RECEIVE_NO_LONGER)
    return text


def pm_place(text):
    path, colon, offset = text.rpartition(":")
    if not colon:
        return text, 0
    return path, byte_count(offset)


# Of start: (name, default, its words or what stands for the value, how it is read, help). None: the servers' own default.
OPTIONS = (
    ("servers", 3, "N", number(1, LARGEST_SERVER), "servers (default 3)"),
    ("replicas", 3, "N", number(1, MOST_REPLICAS), "copies of each shard, primary included (default 3)"),
    ("shards", 0, "N", number(0, MOST_SHARDS), "shards; 0: as many as fit the servers (default)"),
    ("fabric", "shm", ("shm", "tcp", "verbs"), str,
     "network: shm; tcp on free ports of 127.0.0.1; or verbs, which is RDMA and connects over such ports (default shm)"),
    ("coord", "file", ("file", "zookeeper"), str,
     "where the CM keeps the configuration: in files, or in a ZooKeeper that is started with the cluster (default file)"),
    ("zookeepers", 1, "N", number(1, 7), "with --coord zookeeper: its servers (default 1)"),
    ("managers", 1, "N", number(1, MOST_MANAGERS), "CMs; one leads, and when it dies another one does (default 1)"),
    ("lease-ms", 500, "N", number(0, 60000),
     "milliseconds of the servers' leases, 2 or more, by which one that fails is replaced (default 500); 0: none, and it "
     "is waited for"),
    ("pm-bytes", 2 << 30, "N", byte_count,
     "persistent memory of each server in bytes, K, M, G or T; reserved at start (default 2G: about 13 million ZippyDB "
     "writes)"),
    ("pm", "", "PATH[:OFFSET]", pm_place,
     "directory for the PM files, or a device or file, of which the servers take one part after the other from OFFSET "
     "(default: DIR)"),
    ("durability", "none", tuple(DURABILITY_MEANING), str,
     "what an acknowledged write survives: "
     + "; ".join(f"{word}: {text}" for word, text in DURABILITY_MEANING.items()) + " (default none)"),
    ("verbs-device", None, "NAME", str, "over verbs: the RDMA device (default: found by itself)"),
    ("verbs-receive", None, ("auto", "multi-packet", "shared"), way_to_receive,
     "over verbs: how entries are received (default: the best that the device can)"),
    ("checkpoints", None, ("yes", "no"), str,
     "servers write their index to the PM now and then, so that they start sooner (default yes)"),
    ("metrics", "no", ("yes", "no"), str,
     "CMs and servers answer Prometheus, each at a free port of 127.0.0.1; DIR/prometheus.json names them, for its "
     "file_sd_configs (default no)"),
    ("wear-model", None, ("off", "on", "log-per-sender"), str,
     "servers estimate what their writes would cost an Optane DIMM (rowan-dlwa shows it; default off)"),
    ("workers", None, "N", number(1, 64), "roles of each server that serve operations (default 1)"),
    ("digests", None, "N", number(1, 64), "roles of each server that index what landed (default 1)"),
    ("reactors", None, "N", number(1, 64), "threads of each server (default 1)"),
    ("landing-segments", None, "N", number(1, 1024), "4 MiB segments posted for landing entries (default 16)"),
    ("clean-below", None, "N", number(1, 95), "per cent of live bytes below which segments are cleaned (default 75)"),
)  # fmt: skip
DEFAULTS = {name.replace("-", "_"): default for name, default, *_ in OPTIONS} | {
    "removed": [],  # of the numbers up to `servers` those that were taken out
    "pm_offset": 0,
    "port": 0,  # over tcp and verbs: the CM's in the last run, where its clients connect again
}
WORDS = {
    name.replace("-", "_"): words if default else (None, *words)
    for name, default, words, *_ in OPTIONS if isinstance(words, tuple)
}  # fmt: skip
# What cluster.json of an earlier version may lack.
ADDED_LATER = ("verbs_device", "verbs_receive", "clean_below", "checkpoints", "wear_model", "zookeepers", "managers",
               "lease_ms", "removed", "metrics")  # fmt: skip
FORMATS = range(1, 2)  # of cluster.json, that this version reads; it writes the last


def numbers(options):
    """Of the servers."""
    return [number for number in range(1, options.servers + 1) if number not in options.removed]


def flag(name):
    return "--" + name.replace("_", "-")


def has_ports(fabric):
    """Verbs connections are set up over tcp."""
    return fabric in ("tcp", "verbs")


def path_of(directory):
    return os.path.join(directory, "cluster.json")


def read(directory):
    """The settings that cluster.json tells; None: there is none."""
    path = path_of(directory)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {}
    elif found.pop("format", 1) not in FORMATS:
        raise Failure(
            f"{path} was written by another version of rowan-local, in a format that this one does not "
            "read: use that version, or name another directory with --dir (nothing was touched)"
        )
    else:
        found = {name: DEFAULTS[name] for name in ADDED_LATER} | {"lease_ms": 0} | found
    missing = sorted(set(DEFAULTS) - set(found))
    wrong = sorted(name for name in DEFAULTS if not missing and not is_sound(name, found[name]))
    if missing or wrong:
        what = f" or of another version: it lacks {', '.join(missing)}"
        if wrong:
            what = f": what it says of {', '.join(wrong)} makes no sense"
        raise Failure(
            f"{path} is damaged{what}; restore it, or name another directory with --dir (nothing was touched)"
        )
    return {name: found[name] for name in DEFAULTS}


def is_sound(name, value):
    """Could `write` have written it?"""
    default = DEFAULTS[name]
    if name in WORDS:
        return value in WORDS[name] or value == NO_LONGER.get(name)
    if isinstance(default, str) or (name == "verbs_device" and value is not None):
        return isinstance(value, str)
    if isinstance(default, list):
        return isinstance(value, list) and all(type(one) is int for one in value)
    if default is None and value is None:
        return True
    return type(value) is int and (value > 0 or value == default or name in ("pm_bytes", "lease_ms"))


def write(options):
    saved = {"format": FORMATS[-1]} | {name: getattr(options, name) for name in DEFAULTS}
    write_whole(path_of(options.directory), json.dumps(saved, indent=1) + "\n")


def write_whole(path, text):
    """The old file or the new one is there, whole, whatever ends us."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # else a power loss could leave an empty file
    os.rename(path + ".new", path)


def complete(options):
    """Fills what the command line left out (None): from cluster.json, which is kept in
    `options.saved`, else the defaults. What is given and is not what the data is made of is refused."""
    options.saved = read(options.directory)
    if options.saved and options.pm is not None:
        refuse_other_place(options)
        options.pm = options.pm_offset = None
    for name, default in DEFAULTS.items():
        given = getattr(options, name)
        if options.saved and name in OF_THE_DATA and given not in (None, options.saved[name]):
            refuse(options, flag(name), given, options.saved[name])
        if given is None:
            setattr(options, name, options.saved[name] if options.saved else default)
    if options.verbs_receive == NO_LONGER["verbs_receive"]:
        raise Failure(f"{path_of(options.directory)}: {RECEIVE_NO_LONGER} (nothing was touched)")


def place(directory, pm, offset):
    return os.path.realpath(pm or directory), offset


def refuse_other_place(options):
    saved = options.saved["pm"], options.saved["pm_offset"]
    given = options.pm, options.pm_offset
    if place(options.directory, *given) != place(options.directory, *saved):
        refuse(options, "--pm", *(place_text(options, *one) for one in (given, saved)))


def place_text(options, pm, offset):
    return f"{pm or options.directory}:{offset}" if offset else pm or options.directory


def refuse(options, flag, given, saved):
    raise Failure(
        f"{flag} {shlex.quote(str(given))}: the data in {options.directory} was made with {flag} "
        f"{shlex.quote(str(saved))}, and that cannot change; leave {flag} out to start it again, or "
        "name another directory with --dir (nothing was touched)"
    )
