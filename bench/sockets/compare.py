#!/usr/bin/env python3
"""Socket programs over the ring beside kernel TCP, in one run on one machine.

    bench/sockets/compare.py [--seconds S] [--rounds N] [--same-core]

Needs the release preset with the target weft_socket_bench. Each line is one shape: requests of some
octets and their answers, or a stream; sleeping in the call, or trying again (poll). Plain and Weft
take turns; the medians and the median ratio are shown (more is better).
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, "build", "release", "bin")
BENCH = os.path.join(BIN, "weft_socket_bench")
UNDER_WEFT = [os.path.join(BIN, "weft"), "run", "--sockets", "--"]
SHAPES = [("rr", 1), ("rr", 65536)] + [("stream", n) for n in (64, 4096, 65536, 1 << 20)]
UNITS = {"rr": "round trips/s", "stream": "octets/s"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def serve(prefix):
    port = free_port()
    process = subprocess.Popen([*prefix, BENCH, "serve", "127.0.0.1", str(port)])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except ConnectionRefusedError:
            time.sleep(0.02)
    process.kill()
    sys.exit("the server does not listen")


def run(prefix, port, kind, size, seconds, how):
    argv = [*prefix, BENCH, kind, "127.0.0.1", str(port), str(size), str(seconds), how]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds * 10 + 20, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}: {done.stderr.strip()}")
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement. Default: 0.5")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per shape. Default: 5")
    parser.add_argument("--same-core", action="store_true", help="both sides on one core")
    options = parser.parse_args()
    if not os.access(BENCH, os.X_OK):
        sys.exit("first: scripts/build.sh release all weft_socket_bench")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])  # the servers'
    sides = [serve([]), serve(UNDER_WEFT)]
    if not options.same_core:
        os.sched_setaffinity(0, cores[1:2] or cores[:1])
    print(f"{'shape':<26} {'TCP':>14} {'Weft':>14} {'ratio':>6}")
    for kind, size in SHAPES:
        for how in ["sleep"] if options.same_core else ["sleep", "poll"]:
            pairs = [[run(prefix, port, kind, size, options.seconds, how)
                      for prefix, (_, port) in zip(([], UNDER_WEFT), sides)] for _ in range(options.rounds)]
            tcp, weft = (statistics.median(column) for column in zip(*pairs))
            ratio = statistics.median(w / t for t, w in pairs)
            print(f"{kind + ' ' + str(size) + ' ' + how:<26} {tcp:>14.0f} {weft:>14.0f} {ratio:>6.2f}  {UNITS[kind]}",
                  flush=True)
    for process, _ in sides:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
