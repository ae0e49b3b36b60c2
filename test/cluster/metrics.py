#!/usr/bin/python3
"""What Prometheus is told, asked of a real one: counts that agree with the load's to the operation, a series for each panel of the
dashboard, and each alert in front of its cause."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import harness
from harness import SOURCE, Cluster, environment, program, run, scratch, tap

import packages
import prometheus

RECORDS = 20_000 // min(harness.DIVISOR, 4)
MORE_RECORDS = 8 * RECORDS  # some segments
RULES = os.path.join(SOURCE, "deploy", "prometheus", "rowan.rules.yml")
FIRED = set()


def before():
    global programs, watch, cluster
    names = ("main", "senders", "single", "small", "zoo")
    try:
        programs = prometheus.fetch(os.path.join(SOURCE, "build", "packages"))
    except packages.Unavailable as error:
        raise tap.Failed(f"Prometheus is not to be had: {error}") from None
    with open(RULES, encoding="utf-8") as file:
        rules = prometheus.hurried(file.read())
    watch = prometheus.Prometheus(
        programs, os.path.join(scratch(), "prometheus"), rules,
        [os.path.join(scratch(), name, "prometheus.json") for name in names],
    )  # fmt: skip
    cluster = Watched("main", "--fabric", "tcp", "--wear-model", "on")  # over shm a backup that is stopped delays nobody


def after():
    watch.end()


class Watched(Cluster):
    def __init__(self, name, *options):
        super().__init__(name, "--metrics", "yes", "--lease-ms", "500", "--pm-bytes", "256M", *options)
        with open(os.path.join(self.directory, "prometheus.json"), encoding="utf-8") as file:
            found = json.load(file)
        self.targets = {row["labels"].get("server", "cm"): row["targets"][0] for row in found}
        tap.wait_until(lambda: self.scraped() == len(self.targets), 60, f"all of {name} is scraped")

    def scraped(self):
        return len([row for row in watch.query("up == 1") if row[0]["instance"] in self.targets.values()])

    def load(self, workload, *more):
        """Not judged: the load beside a failure."""
        return subprocess.Popen(
            [program("rowan-ycsb"), "--dir", self.directory, "--workload", workload, "--records", str(RECORDS), *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), cwd=scratch(),
        )  # fmt: skip


def fires(*alerts, seconds=60):
    watch.wait_for(*alerts, seconds=seconds)
    FIRED.update(alerts)


def promtool(*words, **more):
    done = run([os.path.join(programs, "promtool"), *words], **more)
    tap.equal(done.code, 0, f"promtool {words}:", done.both[:3000])
    return done.both


@tap.case
def names_texts_and_rules_are_as_promtool_wants_them():
    for name in "cm", "1":
        code, text = prometheus.get(cluster.targets[name], "/metrics")
        tap.equal(code, 200)
        tap.equal(promtool("check", "metrics", input=text), "", "promtool says nothing to what is well")
    promtool("check", "config", os.path.join(SOURCE, "deploy", "prometheus", "prometheus.yml"))
    tap.contains(promtool("check", "rules", RULES), "SUCCESS")


@tap.case
def counts_agree_with_the_load_to_the_operation():
    expected = {"get": 0, "put": 0}
    for workload, *more in ("load",), ("a", "--operations", RECORDS), ("c", "--operations", RECORDS):
        found = cluster.ycsb(workload, RECORDS, *more)
        for kind in expected:
            expected[kind] += found.get(kind, {"operations": 0})["operations"]
    watch.wait_for_scrapes(len(cluster.targets))
    for kind, count in expected.items():
        tap.equal(watch.number(f'sum(rowan_requests_total{{kind="{kind}",outcome!~"busy|moved|repeated"}})'), count, kind)
        tap.equal(watch.number(f'sum(rowan_operation_duration_seconds_count{{kind="{kind}"}})'), count, kind)
    status = cluster.status()["servers"]
    tap.equal(sum(one["puts"] for one in status), expected["put"])
    tap.equal(watch.number('sum(rowan_shards{part="primary"})'), len(cluster.shards()))


@tap.case
def a_read_that_finds_nothing_takes_time_too():
    spent = 'sum(rowan_operation_duration_seconds_sum{kind="get"})'
    before = watch.number(spent)
    for _ in range(3):
        tap.equal(cluster.rowan("get", "none").code, 1)
    watch.wait_for_scrapes(len(cluster.targets))
    tap.check(watch.number(spent) > before, before)


@tap.case
def each_panel_shows_a_series():
    with open(os.path.join(SOURCE, "deploy", "grafana", "rowan.json"), encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    tap.check(len(panels) > 10, panels)
    load = cluster.load("a", "--seconds", "30")  # rates need two scrapes
    try:
        for panel in panels:
            for target in panel["targets"]:
                tap.wait_until(lambda query=target["expr"]: watch.query(query), 20, f"{panel['title']}: {target['expr']}")
    finally:
        load.kill()
        load.wait()


@tap.case
def slow_operations_raise_the_alarm():
    load = cluster.load("a", "--rate", "100", "--seconds", "60")
    try:
        tap.wait_until(lambda: watch.query('sum(rate(rowan_requests_total{outcome="ok"}[10s])) > 20 < 200'), 60, "nothing but the load runs")
        cluster.signal("s2", signal.SIGSTOP)
        fires("RowanSlow")
    finally:
        cluster.signal("s2", signal.SIGCONT)
        load.kill()
        load.wait()


@tap.case
def a_server_that_is_gone_raises_the_alarm():
    cluster.kill(["s3"])
    fires("RowanServerDown", "RowanUnderReplicated")
    host, port = cluster.targets["3"].split(":")
    with socket.create_server((host, int(port))):  # somebody else's now
        tap.equal(harness.rowan_local("restart", "3", "--dir", cluster.directory).code, 0)
    tap.wait_until(lambda: watch.query(f'up{{server="3",instance!="{host}:{port}"}} == 1'), 30, "it is scraped elsewhere")


@tap.case
def no_manager_raises_the_alarm():
    tap.equal(prometheus.get(cluster.targets["1"], "/readyz"), (200, "ok\n"))
    cluster.kill(["cm"])
    fires("RowanManagerMissing", "RowanNotServing")
    code, text = prometheus.get(cluster.targets["1"], "/readyz")
    tap.equal(code, 503)
    tap.contains(text, "not ready: the server holds no lease")
    tap.equal(prometheus.get(cluster.targets["1"], "/healthz"), (200, "ok\n"))


@tap.case
def a_coordination_service_that_is_silent_raises_the_alarm():
    zoo = Watched("zoo", "--coord", "zookeeper", "--servers", "1", "--replicas", "1")
    zoo.signal("z1", signal.SIGSTOP)
    try:
        fires("RowanCoordinationLost")
    finally:
        zoo.signal("z1", signal.SIGCONT)
    zoo.stop()


@tap.case
def many_small_streams_raise_the_alarm():
    senders = Watched("senders", "--workers", "64", "--pm-bytes", "2G", "--wear-model", "log-per-sender")
    load = senders.load("load", "--connections", "32", "--depth", "4", "--rate", "1000")
    try:
        fires("RowanWearsMemory")
    finally:
        load.kill()
        load.wait()
    senders.stop()


@tap.case
def a_full_memory_raises_the_alarm():
    os.mkdir(os.path.join(scratch(), "small"))
    key = os.open(os.path.join(scratch(), "small", "cluster-key"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(key, os.urandom(24).hex().encode())
    os.close(key)
    small = Watched("small", "--servers", "1", "--replicas", "1", "--landing-segments", "2")
    done = run([program("rowan-ycsb"), "--dir", small.directory, "--workload", "load", "--profile", "fixed:100000", "--records",
                "4000"], seconds=300)  # fmt: skip
    tap.equal(done.code, 1, done.both[-1000:])
    tap.contains(done.both, "ROWAN_EFULL")
    fires("RowanFull", "RowanSpaceShort")


@tap.case
def refused_requests_raise_the_alarm():
    small = os.path.join(scratch(), "small")
    rowan = [program("rowan"), "--dir", small]
    secrets = {name: os.path.join(small, name + ".secret") for name in ("ann", "wim")}
    for words in ("user", "add", "ann", "admin", secrets["ann"]), ("user", "add", "wim", "write", secrets["wim"], "w/"), ("login", "required"):
        done = run([*rowan, *words])
        tap.equal(done.code, 0, words, done.both)
    refused = subprocess.Popen(
        ["sh", "-c", 'while "$@"; test $? = 1; do :; done', "sh", *rowan, "--user", "wim", "--secret-file",
         secrets["wim"], "put", "key", "value"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), cwd=scratch(),
    )  # fmt: skip
    try:
        fires("RowanLoginsRefused")
    finally:
        refused.kill()
        refused.wait()


@tap.case
def damage_raises_the_alarm():
    global single
    single = Watched("single", "--servers", "2", "--replicas", "1")
    single.ycsb("load", MORE_RECORDS)
    tap.wait_until(lambda: watch.number('rowan_segments{state="committed",instance="%s"}' % single.targets["1"]) > 0, 60,
                   "a segment is committed")  # fmt: skip
    path = os.path.join(single.directory, "s1.pm")
    with open(path, "r+b") as file:  # in front of the server that has it mapped
        data = file.read()
        for at in re.finditer(rb"\.rowan\.aucup", data):
            file.seek(at.start())
            file.write(b"\0rowan")
    load = single.load("c", "--seconds", "60")
    try:
        fires("RowanOperationsFail")
    finally:
        load.kill()
        load.wait()
    single.stop()
    single.start_again()
    fires("RowanDamage", "RowanPossibleLoss")


@tap.case
def shards_that_nobody_serves_raise_the_alarm():
    single.kill(["s2"])
    fires("RowanShardsUnserved")


@tap.case
def every_alert_was_seen():
    with open(RULES, encoding="utf-8") as file:
        text = file.read()
    alerts = re.findall(r"- alert: (\w+)", text)
    for what in "summary", "reason", "first_step":
        tap.equal(len(re.findall(rf"^ +{what}: ", text, re.M)), len(alerts), what)
    tap.equal(set(alerts), FIRED)


sys.exit(tap.main(before, after))
