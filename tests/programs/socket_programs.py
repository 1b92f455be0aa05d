#!/usr/bin/env python3
"""Programs that know only sockets, under `weft run --sockets`: real work, results compared. Each
runs with both sides under Weft, and with one side plain; on loopback the path between two sides
under Weft is shared memory, between namespaces (with a rule) it is RDMA."""

import contextlib
import difflib
import filecmp
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from harness import WEFT, Failure, Skip, check, free_port, main, need

LIMIT_S = 60
RULES = "use both connect * *:*\n"
# (server under Weft, client under Weft)
SIDES = ((True, True), (True, False), (False, True))


class Setting:
    """One combination of sides, in a folder of its own."""

    def __init__(self, network, folder, server_weft, client_weft):
        self.network = network
        self.folder = folder
        self.server_weft = server_weft
        self.client_weft = client_weft
        self.processes = []
        self.rules = os.path.join(folder, "rules")
        with open(self.rules, "w", encoding="ascii") as file:
            file.write(RULES)
        os.chmod(folder, 0o755)

    @property
    def host(self):
        return self.network.server.v4

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        mode = "wb" if isinstance(text, bytes) else "w"
        with open(self.path(name), mode) as file:
            file.write(text)
        return self.path(name)

    def _run(self, place, weft, argv, **more):
        if weft:
            options = ["--sockets", "--why"]
            if self.network.name == "namespaces":
                options += ["--rules", self.rules]
            process = place(argv, options=options, **more)
        else:
            process = place(argv, raw=True, **more)
        self.processes.append(process)
        return process

    def serve(self, argv, **more):
        return self._run(self.network.start, self.server_weft, argv, **more)

    def call(self, argv, **more):
        return self._run(self.network.connect, self.client_weft, argv, **more)

    def must(self, argv, status=0, seconds=LIMIT_S, **more):
        """Runs a client to its end; its output."""
        return self.call(argv, **more).expect(status, seconds)

    def check_path(self, output):
        """What a client under Weft said of its connections."""
        if not self.client_weft:
            return
        wanted = "tcp"
        if self.server_weft:
            wanted = "ring" if self.network.name == "loopback" else "rdma"
        elif self.network.name == "namespaces":
            wanted = "rdma"  # asked for, and not had: plain in the end
        check(f": {wanted}: " in output, f"the path was not {wanted}:\n{output[-2000:]}")

    def end(self):
        for process in self.processes:
            process.end()


def everywhere(case, sides=SIDES):
    """A case of the harness: `case(setting)` for each combination of sides."""

    def run(network):
        for server_weft, client_weft in sides:
            with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
                setting = Setting(network, folder, server_weft, client_weft)
                try:
                    case(setting)
                except Exception as why:
                    names = {True: "Weft", False: "plain"}
                    why.args = (f"server {names[server_weft]}, client {names[client_weft]}: "
                                f"{why.args[0] if why.args else why}\n"
                                + "\n".join(f"{p.argv[0]}:\n{p.tail(12)}" for p in setting.processes),)
                    raise
                finally:
                    setting.end()
    return run


def quiet(argv):
    subprocess.run([str(a) for a in argv], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S)


def until(condition, text, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, text)
        time.sleep(0.05)


# --- one program each ---


def netcat(s):
    need("nc.openbsd")
    if s.network.name == "namespaces" and s.client_weft and not s.server_weft:
        return  # it serves one connection, and that is where RDMA is asked for
    data = os.urandom(2_000_000)
    back = os.urandom(300_000)
    source, answer = s.write("data", data), s.write("back", back)
    port = free_port()
    script = f"exec nc.openbsd -N -l {s.host} {port} <{answer} >{s.path('got')}"
    server = s.serve(["/bin/sh", "-c", script]).listening(port)
    out = s.must(["/bin/sh", "-c", f"exec nc.openbsd -N {s.host} {port} <{source} >{s.path('answer')}"])
    server.expect(0, LIMIT_S)
    s.check_path(out)
    check(filecmp.cmp(source, s.path("got"), shallow=False), "the server got something else")
    check(filecmp.cmp(answer, s.path("answer"), shallow=False), "the client got something else")


def netcat_exec(s):
    """The server execs a program with the connection as its standard input and output."""
    need("nc.traditional")
    if s.network.name == "namespaces" and s.client_weft and not s.server_weft:
        return  # as above
    port = free_port()
    source = s.write("data", os.urandom(700_000))
    server = s.serve(["nc.traditional", "-l", "-p", port, "-e", "/bin/cat"]).listening(port)
    s.must(["/bin/sh", "-c", f"nc.openbsd -N {s.host} {port} <{source} >{s.path('answer')}"])
    server.expect(0, LIMIT_S)
    size = os.path.getsize(s.path("answer"))
    check(filecmp.cmp(source, s.path("answer"), shallow=False), f"the echo differs: {size} octets")


NGINX = """
daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  sendfile {sendfile};
  server {{ listen {host}:{port}; root {folder}; }}
}}
"""


def start_nginx(s, sendfile="on"):
    need("nginx")
    port = free_port()
    config = s.write("nginx.conf", NGINX.format(folder=s.folder, host=s.host, port=port,
                                                sendfile=sendfile))
    server = s.serve(["nginx", "-e", s.path("error"), "-c", config]).listening(port)
    return server, port


def curl_nginx(s):
    """A page of 1 MB, a reload under way, 500 more requests."""
    need("curl")
    page = s.write("page", os.urandom(1 << 20))
    s.write("small", b"x" * 700)
    server, port = start_nginx(s)
    url = f"http://{s.host}:{port}"
    out = s.must(["curl", "-sS", "--max-time", "30", "-o", s.path("got"), f"{url}/page"])
    s.check_path(out)
    check(filecmp.cmp(page, s.path("got"), shallow=False), "the page differs")
    with open(s.path("pid"), encoding="ascii") as file:
        os.kill(int(file.read()), 1)  # reload: new workers take over the listener
    s.must(["curl", "-sS", "--max-time", "30", "-o", "/dev/null", f"{url}/small?[1-200]"])
    s.must(["curl", "-sS", "--max-time", "30", "-o", s.path("got"), f"{url}/page"])
    check(filecmp.cmp(page, s.path("got"), shallow=False), "the page differs after the reload")
    server.end()


def ab_nginx(s):
    need("ab")
    s.write("small", b"x" * 700)
    server, port = start_nginx(s, "off")
    for options in [], ["-k"]:
        out = s.must(["ab", *options, "-q", "-n", "600", "-c", "16", f"http://{s.host}:{port}/small"])
        check("Failed requests:        0" in out and "Complete requests:      600" in out, out[-1500:])
    server.end()


def redis(s):
    """200,000 operations, a snapshot while they run, then all keys once more from the snapshot."""
    need("redis-benchmark")
    port = free_port()
    server = s.serve(["redis-server", "--port", port, "--bind", s.host, "--save", "", "--dir", s.folder,
                      "--protected-mode", "no"]).listening(port)
    cli = ["redis-cli", "-h", s.host, "-p", port]
    load = s.call(["redis-benchmark", "-h", s.host, "-p", port, "-n", "100000", "-c", "50", "-P", "16",
                   "-r", "5000", "-t", "set,get", "-q"])
    until(lambda: int_of(s.must([*cli, "dbsize"])) > 100, "no keys are written")
    s.must([*cli, "bgsave"])
    out = load.expect(0, LIMIT_S)
    s.check_path(out)
    check("SET:" in out and "GET:" in out, out[-500:])
    until(lambda: "rdb_bgsave_in_progress:0" in s.must([*cli, "info", "persistence"]), "no end of BGSAVE")
    check("rdb_last_bgsave_status:ok" in s.must([*cli, "info", "persistence"]), "BGSAVE failed")
    check(os.path.getsize(s.path("dump.rdb")) > 1000, "the snapshot is empty")
    check(int_of(s.must([*cli, "dbsize"])) == 5000, "keys are missing")
    server.end()


def int_of(text):
    """The number in what redis-cli prints: behind what Weft says of the connection."""
    numbers = [line for line in text.split() if line.isdigit()]
    return int(numbers[-1]) if numbers else 0


def memcached(s):
    need("memcached")
    port = free_port()
    server = s.serve(["memcached", "-u", "root", "-l", s.host, "-p", port, "-U", "0", "-t", "2"]).listening(port)
    client = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); f = s.makefile('rwb')
for i in range(2000):
    s.sendall(b'set k%d 0 0 %d\\r\\n' % (i, i % 900 + 1) + bytes([65 + i % 26]) * (i % 900 + 1) + b'\\r\\n')
for i in range(2000):
    assert f.readline() == b'STORED\\r\\n', i
for i in range(0, 2000, 7):
    s.sendall(b'get k%d\\r\\n' % i)
    assert f.readline().startswith(b'VALUE'); assert f.readline() == bytes([65 + i % 26]) * (i % 900 + 1) + b'\\r\\n'
    assert f.readline() == b'END\\r\\n'
print('all there')
"""
    out = s.must(["/usr/bin/python3", "-c", client, s.host, port])
    check("all there" in out, out)
    server.end()


def iperf3(s):
    need("iperf3")
    if s.network.name == "namespaces" and s.client_weft and not s.server_weft:
        return  # it takes the question as a client of its own that talks nonsense, and says so
    port = free_port()
    server = s.serve(["iperf3", "-s", "-B", s.host, "-p", port]).listening(port)
    for options in ["-n", "50M"], ["-n", "50M", "-R"], ["-t", "1", "--bidir"], ["-n", "2M", "-l", "100"]:
        out = s.must(["iperf3", "-J", "-c", s.host, "-p", port, *options])
        s.check_path(out)
        result = json.loads(out[out.index("{"):out.rindex("}") + 1])
        check("error" not in result, result.get("error"))
        # A receiver counts until it hears of the end, which may overtake what it has not read yet.
        check(result["end"]["sum_sent"]["bytes"] > 1_000_000, f"{options}: too little went")
        check(result["end"]["sum_received"]["bytes"] > 0, f"{options}: nothing came")
    server.end()


SEQ_20000 = hashlib.md5("".join(f"{i}\n" for i in range(1, 20001)).encode()).hexdigest()
SSHD = """
Port {port}
ListenAddress {host}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
"""


def ssh(s, megabytes=32, ways=("there", "back", "there by scp's own protocol", "back by it")):
    """sshd forks, execs itself with the socket as standard input, and has sandboxed children."""
    need("ssh")
    if not os.path.exists("/usr/sbin/sshd") or os.geteuid() != 0:
        raise Skip("sshd needs root here, and openssh-server")
    os.makedirs("/run/sshd", exist_ok=True)
    for name in "host", "user":
        quiet(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(name)])
    port = free_port()
    config = s.write("sshd_config", SSHD.format(port=port, host=s.host, folder=s.folder))
    server = s.serve(["/usr/sbin/sshd", "-D", "-e", "-f", config]).listening(port)
    common = ["-F", "/dev/null", "-i", s.path("user"), "-o", "StrictHostKeyChecking=no", "-o",
              f"UserKnownHostsFile={s.path('known')}", "-o", "BatchMode=yes"]
    out = s.must(["ssh", *common, "-p", port, f"root@{s.host}", "echo hello; seq 20000 | md5sum"])
    s.check_path(out)
    check("hello" in out and SEQ_20000 in out, out)
    if s.network.name == "namespaces":
        megabytes = min(megabytes, 8)  # the way to the other machine is what is new there
    source = s.path("big")
    with open(source, "wb") as file:
        for _ in range(megabytes // 4):
            file.write(os.urandom(1 << 20) * 4)
    target, there = s.path("copy"), f"root@{s.host}:"
    for way in ways:
        own = ["-O"] if "own" in way or "by it" in way else []
        pair = [source, there + target] if way.startswith("there") else [there + source, target]
        s.must(["scp", *own, *common, "-P", port, *pair], seconds=LIMIT_S + megabytes / 4)
        check(filecmp.cmp(source, target, shallow=False), f"the copy {way} differs")
        os.unlink(target)
    server.end()


def make_tree(folder, files=300):
    for i in range(files):
        where = os.path.join(folder, f"d{i % 7}", f"e{i % 3}")
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, f"f{i}"), "wb") as file:
            file.write(os.urandom(i * i % 40_000))


def same_tree(a, b):
    done = subprocess.run(["diff", "-r", a, b], capture_output=True, check=False, timeout=LIMIT_S)
    return done.returncode == 0


def rsync(s):
    """A daemon that forks; then receiver and generator share one socket."""
    need("rsync")
    port = free_port()
    os.mkdir(s.path("tree"))
    os.mkdir(s.path("sent"))
    make_tree(s.path("tree"))
    config = s.write("rsyncd.conf", f"port={port}\naddress={s.host}\nuse chroot=no\n"
                                    f"[all]\npath={s.folder}\nread only=no\nuid={os.getuid()}\n")
    server = s.serve(["rsync", "--daemon", "--no-detach", f"--config={config}"]).listening(port)
    url = f"rsync://{s.host}:{port}/all"
    out = s.must(["rsync", "-a", "--timeout=30", f"{url}/tree/", s.path("copy")])
    s.check_path(out)
    check(same_tree(s.path("tree"), s.path("copy")), "the copy differs")
    s.must(["rsync", "-a", "--timeout=30", f"{s.path('tree')}/", f"{url}/sent/"])
    check(same_tree(s.path("tree"), s.path("sent")), "what was sent differs")
    server.end()


def postgres(s):
    """A child for each connection, which inherits the accepted socket."""
    folder = "/usr/lib/postgresql/15/bin"
    if not os.path.exists(f"{folder}/postgres") or os.geteuid() != 0:
        raise Skip("needs root here, and postgresql")
    need("setpriv")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = s.path("data")
    os.mkdir(data)
    shutil.chown(data, "postgres", "postgres")
    quiet([*user, f"{folder}/initdb", "-D", data, "-A", "trust", "-N", "--no-instructions"])
    with open(f"{data}/pg_hba.conf", "a", encoding="ascii") as file:
        file.write("host all all all trust\n")
    port = free_port()
    argv = [f"{folder}/postgres", "-D", data, "-p", port, "-h", s.host, "-k", "", "-c", "fsync=off"]
    server = s.serve([*user, *argv]).listening(port)
    at = ["-h", s.host, "-p", port, "-U", "postgres"]
    s.must(["pgbench", *at, "-i", "-q", "postgres"])
    out = s.must(["pgbench", *at, "-c", "4", "-j", "2", "-t", "100", "postgres"])
    s.check_path(out)
    check("number of transactions actually processed: 400/400" in out, out[-1500:])
    out = s.must(["psql", *at, "-At", "-c",
                  "select md5(string_agg(i::text, ',')) from generate_series(1, 50000) i", "postgres"])
    wanted = hashlib.md5(",".join(str(i) for i in range(1, 50001)).encode()).hexdigest()
    check(wanted in out, out)
    server.kill(2)
    server.end()


def haproxy(s):
    """Between curl and nginx: accepts and connects in one program."""
    need("haproxy")
    need("curl")
    page = s.write("page", os.urandom(1 << 20))
    _, behind = start_nginx(s)
    port = free_port()
    config = s.write("haproxy.cfg", f"""
defaults
  mode http
  timeout connect 10s
  timeout client 30s
  timeout server 30s
listen all
  bind {s.host}:{port}
  server one {s.host}:{behind}
""")
    s.serve(["haproxy", "-f", config, "-db"]).listening(port)
    url = f"http://{s.host}:{port}/page"
    for _ in range(3):
        s.must(["curl", "-sS", "--max-time", "30", "-o", s.path("got"), url])
        check(filecmp.cmp(page, s.path("got"), shallow=False), "the page differs")


def tls(s):
    need("openssl")
    quiet(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-days", "2",
           "-keyout", s.path("key"), "-out", s.path("cert")])
    s.write("page", b"0123456789abcdef" * 60_000)
    port = free_port()
    server = s.serve(["/bin/sh", "-c", f"cd {s.folder} && exec openssl s_server -accept {s.host}:{port} "
                      f"-key key -cert cert -WWW -quiet"]).listening(port)
    out = s.must(["/bin/sh", "-c", "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet "
                  f"-connect {s.host}:{port} -ign_eof >{s.path('got')}"])
    s.check_path(out)
    with open(s.path("got"), "rb") as file:
        check(file.read().endswith(b"0123456789abcdef" * 60_000), "the page differs")
    server.end()


def git(s):
    """git daemon starts a program for each connection, with the socket as its input and output."""
    need("git")
    repository = s.path("repository")
    quiet(["git", "init", "-q", repository])
    make_tree(repository, 100)
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]
    quiet(["git", "-C", repository, "add", "-A"])
    quiet(["git", "-C", repository, *who, "commit", "-qm", "x"])
    port = free_port()
    server = s.serve(["git", "daemon", "--reuseaddr", "--export-all", f"--listen={s.host}",
                      f"--port={port}", f"--base-path={s.folder}"],
                     env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
                          "GIT_CONFIG_VALUE_0": "*"}).listening(port)
    s.must(["git", "clone", "-q", f"git://{s.host}:{port}/repository", s.path("clone")])
    shutil.rmtree(os.path.join(s.path("clone"), ".git"))
    shutil.rmtree(os.path.join(repository, ".git"))
    check(same_tree(repository, s.path("clone")), "the clone differs")
    server.end()


# --- Python: each construction that hands sockets on ---

ASYNC_SERVER = """
import asyncio, sys
async def serve(r, w):
    while data := await r.read(65536):
        w.write(data); await w.drain()
    w.close()
async def main():
    async with await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2])) as s:
        await s.serve_forever()
asyncio.run(main())
"""
FORK_SERVER = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
    allow_reuse_address = True; request_queue_size = 64
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""
CHILD_SERVER = """
import socket, subprocess, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
while True:
    c, _ = s.accept()
    subprocess.Popen(['/bin/cat'], stdin=c, stdout=c); c.close()
"""
PASSING_SERVER = """
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
mine, other = socket.socketpair()
if os.fork() == 0:
    s.close(); mine.close()
    while True:
        _, fds, _, _ = socket.recv_fds(other, 10, 1)
        if os.fork() == 0:
            with socket.socket(fileno=fds[0]) as c:
                while data := c.recv(65536): c.sendall(data)
            os._exit(0)
        os.close(fds[0])
while True:
    c, _ = s.accept()
    socket.send_fds(mine, [b'x'], [c.fileno()]); c.close()
"""
MIDWAY_SERVER = """
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
while True:
    c, _ = s.accept()
    data = c.recv(1000); c.sendall(data)   # some octets first, then a child goes on
    if os.fork() == 0:
        s.close()
        while data := c.recv(65536): c.sendall(data)
        os._exit(0)
    c.close()
"""
ASYNC_CLIENT = """
import asyncio, os, sys
async def one(i):
    r, w = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    data = os.urandom(1000 + i * 4999)
    async def send():
        for at in range(0, len(data), 10000):
            w.write(data[at:at + 10000]); await w.drain()
        w.write_eof()
    task = asyncio.create_task(send())
    got = await r.read(-1) ; await task
    assert got == data, (i, len(got), len(data))
    w.close()
async def main():
    await asyncio.gather(*(one(i) for i in range(int(sys.argv[3]))))
    print('all equal')
asyncio.run(main())
"""


def python_case(server_text, clients):
    def case(s):
        port = free_port()
        server = s.serve(["/usr/bin/python3", "-c", server_text, s.host, port]).listening(port)
        out = s.must(["/usr/bin/python3", "-c", ASYNC_CLIENT, s.host, port, clients])
        s.check_path(out)
        check("all equal" in out, out)
        server.end()
    return case


MISTAKES = {
    "use rdma": (1, 9, "the role is missing"),
    "# fine\n\nuse fast * * *:*": (3, 5, "rdma, both or tcp"),
    "allow rdma * * *:*": (1, 1, "begins with 'use'"),
    "use tcp talk * *:*": (1, 9, "connect, listen or *"),
    "use tcp * /bin/nc *:*": (1, 11, "without a folder"),
    "use tcp * * *:70000": (1, 13, "0 to 65535"),
    "use tcp * * 10.0.0.0/33:*": (1, 13, "10.0.0.0/8"),
    "use tcp * * fd00::/8:1": (1, 13, "[fd00::]/8"),
    "use tcp * * *:* now": (1, 17, "comments begin with #"),
}


def rules(network):
    """Mistakes are found before the program starts, by line and column; rules decide the path."""
    with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
        path = os.path.join(folder, "rules")
        for text, (line, column, legal) in MISTAKES.items():
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            out = network.connect(["true"], options=("--sockets", "--rules", path)).expect_clean_failure(20)
            check(f"{path}:{line}:{column}:" in out and legal in out, f"{text!r}: {out}")
        out = network.connect(["true"], options=("--sockets", "--rules", f"{path}.not")).expect_clean_failure(20)
        check(f"{path}.not" in out, out)
        with open(path, "w", encoding="ascii") as file:
            file.write("use rdma connect other-program *:*\nuse tcp * * 127.0.0.1:*\n")
        port = free_port()
        server = network.start(["/usr/bin/python3", "-c", ASYNC_SERVER, network.server.v4, port],
                               options=("--sockets",)).listening(port)
        client = ["/usr/bin/python3", "-c", ASYNC_CLIENT, network.server.v4, port, 3]
        out = network.connect(client, options=("--sockets", "--why", "--rules", path)).expect(0, LIMIT_S)
        check(": tcp: a rule says tcp" in out and ": ring:" not in out, out)
        server.end()


def silent_clients(network):
    """Clients that say the MPA key, or part of what follows it, and then nothing; others are
    served."""
    port = free_port()
    server = network.start(["/usr/bin/python3", "-c", ASYNC_SERVER, network.server.v4, port],
                           options=("--sockets",)).listening(port)
    links = []
    for octets in 0, 1, 16, 19, 20, 40:
        links.append(socket.create_connection((network.server.v4, port), timeout=20))
        links[-1].sendall((b"MPA ID Req Frame\x40\x01\x00\x2c" + bytes(44))[:octets])
    for data in b"MPA ID Reqxxxxxxxxxxxxxxxxxxxxxxxxx", b"M", b"MPA ID Req Frame" + b"\xff" * 40:
        with socket.create_connection((network.server.v4, port), timeout=20) as link:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while part := link.recv(1000):
                    got += part
            check(got in (data, b""), f"{data!r} became {got!r}")
    client = ["/usr/bin/python3", "-c", ASYNC_CLIENT, network.server.v4, port, 5]
    out = network.connect(client, options=("--sockets",)).expect(0, LIMIT_S)
    check("all equal" in out, out)
    for link in links:
        link.close()
    server.end()


def stat_of(network, pid):
    """What `weft stat --sockets` says of a process, once it has got as far as `asking`."""
    end = time.monotonic() + 20
    while True:
        out = network.start([WEFT, "stat", pid, "--sockets", "--json"], raw=True).expect(0, LIMIT_S)
        rows = [json.loads(line) for line in out.splitlines()]
        if all(row["path"] != "asking" for row in rows):
            return rows
        check(time.monotonic() < end, f"no answer: {out}")


HOLDING_CLIENT = """
import signal, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b'x'); s.recv(1); copy = s.dup(); print('held', flush=True)
signal.pause()
"""


def stat(s):
    """`weft stat --sockets`: each socket, also a copy of one, which path it took and why."""
    port = free_port()
    server = s.serve(["/usr/bin/python3", "-c", ASYNC_SERVER, s.host, port]).listening(port)
    client = s.call(["/usr/bin/python3", "-c", HOLDING_CLIENT, s.host, port]).wait_for("held")
    both = s.server_weft and s.client_weft
    path = "tcp" if not both else "ring" if s.network.name == "loopback" else "rdma"
    if s.client_weft:
        rows = stat_of(s.network, client.pid)
        check([(r["role"], r["path"], r["peer"]) for r in rows] == [("connect", path, f"{s.host}:{port}")] * 2,
              f"client: {rows}")
        # Asked for RDMA, and declined; or nobody there to ask.
        check(both or ("declined" if s.network.name == "namespaces" else "no rule") in rows[0]["reason"], rows)
    if s.server_weft:
        rows = stat_of(s.network, server.pid)
        check([(r["role"], r["path"]) for r in rows] == [("listen", "any"), ("accept", path)], f"server: {rows}")
        client.end()
        until(lambda: len(stat_of(s.network, server.pid)) == 1, "a closed socket is shown still")
    else:
        out = s.network.start([WEFT, "stat", server.pid, "--sockets"], raw=True).expect_clean_failure(20)
        check("weft run --sockets" in out, out)
    client.end()
    server.end()


FEW_DESCRIPTORS = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
s = socket.create_server(('127.0.0.1', 0), backlog=100)
held = []
try:
    while True:
        c = socket.create_connection(s.getsockname()); held.append(c)
        a, _ = s.accept(); held.append(a)
        c.sendall(b'x'); assert a.recv(1) == b'x'; a.sendall(b'y'); assert c.recv(1) == b'y'
except OSError as error:
    print('stopped by', error.errno, flush=True)
for one in held: one.close()
s.close(); s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); a, _ = s.accept()
c.sendall(b'again'); print(a.recv(5).decode())
"""


DETACHED_FIFO = """
import os, subprocess, sys
folder, name = sys.argv[1], "memfd:weft-sockets-list (deleted)"
subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
os.mkfifo(f"{folder}/{name}")
fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
subprocess.run(["umount", "-l", folder], check=True)
print(os.readlink(f"/proc/self/fd/{fd}"), flush=True)
import signal; signal.pause()
"""


def stat_of_a_fifo(network):
    """A process whose FIFO has the name of a list of sockets: to open one waits for a writer."""
    if os.geteuid() != 0:
        raise Skip("a mount of its own needs root")
    need("unshare")
    with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
        liar = network.start(["unshare", "-m", "/usr/bin/python3", "-c", DETACHED_FIFO, folder], raw=True)
        try:
            liar.wait_for("memfd:weft-sockets-list")
        except Failure as why:
            raise Skip(f"no mounts here: {why}") from None
        check("/memfd:weft-sockets-list (deleted)\n" == liar.output(), liar.output())
        out = network.start([WEFT, "stat", liar.pid, "--sockets"], raw=True).wait(20)
        check(out >= 0, f"ended by a signal: {out}")
        liar.end()


ASKING_CLIENT = """
import socket, sys
for word in b'one', b'two', b'three':
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(word); print('answer', s.recv(10).decode(), flush=True); s.close()
"""


def declined(network):
    """A plain server that never answers the question is asked once, and then not for a while."""
    with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder, \
            socket.create_server((network.server.v4, 0)) as listener:
        rules = os.path.join(folder, "rules")
        with open(rules, "w", encoding="ascii") as file:
            file.write(RULES)
        port = listener.getsockname()[1]
        client = network.connect(["/usr/bin/python3", "-c", ASKING_CLIENT, network.server.v4, port],
                                 options=("--sockets", "--why", "--rules", rules))
        listener.settimeout(LIMIT_S)
        asked, silent, words = 0, [], []
        while len(words) < 3:
            link, _ = listener.accept()
            link.settimeout(LIMIT_S)
            data = link.recv(1000)
            if data.startswith(b"MPA ID Req Frame"):
                asked += 1
                silent.append(link)
            else:
                words.append(data)
                link.sendall(b"got it")
                link.close()
        out = client.expect(0, LIMIT_S)
        for link in silent:
            link.close()
        check(words == [b"one", b"two", b"three"] and asked == 1, f"asked {asked} times; {words}")
        check(out.count("answer got it") == 3, out)
        check(out.count(": tcp: the server declined RDMA a moment ago") == 2, out)


def rdma_or_nothing(network):
    """With a rule `rdma` no octet comes or goes by plain TCP, however fast the server speaks."""
    with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
        path = os.path.join(folder, "rules")
        with open(path, "w", encoding="ascii") as file:
            file.write("use rdma connect * *:*\n")
        banner = """
import socket, sys
s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); c.sendall(b'welcome'); c.settimeout(10)
    try: print('got', c.recv(100), flush=True)
    except OSError: pass
    c.close()
"""
        client = """
import socket, sys
for _ in range(3):
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.settimeout(20)
    try: s.sendall(b'secret'); print('read', s.recv(100), flush=True)
    except OSError as error: print('ended', error, flush=True)
"""
        server = network.start(["/usr/bin/python3", "-c", banner], raw=True).wait_for("\n")
        out = network.connect(["/usr/bin/python3", "-c", client, server.output().split()[0]],
                              options=("--sockets", "--why", "--rules", path)).expect(0, LIMIT_S)
        check("welcome" not in out and "secret" not in server.output(), out + server.output())
        check(out.count("ended") + out.count("read b''") == 3, out)
        server.end()


MODE_ERRORS = """
import errno, socket, sys
SOL_RDMA, WEFT_MODE = 0x10000, 0x57
def ask(s, value=1):
    try: s.setsockopt(SOL_RDMA, WEFT_MODE, value)
    except OSError as error: return errno.errorcode[error.errno]
    return s.getsockopt(SOL_RDMA, WEFT_MODE)
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
a.sendall(b'x'); b.recv(1)
print('fresh', ask(socket.socket()), 'off again', ask(socket.socket(), 0), 'udp', ask(socket.socket(type=socket.SOCK_DGRAM)),
      'unix', ask(socket.socket(socket.AF_UNIX)), 'connected', ask(a), 'accepted', ask(b), 'listening', ask(listener))
print('port', listener.getsockname()[1], flush=True)
# A client of rubbish at a listener with the mode: its connection ends, the next one is served.
end, _ = listener.accept(); end.settimeout(20)
try: print('rubbish', end.recv(10))
except OSError: print('rubbish', b'')
c = socket.socket(); print('mode', ask(c))
import threading  # connect() returns when the server has accepted, and looked
thread = threading.Thread(target=c.connect, args=(listener.getsockname(),)); thread.start()
d, _ = listener.accept(); mode = d.getsockopt(SOL_RDMA, WEFT_MODE); thread.join()
c.sendall(b'by rdma'); print(d.recv(10), mode, c.getpeername() == listener.getsockname())
import select
poller = select.epoll()
try: poller.register(d, select.EPOLLIN)
except OSError as error: print('epoll', errno.errorcode[error.errno])
c.close(); print('end', d.recv(10))
"""


def iwarp_mode(network):
    """What WEFT_MODE says on each kind of socket, with Weft and without."""
    argv = ["/usr/bin/python3", "-c", MODE_ERRORS]
    plain = network.start(argv, raw=True).wait_for("port ")
    plain.end()
    check("fresh ENOPROTOOPT" in plain.output() and "listening ENOPROTOOPT" in plain.output(), plain.output())
    server = network.start(argv, options=("--sockets",)).wait_for("port ")
    with socket.create_connection((network.server.v4, int_of(server.output()))) as bad:
        bad.sendall(b"MPA ID Req Frame" + bytes([0x40, 1, 0, 4]) + b"abcd")
        out = server.expect(0, LIMIT_S)
    check("fresh 1 off again 0 udp ENOPROTOOPT unix ENOPROTOOPT connected EISCONN accepted EISCONN listening 1\n"
          in out, out)
    check("rubbish b''\nmode 1\nb'by rdma' 1 True\nepoll EPERM\nend b''\n" in out, out)


def few_descriptors(network):
    """Where descriptors run out, the program gets EMFILE as from the kernel, and can go on
    later."""
    for options in {"raw": True}, {"options": ("--sockets",)}:
        out = network.start(["/usr/bin/python3", "-c", FEW_DESCRIPTORS], **options).expect(0, LIMIT_S)
        check("stopped by 24" in out and "again" in out, out)


# What the kernel tells and Weft does not, each for a reason in docs/sockets.md.
KNOWN = {
    ("epoll_edge: more: [1]", "epoll_edge: more: []"),
}


def scenarios(network):
    """Every scenario of socket_scenarios.py, plain and under Weft, compared call by call."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket_scenarios.py")
    argv = ["/usr/bin/python3", script]
    plain = network.start(argv, raw=True)
    ours = network.start(argv, options=("--sockets", "--why"))
    wanted = plain.expect(0, LIMIT_S * 2).splitlines()
    lines = ours.expect(0, LIMIT_S * 2).splitlines()
    got = [line for line in lines if not line.startswith("weft: ")]
    check(sum(": ring: " in line for line in lines) > 180, "the connections were not Weft's")
    check(len({line.split(":")[0] for line in wanted}) > 180, "scenarios are missing")
    differ = [f"  {line}" for line in difflib.unified_diff(wanted, got, "kernel", "Weft", n=0, lineterm="")
              if not any(line[1:] in pair for pair in KNOWN) and not line.startswith("@@")]
    check(len(differ) <= 2, "\n".join(["not as the kernel:", *differ]))


DYING_CLIENT = """
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
if len(sys.argv) > 3: s.sendall(b'last words')
print('asked', flush=True)
import signal; signal.pause()
"""
LATE_SERVER = """
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
sys.stdout.flush()
while not __import__('os').path.exists(sys.argv[3]): __import__('time').sleep(0.02)
for _ in range(4):
    c, _ = s.accept()
    c.settimeout(30); got = b''
    try:
        while part := c.recv(100): got += part
    except OSError as error: got += b' ' + type(error).__name__.encode()
    print('client:', got, flush=True)
"""


def dying_clients(s):
    """Clients that are killed between their question and the server's answer, with and without
    octets sent; the last one lives, and is served."""
    if s.network.name == "namespaces" and s.client_weft and not s.server_weft:
        return  # it takes the question for data
    port = free_port()
    go = s.path("go")
    server = s.serve(["/usr/bin/python3", "-c", LATE_SERVER, s.host, port, go]).listening(port)
    for words in [], ["words"], []:
        client = s.call(["/usr/bin/python3", "-c", DYING_CLIENT, s.host, port, *words]).wait_for("asked")
        os.kill(client.pid, 9)  # it alone: the relay of its connection is another process
        client.popen.wait()
    with open(go, "w", encoding="ascii"):
        pass
    s.must(["/usr/bin/python3", "-c", "import socket, sys; "
            "socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(b'alive')", s.host, port])
    out = server.expect(0, LIMIT_S)
    told = [line for line in out.splitlines() if line.startswith("client:")]
    check(len(told) == 4 and told[3] == "client: b'alive'", out)
    # As over TCP: what a client has sent is read; or, where RDMA was only asked for, the end.
    check(all(line in ("client: b''", "client: b'last words'", "client: b' ConnectionResetError'")
              for line in told[:3]), out)
    check(s.network.name == "namespaces" or "last words" in told[1], out)


def scp_1g(s):
    """A file of 1 GB by scp, compared."""
    ssh(s, megabytes=1024, ways=("there",))


CASES = {case.__name__: case for case in (
    scenarios, rules, iwarp_mode, declined, rdma_or_nothing, silent_clients, few_descriptors, stat_of_a_fifo)} | {name: everywhere(case) for name, case in {
    "netcat": netcat, "netcat_exec": netcat_exec, "curl_nginx": curl_nginx, "ab_nginx": ab_nginx,
    "redis": redis, "memcached": memcached, "iperf3": iperf3, "ssh": ssh, "rsync": rsync,
    "postgres": postgres, "haproxy": haproxy, "tls": tls, "git": git, "stat": stat, "dying_clients": dying_clients,
    "python_asyncio": python_case(ASYNC_SERVER, 50),
    "python_fork": python_case(FORK_SERVER, 20),
    "python_child": python_case(CHILD_SERVER, 20),
    "python_passing": python_case(PASSING_SERVER, 20),
    "python_fork_midway": python_case(MIDWAY_SERVER, 20),
}.items()}
CASES["scp_1g"] = everywhere(scp_1g, sides=SIDES[:1])

if __name__ == "__main__":
    sys.exit(main(CASES))
