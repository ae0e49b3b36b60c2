#!/usr/bin/python3
"""What writes cost persistent memory: the servers' model of it, where Rowan and a log per sender differ, and rowan-dlwa on
DIMMs' counters that were recorded. Ratios follow from counts of writes, not from time."""

import json
import os
import stat
import sys

from harness import SOURCE, Cluster, expect, program, run, scratch, tap

WORKERS = 64  # three servers: 192 logs at each with a log per sender, 65 without
RECORDS = 10_000
SAMPLES = os.path.join(SOURCE, "test", "unit", "client", "ipmctl")
SEGMENT_BYTES = 4 << 20
MOST, LEAST_PER_SENDER = 1.05, 1.4
NAMED = ["--ipmctl", "--counters", "lifetime", "--json"]

clusters = {}


def dlwa(*words, **more):
    return run([program("rowan-dlwa"), *map(str, words)], **more)


def total(cluster, *words):
    done = dlwa("--dir", cluster.directory, "--json", *words)
    tap.equal(done.code, 0, done.both)
    return done.json()["total"]


def loaded(mode, fabric):
    cluster = Cluster(f"{mode}-{fabric}", "--workers", str(WORKERS), "--reactors", "1", "--pm-bytes", "4G",
                      "--fabric", fabric, "--wear-model", mode)  # fmt: skip
    cluster.ycsb("load", RECORDS, "--connections", "32", depth=4, threads=1)
    found = total(cluster)
    tap.equal(found["lost_writes"], 0)
    # Each entry lies on three replicas, and takes one line of a processor's cache or more.
    tap.check(found["request_bytes"] >= 3 * 64 * RECORDS, found)
    status = cluster.status()["servers"]
    for server in status:
        tap.check(0.8 < server["device_write_amplification"] < 4, server)
    cluster.stop()
    cluster.remove()
    return found["ratio"]


@tap.case
def rowan_writes_what_it_is_asked_to_and_a_log_per_sender_costs_much_more():
    ratios = {(mode, fabric): loaded(mode, fabric) for mode, fabric in (("on", "shm"), ("log-per-sender", "shm"),
                                                                       ("log-per-sender", "tcp"))}  # fmt: skip
    print("#", *(f"{mode} over {fabric}: {ratio:.3f};" for (mode, fabric), ratio in ratios.items()))
    for (mode, _), ratio in ratios.items():
        tap.check(0.9 < ratio <= MOST if mode == "on" else LEAST_PER_SENDER <= ratio < 4, ratios)


@tap.case
def cleaning_is_told_apart():
    cluster = clusters["cleans"] = Cluster("cleans", "--pm-bytes", "128M", "--landing-segments", "4", "--wear-model", "on",
                                           "--fabric", "tcp")  # fmt: skip
    writes = ("--profile", "fixed:1000", "--distribution", "uniform")
    cluster.ycsb("load", 20_000, *writes)
    tap.equal(total(cluster)["clean_request_bytes"], 0)
    for seed in range(2, 12):
        cluster.ycsb("a", 20_000, *writes, "--operations", 20_000, "--seed", seed)
    cleaned = sum(server["segments_cleaned"] for server in cluster.status()["servers"])
    found = total(cluster)
    print(f"# with cleaning {found['ratio']:.3f}, of {found['clean_request_bytes'] >> 20} MiB in "
          f"{found['request_bytes'] >> 20}")  # fmt: skip
    tap.check(found["clean_request_bytes"] > cleaned * SEGMENT_BYTES > 0, cleaned, found)  # all of it is zeroed
    tap.equal(found["lost_writes"], 0)
    media = found["media_bytes"] - found["clean_media_bytes"]
    tap.check(media <= MOST * (found["request_bytes"] - found["clean_request_bytes"]), found)
    tap.check(found["ratio"] <= MOST and found["years"] > 0, found)


@tap.case
def intervals_tell_what_was_written_in_them():
    cluster = clusters["cleans"]
    done = dlwa("--dir", cluster.directory, "--json", "--interval", "0.05", "--count", "2")
    tap.equal(done.code, 0, done.both)
    first, end = json.JSONDecoder().raw_decode(done.out)
    second, _ = json.JSONDecoder().raw_decode(done.out[end:].lstrip())
    whole = total(cluster)["request_bytes"]
    for one in (first["total"], second["total"]):
        tap.check(one["request_bytes"] < whole / 10 and one["seconds"] >= 0.05, one)
    cluster.stop()


@tap.case
def a_cluster_without_the_model_says_that_it_is_off():
    cluster = Cluster("off", "--pm-bytes", "128M", "--landing-segments", "4")
    tap.equal({server["device_write_amplification"] for server in cluster.status()["servers"]}, {None})
    tap.check(" off " in cluster.status_done().out)
    tap.equal(total(cluster)["counted"], False)
    tap.contains(dlwa("--dir", cluster.directory).out, "wear-model is off")
    cluster.stop()


# --- counters of DIMMs ---


def sample(name, *changes):
    """A file of its own, of a recorded reading with some numbers replaced."""
    with open(os.path.join(SAMPLES, name), encoding="utf-8") as file:
        text = file.read()
    for old, new in changes:
        tap.contains(text, old)
        text = text.replace(old, new)
    path = os.path.join(scratch(), f"{len(os.listdir(scratch()))}-{name}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


@tap.case
def recorded_counters_are_shown_dimm_by_dimm_and_in_total():
    for name in ("recorded.txt", "made.xml"):
        found = dlwa(*NAMED, "--after", sample(name)).json()
        tap.equal([row["dimm"] for row in found["rows"]], ["0x0011", "0x0021"])
        tap.equal(found["rows"][0]["media_bytes"], 0x1810FB89564 * 64)
        tap.equal(found["total"]["request_bytes"], (0x125EAEEF513 + 0xE3C535BFE1) * 64)
        tap.check(abs(found["total"]["ratio"] - 1.38780) < 0.00001, found["total"])
        tap.equal(found["total"]["years"], None)


@tap.case
def two_readings_give_a_difference_and_the_years_at_its_rate():
    later = sample("made.xml", ("01810fb89564", "01810fb99564"), ("0125eaeef513", "0125eaefa513"))
    found = dlwa(*NAMED, "--before", sample("recorded.txt"), "--after", later, "--seconds", "10",
                 "--endurance-pbw", "300").json()  # fmt: skip
    media, requests = 0x10000 * 64, 0xB000 * 64
    tap.equal((found["total"]["media_bytes"], found["total"]["request_bytes"]), (media, requests))
    tap.equal(found["rows"][1]["media_bytes"], 0)
    tap.check(abs(found["rows"][0]["years"] / (300e15 / (media / 10) / (365.25 * 86400)) - 1) < 1e-6, found)


@tap.case
def ipmctl_is_run_where_it_is_and_missed_where_it_is_not():
    place = os.path.join(scratch(), "bin")
    os.makedirs(place)
    script = os.path.join(place, "ipmctl")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\n[ "$*" = "show -o nvmxml -performance" ] && cat {SAMPLES}/made.xml\n')
    os.chmod(script, stat.S_IRWXU)
    path, os.environ["PATH"] = os.environ["PATH"], place + ":" + os.environ["PATH"]
    found = dlwa(*NAMED, "--interval", "0.01", "--count", "1").json()
    tap.equal([row["request_bytes"] for row in found["rows"]], [0, 0])
    with open(script, "a", encoding="utf-8") as file:
        file.write("exit 3\n")
    expect(dlwa("--ipmctl"), 1, "exit code 3", "package ipmctl")
    os.environ["PATH"] = path


@tap.case
def mistakes_are_told_in_a_sentence():
    whole = sample("recorded.txt")
    for words, code, piece in (
        (["--ipmctl", "--model"], 2, "exclude each other"),
        (["--model", "--dir", "."], 2, "for a cluster"),
        (["--after", whole], 2, "--after goes with --ipmctl"),
        (["--ipmctl", "--before", whole], 2, "go with --after"),
        (["--svg", "x"], 2, "--svg goes with --model"),
        (["--model", "--interval", "1"], 2, "--interval is for"),
        (["--ipmctl", "--count", "1"], 2, "--count goes with --interval"),
        (["--ipmctl", "--interval", "soon"], 2, "--interval: seconds"),
        (["show"], 2, "not expected here"),
        (["--dir", scratch()], 1, "cm"),
        (["--ipmctl", "--after", "/none"], 1, "cannot read /none"),
        (["--ipmctl", "--after", "/dev/zero"], 1, "1 mib"),
        (["--ipmctl", "--after", program("rowan-dlwa")], 1, "cannot read" if os.path.getsize(program("rowan-dlwa")) > 1 << 20 else "line 1"),
        (["--ipmctl", "--before", sample("recorded.txt", ("0x0021", "0x0121")), "--after", whole], 1, "not of the same dimms"),
        ([*NAMED, "--before", sample("recorded.txt", ("01810fb89564", "0181ffffffff")), "--after", whole], 1, "counts less"),
        (["--model", "--svg", "/none/x"], 1, "cannot write /none/x"),
    ):  # fmt: skip
        expect(dlwa(*words), code, piece)


@tap.case
def the_model_gives_the_papers_figure_and_a_picture():
    picture = os.path.join(scratch(), "figure.svg")
    found = dlwa("--model", "--json", "--svg", picture).json()
    ratios = {row["streams"]: row for row in found["rows"]}
    for size, paper in (("64", 2.48), ("128", 1.58)):
        tap.check(abs(ratios[144][size] / paper - 1) <= 0.1, ratios[144])
        tap.check(all(ratios[streams][size] <= 1.05 for streams in ratios if streams < 90), ratios)
    with open(picture, encoding="utf-8") as file:
        drawn = file.read()
    tap.equal((drawn.count("<polyline"), drawn.count("<circle")), (2, 2))
    tap.contains(dlwa("--model").out, "2.48 and 1.58")


sys.exit(tap.main())
