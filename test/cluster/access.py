#!/usr/bin/python3
"""Who may do what: users with roles and prefixes, servers with the cluster's key, and what those meet who are none of them. Each
refusal is one sentence, is counted, and changes nothing."""

import glob
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time

from guarded import SMALL, Guarded, make_key
from harness import DIVISOR, Cluster, environment, expect, program, run, scratch, tap
import wire
from local import members

PLACES = 4096 - 64 + 1  # CM_MAX_CLIENTS, CM_ADMIN_CLIENTS, and one that is refused
NO_LOGIN = "no login: the cluster asks for"
NO_ACCESS = "the user may not do this"


def before():
    global cluster
    cluster = Guarded("guarded", "--fabric", "tcp")


@tap.case
def a_role_and_a_prefix_say_what_a_user_may_do():
    cluster.ok_by("ann", "put", "all/1", "one")
    cluster.ok_by("wim", "put", "w/1", "mine")
    tap.equal(cluster.ok_by("ria", "get", "all/1").out.rstrip("\n"), "one")
    tap.equal(cluster.ok_by("wim", "get", "w/1").out.rstrip("\n"), "mine")
    logins, requests = cluster.counts()
    for words in ("put", "all/1", "x"), ("del", "all/1"):
        expect(cluster.by("ria", *words), 1, NO_ACCESS)  # says the SDK, which asks no server
    refused = [("wim", "put", "all/1", "x"), ("wim", "get", "all/1"),
               ("wim", "del", "w"), ("wim", "put", "W/1", "x")]  # fmt: skip
    for user, *words in refused:
        expect(cluster.by(user, *words), 1, NO_ACCESS)
    tap.equal(cluster.counts(), [logins, requests + len(refused)])
    tap.equal(cluster.ok_by("ann", "get", "all/1").out.rstrip("\n"), "one")


@tap.case
def a_user_of_a_prefix_traces_its_own_keys_and_sees_no_others_names():
    cluster.ok_by("ann", "set", "trace-one-in=1")
    cluster.ok_by("ann", "put", "all/traced", "one")
    cluster.ok_by("wim", "put", "w/traced", "mine")
    logins, requests = cluster.counts()
    tap.equal({one["version"] > 0 for one in cluster.ok_by("wim", "--json", "trace", "w/traced").json()["replicas"]}, {True})
    done = cluster.by("wim", "trace", "all/traced")
    expect(done, 1, NO_ACCESS)
    tap.equal((done.out, cluster.counts()), ("", [logins, requests + 3]))
    tap.contains(cluster.ok_by("ria", "trace", "all/traced").out, " newest")
    names = {user: [one["key"] for one in cluster.ok_by(user, "--json", "slow").json()["operations"]] for user in ("ria", "wim")}
    tap.check("all/traced" in names["ria"], names)
    tap.equal(set(names["wim"]), {None})
    for words in ("slow",), ("trace", "w/1"), ("top",):
        expect(cluster.rowan(*words), 1, NO_LOGIN)
    cluster.ok_by("ann", "set", "trace-one-in=1024")


@tap.case
def only_an_admin_plans_and_sees_the_users():
    term = cluster.status(*cluster.login("ria"))["term"]
    for words in ("drain", "3"), ("user", "list"), ("user", "remove", "ann"), ("login", "open"), ("balance", "off"):
        expect(cluster.by("wim", *words), 1, NO_ACCESS)
    tap.equal(cluster.status(*cluster.login("ria"))["term"], term)
    listed = cluster.ok_by("ann", "--json", "user", "list").json()
    tap.equal(listed, {"login_required": True, "users": [
        {"name": "ann", "role": "admin", "prefix": ""},
        {"name": "ria", "role": "read", "prefix": ""},
        {"name": "wim", "role": "write", "prefix": "w/"},
    ]})  # fmt: skip
    expect(cluster.by("ann", "user", "remove", "ann"), 1, "without ann nobody would be an admin")


@tap.case
def every_process_says_when_logins_are_off():
    said = lambda: {name: cluster.log(name).count(" info logins_off ") for name in ("cm", "s1", "s2", "s3")}  # noqa: E731
    so_far = said()
    tap.check(min(so_far.values()) >= 1, "not said at the start:", so_far)
    cluster.ok_by("ann", "login", "open")
    adopted_by("s1")
    tap.wait_until(lambda: said() == {name: count + 1 for name, count in so_far.items()}, 20, said)
    cluster.ok("login", "required")


@tap.case
def a_wrong_secret_and_an_unknown_name_are_refused_alike():
    so_far = cluster.logged("login_refused")
    said = {cluster.rowan(*cluster.login(*login), "get", "w/1").err for login in (("wim", "ria"), ("nobody", "ria"))}
    tap.equal(len(said), 1)
    tap.contains(said.pop(), NO_LOGIN)
    tap.equal(cluster.logged("login_refused"), so_far + 2)
    for words in ("get", "w/1"), ("put", "w/1", "x"), ("status",), ("user", "list"):
        expect(cluster.rowan(*words), 1, NO_LOGIN)


@tap.case
def what_lies_in_the_current_directory_is_not_trusted_with_a_login():
    so_far = cluster.logged("login")
    for tool, *words in ("rowan", "status"), ("rowan-ycsb", "--workload", "c", "--records", "1", "--seconds", "1"):
        done = run([program(tool), *cluster.login("ria"), *words], cwd=cluster.directory)
        expect(done, 2, "--user needs --cm or --dir")
    tap.equal(cluster.logged("login"), so_far)
    done = run([program("rowan"), "--dir", ".", *cluster.login("ria"), "status"], cwd=cluster.directory)
    tap.equal(done.code, 0, done.both)


@tap.case
def secrets_and_names_that_cannot_be_are_refused_here():
    term = cluster.status(*cluster.login("ria"))["term"]
    everybody, short = make_key("everybody", 0o644), make_key("short")
    with open(short, "wb") as file:
        file.write(b"short\n")
    add = (*cluster.login("ann"), "user", "add")
    expect(cluster.rowan(*add, "x", "read", everybody), 1, "others than its owner", "chmod o=")
    expect(cluster.rowan(*add, "x", "read", short), 1, "12 to 256 bytes")
    expect(cluster.rowan(*add, "@server", "read", make_key("fine")), 2, "letters, digits")
    expect(cluster.rowan(*add, "x", "root", make_key("fine")), 2, "read, write or admin")
    expect(cluster.rowan("--user", "ann", "status"), 2, "belong together")
    expect(cluster.rowan("--user", "ann", "--secret-file", everybody, "status"), 1, "no permission")
    tap.equal(cluster.status(*cluster.login("ria"))["term"], term)


class Listener(threading.Thread):
    """Between a client and the manager: keeps what clients say, by connection."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target = target
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.heard = []
        self.start()

    def run(self):
        while True:
            client, _ = self.socket.accept()
            server = socket.create_connection(self.target)
            self.heard.append(bytearray())
            for pair in (client, server, self.heard[-1]), (server, client, None):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    @staticmethod
    def carry(source, sink, heard):
        while data := source.recv(65536):
            if heard is not None:
                heard += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def read_address():
    with open(os.path.join(cluster.directory, "cm"), encoding="ascii") as file:
        host, port = file.read().strip().removeprefix("tcp:").split(":")
    return host, int(port)


@tap.case
def a_login_that_is_passed_on_or_was_overheard_is_of_no_use():
    target = read_address()
    listener = Listener(target)
    port = listener.socket.getsockname()[1]
    so_far = cluster.logged("login_refused", "user=ann")
    done = run([program("rowan"), "--cm", f"tcp:127.0.0.1:{port}", *cluster.login("ann"), "user", "remove", "wim"])
    expect(done, 1, NO_LOGIN)
    tap.equal(cluster.logged("login_refused", "user=ann"), so_far + 1)
    cluster.ok_by("wim", "put", "w/1", "mine")
    heard = max(listener.heard, key=len)
    with open(cluster.secret("ann"), "rb") as file:
        tap.check(file.read().strip() not in bytes(heard), "the secret itself was sent")
    so_far = cluster.logged("login_refused", "user=ann")
    with socket.create_connection(target) as again:
        again.sendall(heard)
        again.settimeout(30)
        answer = bytearray()
        while NO_LOGIN.encode() not in answer:
            data = again.recv(65536)
            tap.check(data, "the manager closed before it refused:", bytes(answer))
            answer += data
    tap.equal(cluster.logged("login_refused", "user=ann"), so_far + 1)


def server_4(*key):
    return run([program("rowan-server"), "--server", "4", "--cm", "tcp:%s:%d" % read_address(), "--address", "tcp:127.0.0.1:1",
                "--pm", os.path.join(scratch(), "s4.pm"), "--pm-bytes", "96M", "--durability", "none", *key])  # fmt: skip


@tap.case
def a_server_without_the_cluster_s_key_is_refused():
    so_far = cluster.logged("login_refused", "user=@server")
    no_key = cluster.logged("refused", "ROWAN_ELOGIN", "cluster-key")
    expect(server_4(), 1, "only servers that have the cluster's key", "cluster-key")
    tap.equal(cluster.logged("refused", "ROWAN_ELOGIN", "cluster-key"), no_key + 1)
    expect(server_4("--cluster-key", make_key("other")), 1, "another cluster key")
    tap.equal(cluster.logged("login_refused", "user=@server"), so_far + 1)
    expect(server_4("--cluster-key", make_key("open", 0o644)), 2, "cluster-key", "chmod o=")
    expect(server_4("--cluster-key", "/nowhere"), 2, "cluster-key /nowhere", "not found")
    expect(server_4("--cluster-key", os.path.join(cluster.directory, "cluster-key")), 1, "not among the servers")  # let in


class Intruder:
    """cluster_intruder: says in handshakes what it is told to."""

    def __init__(self):
        self.child = subprocess.Popen([program("cluster_intruder")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.child.stdin.close()
        tap.equal(self.child.wait(60), 0)

    def say(self, *words):
        print(*words, file=self.child.stdin, flush=True)
        return self.child.stdout.readline().strip()

    def connect(self, place, kind, number=0, incarnation=0, of_cluster=0, role=0):
        """(its number, who answered)"""
        address, index = place
        said = self.say("connect", address, index, kind, number, incarnation, of_cluster, role)
        self.count += 1
        return self.count - 1, said

    def expects(self, said, *words):
        tap.equal(self.say(*words), said, *words)


def manager():
    return "tcp:%s:%d" % read_address(), 0


def worker(name):
    return cluster.processes()[name].address, 0


def control(name):
    return cluster.processes()[name].address, 1


def adopted_by(name):
    """The newest configuration is."""
    term = cluster.status(*cluster.login("ria"))["term"]
    tap.wait_until(lambda: f"term={term} " in cluster.log(name) + " ", 20, f"{name} does not adopt term {term}")


def given(one, link):
    """The client id that it gets there, as versions before ask for one; 0: none now."""
    return int(one.say("id", link).removeprefix("id "))


@tap.case
def a_client_s_number_is_used_by_its_user_alone():
    with Intruder() as one:
        asks, _ = one.connect(manager(), "client")
        one.expects("in", "login", asks, "ann", cluster.secret("ann"))
        number = given(one, asks)
        thief, _ = one.connect(worker("s1"), "client", number)
        one.expects("out ROWAN_ELOGIN", "login", thief, "wim", cluster.secret("wim"))
        owner, _ = one.connect(worker("s1"), "client", number)
        one.expects("in", "login", owner, "ann", cluster.secret("ann"))
        nobody, _ = one.connect(worker("s1"), "client", number)
        one.expects("out ROWAN_ELOGIN", "login", nobody, "wim", cluster.secret("wim"))
        one.expects("open", "open", owner)
        newer, _ = one.connect(worker("s1"), "client", number)
        one.expects("in", "login", newer, "ann", cluster.secret("ann"))
        one.expects("ended", "ended", owner)


@tap.case
def who_may_not_write_takes_no_client_id():
    cluster.ok_by("ann", "put", "all/1", "one")
    with Intruder() as one:
        asks, _ = one.connect(manager(), "client")
        one.expects("in", "login", asks, "ann", cluster.secret("ann"))
        first = given(one, asks)
        for _ in range(3):
            cluster.ok_by("ria", "get", "all/1")
            expect(cluster.by("ria", "put", "all/1", "x"), 1, NO_ACCESS)
        tap.equal(given(one, asks), first + 1)
        older, newer = (one.connect(worker("s1"), "client")[0] for _ in range(2))
        one.expects("in", "login", older, "ria", cluster.secret("ria"))
        one.expects("in", "login", newer, "ria", cluster.secret("ria"))
        one.expects("open", "open", older)  # nobody has the number 0 for himself
    cluster.ok_by("ann", "user", "add", "ria", "write", cluster.secret("ria"))
    cluster.ok_by("ria", "put", "all/1", "one")
    cluster.ok_by("ann", "user", "add", "ria", "read", cluster.secret("ria"))


@tap.case
def who_takes_client_ids_without_end_runs_out_of_them_alone():
    """One user has 4,096 at once and 32 a second, of which 16,384 make a term; versions before gave some 30,000 a second."""
    cluster.ok_by("ann", "user", "add", "eve", "read", cluster.secret("eve"))
    refused = cluster.logged("client_ids_refused", "user eve")
    with Intruder() as one:
        greedy, other = (one.connect(manager(), "client")[0] for _ in range(2))
        one.expects("in", "login", greedy, "eve", cluster.secret("eve"))
        one.expects("in", "login", other, "ann", cluster.secret("ann"))
        term, begun = cluster.status(*cluster.login("ria"))["term"], time.monotonic()
        got = int(one.say("ids", greedy, 8192))
        seconds = time.monotonic() - begun
        tap.check(4096 <= got <= 4097 + 32 * seconds, got, "ids in", seconds, "seconds")
        tap.check(given(one, other), "another user gets none")
    tap.check(cluster.status(*cluster.login("ria"))["term"] <= term + 1, "ids cost terms")
    tap.check(cluster.logged("client_ids_refused", "user eve") > refused, "not said")
    cluster.ok_by("wim", "put", "w/1", "mine")
    cluster.ok_by("ann", "user", "add", "eve", "write", cluster.secret("eve"), "e/")
    cluster.ok_by("eve", "put", "e/1", "after a while")


@tap.case
def who_only_connects_ends_no_server_s_connection():
    so_far = cluster.log("s1").count(" cm_lost ")
    with Intruder() as one:
        _, said = one.connect(control("s1"), "client")
        _, number, incarnation, known = said.split()
        for of_cluster in 0, known:
            as_server, said = one.connect(manager(), "server", number, incarnation, of_cluster)
            tap.contains(said, "connected")
            one.expects("failed ROWAN_ELOGIN", "ask", as_server)
    cluster.ok_by("ann", "user", "add", "uma", "read", cluster.secret("uma"))
    adopted_by("s1")
    tap.equal(cluster.log("s1").count(" cm_lost "), so_far)


@tap.case
def who_had_to_prove_nothing_has_to_once_logins_are_required():
    cluster.ok_by("ann", "login", "open")
    for name in "s1", "s2":
        adopted_by(name)
    with Intruder() as one:
        _, said = one.connect(control("s2"), "client")
        _, number, incarnation, _ = said.split()
        as_server = "server", number, incarnation, 0, 7
        held, said = one.connect(control("s1"), *as_server)
        tap.contains(said, "connected 1")
        one.expects("answered", "ask", held)
        lost = cluster.log("s1").count(" peer_lost ")
        cluster.ok("login", "required")
        one.expects("ended", "ended", held)
        adopted_by("s1")
        tap.contains(one.connect(control("s1"), *as_server)[1], "refused")
    tap.equal(cluster.log("s1").count(" peer_lost "), lost)  # the others had shown it unasked


SECRET = rb"\x2a\x10(.{16})\x30"  # fields of the configuration, and what follows each
PROOF = rb"\x92\x01.\x0a\x10(.{16})[\x12\x1a]\x10"


def stored(field):
    """As whoever reads what the managers keep finds it."""
    for path in glob.glob(os.path.join(cluster.directory, "coord", "*")):
        with open(path, "rb") as file:
            if found := re.search(field, file.read(), re.DOTALL):
                return found.group(1).hex()
    raise AssertionError("the configuration has no such field")


def rotate(*words):
    so_far = cluster.logged("secrets_rotated")
    cluster.ok_by("ann", "login", *(words or ("rotate",)))
    tap.wait_until(lambda: cluster.logged("secrets_rotated") > so_far, 20, "the former secret counts on")
    cluster.is_adopted()


def is_server_2(one, secret):
    """Does server 1 think so?"""
    _, number, incarnation, _ = one.connect(control("s2"), "client")[1].split()
    one.expects("ok", "secret", secret)
    return "connected" in one.connect(control("s1"), "server", number, incarnation, 0, 7)[1]


@tap.case
def what_was_to_be_had_in_the_open_cluster_makes_no_server_and_no_ticket():
    stolen = stored(SECRET)  # which seeds checksums still
    logins, proofs = cluster.counts("refused_logins", "refused_proofs")
    said = cluster.log("s1").count(" peer_refused ")
    with Intruder() as one:
        tap.check(not is_server_2(one, stolen), "the secret of the open cluster makes a server")
        asks, _ = one.connect(manager(), "client")
        one.expects("in", "login", asks, "ann", cluster.secret("ann"))
        number = one.say("id", asks).removeprefix("id ")
        one.expects("ok", "ticket", stolen, number, "wim")
        thief, _ = one.connect(worker("s1"), "client", number)
        one.expects("out ROWAN_ELOGIN", "login", thief, "wim", cluster.secret("wim"))
        former = stored(PROOF)
        tap.check(is_server_2(one, former), "the secret of now makes no server")
        held = one.count - 1
        rotate()
        one.expects("ended", "ended", held)
        tap.check(not is_server_2(one, former), "the secret of before makes a server")
        tap.check(is_server_2(one, stored(PROOF)), "the secret of now makes no server")
    tap.equal(cluster.counts("refused_logins", "refused_proofs"), [logins + 1, proofs + 2])
    tap.equal(cluster.log("s1").count(" peer_refused "), said + 2)


@tap.case
def a_client_s_number_stays_its_own_when_secrets_are_rotated():
    def comes_back(said):
        again, _ = one.connect(worker("s1"), "client", number)
        one.expects(said, "login", again, "ann", cluster.secret("ann"))

    for switches in False, True:
        if switches:
            cluster.ok_by("ann", "login", "open")
        with Intruder() as one:
            asks, _ = one.connect(manager(), "client")
            one.expects("in", "login", asks, "ann", cluster.secret("ann"))
            number = one.say("id", asks).removeprefix("id ")
            comes_back("in")
            rotate(*(("required",) if switches else ()))
            comes_back("in")
            rotate()
            comes_back("out ROWAN_ELOGIN" if switches else "in")  # the open cluster's key makes no tickets any more


@tap.case
def secrets_are_rotated_under_load():
    cluster.ycsb("load", 2000, *cluster.login("ann"))
    words = [program("rowan-ycsb"), "--dir", cluster.directory, *cluster.login("ann"), "--workload", "a", "--records", "2000",
             "--operations", "30000", "--rate", "4000", "--threads", "2", "--timeout-ms", "2000", "--json"]  # fmt: skip
    lines = lambda: [sum(cluster.log(name).count(word) for name in ("s1", "s2", "s3"))  # noqa: E731
                     for word in (" peer_lost ", " peer_refused ", " login_refused ")]  # fmt: skip
    so_far = lines()
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    for _ in range(4):
        rotate()
    tap.check(child.poll() is None, "the load was over before")
    out, err = child.communicate(timeout=200)
    tap.equal((child.returncode, json.loads(out)["errors"]), (0, 0), err, cluster.last_logs())
    tap.equal(lines(), so_far)


@tap.case
def settings_wait_for_a_configuration_which_says_who_may_change_them():
    processes = cluster.processes()
    for name in "cm", "s1":
        cluster.kill([name])
    started = cluster.log("s1").count(" stored_configuration ")
    members.launch(cluster.directory, processes["s1"])
    tap.wait_until(lambda: cluster.log("s1").count(" stored_configuration ") > started, 20, "server 1 does not start")
    with Intruder() as one:
        tap.wait_until(lambda: "connected" in one.connect(control("s1"), "client")[1], 20, "server 1 does not listen")
        one.expects("failed ROWAN_EAGAIN", "set", one.count - 1)
    members.launch(cluster.directory, processes["cm"])
    tap.wait_until(lambda: cluster.rowan(*cluster.login("ria"), "--wait", "shards").code == 0, 60, lambda: cluster.last_logs())
    tap.check("setting_changed" not in cluster.log("s1"), "whoever came changed a setting")


def is_closed_by(one):
    """Whatever it was told before."""
    while one.take(1):
        pass


@tap.case
def who_has_not_logged_in_has_little_space_and_little_time():
    doors = [manager(), worker("s2"), control("s2")]
    ended = lambda: sum(row["ended_guests"] for row in cluster.status(*cluster.login("ria"))["servers"])  # noqa: E731
    so_far = ended()
    with Intruder() as one:
        users = []
        for door in doors:
            users.append(one.connect(door, "client")[0])
            one.expects("in", "login", users[-1], "ria", cluster.secret("ria"))
        silent, begun = [[wire.Client(*door, seconds=60) for door in doors] for _ in range(2)]
        for guest in silent + begun:
            tap.equal(guest.welcome(), 0)
        for guest in begun:
            guest.send(b"", declared=1 << 20)
        for guest in begun + silent:
            is_closed_by(guest)
        for user in users:
            one.expects("open", "open", user)
    tap.check(ended() >= so_far + 4, "not counted")
    tap.contains(cluster.log("s2"), "guests_ended")


@tap.case
def guests_take_no_places_of_others():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    held = []
    try:
        for place, (address, index) in enumerate((manager(), control("s1"))):
            for _ in range(1500):  # more than there are places for guests
                held.append(wire.Client(address, index, seconds=60))
                tap.equal(held[-1].welcome(), 0)
            cluster.ok_by("ria", "status")
            is_closed_by(held[1500 * place])
    finally:
        for one in held:
            one.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@tap.case
def a_user_with_all_places_keeps_no_admin_out():
    if DIVISOR > 1:
        tap.skip("4,000 logins in a sanitized build")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    with open(cluster.secret("ria"), "rb") as file:
        ria = wire.Account("ria", file.read().rstrip(b"\n"))
    held, said = [], None
    try:
        while not said and len(held) <= PLACES:
            held.append(wire.Client(*manager(), seconds=60))
            said = held[-1].log_in(ria, held[-1].take(wire.GREETING_BYTES))
        tap.check(PLACES - 100 < len(held) <= PLACES, len(held))
        expect(cluster.by("ria", "--timeout-ms", "3000", "status"), 1, "a fixed limit is reached")
        cluster.ok_by("ann", "status")
    finally:
        for one in held:
            one.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@tap.case
def keys_are_named_to_who_may_read_them():
    cluster.ok_by("ann", "user", "add", "rob", "read", cluster.secret("rob"), "r/")
    hot = lambda user: [row["hot_key"] for row in cluster.ok_by(user, "--json", "shards").json()["shards"] if row["hot_key"]]  # noqa: E731
    cluster.ycsb("load", 1000, *cluster.login("ann"))
    child = subprocess.Popen([program("rowan-ycsb"), "--dir", cluster.directory, *cluster.login("ann"), "--workload", "c", "--records", "1000",
                              "--seconds", "60", "--threads", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env=environment())  # fmt: skip
    try:
        tap.wait_until(lambda: hot("ann"), 30, "no key is hot")
        tap.equal(hot("rob"), [])
        tap.check(hot("ann"), "no key is hot any more")
    finally:
        child.kill()
        child.wait()


@tap.case
def a_user_who_is_removed_loses_what_he_had_at_once():
    cluster.ok_by("ann", "user", "add", "tom", "write", cluster.secret("tom"))
    words = [program("rowan-ycsb"), "--dir", cluster.directory, *cluster.login("tom"), "--workload", "a", "--records", "1000",
             "--seconds", "15", "--threads", "1", "--timeout-ms", "2000", "--json"]  # fmt: skip
    cluster.ycsb("load", 1000, *cluster.login("tom"))
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    gets = lambda: sum(row["gets"] for row in cluster.status(*cluster.login("ria"))["servers"])  # noqa: E731
    so_far = gets()
    tap.wait_until(lambda: gets() > so_far, 60, "the load does not begin")
    cluster.ok_by("ann", "user", "remove", "tom")
    tap.wait_until(lambda: "reason=ROWAN_ELOGIN" in cluster.log("cm"), 20, "the manager goes on telling who was removed")
    out, err = child.communicate(timeout=100)
    tap.check(child.returncode == 1 and json.loads(out)["errors"] > 0, "who was removed goes on:", out, err)
    stopped = gets()
    expect(cluster.rowan(*cluster.login("tom"), "get", "w/1"), 1, NO_LOGIN)
    tap.equal(gets(), stopped)


@tap.case
def sessions_log_in_again_after_a_failover_and_a_start():
    cluster.ycsb("load", 2000, *cluster.login("ann"))
    words = [program("rowan-ycsb"), "--dir", cluster.directory, *cluster.login("ann"), "--workload", "a", "--records", "2000",
             "--operations", "40000", "--rate", "4000", "--threads", "1", "--timeout-ms", "30000", "--json"]  # fmt: skip
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    one = cluster.processes()["s1"]
    cluster.kill(["s1"])
    alive = lambda: {row["server"] for row in cluster.by("ria", "--json", "status").json()["servers"]}  # noqa: E731
    tap.wait_until(lambda: 1 not in alive(), 60, lambda: "server 1 is not removed: " + cluster.last_logs())
    members.launch(cluster.directory, one)
    tap.wait_until(lambda: 1 in alive(), 60, lambda: "server 1 does not come back: " + cluster.last_logs())
    out, err = child.communicate(timeout=200)
    tap.equal(child.returncode, 0, out, err, cluster.last_logs())


@tap.case
def without_a_key_for_servers_logins_are_not_required():
    other = Cluster("keyless", *SMALL)
    other.ok("user", "add", "ann", "admin", os.path.join(other.directory, "ann.secret"))
    expect(other.rowan("login", "required"), 1, "cluster-key")
    other.ok("put", "a", "b")
    other.stop()


@tap.case
def no_log_and_no_command_line_has_a_secret():
    secrets = [cluster.secret(user) for user in ("ann", "wim", "ria", "tom")] + [os.path.join(cluster.directory, "cluster-key")]
    told = "".join(cluster.logs().values())
    for one in cluster.processes().values():
        with open(f"/proc/{one.pid}/cmdline", encoding="utf-8", errors="replace") as file:
            told += file.read()
    for path in secrets:
        with open(path, encoding="ascii") as file:
            tap.check(file.read().strip() not in told, f"what {path} holds was told")
    cluster.stop()


sys.exit(tap.main(before))
