"""ZooKeeper servers of a local cluster: D/zookeeper/z1 and so on, on ports of 127.0.0.1, from Debian's packages."""

import os
import shutil

from . import ports
from .failure import Failure

JAR = "/usr/share/java/zookeeper.jar"
LOGGER = "/usr/share/java/slf4j-simple.jar"  # of a package that the other one needs
PORTS_EACH = 3  # for clients, for the other servers, for their elections
PATH = "/rowan"
TICK_MS = 500  # sessions last 2 to 20 of them, unless it is said
CONFIG = """\
tickTime={tick}
initLimit=20
syncLimit=10
maxSessionTimeout=120000
dataDir={data}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
autopurge.purgeInterval=1
"""


def names(options):
    count = options.zookeepers if options.coord == "zookeeper" else 0
    return [f"z{number}" for number in range(1, count + 1)]


def check_installed():
    if not shutil.which("java") or not os.path.exists(JAR):
        raise Failure(
            "ZooKeeper is not installed: tools/install-deps zookeeper does it (Debian's default-jre-headless "
            "and libzookeeper-java)"
        )


def ensemble(options):
    """As rowan-cm is told."""
    return ",".join(options.addresses[name] for name in names(options)) + PATH


def folder(options, name):
    return os.path.join(options.directory, "zookeeper", name)


def escaped(text):
    """As a value in a file of Java's properties."""
    return "".join(c if " " <= c <= "~" and c != "\\" else f"\\u{ord(c):04x}" for c in text)


def write_config(options, name):
    """The ports of the present run, and the data of all."""
    place = folder(options, name)
    data = os.path.join(place, "data")
    os.makedirs(data, exist_ok=True)
    text = CONFIG.format(tick=TICK_MS, data=escaped(data), port=ports.of(options.addresses[name]), host=ports.HOST)
    every = names(options)
    for number, other in enumerate(every if len(every) > 1 else [], 1):
        first = ports.of(options.addresses[other]) + 1
        text += f"server.{number}={ports.HOST}:{first}:{first + 1}\n"
    with open(os.path.join(data, "myid"), "w", encoding="ascii") as file:
        file.write(name[1:] + "\n")
    with open(os.path.join(place, "zoo.cfg"), "w", encoding="utf-8") as file:
        file.write(text)


def command(options, name):
    return java(os.path.join(folder(options, name), "zoo.cfg"))


def java(config):
    return [
        "java", "-Djava.net.preferIPv4Stack=true", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp", f"{JAR}:{LOGGER}",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
    ]  # fmt: skip
