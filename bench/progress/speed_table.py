#!/usr/bin/env python3
"""The speed table of progress: each row over an old build and a new one, and its target.

    bench/progress/speed_table.py /srv/old build/release            # all rows, about 20 minutes
    bench/progress/speed_table.py old new --rounds 3 --only polled,sleep
    bench/progress/speed_table.py --list

A BUILD has bin/weft and lib/weft. Each round runs each row over both builds, one after the other,
in an order that changes from round to round; plain TCP, UCX or the other program that a row is
beside has its turn in the same run. The table has the medians, the ratio new/old (the median of
the ratios within the rounds) and whether the new build meets the target. Keep the machine idle.
The workloads of compare.py are measured behind that, unless --only names rows; "none worse" is
their target. Exit status 1: a row failed. Needs: weft_progress_bench, weft_hop,
valgrind, perftest, ucx-utils.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.dont_write_bytecode = True

import hop  # noqa: E402
from weft_compare.bench import free_port  # noqa: E402
from weft_compare.process import Failed, Running, run  # noqa: E402
from weft_compare.rivals import perftest, ucx  # noqa: E402

BENCH = os.path.join(ROOT, "build/release/bin/weft_progress_bench")
HOP = os.path.join(ROOT, "build/release/bin/weft_hop")
LIMIT_S = 300
Row = collections.namedtuple("Row", "name about measure target better")


def weft(build):
    return os.path.join(build, "bin/weft")


def perf(build, *options):
    """The results of a run of `weft perf --self`."""
    argv = [weft(build), "perf", "--self", "--json", "--rounds", "1", *options]
    out = run(argv, LIMIT_S).require("weft perf").out
    return json.loads(out)["results"]


def beside_tcp(read, *options):
    """Measures what `read` gives of Weft, over what it gives of plain TCP."""
    def measure(build):
        found = perf(build, "--transport", "rdma,tcp", "--size", "64", *options)
        of = {result["transport"]: read(result) for result in found}
        return of["rdma"] / of["tcp"]
    return measure


def percentile(name):
    return lambda result: result["latency_us"][name]


def rate(result):
    return result["messages_per_s"]


def polled(name):
    return beside_tcp(percentile(name), "--op", "send", "--latency", "--path", "tcp", "--mode",
                      "poll")


def writes(connections, depth):
    return beside_tcp(rate, "--op", "write", "--bandwidth", "--path", "tcp", "--crc", "on",
                      "--depth", depth, "--connections", connections)


def ring_beside_ucx(build):
    mine = perf(build, "--op", "send", "--size", "64", "--latency", "--path", "ring", "--mode",
                "poll")[0]["latency_us"]["p50"]
    port = free_port()
    env = {**os.environ, "UCX_TLS": "posix,cma", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    with Running(["taskset", "-c", "0", "ucx_perftest", "-p", str(port)], env) as server:
        server.wait_until_listening(port, 20)
        other = run(["taskset", "-c", "1", "ucx_perftest", "127.0.0.1", "-p", str(port), "-t",
                     "tag_lat", "-s", "64", "-n", "100000", "-f", "-v"], LIMIT_S, env)
        out = other.require("ucx_perftest").out
        server.wait(20)
    return mine / ucx.parse(out)["percentile_us"]


def perftest_p50(build, program):
    port = str(free_port())
    argv = [weft(build), "run", "--", "taskset", "-c"]
    options = [program, "-R", "-F", "-p", port, "-s", "64", "-n", "5000"]
    with Running([*argv, "0", *options]) as server:
        server.wait_until_listening(int(port), 20)
        out = run([*argv, "1", *options, "127.0.0.1"], LIMIT_S).require(program).out
        server.wait(20)
    return perftest.parse_latency(out)["p50"]


def write_beside_send(build):
    return perftest_p50(build, "ib_write_lat") / perftest_p50(build, "ib_send_lat")


def workload(row, metric, path="tcp"):
    """A metric of weft_progress_bench."""
    def measure(build):
        env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(build, "lib/weft"), "WEFT_PATH": path}
        out = run([BENCH, "--json", "--only", row], LIMIT_S, env).require(row).out
        return json.loads(out)[row][metric]
    return measure


def hop_count(which):
    def measure(build):
        return hop.count_hop(HOP, os.path.join(build, "lib/weft"))[which]
    return measure


LESS, MORE = "<=", ">="
ROWS = [
    Row("hop", "instructions of a 64 B hop over TCP, both ends", hop_count(0), 2000, LESS),
    Row("hop_locked", "locked operations of the same", hop_count(1), 16, LESS),
    Row("polled", "64 B one way, polled, p50 / raw TCP", polled("p50"), 1.06, LESS),
    Row("polled_p99", "the same, p99", polled("p99"), 1.3, LESS),
    Row("ring", "the same over the ring, p50 / UCX posix", ring_beside_ucx, 1.7, LESS),
    Row("sleep", "64 B, sleeping at once, p50 / raw TCP",
        beside_tcp(percentile("p50"), "--op", "send", "--latency", "--path", "tcp", "--mode",
                   "sleep", "--config", "spin=off"), 1.05, LESS),
    Row("depth1", "64 B writes, depth 1 / raw TCP", writes("1", "1"), 0.95, MORE),
    Row("depth1_1000", "the same, 1000 connections", writes("1000", "1"), 1.0, MORE),
    Row("depth128_32", "64 B writes, depth 128, 32 connections / raw TCP", writes("32", "128"),
        20, MORE),
    Row("depth128_64", "the same, 64", writes("64", "128"), 21, MORE),
    Row("depth128_256", "the same, 256", writes("256", "128"), 14.5, MORE),
    Row("small_read", "8 B Read beside 1 MiB Reads, us", workload("small_read", "beside_p50_us"),
        500, LESS),
    Row("write_lat", "ib_write_lat / ib_send_lat (-R)", write_beside_send, 1.5, LESS),
]


def text(value):
    return "failed" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def show(row, old, new):
    pairs = [b / a for a, b in zip(old, new) if a and b]
    a, b = (statistics.median(v for v in values if v is not None)
            if any(v is not None for v in values) else None for values in (old, new))
    met = "-"
    if b is not None:
        reached = b <= row.target if row.better == LESS else b >= row.target
        met = "met" if reached else "not met"
    ratio = f"{statistics.median(pairs):.2f}" if pairs else "-"
    print(f"| {row.about} | {text(a)} | {text(b)} | {ratio} | {row.better} {row.target:g} | "
          f"{met} |", flush=True)


def attempt(row, build):
    try:
        return row.measure(build)
    except (Failed, subprocess.SubprocessError, OSError, KeyError, ValueError) as why:
        print(f"{row.name} over {build}: {why}", file=sys.stderr)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="*", metavar="BUILD", help="the old one, the new one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="rows, with commas between (all)")
    parser.add_argument("--list", action="store_true", help="the rows and their targets, and end")
    args = parser.parse_args()
    if args.list:
        for row in ROWS:
            print(f"{row.name:14}{row.better} {row.target:<6g} {row.about}")
        return 0
    if len(args.builds) != 2:
        parser.error("say which builds: the old one and the new one")
    chosen = args.only.split(",") if args.only else [row.name for row in ROWS]
    unknown = set(chosen) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; --list names them")
    builds = [os.path.abspath(build) for build in args.builds]
    print("| row | old | new | new/old | target | |\n|---|---|---|---|---|---|", flush=True)
    failed = False
    for row in (row for row in ROWS if row.name in chosen):
        found = {build: [] for build in builds}
        for number in range(args.rounds):
            for build in builds if number % 2 == 0 else builds[::-1]:
                found[build].append(attempt(row, build))
        failed = failed or any(None in values for values in found.values())
        show(row, found[builds[0]], found[builds[1]])
    if not args.only:
        compare = os.path.join(ROOT, "bench/progress/compare.py")
        folders = [f"{name}={build}/lib" for name, build in zip(("old", "new"), builds)]
        failed = subprocess.run([compare, *folders, "--rounds", str(args.rounds)]).returncode != 0 \
            or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
