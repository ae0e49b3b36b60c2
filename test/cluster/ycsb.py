#!/usr/bin/python3
"""rowan-ycsb itself: what it says it asked for is what the servers counted; processes share one load and their results
make one; its log of histograms is read as HdrHistogram's format says; results are compared."""

import base64
import concurrent.futures
import json
import os
import signal
import struct
import subprocess
import sys
import zlib

from harness import Cluster, environment, expect, program, run, scratch, tap

RECORDS = 3000
OPERATIONS = 4000
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1}


def before():
    global cluster
    cluster = Cluster("ycsb", "--pm-bytes", "512M")


def served():
    """Puts and gets that the servers have counted."""
    servers = cluster.status()["servers"]
    return {"put": sum(one["puts"] for one in servers), "get": sum(one["gets"] for one in servers)}


def asked(found, then):
    """All requests were answered, and are what was counted since `then`."""
    for kind, now in served().items():
        tap.equal(found["requests"][kind], {"sent": now - then[kind], "answered": now - then[kind]}, kind)


def path(name):
    return os.path.join(scratch(), name)


def written(name):
    """The record numbers in a file of --acked, in their order (tools/rowan-ycsb/acked.h)."""
    with open(path(name), "rb") as file:
        return [record for record, _, _ in struct.iter_unpack("<QQQ", file.read()[48:])]


def side_by_side(workload, *more):
    """Two processes that share a load; their results, and the names of files with them."""
    names = [path(f"{workload}-{share}.json") for share in (1, 2)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(cluster.ycsb, workload, RECORDS, "--share", f"{share}/2", "--acked",
                        path(f"{workload}-{share}.acked"), *more)  # fmt: skip
            for share in (1, 2)
        ]
    for name, found in zip(names, runs):
        with open(name, "w", encoding="ascii") as file:
            json.dump(found.result(), file)
    return [found.result() for found in runs], names


def ycsb(*words):
    return run([program("rowan-ycsb"), *words], cwd=scratch())


def ok(*words):
    done = ycsb(*words)
    tap.equal(done.code, 0, words, done.both[:2000])
    return done


@tap.case
def two_shares_of_a_permuted_load_write_each_record_once():
    then = served()
    side_by_side("load", "--order", "hashed")
    parts = [written(f"load-{share}.acked") for share in (1, 2)]
    tap.equal(sorted(parts[0] + parts[1]), list(range(RECORDS)))
    tap.equal(len(parts[0]), RECORDS // 2)
    in_order = sum(abs(a - b) == 1 for part in parts for a, b in zip(part, part[1:]))
    tap.check(in_order < RECORDS / 20, in_order, "records came beside their neighbour")
    tap.equal(served()["put"] - then["put"], RECORDS)


@tap.case
def each_workload_asks_for_as_much_as_the_servers_count():
    for workload in "abcdf":
        then = served()
        found = cluster.ycsb(workload, RECORDS, "--operations", OPERATIONS, "--warm-up", "0.1", "--connections", 5,
                             depth=8)  # fmt: skip
        asked(found, then)
        tap.equal((found["operations"], found["not_found"]), (OPERATIONS, 0), workload)
        warm_up = found["warm_up"]
        tap.check(warm_up["operations"] > 0, workload)
        made = {kind: found.get(kind, {"operations": 0})["operations"] + warm_up.get(kind, 0)
                for kind in ("put", "get", "insert", "rmw")}  # fmt: skip
        tap.equal(made["put"] + made["insert"], found["requests"]["put"]["sent"], workload)
        tap.equal(made["get"], found["requests"]["get"]["sent"], workload)
        everything = OPERATIONS + warm_up["operations"]
        tap.equal(made["put"] + made["get"] + made["insert"] - made["rmw"], everything, workload)
        if workload == "f":
            tap.check(0.45 < made["rmw"] / everything < 0.55, made)
            tap.equal(made["put"], made["rmw"])
            tap.check(found["rmw"]["p50_us"] > found["put"]["p50_us"], "less than its write took")
        else:
            writes = {"a": 0.5, "b": 0.05, "c": 0, "d": 0.05}[workload]
            tap.check(abs((made["put"] + made["insert"]) / everything - writes) < 0.02, workload, made)
        tap.equal(made["insert"] > 0, workload == "d")


@tap.case
def reads_of_d_meet_what_it_inserted():
    """Of so many records nearly none is loaded: what is found was inserted. About half the draws are of the latest."""
    found = cluster.ycsb("d", 1_000_000, "--operations", 4 * OPERATIONS)
    tap.check(0.2 < found["not_found"] / found["get"]["operations"] < 0.9, found["not_found"])


@tap.case
def hot_records_get_their_share_of_the_writes():
    """A tenth of the operations is of records that are not hot; the hot ones are others every 100 ms."""
    hot = ("--distribution", "hotspot", "--hot-fraction", "0.01", "--hot-operations", "0.9")
    cluster.ycsb("a", RECORDS, "--operations", OPERATIONS, "--acked", path("hot"), *hot)
    cluster.ycsb("a", RECORDS, "--seconds", 1, "--rate", OPERATIONS, "--acked", path("moving"), "--hot-moves-ms", 100,
                 *hot)  # fmt: skip
    shares = {}
    for name in ("hot", "moving"):
        records = written(name)
        often = sorted((records.count(one) for one in set(records)), reverse=True)
        shares[name] = sum(often[: RECORDS // 100]) / len(records)
    tap.check(0.86 < shares["hot"] < 0.96, shares)
    tap.check(shares["moving"] < 0.5, shares)


@tap.case
def two_processes_of_d_insert_apart_and_make_one_result():
    then = served()
    found, names = side_by_side("d", "--seconds", 2, "--warm-up", "0.2")
    merged = ok("merge", *names, "--json").json()
    asked(merged, then)
    tap.equal(merged["not_found"], 0, "a read before its insert was acknowledged")
    inserted = [set(written(f"d-{share}.acked")) for share in (1, 2)]
    for share in (0, 1):
        tap.equal(inserted[share], set(range(RECORDS + share, RECORDS + share + 2 * len(inserted[share]), 2)))
        ok("--dir", cluster.directory, "check", path(f"d-{share + 1}.acked"))
    for key in ("operations", "ops_per_second", "threads", "connections"):
        tap.check(abs(merged[key] - found[0][key] - found[1][key]) < 0.01, key, merged[key])
    for kind in ("get", "insert"):
        parts = [one[kind] for one in found]
        tap.equal(merged[kind]["operations"], sum(part["operations"] for part in parts))
        tap.equal(merged[kind]["max_us"], max(part["max_us"] for part in parts))
        for key in QUANTILES:
            tap.check(min(part[key] for part in parts) <= merged[kind][key] <= max(part[key] for part in parts), key)
    tap.equal(merged["merged"], 2)
    tap.check(0 < merged["overlap_seconds"] <= merged["seconds"] + 0.01, merged["overlap_seconds"])
    tap.contains(ok("compare", names[0], names[1]).out, 'share: A "1/2", B "2/2"')


def numbers(data):
    """ZigZag LEB128; a ninth byte has eight bits."""
    at = 0
    while at < len(data):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte if shift == 56 else byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 56:
                break
        yield value >> 1 ^ -(value & 1)


def decoded(text):
    """[(highest value, count)] of a histogram in HdrHistogram's encoding V2 with two digits."""
    raw = base64.b64decode(text, validate=True)
    cookie, length = struct.unpack_from(">II", raw)
    tap.equal((cookie, length), (0x1C849314, len(raw) - 8))
    plain = zlib.decompress(raw[8:])
    cookie, length, offset, digits, lowest, _, ratio = struct.unpack_from(">IIIIqqd", plain)
    tap.equal((cookie, length, offset, digits, lowest, ratio), (0x1C849313, len(plain) - 40, 0, 2, 1, 1.0))
    index, found = 0, []
    for number in numbers(plain[40:]):
        if number < 0:
            index -= number
            continue
        shift = max(0, (index >> 7) - 1)
        found.append(((((index - (shift << 7)) + 1) << shift) - 1, number))
        index += 1
    return found


@tap.case
def the_log_of_histograms_has_the_counts_and_quantiles_of_the_result():
    log = path("hdr")
    found = cluster.ycsb("f", RECORDS, "--seconds", 3, "--warm-up", "0.3", "--rate", 2000, "--hdr-log", log)
    # Open loop: as many as the clock says, whatever the servers do.
    for count, due in ((found["operations"], 6000), (found["warm_up"]["operations"], 600)):
        tap.check(0.9 * due < count < due + 10, count, "of", due)
    with open(log, encoding="ascii") as file:
        lines = file.read().splitlines()
    due = found["operations"] + found["not_begun"]
    tap.equal(found["get"]["operations"], due, "each operation of f begins with a read")
    tap.equal(lines[1], "#[Histogram log format version 1.3]")
    tap.check(lines[2].startswith(f"#[StartTime: {found['started_ms'] / 1000:.3f} "), lines[2])
    sums, ends, at = {}, {}, {}
    for line in lines[4:]:
        tag, start, length, most, text = line.split(",")
        histogram = decoded(text)
        sums.setdefault(tag, []).extend(histogram)
        tap.check(abs(float(start) - ends.get(tag, 0)) < 0.002 or tag not in ends, line[:60])
        ends[tag] = float(start) + float(length)
        top = histogram[-1][0] / 1e6
        tap.check(float(most) - 0.001 <= top <= float(most) * (1 + 1 / 64) + 0.001, most, top)
        at[tag] = at.get(tag, 0) + 1
    tap.equal(set(sums), {"Tag=put", "Tag=get", "Tag=rmw"})
    for kind in ("put", "get", "rmw"):
        values = sorted(sums["Tag=" + kind])
        count = sum(number for _, number in values)
        tap.equal(count, found[kind]["operations"], kind)
        tap.check(at["Tag=" + kind] >= 3 and abs(ends["Tag=" + kind] - found["seconds"]) < 0.002, kind, ends)
        for key, quantile in QUANTILES.items():
            seen, value = 0, 0
            for value, number in values:
                seen += number
                if seen >= quantile * count:
                    break
            # Theirs are finer where the largest value of an interval ends one of ours.
            ours = found[kind][key] * 1000
            tap.check(ours * (1 - 1 / 64) <= value <= ours * (1 + 1 / 64) + 1, kind, key, ours, value)


# --- results, without a cluster ---


def result(name, **more):
    """A result with 200 puts; latencies below 64 ns have a bucket each."""
    figures = {key: 0.01 for key in QUANTILES}
    put = {"operations": 200, **figures, "histogram": "50 10:90 50:110"}
    found = {"workload": "a", "profile": "udb", "records": 10, "distribution": "uniform", "threads": 1,
             "connections": 2, "depth": 4, "rate": 0.0, "seed": 1, "share": "1/1", "seconds": 2.0, "operations": 200,
             "ops_per_second": 100.0, "errors": 1, "errors_by_name": {"ROWAN_EIO": 1}, "not_found": 0,
             "warm_up": {"operations": 7}, "requests": {"put": {"sent": 210, "answered": 207}}, "started_ms": 1000,
             "ended_ms": 3000, "put": put}  # fmt: skip
    found.update(more)
    with open(path(name), "w", encoding="ascii") as file:
        json.dump(found, file)
    return path(name)


@tap.case
def merged_quantiles_are_those_of_all_values():
    other = {"operations": 100, **{key: 0.02 for key in QUANTILES}, "histogram": "20 20:100"}
    first = result("first")
    second = result("second", put=other, get=other, started_ms=2500, ended_ms=4500, ops_per_second=50.5)
    merged = ok("merge", first, second, "--json").json()
    figures = {key: merged["put"][key] for key in ("operations", *QUANTILES)}
    # 90 of 10 ns, 100 of 20 ns, 110 of 50 ns
    tap.equal(figures, {"operations": 300, "p50_us": 0.02, **dict.fromkeys(list(QUANTILES)[1:], 0.05)})
    tap.equal(merged["get"]["operations"], 100)
    tap.equal((merged["seconds"], merged["overlap_seconds"], merged["ops_per_second"]), (3.5, 0.5, 150.5))
    tap.equal((merged["errors_by_name"], merged["warm_up"]), ({"ROWAN_EIO": 2}, {"operations": 14}))
    tap.equal(merged["requests"]["put"], {"sent": 420, "answered": 414})
    other_way = ok("merge", second, first, "--json").json()
    for key in ("started_ms", "ended_ms", "overlap_seconds", "put"):
        tap.equal(other_way[key], merged[key], key)
    apart = ok("merge", first, result("later", started_ms=3001, ended_ms=4000), "--json")
    tap.contains(apart.err, "not all at work at the same time")
    tap.equal(apart.json()["overlap_seconds"], 0)
    ok("compare", first, result("merged", **merged))


@tap.case
def compared_results_show_ratios_and_what_was_set_differently():
    faster = {"operations": 100, **{key: 0.02 for key in QUANTILES}}  # as before there were histograms
    first, second = result("a"), result("b", put=faster, ops_per_second=250.0, depth=8)
    found = ok("compare", first, second, "--json").json()
    tap.equal(found["settings"], {"depth": {"a": 4, "b": 8}})
    tap.equal(found["figures"]["ops_per_second"], {"a": 100.0, "b": 250.0, "ratio": 2.5})
    tap.equal(found["figures"]["put_p99_us"], {"a": 0.01, "b": 0.02, "ratio": 2.0})
    out = ok("compare", first, second).out
    for piece in ("depth: A 4, B 8", "2.500", "put_p999_us"):
        tap.contains(out, piece)


@tap.case
def what_was_due_and_could_not_begin_counts_with_its_latency_so_far():
    found = cluster.ycsb("c", RECORDS, "--rate", 500_000, "--seconds", 2, threads=1, depth=1)
    tap.equal(found["operations"] + found["not_begun"], 1_000_000)
    tap.equal(found["get"]["operations"], 1_000_000)
    tap.check(found["not_begun"] > 500_000 and found["get"]["p50_us"] > 300_000, found["not_begun"], found["get"])


@tap.case
def a_run_that_is_interrupted_tells_what_it_has():
    then = served()["get"]
    child = subprocess.Popen(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "c", "--records", str(RECORDS), "--seconds", "3600",
         "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        tap.wait_until(lambda: served()["get"] > then + OPERATIONS, 60, "it works")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    tap.equal(child.returncode, 1, err)
    tap.contains(err, "interrupted")
    tap.check(json.loads(out)["operations"] >= OPERATIONS, out[:2000])


@tap.case
def what_is_no_result_or_no_part_of_the_load_is_refused():
    good = result("good")
    with open(path("text"), "w", encoding="ascii") as file:
        file.write("operations: 5\n")
    for other, piece in ((path("text"), "not the JSON of a run"), (path("absent"), "unable to open"),
                         (result("nameless", workload=3), "not that of a run"),
                         (result("hollow", put={"operations": 3}), "not that of a run")):  # fmt: skip
        for command in ("merge", "compare"):
            expect(ycsb(command, good, other), 1, os.path.basename(other), piece)
    figures = {"operations": 1, **{key: 1 for key in QUANTILES}}
    for histogram in (None, "", "x", "5 5", "5 3776:1", "5 -1:1", "5 5:9223372036854775808", "5 5:-1", "5,5:1"):
        put = {**figures, **({} if histogram is None else {"histogram": histogram})}
        expect(ycsb("merge", good, result("bad", put=put, seed=2)), 1, "bad", "damaged" if histogram is None else "not that of a run")
    for more in ({"errors": 1.5}, {"warm_up": [1]}):
        expect(ycsb("merge", result("bad", **more), good), 1, "bad", "not that of a run")
    for more in ({"started_ms": 0}, {"ended_ms": 1e300}, {"operations": 9223372036854775807, "seed": 2}, {"started_ms": 4000}):
        expect(ycsb("merge", good, result("bad", **more)), 1, "bad", "damaged")
    expect(ycsb("merge", good, result("b", workload="b", seed=2)), 2, "differ in workload")
    expect(ycsb("merge", good, good), 2, "good is a part of the load that an earlier file is, too")
    half = result("half", share="1/2")
    expect(ycsb("merge", half, result("again", share="1/2", seed=3)), 2, "again is a part of the load")
    expect(ycsb("merge", half, good), 2, "good is a part (--share 1/1) of another load")
    expect(ycsb("merge", good), 2, "merge FILE FILE...")
    expect(ycsb("compare", good), 2, "compare A B")


sys.exit(tap.main(before))
