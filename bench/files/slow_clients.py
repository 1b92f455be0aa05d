#!/usr/bin/env python3
"""What many slow clients cost a fast one of the same data server.

    bench/files/slow_clients.py [--clients N] [--mbit N] [--size MIB] [--rounds N]

Root, and the release preset. The server and the fast client are in one network namespace, the slow ones in another: each
has a link of its own to the server, which a token bucket keeps to its rate. A round is a file to /dev/null by the fast
client over TCP and over a ring: so many rounds alone, beside the others, and alone again. Prints medians of the rounds,
what share of its rate the fast client keeps, and what the slow ones got meanwhile.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = ROOT / "build" / "release" / "bin" / "weft"
LIMIT_S = 60
WARM_OCTETS = 10 << 20  # the buffers of a client are 8 MiB


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, timeout=LIMIT_S)


class Links:
    """Two namespaces, and a link of its own for each slow client."""

    def __init__(self, count, mbit):
        self.server, self.clients = (f"weft-slow-{os.getpid()}-{end}" for end in "sc")
        self.count, self.mbit = count, mbit

    def __enter__(self):
        for name in (self.server, self.clients):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for i in range(self.count):
            ip("-n", self.server, "link", "add", f"s{i}", "type", "veth", "peer", "name", f"c{i}", "netns", self.clients)
            for name, device, end in ((self.server, f"s{i}", 1), (self.clients, f"c{i}", 2)):
                ip("-n", name, "addr", "add", f"10.78.{i}.{end}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
            subprocess.run(["tc", "-n", self.server, "qdisc", "add", "dev", f"s{i}", "root", "tbf", "rate",
                            f"{self.mbit}mbit", "burst", "64k", "latency", "100ms"], check=True, timeout=LIMIT_S)
        return self

    def __exit__(self, *_):
        for name in (self.server, self.clients):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def inside(self, end, *words):
        return ["ip", "netns", "exec", end, *map(str, words)]

    def octets(self):
        """That the slow clients have been sent so far."""
        command = self.inside(self.server, "cat", *(f"/sys/class/net/s{i}/statistics/tx_bytes" for i in range(self.count)))
        return sum(map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))


@contextlib.contextmanager
def serving(links, folder):
    read, write = os.pipe()
    with subprocess.Popen(links.inside(links.server, WEFT, "serve", "--quiet", "--listen", "0.0.0.0", "--port", 7180,
                                       "--open", "--announce-fd", write, folder), pass_fds=[write],
                          stderr=subprocess.DEVNULL) as process:
        os.close(write)
        with os.fdopen(read) as announced:
            if not announced.readline():
                raise SystemExit("no server")
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def slow_clients(links):
    """All of them, once each has some of the file and so has touched its buffers."""
    running = [subprocess.Popen(links.inside(links.clients, WEFT, "get", "-q", f"weft://10.78.{i}.1:7180/big", "/dev/null"))
               for i in range(links.count)]
    try:
        begin, deadline = links.octets(), time.monotonic() + LIMIT_S
        while links.octets() - begin < links.count * WARM_OCTETS:
            if any(one.poll() is not None for one in running) or time.monotonic() > deadline:
                raise SystemExit("the slow clients get nothing")
            time.sleep(0.1)
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def rate_of_fast(links, path, size):
    """Octets a second."""
    start = time.monotonic()
    subprocess.run(links.inside(links.server, "env", f"WEFT_PATH={path}", WEFT, "get", "-q", "weft://127.0.0.1:7180/big",
                                "/dev/null"), check=True, timeout=LIMIT_S)
    return size / (time.monotonic() - start)


def measure(links, folder, size, rounds):
    alone, beside = {"tcp": [], "auto": []}, {"tcp": [], "auto": []}

    def take(results):
        for _ in range(rounds):
            for path, rates in results.items():
                rates.append(rate_of_fast(links, path, size))

    with serving(links, folder):
        take(alone)
        with slow_clients(links):
            start, octets = time.monotonic(), links.octets()
            take(beside)
            slow = (links.octets() - octets) / (time.monotonic() - start) / links.count
        take(alone)
    for path, name in (("tcp", "TCP"), ("auto", "ring")):
        one, other = statistics.median(alone[path]), statistics.median(beside[path])
        print(f"{name:<5} alone {one / 1e9:.2f} GB/s, beside the slow ones {other / 1e9:.2f} GB/s: {100 * other / one:.0f} % kept")
    print(f"each slow client: {8 * slow / 1e6:.1f} Mbit/s meanwhile")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20, help="slow ones, at most 250. Default: 20")
    parser.add_argument("--mbit", type=int, default=8, help="rate of each link. Default: 8")
    parser.add_argument("--size", type=int, default=1024, help="of the file, MiB. Default: 1024")
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="weft-slow-") as folder, Links(options.clients, options.mbit) as links:
        block = os.urandom(1 << 20)
        with open(pathlib.Path(folder) / "big", "wb") as out:
            for _ in range(options.size):
                out.write(block)
        measure(links, folder, options.size << 20, options.rounds)


if __name__ == "__main__":
    main()
