"""Servers of files and their clients: `weft serve`, nginx with sendfile, the daemon of rsync, nc, and
a plain server that reads and sends; and what does the same without a server: cp, fio, and bindfs,
which passes each call on to a folder."""

import contextlib
import os
import shutil
import sys
import tempfile
import time

from ..bench import free_port
from ..places import Place
from ..process import Failed

NGINX = """daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid;
error_log {folder}/nginx.log; events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; tcp_nopush on;
client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
uwsgi_temp_path {folder}; scgi_temp_path {folder};
server {{ listen 127.0.0.1:{port}; root {served}; }} }}
"""
RSYNC = """port = {port}
address = 127.0.0.1
use chroot = false
[served]
path = {served}
read only = true
"""

PACE = 100_000_000  # octets a second
# Takes its input at the pace.
PACED = f"""import sys, time
start, octets = time.monotonic(), 0
while part := sys.stdin.buffer.read1(1 << 18):
    octets += len(part)
    time.sleep(max(0, start + octets / {PACE} - time.monotonic()))
"""

PIECE = 256 << 10  # what one read takes, here and in the server of Weft
# Reads and sends; the client receives, and throws it away.
PLAIN_SERVER = f"""import os, socket, sys
room = memoryview(bytearray({PIECE}))
with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64) as listener:
    while True:
        client, _ = listener.accept()
        file, at = os.open(sys.argv[2] + "/file0", os.O_RDONLY), 0
        with client:
            while got := os.preadv(file, [room], at):
                client.sendall(room[:got])
                at += got
        os.close(file)
"""
PLAIN_CLIENT = f"""import socket, sys
room, out = bytearray({PIECE}), open("/dev/null", "wb", buffering=0)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
    while got := server.recv_into(room):
        out.write(memoryview(room)[:got])
"""


def _need(program):
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        raise Failed(f"{program} is not installed")
    return found


class Weft:
    def __init__(self, bench, served, path, place=None, options=()):
        self.port = free_port()
        self.env = {"WEFT_PATH": path}
        self.weft = bench.weft
        address = place.address if place else "127.0.0.1"
        self.url = f"weft://{address}:{self.port}/"
        self.server = [bench.weft, "serve", "--quiet", "--listen", address, "--port",
                       str(self.port), *options, *(["--open"] if place else []), served]

    def get(self, name):
        return [self.weft, "get", "-q", self.url + name, "/dev/null"]

    def get_into(self, name, to):
        return [self.weft, "get", "-q", self.url + name, to]

    def get_paced(self, name):
        return ["sh", "-c", '"$0" cat "$1" | "$2" -c "$3"', self.weft, self.url + name,
                sys.executable, PACED]

    def get_tree(self, to):
        return [self.weft, "get", "-q", "-r", self.url, to]

    def sync(self, to):
        return [self.weft, "sync", "-q", self.url, to]

    def mount(self, at):
        return [self.weft, "mount", "--foreground", self.url, at]


class Plain:
    """pread and send, one client after the other."""
    env = None

    def __init__(self, served):
        self.port = free_port()
        self.server = [sys.executable, "-c", PLAIN_SERVER, str(self.port), served]

    def get(self, name):
        assert name == "file0"
        return [sys.executable, "-c", PLAIN_CLIENT, str(self.port)]


class Netcat:
    """nc at both ends, one file."""
    env = None

    def __init__(self, served, place):
        self.port, self.address = free_port(), place.address
        self.server = ["sh", "-c", 'exec "$0" -l -N "$1" "$2" < "$3"', _need("nc"), self.address,
                       str(self.port), os.path.join(served, "file0")]

    def get_into(self, name, to):
        assert name == "file0"
        return ["sh", "-c", 'exec "$0" -d "$1" "$2" > "$3"', _need("nc"), self.address,
                str(self.port), to]


class Fio:
    """Reads past the page cache as the server of Weft does: no server."""
    env = server = None

    def __init__(self, served):
        self.served = served

    def get(self, name):
        return [_need("fio"), "--name=read", "--readonly", "--rw=read", "--direct=1", "--iodepth=16",
                f"--bs={PIECE}", "--ioengine=io_uring", "--output=/dev/null",
                "--filename=" + os.path.join(self.served, name)]


class Nginx:
    env = None

    def __init__(self, bench, served, folder):
        del bench
        self.port = free_port()
        file = os.path.join(folder, "nginx.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(NGINX.format(folder=folder, port=self.port, served=served))
        self.server = [_need("nginx"), "-c", file]

    def get(self, name):
        return [_need("curl"), "-s", "-f", "-o", "/dev/null",
                f"http://127.0.0.1:{self.port}/{name}"]

    def get_paced(self, name):
        return [*self.get(name), "--limit-rate", str(PACE)]


class Local:
    """No server: the folder itself."""
    env = server = None

    def __init__(self, bench, served, folder):
        del bench, folder
        self.served = served

    def get_into(self, name, to):
        return ["cp", "--reflink=never", os.path.join(self.served, name), to]

    def mount(self, at):
        return [_need("bindfs"), "-f", self.served, at]


class Rsync:
    env = None

    def __init__(self, bench, served, folder):
        del bench
        self.port = free_port()
        file = os.path.join(folder, "rsyncd.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(RSYNC.format(port=self.port, served=served))
        self.server = [_need("rsync"), "--daemon", "--no-detach", f"--config={file}"]

    def get_tree(self, to):
        return ["rsync", "-rt", "--whole-file", f"rsync://127.0.0.1:{self.port}/served/", to]

    sync = get_tree


def served(files, size):
    """A folder with `files` files of `size` octets that are not the same."""
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    os.chmod(folder, 0o755)  # the daemon of rsync becomes another user
    block = os.urandom(min(size, 1 << 20))
    for number in range(files):
        with open(os.path.join(folder, f"file{number}"), "wb") as out:
            out.write(number.to_bytes(8, "big"))
            left = size - 8
            while left > 0:
                out.write(block[:left])
                left -= len(block)
    return folder


def _touch(folder, octets):
    """Leaves as much free memory as a file takes that the machine has used before: in a virtual one
    the first use of memory costs several times the writing."""
    name = os.path.join(folder, "touched")
    with open(name, "wb") as out:
        for _ in range(octets >> 20):
            out.write(bytes(1 << 20))
    os.unlink(name)


def measure(bench, what, make, clients, octets, writes=False, place=None, twice=False):
    """Runs `clients` of `make` at once, `what(server, number)` each. A sample. `twice`: once more,
    when all is there already, and that is measured."""
    place = place or bench.anywhere()
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    try:
        kind = make(folder)
        if writes:
            _touch(folder, octets)
        commands = [what(kind, os.path.join(folder, str(n))) for n in range(clients)]

        def run_all():
            running = [bench.start(place, one, kind.env) for one in commands]
            return [one.wait(120).require(os.path.basename(commands[0][0])) for one in running]
        with _serving(bench, place, kind) as server:
            if twice:
                run_all()
            start = time.monotonic()
            ended = run_all()
            seconds = time.monotonic() - start
            server_cpu_s = server.stop().cpu_s if server else 0.0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gb = octets * clients / 1e9
    return {"bytes_per_s": octets * clients / seconds, "seconds": seconds,
            "client_cpu_s_per_gb": sum(e.cpu_s for e in ended) / gb,
            "server_cpu_s_per_gb": server_cpu_s / gb,
            "server_cpu_percent": 100 * server_cpu_s / seconds}


@contextlib.contextmanager
def _serving(bench, place, kind):
    if kind.server is None:
        yield None
        return
    with bench.server(place, kind.server, kind.env) as server:
        server.wait_until_listening(kind.port)
        yield server


def measure_mount(bench, make, name, octets):
    """One reads a file through a file system of `make`, straight on. A sample. Outside
    of all namespaces: what is mounted in one is not seen here."""
    place = Place("loopback", "127.0.0.1")
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    at = os.path.join(folder, "at")
    os.mkdir(at)
    try:
        kind = make(folder)
        with _serving(bench, place, kind), bench.start(place, kind.mount(at), kind.env) as mounted:
            end = time.monotonic() + 10
            while not os.path.ismount(at):
                ended = mounted.poll()
                if ended is not None:
                    ended.require("the file system")
                if ended is not None or time.monotonic() > end:
                    raise Failed("not mounted: no right to use /dev/fuse?")
                time.sleep(0.01)
            start = time.monotonic()
            read = ["dd", f"if={at}/{name}", "of=/dev/null", "bs=1M"]
            bench.start(place, read).wait(120).require("dd")
            seconds = time.monotonic() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"bytes_per_s": octets / seconds, "seconds": seconds}
