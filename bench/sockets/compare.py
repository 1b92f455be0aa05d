#!/usr/bin/env python3
"""Socket programs under Weft beside kernel TCP, in one run on one machine.

    bench/sockets/compare.py [--path ring|apart|iwarp|plain] [--redis] [--same-core]
                             [--seconds S] [--rounds N]

Needs the release preset with the target weft_socket_bench; --redis needs redis-server and
redis-benchmark. Each line is one shape: requests of some octets and their answers, or a stream;
sleeping in the call, or trying again (poll). Plain and Weft take turns; the medians and the median
ratio are shown (more is better).

    ring    both sides under Weft, on this machine: shared memory. The default
    apart   both sides under Weft, in two network namespaces: TCP. Needs root
    iwarp   both sides in IWARP mode, over loopback
    plain   only the client is under Weft, so the connection stays kernel TCP: what that costs
"""

import argparse
import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, "build", "release", "bin")
BENCH = os.path.join(BIN, "weft_socket_bench")
UNDER_WEFT = [os.path.join(BIN, "weft"), "run", "--sockets", "--"]
SHAPES = [("rr", 1), ("slow", 100), ("rr", 65536)] + [("stream", n) for n in (64, 4096, 16384, 65536, 1 << 20)]
UNITS = {"rr": "round trips/s", "slow": "round trips/s", "stream": "octets/s", "get": "requests/s"}
REDIS_CLIENTS = 50


class Place:
    """Where the two sides run: what comes before their commands, and the server's address."""

    def __init__(self, server=(), client=(), address="127.0.0.1", env=None):
        self.server, self.client, self.address = list(server), list(client), address
        self.env = {**os.environ, **(env or {})}


@contextlib.contextmanager
def namespaces():
    """Two network namespaces with a link between them."""
    names = [f"weft-bench-{os.getpid()}-{side}" for side in "ab"]
    with contextlib.ExitStack() as undo:
        for name in names:
            ip("netns", "add", name)
            undo.callback(ip, "netns", "delete", name)
        ip("link", "add", "weft0", "netns", names[0], "type", "veth", "peer", "name", "weft0", "netns",
           names[1])
        for name, address in zip(names, ("10.91.0.1/24", "10.91.0.2/24")):
            ip("-n", name, "address", "add", address, "dev", "weft0")
            for link in "lo", "weft0":
                ip("-n", name, "link", "set", link, "up")
        inside = [["ip", "netns", "exec", name] for name in names]
        yield Place(*inside, "10.91.0.1")


def ip(*argv):
    subprocess.run(["ip", *argv], check=True)


@contextlib.contextmanager
def place_of(path):
    if path == "apart":
        with namespaces() as place:
            yield place
    else:
        yield Place(env={"SOCKET_BENCH_IWARP": "1"} if path == "iwarp" else None)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


PROBE = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()"


def serve(place, prefix, env, argv, port):
    """Starts a server; it listens at `port` when this returns."""
    process = subprocess.Popen([*place.server, *prefix, *argv], env=env, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        probe = subprocess.run([*place.server, sys.executable, "-c", PROBE, place.address, str(port)],
                               stderr=subprocess.DEVNULL, check=False)
        if probe.returncode == 0:
            return process
    process.kill()
    sys.exit("the server does not listen")


class Bench:
    """One server for each of plain and Weft; run() is one measurement."""

    def __init__(self, place, path, redis):
        self.redis, self.ports, self.processes = redis, [], []
        # (in front of the server, in front of the client, environment)
        plain = ([], [], {k: v for k, v in place.env.items() if k != "SOCKET_BENCH_IWARP"})
        self.place, self.sides = place, [plain, ([] if path == "plain" else UNDER_WEFT, UNDER_WEFT, place.env)]
        for prefix, _, env in self.sides:
            port = free_port()
            argv = [BENCH, "serve", place.address, str(port)]
            if redis:
                argv = ["redis-server", "--port", str(port), "--bind", place.address, "--save", "",
                        "--protected-mode", "no"]
            self.ports.append(port)
            self.processes.append(serve(place, prefix, env, argv, port))

    def run(self, side, kind, size, seconds, how):
        _, prefix, env = self.sides[side]
        at = [self.place.address, str(self.ports[side])]
        argv = [BENCH, kind, *at, str(size), str(seconds), how]
        if self.redis:
            argv = ["redis-benchmark", "-h", at[0], "-p", at[1], "-c", str(size), "-t", "get", "-n",
                    str(int(40_000 * seconds)), "-q"]
        argv = [*self.place.client, *prefix, *argv]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds * 20 + 20, env=env,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)}: {done.stderr.strip()}")
        if not self.redis:
            return float(done.stdout)
        return float(re.findall(r"GET: ([0-9.]+) requests", done.stdout)[-1])

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(bench, options):
    shapes = [("get", n) for n in (1, REDIS_CLIENTS)] if options.redis else SHAPES
    ways = ["sleep"] if options.same_core or options.redis else ["sleep", "poll"]
    print(f"{'shape':<26} {'TCP':>14} {'Weft':>14} {'ratio':>6}")
    for kind, size in shapes:
        for how in ["sleep"] if kind == "slow" else ways:
            pairs = [[bench.run(side, kind, size, options.seconds, how) for side in (0, 1)]
                     for _ in range(options.rounds)]
            tcp, weft = (statistics.median(column) for column in zip(*pairs))
            ratio = statistics.median(w / t for t, w in pairs)
            print(f"{kind + ' ' + str(size) + ' ' + how:<26} {tcp:>14.0f} {weft:>14.0f} {ratio:>6.2f}"
                  f"  {UNITS[kind]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement. Default: 0.5")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per shape. Default: 5")
    parser.add_argument("--path", choices=["ring", "apart", "iwarp", "plain"], default="ring",
                        help="what Weft uses. Default: ring")
    parser.add_argument("--redis", action="store_true", help="redis-benchmark instead, GET, by clients")
    parser.add_argument("--same-core", action="store_true", help="both sides on one core")
    options = parser.parse_args()
    if not os.access(BENCH, os.X_OK):
        sys.exit("first: scripts/build.sh release all weft_socket_bench")
    cores = sorted(os.sched_getaffinity(0))
    with place_of(options.path) as place:
        os.sched_setaffinity(0, cores[:1])  # the servers'
        bench = Bench(place, options.path, options.redis)
        if not options.same_core:
            os.sched_setaffinity(0, cores[1:2] or cores[:1])
        try:
            measure(bench, options)
        finally:
            bench.end()


if __name__ == "__main__":
    main()
