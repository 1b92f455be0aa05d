#!/usr/bin/env python3
"""What a connection costs under Weft beside kernel TCP: memory, and system calls.

    bench/sockets/costs.py [--connections N]

Needs the release preset. `idle`: connections that have carried one request. `was busy`: a hundred
each, by rings. Memory is that of both processes, with their shares of what they share, and without
the kernel's; medians of 5. System calls are those of a connection with one request, of both ends,
counted by strace.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNDER_WEFT = [os.path.join(ROOT, "build", "release", "bin", "weft"), "run", "--sockets", "--"]
ROUNDS = 5

# Prints KiB of memory that each connection takes.
HOLD = """
import os, resource, socket, sys, time
count, requests = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
listener = socket.create_server(('127.0.0.1', 0), backlog=1000); address = listener.getsockname()
go, tell = os.pipe(); parent = os.getpid(); child = os.fork()
def share(pid):
    with open(f'/proc/{pid}/smaps_rollup') as file: return int(next(line for line in file if line.startswith('Pss:')).split()[1])
def taken(): time.sleep(0.1); return share(parent) + share(child)
def ask(one):
    for _ in range(requests): one.sendall(b'x' * 100); one.recv(100)
def answer(one):
    for _ in range(requests): one.sendall(one.recv(100))
def end(): return listener.accept()[0] if child else socket.create_connection(address)
serve = answer if child else ask
held = [end()]; serve(held[0])
if child: before = taken(); os.write(tell, b'x')
else: os.read(go, 1)
for _ in range(count): held.append(end()); serve(held[-1])
if child: print((taken() - before) / count, flush=True); os.kill(child, 9); os.waitpid(child, 0)
else: time.sleep(60)
"""

SHORT = """
import socket, sys
listener = socket.create_server(('127.0.0.1', 0), backlog=1000)
for _ in range(int(sys.argv[1])):
    c = socket.create_connection(listener.getsockname()); a, _ = listener.accept()
    c.sendall(b'x'); a.recv(1); c.close(); a.close()
"""


def memory(prefix, count, requests):
    argv = [*prefix, sys.executable, "-c", HOLD, str(count), str(requests)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def calls(prefix):
    """System calls of one more connection."""
    def run(count):
        argv = ["strace", "-f", "-c", *prefix, sys.executable, "-c", SHORT, str(count)]
        told = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
        return int(re.findall(r"^100.00 +[0-9.]+ +[0-9]+ +([0-9]+)", told, re.MULTILINE)[0])
    return (run(1100) - run(100)) / 1000


def row(name, tcp, weft, unit):
    print(f"{name:<28} {tcp:>10.1f} {weft:>10.1f} {weft - tcp:>+10.1f}  {unit}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=500, help="held at once. Default: 500")
    options = parser.parse_args()
    print(f"{'':<28} {'TCP':>10} {'Weft':>10} {'more':>10}")
    for name, requests in ("idle", 1), ("was busy", 100):
        pairs = [[memory(prefix, options.connections, requests) for prefix in ([], UNDER_WEFT)]
                 for _ in range(ROUNDS)]
        tcp, weft = (statistics.median(column) for column in zip(*pairs))
        row(f"memory, {name}", tcp, weft, "KiB")
    row("system calls", calls([]), calls(UNDER_WEFT), "a connection")


if __name__ == "__main__":
    main()
