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

from harness import Skip, WEFT, check, free_port, main
from socket_setting import ASYNC_SERVER, LIMIT_S, everywhere, int_of, until

MISTAKES = {
    "use tcp": (1, 8, "the role is missing"),
    "# fine\n\nuse rdma * * *:*": (3, 5, "can be tcp only"),
    "allow tcp * * *:*": (1, 1, "begins with 'use'"),
    "use tcp talk * *:*": (1, 9, "connect, listen or *"),
    "use tcp * /bin/nc *:*": (1, 11, "without a folder"),
    "use tcp * * *:70000": (1, 13, "0 to 65535"),
    "use tcp * * 10.0.0.0/33:*": (1, 13, "10.0.0.0/8"),
    "use tcp * * fd00::/8:1": (1, 13, "[fd00::]/8"),
    "use tcp * * *:* now": (1, 17, "comments begin with #"),
}


ASKING_CLIENT = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(300): s.sendall(b'x'); assert s.recv(1) == b'x'
"""


def rules(network):
    """Mistakes are found before the program starts, by line and column; rules decide the path."""
    with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
        path = os.path.join(folder, "rules")

        def write(text):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)

        for text, (line, column, legal) in MISTAKES.items():
            write(text)
            out = network.connect(["true"], options=("--sockets", "--rules", path)).expect_clean_failure(20)
            check(f"{path}:{line}:{column}:" in out and legal in out, f"{text!r}: {out}")
        out = network.connect(["true"], options=("--sockets", "--rules", f"{path}.not")).expect_clean_failure(20)
        check(f"{path}.not" in out, out)
        port = free_port()
        for text, way in (f"use tcp connect other-program *:*\nuse tcp listen * *:{port + 1}\n", "ring"), (
                "use tcp * * 127.0.0.1:*\n", "tcp"), (f"use tcp connect python3 127.0.0.0/8:{port}\n", "tcp"):
            write(text)
            options = ("--sockets", "--why", "--rules", path)
            server = network.start(["/usr/bin/python3", "-c", ASYNC_SERVER, network.server.v4, port],
                                   options=options).listening(port)
            client = ["/usr/bin/python3", "-c", ASKING_CLIENT, network.server.v4, port]
            out = network.connect(client, options=options).expect(0, LIMIT_S)
            check((": tcp: a rule says tcp" in out) == (way == "tcp") and (": ring: " in out) == (way == "ring"),
                  text + out)
            server.end()


CLIENT_WITHOUT_STDERR = """
import os, socket, sys
os.close(2)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
assert s.fileno() == 2
for _ in range(300): s.sendall(b'x'); assert s.recv(100) == b'x'
other = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(300): other.sendall(b'x'); assert other.recv(100) == b'x'
os.dup2(other.fileno(), 2)
other.sendall(b'y')
assert other.recv(100) == b'y'
"""


def why_without_stderr(network):
    """A program that has closed stderr has a connection by that number, which gets no line of --why."""
    port = free_port()
    for raw in ({"raw": True}, {"options": ("--sockets",)}):
        server = network.start(["/usr/bin/python3", "-c", ASYNC_SERVER, network.server.v4, port], **raw)
        server.listening(port)
        client = ["/usr/bin/python3", "-c", CLIENT_WITHOUT_STDERR, network.server.v4, port]
        network.connect(client, options=("--sockets", "--why")).expect(0, LIMIT_S)
        server.end()


def stat_of(network, pid):
    """What `weft stat --sockets` says of a process."""
    out = network.start([WEFT, "stat", pid, "--sockets", "--json"], raw=True).expect(0, LIMIT_S)
    return [json.loads(line) for line in out.splitlines()]


HOLDING_CLIENT = """
import signal, socket, sys
def connect(): return socket.create_connection((sys.argv[1], int(sys.argv[2])))
def ask(s): s.sendall(b'x'); assert s.recv(1) == b'x'
busy, copied, quiet = connect(), connect(), connect()
for _ in range(300): ask(busy); ask(copied)
copy = copied.dup(); ask(quiet); print('held', flush=True)
signal.pause()
"""


def stat(s):
    """`weft stat --sockets`: each connection, which path it takes, since when, and why."""
    port = free_port()
    begin = time.time()
    calls = {"WEFT_SOCKETS_BUSY_CALLS": "16"}
    server = s.serve(["/usr/bin/python3", "-c", ASYNC_SERVER, s.host, port], env=calls).listening(port)
    client = s.call(["/usr/bin/python3", "-c", HOLDING_CLIENT, s.host, port], env=calls).wait_for("held")
    both = s.server_weft and s.client_weft and s.network.name == "loopback"
    if s.client_weft:
        rows = stat_of(s.network, client.pid)
        check({(r["role"], r["peer"]) for r in rows} == {("connect", f"{s.host}:{port}")}, f"client: {rows}")
        busy, copied, quiet, _ = rows
        check(busy["path"] == ("ring" if both else "tcp"), f"client: {rows}")
        why = "both ends" if both else "send buffer" if s.network.name == "namespaces" else "has not come"
        check(why in busy["reason"], f"client: {rows}")
        check(copied["path"] == "tcp" and "copied" in copied["reason"], f"client: {rows}")
        check(quiet["path"] == "tcp" and "not busy" in quiet["reason"], f"client: {rows}")
        check(all(begin - 1 <= r["since_ms"] / 1000 <= time.time() for r in rows[:3]), f"client: {rows}")
    if s.server_weft:
        rows = stat_of(s.network, server.pid)
        wanted = [("listen", "tcp"), ("accept", "ring" if both else "tcp")]
        check([(r["role"], r["path"]) for r in rows][:2] == wanted and len(rows) == 4, f"server: {rows}")
        client.end()
        until(lambda: len(stat_of(s.network, server.pid)) == 1, "a closed socket is shown still")
    else:
        out = s.network.start([WEFT, "stat", server.pid, "--sockets"], raw=True).expect_clean_failure(20)
        check("weft run --sockets" in out, out)
    client.end()
    server.end()


def hidden_state(network):
    """`weft stat --sockets` does not call a connection quiet where it can't read its state."""
    if os.geteuid() != 0:
        raise Skip("needs root here: an IPC namespace")
    port = free_port()
    server = network.start(["/usr/bin/python3", "-c", ASYNC_SERVER, "127.0.0.1", port],
                           options=("--sockets",)).listening(port)
    client = network.start(["unshare", "--ipc", "/usr/bin/python3", "-c", HOLDING_CLIENT, "127.0.0.1", port],
                           options=("--sockets",)).wait_for("held")
    rows = stat_of(network, client.pid)
    check(len(rows) == 4 and all("can't be read" in r["reason"] for r in rows), str(rows))
    client.end()
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
    rules, why_without_stderr, hidden_state, iwarp_mode, iwarp_mode_slow_client)} | {
        stat.__name__: everywhere(stat)}

if __name__ == "__main__":
    sys.exit(main(CASES))
