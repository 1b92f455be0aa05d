#!/usr/bin/env python3
"""`weft run --sockets` beside what programs do: rules, what `weft stat` says, IWARP mode, hostile
and unlucky peers, and every scenario of socket calls compared with the kernel."""

import contextlib
import difflib
import json
import os
import resource
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


def crowd_of_clients(network):
    """Ten thousand that say nothing, or an MPA Request and nothing behind it, keep nobody out."""
    crowd = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * crowd:
        raise Skip(f"a process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for says in b"", b"MPA ID Req Frame\x40\x01\x00\x00":
            port = free_port()
            backlog = ASYNC_SERVER.replace("int(sys.argv[2])", "int(sys.argv[2]), backlog=4096")
            server = network.start(["/usr/bin/python3", "-c", backlog, network.server.v4, port],
                                   options=("--sockets",)).listening(port)
            with contextlib.ExitStack() as stack:
                for _ in range(crowd):
                    one = stack.enter_context(socket.socket())
                    one.setblocking(False)
                    one.connect_ex((network.server.v4, port))
                    with contextlib.suppress(OSError):
                        one.send(says)
                client = ["/usr/bin/python3", "-c", ASYNC_CLIENT, network.server.v4, port, 5]
                out = network.connect(client, options=("--sockets",)).expect(0, LIMIT_S)
                check("all equal" in out, out)
            server.end()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


HALF_GREETED_SERVER = """
import array, fcntl, socket, struct, sys, termios, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    link, _ = listener.accept()
print('accepted', flush=True)
count = array.array('i', [0])
while not count[0]:
    time.sleep(0.01); fcntl.ioctl(link, termios.FIONREAD, count)
def nothing():
    try: print('read', link.recv(100), flush=True)
    except BlockingIOError: print('nothing yet', flush=True)
link.setblocking(False); nothing()
link.setblocking(True)
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 100000)); nothing()
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 0))
print('waiting', flush=True)
got = b''
while part := link.recv(100):
    got += part; print('so far', got, flush=True)
"""


# By the C library's call: Python's own begins again after EINTR.
SLEEPING_SERVER = """
import ctypes, socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    link, _ = listener.accept()
library = ctypes.CDLL(None, use_errno=True)
print('reading', flush=True)
got = library.recv(link.fileno(), ctypes.create_string_buffer(100), 100, 0)
print('got', got, ctypes.get_errno() if got < 0 else 0, flush=True)
"""


def half_greeted(network):
    """A client whose first octet may become an MPA Request: reads wait as their caller wants it,
    and never run in circles."""
    port = free_port()
    server = network.start(["/usr/bin/python3", "-c", HALF_GREETED_SERVER, network.server.v4, port],
                           options=("--sockets",)).listening(port)
    with socket.create_connection((network.server.v4, port), timeout=20) as link:
        server.wait_for("accepted")
        link.sendall(b"M")
        server.wait_for("waiting")
        link.sendall(b"y first octet was like a greeting's")
        server.wait_for("greeting's")
        link.sendall(b"!")
        server.wait_for("!")
        link.shutdown(socket.SHUT_WR)
        out = server.expect(0, LIMIT_S)
    check(out.count("nothing yet") == 2 and "My first octet was like a greeting's" in out, out)
    asleep = network.start(["/usr/bin/python3", "-c", SLEEPING_SERVER, network.server.v4, port],
                           options=("--sockets",)).listening(port)
    with socket.create_connection((network.server.v4, port), timeout=20) as link:
        asleep.wait_for("reading")
        time.sleep(0.2)  # it sleeps now; if it does not yet, this shows less
        link.sendall(b"M")
        time.sleep(0.2)
        link.sendall(b"y first octet came to a sleeping reader")
        out = asleep.expect(0, LIMIT_S)
    check("got 40 0" in out, out)


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


TWO_READERS = """
import socket, threading
listener = socket.create_server(('127.0.0.1', 0)); wrong = 0
def take(s, out):
    s.settimeout(None); out.append(s.recv(1))
for i in range(150):
    c = socket.socket(); client = threading.Thread(target=lambda: (c.connect(listener.getsockname()), c.sendall(b'abc')))
    client.start(); a, _ = listener.accept(); out = []
    readers = [threading.Thread(target=take, args=(a, out), daemon=True) for _ in range(3)]
    for one in readers: one.start()
    for one in readers: one.join(20)
    client.join(); wrong += sorted(out) != [b'a', b'b', b'c']; c.close(); a.close()
    if wrong: break
print('wrong', wrong, flush=True); import os; os._exit(0)
"""


def two_readers(network):
    """Threads that read from a connection whose client has not said yet what it is."""
    out = network.start(["/usr/bin/python3", "-c", TWO_READERS], options=("--sockets", "--why")).expect(0, LIMIT_S)
    check("wrong 0" in out and out.count(": ring: ") >= 300, out[-1500:])


def few_descriptors(network):
    """Where descriptors run out, the program gets EMFILE as from the kernel, and can go on
    later."""
    for options in {"raw": True}, {"options": ("--sockets",)}:
        out = network.start(["/usr/bin/python3", "-c", FEW_DESCRIPTORS], **options).expect(0, LIMIT_S)
        check("stopped by 24" in out and "again" in out, out)


# Every number that a program may think is its own.
OVER_ALL_NUMBERS = """
import os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
listener = socket.create_server(('127.0.0.1', 0)); pairs = []
for _ in range(6):
    c = socket.create_connection(listener.getsockname()); a, _ = listener.accept()
    c.sendall(b'x'); a.recv(1); pairs.append((c, a))
r, w = os.pipe()
for number in reversed(range(60, 200)): os.dup2(r, number)
for c, a in pairs:
    c.sendall(b'abc'); a.sendall(b'def')
    assert (a.recv(3), c.recv(3)) == (b'abc', b'def')
    for one in c, a:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1 and one.getpeername()[0] == '127.0.0.1'
os.write(w, b'p'); print('still there', os.read(199, 1))
"""


def over_all_numbers(network):
    """A program that puts a descriptor of its own over every number."""
    for options in {"raw": True}, {"options": ("--sockets",)}:
        out = network.start(["/usr/bin/python3", "-c", OVER_ALL_NUMBERS], **options).expect(0, LIMIT_S)
        check("still there b'p'" in out, out)


# Each connection goes to a process that does not run under Weft: by one of the calls that pass
# descriptors on, before anything has been read, or after.
PASSING_OUT = """
import ctypes, os, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
class Iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_char_p), ('length', ctypes.c_size_t)]
class Msghdr(ctypes.Structure): _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint32), ('iov', ctypes.POINTER(Iovec)),
    ('iovlen', ctypes.c_size_t), ('control', ctypes.c_char_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int)]
class Mmsghdr(ctypes.Structure): _fields_ = [('message', Msghdr), ('length', ctypes.c_uint32)]
def send_many(s, fd):
    control = struct.pack('@nii', 20, socket.SOL_SOCKET, socket.SCM_RIGHTS) + struct.pack('@ii', fd, 0)
    one = Mmsghdr(Msghdr(None, 0, ctypes.pointer(Iovec(b'x', 1)), 1, control, len(control), 0), 0)
    assert libc.sendmmsg(s.fileno(), ctypes.byref(one), 1, 0) == 1, ctypes.get_errno()
def send_one(s, fd): socket.send_fds(s, [b'x'], [fd])
mine, other = socket.socketpair()
env = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}
subprocess.Popen([sys.executable, '-c', '''
import os, socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, fds, _, _ = socket.recv_fds(s, 10, 1)
    if not fds: break
    c = socket.socket(fileno=fds[0])
    while data := c.recv(65536): c.sendall(data)
    c.close()
''', str(other.fileno())], env=env, pass_fds=[other.fileno()]); other.close()
listener = socket.create_server(('127.0.0.1', 0))
for way in send_one, send_many:
    for early in False, True:
        client = subprocess.Popen([sys.executable, '-c', '''
import socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.settimeout(20)
for word in b'first', b'second':
    s.sendall(word); got = b''
    while len(got) < len(word):
        part = s.recv(100); assert part, got; got += part
    assert got == word, got
print('echo is right', flush=True)
''', str(listener.getsockname()[1])])
        c, _ = listener.accept()
        if not early: c.sendall(c.recv(5, socket.MSG_WAITALL))
        way(mine, c.fileno()); c.close(); client.wait()
"""


def passing_out(network):
    """A connection that is passed on to a process without Weft is an ordinary one there."""
    out = network.start(["/usr/bin/python3", "-c", PASSING_OUT], options=("--sockets", "--why")).expect(0, LIMIT_S)
    check(out.count("echo is right") == 4, out[-2500:])


# What the kernel tells and Weft does not, each for a reason in docs/sockets.md.
KNOWN = {
    ("epoll_edge: more: [1]", "epoll_edge: more: []"),
    ("low_water_by_client: with 5: OUT", "low_water_by_client: with 5: IN|OUT"),
    ("low_water_by_server: with 5: OUT", "low_water_by_server: with 5: IN|OUT"),
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
    check(sum(": ring: " in line for line in lines) > 220, "the connections were not Weft's")
    check(len({line.split(":")[0] for line in wanted}) > 220, "scenarios are missing")
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


CLOSING_READER = """
import socket, sys, time
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
a, _ = s.accept()
assert a.recv(1) == b'x'
a.sendall(b'y')
time.sleep(1)  # the other side fills what there is on the way
a.close()
print('closed', flush=True)
"""

WRITER_TO_A_CLOSED_ONE = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.sendall(b'x')
assert c.recv(1) == b'y'
c.settimeout(60)
sent = 0
try:
    while sent < 1 << 32:
        sent += c.send(b'z' * 65536)
    print('all was taken')
except (BrokenPipeError, ConnectionResetError):
    print('told', sent > 1 << 17)
"""


def closed_while_full(s):
    """A reader that closes while all on the way is full: its writer is told, as over TCP."""
    if s.network.name == "namespaces" and s.client_weft and not s.server_weft:
        return  # it takes the question for data
    port = free_port()
    server = s.serve(["/usr/bin/python3", "-c", CLOSING_READER, s.host, port]).listening(port)
    out = s.must(["/usr/bin/python3", "-c", WRITER_TO_A_CLOSED_ONE, s.host, port])
    check("told True" in out, out)
    server.expect(0, LIMIT_S)


CASES = {case.__name__: case for case in (
    scenarios, rules, iwarp_mode, iwarp_mode_slow_client, declined, rdma_or_nothing, silent_clients,
    crowd_of_clients, half_greeted, few_descriptors, two_readers, over_all_numbers, passing_out, stat_of_a_fifo)} | {
        case.__name__: everywhere(case) for case in (stat, dying_clients, closed_while_full)}

if __name__ == "__main__":
    sys.exit(main(CASES))
