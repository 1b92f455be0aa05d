#!/usr/bin/env python3
"""What the drop-in libraries cost over the C++ API: the same workload both ways, in turns.

    bench/dropin/compare.py [--rounds N] [--seconds S] [--crc on|off] [--path tcp|ring]
    bench/dropin/compare.py --raw [--rounds N]
    bench/dropin/compare.py --count

Each round runs `weft perf --op write` (C++ API) and weft_dropin_perf under `weft run` (plain verbs)
one after the other, in changing order: RDMA Writes of 64 KiB and 1 MiB for bandwidth, ping-pong of
64 bytes for latency. Reported is the median over the rounds of drop-in / C++ within a round, with
the quartiles, and the ratio of the best rounds. A busy machine shows in wide quartiles; then the best
rounds, least disturbed, say more. --raw runs Debian's ib_write_bw -R over Weft beside plain TCP under
the same congestion control, CRC off and on, at 64 KiB and 1 MiB. --count does not measure time: it counts with callgrind what the
libraries themselves execute in a call, beside what they call. Needs: ninja weft_command
weft_dropin_perf; --count also valgrind.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEFT = os.path.join(ROOT, "build/release/bin/weft")
DROPIN = os.path.join(ROOT, "build/release/bin/weft_dropin_perf")
LIMIT_S = 120
CONGESTION = "reno"  # open to everybody; what Weft takes on loopback by itself

# Size, what is compared, and the target: bandwidth down, or latency up, by no more than this.
CASES = ((65536, "GB/s", 0.97), (1 << 20, "GB/s", 0.97), (64, "us", 1.05))


def run(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    return json.loads(done.stdout)


def by_api(size, args, latency):
    argv = [WEFT, "perf", "--self", "--op", "write", "--size", str(size), "--crc", args.crc,
            "--path", args.path, "--rounds", "1", "--warmup", "0.05s", "--json",
            "--latency" if latency else "--bandwidth",
            "--latency-duration" if latency else "--duration", f"{args.seconds}s"]
    result = run(argv)["results"][0]
    return result["latency_us"]["p50"] if latency else result["bandwidth_bytes_per_s"] / 1e9


def by_verbs(size, args, latency):
    seconds = ("0.01", args.seconds) if latency else (args.seconds, "0.01")
    shown = run([WEFT, "run", f"--crc={args.crc}", f"--path={args.path}", "--", DROPIN, str(size),
                 *map(str, seconds)])
    return shown["latency_us"] if latency else shown["gbytes_per_s"]


def compare(size, unit, target, args):
    latency = unit == "us"
    api, verbs = [], []
    for number in range(args.rounds):
        order = ((by_api, api), (by_verbs, verbs))
        for measure, results in order if number % 2 == 0 else reversed(order):
            results.append(measure(size, args, latency))
    ratios = sorted(v / a for a, v in zip(api, verbs))
    median = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4)
    best = min(verbs) / min(api) if latency else max(verbs) / max(api)
    good = median <= target if latency else median >= target
    print(f"{size:>8} B  C++ {statistics.median(api):8.3f} {unit:4}  verbs "
          f"{statistics.median(verbs):8.3f} {unit:4}  ratio {median:.3f} ({low:.3f} .. {high:.3f}), of "
          f"the best {best:.3f}; target {'<=' if latency else '>='} {target}: {'met' if good else 'NOT met'}", flush=True)
    return good


def by_raw_tcp(size, args):
    argv = [WEFT, "perf", "--self", "--transport", "tcp", "--congestion", CONGESTION, "--size",
            str(size), "--rounds", "1", "--warmup", "0.05s", "--json", "--bandwidth", "--duration",
            f"{args.seconds}s"]
    return run(argv)["results"][0]["bandwidth_bytes_per_s"] / 1e9


def by_ib_write_bw(size, crc, args):
    """As a user starts it: a server and a client, each on a CPU of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    count = str(max(int(args.seconds * 5e9 / size), 300))
    argv = ["ib_write_bw", "-R", "-F", "--perform_warm_up", "-p", port, "-s", str(size), "-n", count]
    weft = [WEFT, "run", f"--crc={crc}", f"--config=loopback_congestion={CONGESTION}", "--"]
    cpus = sorted(os.sched_getaffinity(0))
    server = subprocess.Popen(["taskset", "-c", str(cpus[-1]), *weft, *argv],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT_S
        while f":{port} " not in subprocess.run(["ss", "-Hltn"], stdout=subprocess.PIPE, text=True,
                                                check=True).stdout:
            if time.monotonic() > deadline or server.poll() is not None:
                sys.exit("ib_write_bw does not listen; is perftest installed?")
            time.sleep(0.02)
        client = subprocess.run(["taskset", "-c", str(cpus[0]), *weft, *argv, "127.0.0.1"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                timeout=LIMIT_S, check=True)
        server.wait(LIMIT_S)
    finally:
        server.kill()
    rows = [line.split() for line in client.stdout.splitlines()]
    found = [row for row in rows if len(row) == 5 and row[0] == str(size)]
    return float(found[-1][4]) * 1e6 * size / 1e9  # million messages a second


def compare_with_raw(args):
    good = True
    for size in (65536, 1 << 20):
        results = {"off": [], "on": []}
        for _ in range(args.rounds):
            raw = by_raw_tcp(size, args)
            for crc, ratios in results.items():
                ratios.append(by_ib_write_bw(size, crc, args) / raw)
        for crc, target in (("off", 0.85), ("on", 0.70)):
            median = statistics.median(results[crc])
            low, _, high = statistics.quantiles(results[crc], n=4)
            good &= median >= target
            print(f"{size:>8} B  ib_write_bw -R, CRC {crc:3} / raw TCP ({CONGESTION})  {median:.3f} "
                  f"({low:.3f} .. {high:.3f}); target >= {target}: "
                  f"{'met' if median >= target else 'NOT met'}", flush=True)
    return 0 if good else 1


def annotated(path, *options):
    """Rows of callgrind_annotate: cost, and what it is about."""
    text = subprocess.run(["callgrind_annotate", "--show-percs=no", "--threshold=100", "--auto=no",
                           *options, path], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in text.splitlines():
        cost, _, rest = line.strip().partition(" ")
        if cost.replace(",", "").isdigit():
            yield int(cost.replace(",", "")), rest.strip()


def count(args):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "--quiet", "--tool=callgrind", "--trace-children=yes",
                        f"--callgrind-out-file={folder}/out.%p", WEFT, "run", f"--crc={args.crc}",
                        "--", DROPIN, "64", "1", "3"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            own = list(annotated(path))
            tree = list(annotated(path, "--inclusive=yes", "--tree=calling"))
            for function in ("post_send", "poll_cq"):
                about = f":weft::ibverbs::{function}("
                cost = sum(cost for cost, rest in own if about in rest)
                calls = sum(int(found.group(1).replace(",", "")) for _, rest in tree
                            if rest.startswith("> ") and about in rest
                            and (found := re.search(r"\(([0-9,]+)x\)", rest)))
                if calls != 0:
                    print(f"process {name.split('.')[1]}: ibv_{function}: {cost / calls:.0f} "
                          f"instructions of its own in each of {calls} calls")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--crc", choices=("on", "off"), default="off")
    parser.add_argument("--path", choices=("tcp", "ring"), default="tcp")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    for needed in (WEFT, DROPIN):
        if not os.path.exists(needed):
            sys.exit(f"{needed} is not built: ninja -C build/release weft_command weft_dropin_perf")
    if args.count:
        return count(args)
    if args.raw:
        return compare_with_raw(args)
    good = [compare(size, unit, target, args) for size, unit, target in CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
