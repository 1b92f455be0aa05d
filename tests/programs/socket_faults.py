#!/usr/bin/env python3
"""`weft run --sockets` beside what programs do: hostile and unlucky peers, no descriptors left, and
every scenario of socket calls compared with the kernel."""

import contextlib
import difflib
import os
import resource
import socket
import sys
import time

from harness import Skip, check, free_port, main
from socket_setting import ASYNC_CLIENT, LIMIT_S, MODE_BACKLOG, MODE_SERVER, everywhere, until


def silent_clients(network):
    """A listener in IWARP mode: clients that say the MPA key, or part of what follows it, and then nothing; others are
    served."""
    port = free_port()
    server = network.start(["/usr/bin/python3", "-c", MODE_SERVER, network.server.v4, port],
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


def wait_for_accepts(port, most):
    """Waits until no more than so many connections wait to be accepted. With more of them than its
    queue holds the kernel itself drops some that it has acknowledged, and resets them later."""
    ending = f":{port:04X}"

    def waiting():
        with open("/proc/net/tcp", encoding="ascii") as lines:  # those that listen come first
            next(lines)
            for line in lines:
                _, local, _, state, queues = line.split()[:5]
                if state != "0A":
                    break
                if local.endswith(ending):
                    return int(queues.split(":")[1], 16)
        raise AssertionError(f"nobody listens at port {port}")

    until(lambda: waiting() <= most, "the server accepts nobody", LIMIT_S)


def crowd_of_clients(network):
    """A listener in IWARP mode: ten thousand that say nothing, or an MPA Request and nothing behind it,
    keep nobody out."""
    crowd = 10000
    with open("/proc/sys/net/core/somaxconn", encoding="ascii") as text:
        step = max(min(int(text.read()), MODE_BACKLOG) // 4, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * crowd:
        raise Skip(f"a process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for says in b"", b"MPA ID Req Frame\x40\x01\x00\x00":
            port = free_port()
            server = network.start(["/usr/bin/python3", "-c", MODE_SERVER, network.server.v4, port],
                                   options=("--sockets",)).listening(port)
            with contextlib.ExitStack() as stack:
                for i in range(crowd):
                    if i % step == 0:
                        wait_for_accepts(port, step)
                    one = stack.enter_context(socket.socket())
                    one.setblocking(False)
                    one.connect_ex((network.server.v4, port))
                    with contextlib.suppress(OSError):
                        one.send(says)
                wait_for_accepts(port, step)
                client = ["/usr/bin/python3", "-c", ASYNC_CLIENT, network.server.v4, port, 5]
                out = network.connect(client, options=("--sockets",)).expect(0, LIMIT_S)
                check("all equal" in out, out)
            server.end()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


HALF_ASKED_SERVER = """
import array, fcntl, socket, struct, sys, termios, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    listener.setsockopt(0x10000, 0x57, 1)
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
    listener.setsockopt(0x10000, 0x57, 1)
    link, _ = listener.accept()
library = ctypes.CDLL(None, use_errno=True)
print('reading', flush=True)
got = library.recv(link.fileno(), ctypes.create_string_buffer(100), 100, 0)
print('got', got, ctypes.get_errno() if got < 0 else 0, flush=True)
"""


def half_asked(network):
    """The same: a client whose first octet may become an MPA Request: reads wait as their caller wants it,
    and never run in circles."""
    port = free_port()
    server = network.start(["/usr/bin/python3", "-c", HALF_ASKED_SERVER, network.server.v4, port],
                           options=("--sockets",)).listening(port)
    with socket.create_connection((network.server.v4, port), timeout=20) as link:
        server.wait_for("accepted")
        link.sendall(b"M")
        server.wait_for("waiting")
        link.sendall(b"y first octet was like a Request's")
        server.wait_for("Request's")
        link.sendall(b"!")
        server.wait_for("!")
        link.shutdown(socket.SHUT_WR)
        out = server.expect(0, LIMIT_S)
    check(out.count("nothing yet") == 2 and "My first octet was like a Request's" in out, out)
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
    check("wrong 0" in out, out[-1500:])


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


def scenarios(network):
    """Every scenario of socket_scenarios.py, plain and under Weft, compared call by call."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket_scenarios.py")
    argv = ["/usr/bin/python3", script]
    plain = network.start(argv, raw=True)
    ours = network.start(argv, options=("--sockets", "--why"))
    wanted = plain.expect(0, LIMIT_S * 2).splitlines()
    lines = ours.expect(0, LIMIT_S * 2).splitlines()
    got = [line for line in lines if not line.startswith("weft: ")]
    check(sum(": ring: " in line for line in lines) > 100, "the connections had no rings")
    check(len({line.split(":")[0] for line in wanted}) > 220, "scenarios are missing")
    differ = [f"  {line}" for line in difflib.unified_diff(wanted, got, "kernel", "Weft", n=0, lineterm="")
              if not line.startswith("@@")]
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
    """Clients that are killed before they are accepted, with and without octets sent; the last one
    lives, and is served."""
    port = free_port()
    go = s.path("go")
    server = s.serve(["/usr/bin/python3", "-c", LATE_SERVER, s.host, port, go]).listening(port)
    for words in [], ["words"], []:
        client = s.call(["/usr/bin/python3", "-c", DYING_CLIENT, s.host, port, *words]).wait_for("asked")
        os.kill(client.pid, 9)
        client.popen.wait()
    with open(go, "w", encoding="ascii"):
        pass
    s.must(["/usr/bin/python3", "-c", "import socket, sys; "
            "socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(b'alive')", s.host, port])
    out = server.expect(0, LIMIT_S)
    told = [line for line in out.splitlines() if line.startswith("client:")]
    check(len(told) == 4 and told[3] == "client: b'alive'", out)
    # What a client has sent is read.
    check(all(line in ("client: b''", "client: b'last words'", "client: b' ConnectionResetError'")
              for line in told[:3]), out)
    check("last words" in told[1], out)


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
    port = free_port()
    server = s.serve(["/usr/bin/python3", "-c", CLOSING_READER, s.host, port]).listening(port)
    out = s.must(["/usr/bin/python3", "-c", WRITER_TO_A_CLOSED_ONE, s.host, port])
    check("told True" in out, out)
    server.expect(0, LIMIT_S)


CASES = {case.__name__: case for case in (
    scenarios, silent_clients, crowd_of_clients, half_asked, few_descriptors, two_readers, over_all_numbers,
    passing_out)} | {case.__name__: everywhere(case) for case in (dying_clients, closed_while_full)}

if __name__ == "__main__":
    sys.exit(main(CASES))
