#!/usr/bin/env python3
"""Programs that know only sockets, under `weft run --sockets`: real work, results compared. Each
runs with both sides under Weft, and with one side plain; on loopback busy connections between two
sides under Weft get rings of shared memory, between namespaces all is TCP."""

import filecmp
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from harness import Skip, check, free_port, main, need
from socket_python import (CHILD_SERVER, FORK_SERVER, MIDWAY_SERVER, PASSING_SERVER, python_case,
                           threads)
from socket_setting import (ASYNC_CLIENT, ASYNC_SERVER, LIMIT_S, SIDES, everywhere, int_of, quiet,
                            until)


def netcat(s):
    need("nc.openbsd")
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
    port = free_port()
    source = s.write("data", os.urandom(700_000))
    server = s.serve(["nc.traditional", "-l", "-p", port, "-e", "/bin/cat"]).listening(port)
    s.must(["/bin/sh", "-c", f"nc.openbsd -N {s.host} {port} <{source} >{s.path('answer')}"])
    server.expect(0, LIMIT_S)
    size = os.path.getsize(s.path("answer"))
    check(filecmp.cmp(source, s.path("answer"), shallow=False), f"the echo differs: {size} octets")


NGINX = """
{user}daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error;
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
    # Its workers have to be of the same user as the client.
    user = "user root; " if os.geteuid() == 0 else ""
    config = s.write("nginx.conf", NGINX.format(user=user, folder=s.folder, host=s.host, port=port,
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


def wrk_nginx(s):
    """64 connections that stay, two threads, for two seconds: no answer is wrong. wrk takes EAGAIN
    for an error, which a socket that was called readable may say now and then (docs/sockets.md)."""
    need("wrk")
    s.write("small", b"x" * 700)
    server, port = start_nginx(s)
    script = s.write("check.lua", b"wrong = 0; local all = {}\n"
                     b"function setup(thread) all[#all + 1] = thread end\n"
                     b"function response(status, headers, body)\n"
                     b"  if status ~= 200 or body ~= string.rep('x', 700) then wrong = wrong + 1 end\n"
                     b"end\n"
                     b"function done()\n"
                     b"  for _, one in ipairs(all) do io.write('wrong answers: ', one:get('wrong'), '\\n') end\n"
                     b"end\n")
    out = s.must(["wrk", "-t", "2", "-c", "64", "-d", "2s", "-s", script, f"http://{s.host}:{port}/small"])
    s.check_path(out, ring=True)
    done = int(re.search(r"(\d+) requests in", out).group(1))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    _, read, _, _ = failed = [int(n) for n in errors.groups()] if errors else [0] * 4
    check(out.count("wrong answers: 0") == 2 and done > 200, out[-1500:])
    check(sum(failed) == read and read * 1000 <= done, out[-1500:])
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
    s.check_path(out, ring=True)
    check("SET:" in out and "GET:" in out, out[-500:])
    until(lambda: "rdb_bgsave_in_progress:0" in s.must([*cli, "info", "persistence"]), "no end of BGSAVE")
    check("rdb_last_bgsave_status:ok" in s.must([*cli, "info", "persistence"]), "BGSAVE failed")
    check(os.path.getsize(s.path("dump.rdb")) > 1000, "the snapshot is empty")
    check(int_of(s.must([*cli, "dbsize"])) == 5000, "keys are missing")
    server.end()


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
    port = free_port()
    server = s.serve(["iperf3", "-s", "--forceflush", "-B", s.host, "-p", port]).listening(port)
    tests = (["-n", "500M"], ["-n", "500M", "-R"], ["-t", "1", "--bidir"], ["-n", "2M", "-l", "100"])
    for number, options in enumerate(tests, 1):
        server.wait_for(f"(test #{number})")  # it turns clients away until then
        out = s.must(["iperf3", "-J", "-c", s.host, "-p", port, *options])
        s.check_path(out, ring=True)
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


def start_sshd(s):
    """A server; and what comes before every client's arguments, and its port."""
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
    return server, common, port


def ssh(s, megabytes=32, ways=("there", "back", "there by scp's own protocol", "back by it")):
    """sshd forks, execs itself with the socket as standard input, and has sandboxed children."""
    server, common, port = start_sshd(s)
    out = s.must(["ssh", *common, "-p", port, f"root@{s.host}", "echo hello; seq 20000 | md5sum"])
    s.check_path(out)
    check("hello" in out and SEQ_20000 in out, out)
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


def ssh_master(s):
    """Four sessions at once over one connection, whose client has passed their standard input and
    output on to it; and forwarding of a port through it, to a server under Weft and by it."""
    server, common, port = start_sshd(s)
    common += ["-p", port, "-o", f"ControlPath={s.path('control')}", f"root@{s.host}"]
    master = s.call(["ssh", "-o", "ControlMaster=yes", "-N", *common])
    until(lambda: os.path.exists(s.path("control")), "no control socket")
    sessions = []
    for i in range(4):
        words = shlex.join(str(a) for a in ["ssh", *common, f"seq {i} {20000 + i} | md5sum; cat | md5sum"])
        source = s.write(f"in{i}", os.urandom(200_000))
        sessions.append(s.call(["/bin/sh", "-c", f"exec {words} <{source}"]))
    for i, one in enumerate(sessions):
        out = one.expect(0, LIMIT_S)
        wanted = hashlib.md5("".join(f"{k}\n" for k in range(i, 20001 + i)).encode()).hexdigest()
        with open(s.path(f"in{i}"), "rb") as file:
            check(wanted in out and hashlib.md5(file.read()).hexdigest() in out, out[-500:])
    s.check_path(master.output())
    echo, local = free_port(), free_port()
    s.serve(["/usr/bin/python3", "-c", ASYNC_SERVER, s.host, echo]).listening(echo)
    s.must(["ssh", "-O", "forward", "-L", f"127.0.0.1:{local}:{s.host}:{echo}", *common])
    out = s.must(["/usr/bin/python3", "-c", ASYNC_CLIENT, "127.0.0.1", local, 10])
    check("all equal" in out, out)
    s.must(["ssh", "-O", "exit", *common])
    master.expect(255, LIMIT_S)  # as it ends when it is told to
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
    more = s.weft_for_everybody() if s.server_weft else {}
    server = s.serve([*user, *argv], **more).wait_for("ready to accept connections")
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
    # Its children write into the folder until it has ended by itself.
    server.wait(LIMIT_S)


def haproxy(s):
    """Between curl and nginx: accepts and connects in one program, and splices what it may."""
    need("haproxy")
    need("curl")
    page = s.write("page", os.urandom(1 << 20))
    _, behind = start_nginx(s)
    port = free_port()
    config = s.write("haproxy.cfg", f"""
defaults
  mode http
  option splice-response
  option splice-request
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
    s.check_path(out, ring=True)
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


def git_ssh(s):
    """git clones and pushes through ssh, which it starts with pipes."""
    need("git")
    server, common, port = start_sshd(s)
    tree, bare = s.path("tree"), s.path("bare.git")
    quiet(["git", "init", "-q", "--bare", bare])
    os.mkdir(tree)
    make_tree(tree, 100)
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
    quiet(["git", "-C", tree, *who, "init", "-q"])
    quiet(["git", "-C", tree, "add", "-A"])
    quiet(["git", "-C", tree, *who, "commit", "-qm", "x"])
    quiet(["git", "-C", tree, "branch", "-M", "main"])
    env = {"GIT_SSH_COMMAND": " ".join(["ssh", *common, "-p", str(port)]), "GIT_CONFIG_COUNT": "1",
           "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    url = f"ssh://root@{s.host}:{port}{bare}"
    out = s.must(["git", "-C", tree, "push", "-q", url, "main"], env=env)
    s.check_path(out)
    s.must(["git", "clone", "-q", "-b", "main", url, s.path("clone")], env=env)
    shutil.rmtree(os.path.join(tree, ".git"))
    shutil.rmtree(os.path.join(s.path("clone"), ".git"))
    check(same_tree(tree, s.path("clone")), "the clone differs")
    server.end()


def scp_1g(s):
    """A file of 1 GB by scp, compared."""
    ssh(s, megabytes=1024, ways=("there",))


CASES = {name: everywhere(case) for name, case in {
    "netcat": netcat, "netcat_exec": netcat_exec, "curl_nginx": curl_nginx, "ab_nginx": ab_nginx, "wrk_nginx": wrk_nginx,
    "redis": redis, "memcached": memcached, "iperf3": iperf3, "ssh": ssh, "rsync": rsync,
    "postgres": postgres, "haproxy": haproxy, "tls": tls, "git": git,
    "git_ssh": git_ssh, "ssh_master": ssh_master,
    "threads": threads,
    "python_asyncio": python_case(ASYNC_SERVER, 50),
    "python_fork": python_case(FORK_SERVER, 20),
    "python_child": python_case(CHILD_SERVER, 20),
    "python_passing": python_case(PASSING_SERVER, 20),
    "python_fork_midway": python_case(MIDWAY_SERVER, 20),
}.items()}
CASES["scp_1g"] = everywhere(scp_1g, sides=SIDES[:1])


if __name__ == "__main__":
    sys.exit(main(CASES))
