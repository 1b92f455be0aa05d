#!/usr/bin/env python3
"""`weft run --sockets`: which path a connection takes, by rules, by the peer and by IWARP mode,
and what `weft stat` says of it."""

import json
import os
import socket
import struct
import sys
import tempfile
import time

from harness import WEFT, Failure, Skip, check, free_port, main, need
from socket_setting import ASYNC_CLIENT, ASYNC_SERVER, LIMIT_S, RULES, everywhere, int_of, until

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
import os, tempfile
with tempfile.TemporaryFile() as file:
    file.write(b'0123456789'); file.flush()
    print('sendfile', os.sendfile(c.fileno(), file.fileno(), 2, 100), d.recv(8, socket.MSG_WAITALL))
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
    check("rubbish b''\nmode 1\nb'by rdma' 1 True\nsendfile 8 b'23456789'\nend b''\n" in out, out)


SLOW_MODE_SERVER = """
import select, socket, sys
SOL_RDMA, WEFT_MODE = 0x10000, 0x57
listener = socket.socket(); listener.setsockopt(SOL_RDMA, WEFT_MODE, 1)
listener.bind((sys.argv[1], 0)); listener.listen(8)
print('port', listener.getsockname()[1], flush=True)
slow, _ = listener.accept(); print('slow', slow.getsockopt(SOL_RDMA, WEFT_MODE), flush=True)
quick, _ = listener.accept(); print('quick', quick.getsockopt(SOL_RDMA, WEFT_MODE), flush=True)
print('heard', quick.recv(10, socket.MSG_WAITALL), flush=True); quick.sendall(b'answer')
print('slow is', 'readable' if select.select([slow], [], [], 0)[0] else 'silent still', flush=True)
slow.settimeout(60)
try: print('slow said', slow.recv(10), flush=True)
except OSError as error: print('slow ended', type(error).__name__, flush=True)
"""

MODE_CLIENT = """
import socket, sys
s = socket.socket(); s.setsockopt(0x10000, 0x57, 1)
s.connect((sys.argv[1], int(sys.argv[2]))); s.sendall(b'0123456789'); print('got', s.recv(6, socket.MSG_WAITALL))
"""

# An rsocket's Request in MPA revision 2 that asks for peer-to-peer set-up: the client has to speak
# next, before the server may (RFC 6581).
HALF_A_HANDSHAKE = (b"MPA ID Req Frame" + struct.pack(">BBH", 0x50, 2, 44) + struct.pack(">HH", 0x8000, 0x4001)
                    + struct.pack(">BBH3xB", 1, 2, 384, 0) + struct.pack(">QII", 0x1000, 7, 2)
                    + struct.pack(">QII", 0x9000, 7, 65536))


def iwarp_mode_slow_client(network):
    """IWARP mode: a client that stops in the middle of the hand-shake delays no other."""
    server = network.start(["/usr/bin/python3", "-c", SLOW_MODE_SERVER, network.server.v4],
                           options=("--sockets",)).wait_for("port ")
    port = int_of(server.output())
    with socket.socket() as slow:
        slow.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x2c)  # the server waits for its question
        slow.connect((network.server.v4, port))
        slow.sendall(HALF_A_HANDSHAKE)
        server.wait_for("slow 1")
        out = network.connect(["/usr/bin/python3", "-c", MODE_CLIENT, network.server.v4, port],
                              options=("--sockets",)).expect(0, LIMIT_S)
        check("got b'answer'" in out, out)
        server.wait_for("slow is")
    out = server.expect(0, LIMIT_S)
    check("quick 1\nheard b'0123456789'\nslow is silent still\nslow ended" in out, out)


CASES = {case.__name__: case for case in (
    rules, iwarp_mode, iwarp_mode_slow_client, declined, rdma_or_nothing, stat_of_a_fifo)} | {
        stat.__name__: everywhere(stat)}

if __name__ == "__main__":
    sys.exit(main(CASES))
