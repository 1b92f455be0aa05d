#!/usr/bin/env python3
"""Servers that people run, and their own load programs, under Weft beside kernel TCP.

    bench/sockets/programs.py [--weft PROGRAM] [--rounds N] [--seconds S] [ROW...]

Rows: redis-1, redis-50 (clients), redis-short (a connection for each request), nginx (wrk, 64
connections, a file of 700 octets), postgres (pgbench -S, 4 clients). Needs the release preset; a
row whose programs are not installed is left out, and says so. postgres needs root: server and client
run as the user postgres. Both sides are under Weft or neither; they take turns, each with a server
of its own. The medians and the median ratio are shown (more is better).
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POSTGRES = "/usr/lib/postgresql/15/bin"
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/log; {user}
events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; keepalive_requests 1000000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def run(argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def figure(pattern, text):
    found = re.findall(pattern, text)
    if not found:
        sys.exit(f"no figure in:\n{text}")
    return float(found[-1])


@contextlib.contextmanager
def served(argv, port):
    """A server that listens at `port`; ended with its children."""
    process = subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{argv} does not listen")
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(2 if "postgres" in str(argv) else 15)
        process.wait()


class Redis:
    """redis-server and redis-benchmark, GET."""

    needs = ("redis-server", "redis-benchmark")

    def __init__(self, clients, *more):
        self.clients, self.more = clients, more

    def server(self, port, folder):
        return ["redis-server", "--port", port, "--save", "", "--dir", folder]

    def load(self, port, seconds):
        count = int(seconds * (20_000 if self.more else 40_000))
        return ["redis-benchmark", "-p", port, "-c", self.clients, "-t", "get", "-n", count, "-q", *self.more]

    def figure(self, text):
        return figure(r"GET: ([0-9.]+) requests", text)


class Nginx:
    """nginx with one worker, and wrk with two threads."""

    needs = ("nginx", "wrk")

    def server(self, port, folder):
        with open(f"{folder}/small", "w", encoding="ascii") as file:
            file.write("x" * 700)
        user = "user root;" if os.geteuid() == 0 else ""
        with open(f"{folder}/conf", "w", encoding="ascii") as file:
            file.write(NGINX.format(folder=folder, port=port, user=user))
        return ["nginx", "-e", f"{folder}/log", "-c", f"{folder}/conf"]

    def load(self, port, seconds):
        return ["wrk", "-t", 2, "-c", 64, "-d", f"{max(1, round(seconds))}s", f"http://127.0.0.1:{port}/small"]

    def figure(self, text):
        return figure(r"Requests/sec: +([0-9.]+)", text)


class Postgres:
    """postgres, which forks for each connection, and pgbench."""

    needs = (f"{POSTGRES}/postgres", "pgbench", "setpriv")

    def server(self, port, folder):
        data = f"{folder}/data"
        os.mkdir(data)
        os.chmod(folder, 0o755)
        shutil.chown(data, "postgres", "postgres")
        run([*AS_POSTGRES, f"{POSTGRES}/initdb", "-D", data, "-A", "trust", "-N", "--no-instructions"])
        return [*AS_POSTGRES, f"{POSTGRES}/postgres", "-D", data, "-p", port, "-k", "", "-c", "fsync=off"]

    def at(self, port):
        return ["-h", "127.0.0.1", "-p", port, "-U", "postgres"]

    def prepare(self, port):
        run([*AS_POSTGRES, "pgbench", *self.at(port), "-i", "-q", "postgres"])

    def load(self, port, seconds):
        return [*AS_POSTGRES, "pgbench", *self.at(port), "-n", "-S", "-c", 4, "-j", 2, "-T",
                max(1, round(seconds)), "postgres"]

    def figure(self, text):
        return figure(r"tps = ([0-9.]+)", text)


ROWS = {"redis-1": Redis(1), "redis-50": Redis(50), "redis-short": Redis(50, "-k", "0"), "nginx": Nginx(),
        "postgres": Postgres()}


def measure(name, row, weft, options):
    missing = [program for program in row.needs if shutil.which(program) is None]
    if missing or (isinstance(row, Postgres) and os.geteuid() != 0):
        print(f"{name:<14} left out: {', '.join(missing) or 'not root'}")
        return
    with contextlib.ExitStack() as undo:
        sides = []
        for prefix in [], [weft, "run", "--sockets", "--"]:
            folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="weft-programs-"))
            port = free_port()
            undo.enter_context(served([*prefix, *row.server(port, folder)], port))
            if hasattr(row, "prepare"):
                row.prepare(port)
            sides.append((prefix, port))
        pairs = [[row.figure(run([*prefix, *row.load(port, options.seconds)])) for prefix, port in sides]
                 for _ in range(options.rounds)]
        tcp, ours = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(w / t for t, w in pairs)
        print(f"{name:<14} {tcp:>12.0f} {ours:>12.0f} {ratio:>6.2f}  per second", flush=True)


def for_everybody(weft, folder):
    """A copy of Weft that every user may read, as the tree may lie in a home folder."""
    built = os.path.dirname(os.path.dirname(os.path.realpath(weft)))
    os.chmod(folder, 0o755)
    shutil.copytree(f"{built}/lib/weft", f"{folder}/lib/weft", symlinks=True)
    os.mkdir(f"{folder}/bin")
    os.environ["WEFT_LIB_DIR"] = f"{folder}/lib"
    return shutil.copy(weft, f"{folder}/bin")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=os.path.join(ROOT, "build", "release", "bin", "weft"),
                        help="the program of another build. Default: that of the release preset")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per row. Default: 5")
    parser.add_argument("--seconds", type=float, default=2, help="of each, about. Default: 2")
    parser.add_argument("row", nargs="*", choices=[*ROWS, []], help="which rows. Default: all")
    options = parser.parse_args()
    if not os.access(options.weft, os.X_OK):
        sys.exit("first: scripts/build.sh release all")
    with tempfile.TemporaryDirectory(prefix="weft-programs-") as folder:
        weft = for_everybody(options.weft, folder)
        print(f"{'row':<14} {'TCP':>12} {'Weft':>12} {'ratio':>6}")
        for name in options.row or ROWS:
            measure(name, ROWS[name], weft, options)


if __name__ == "__main__":
    main()
