"""Servers of files and their clients: `weft serve`, nginx with sendfile, the daemon of rsync."""

import os
import shutil
import tempfile
import time

from ..bench import free_port
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


def _need(program):
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        raise Failed(f"{program} is not installed")
    return found


class Weft:
    def __init__(self, bench, served, folder, path):
        del folder
        self.port = free_port()
        self.env = {"WEFT_PATH": path}
        self.weft = bench.weft
        self.server = [bench.weft, "serve", "--quiet", "--listen", "127.0.0.1", "--port",
                       str(self.port), served]

    def get(self, name):
        return [self.weft, "get", "-q", f"weft://127.0.0.1:{self.port}/{name}", "/dev/null"]

    def get_tree(self, to):
        return [self.weft, "get", "-q", "-r", f"weft://127.0.0.1:{self.port}/", to]


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


def measure(bench, what, make, clients, octets):
    """Runs `clients` of `make` at once, `what(server, number)` each. A sample."""
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    try:
        kind = make(folder)
        with bench.server(bench.anywhere(), kind.server, kind.env) as server:
            server.wait_until_listening(kind.port)
            start = time.monotonic()
            commands = [what(kind, os.path.join(folder, str(n))) for n in range(clients)]
            running = [bench.start(bench.anywhere(), one, kind.env) for one in commands]
            ended = [one.wait(120).require(os.path.basename(commands[0][0])) for one in running]
            seconds = time.monotonic() - start
            server_cpu_s = server.stop().cpu_s
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gb = octets * clients / 1e9
    return {"bytes_per_s": octets * clients / seconds, "seconds": seconds,
            "client_cpu_s_per_gb": sum(e.cpu_s for e in ended) / gb,
            "server_cpu_s_per_gb": server_cpu_s / gb}
