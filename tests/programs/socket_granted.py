#!/usr/bin/env python3
"""`weft run --sockets`: programs that mix calls which are seen with calls that are not, run
plain and under Weft, and must do the same. Every connection gets a ring at its first octet."""

import os
import signal
import sys

from harness import check, free_port, main
from socket_setting import LIMIT_S

OPTIONS = ("--sockets", "--why")

# Two processes, each of which writes a stream in pieces of random sizes and checks the other's.
STREAMS = """
import ctypes, hashlib, os, random, select, socket, sys, threading, time
mode, total, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PERIOD = 65521
PATTERN = b''.join(hashlib.sha256(str(i).encode()).digest() for i in range(2048))[:PERIOD] * 3
SIZES = (1, 10, 100, 1000, 5000, 20000, 60000)
unseen = ctypes.CDLL('libc.so.6', use_errno=True)
def octets(at, n): return PATTERN[at % PERIOD:at % PERIOD + n]
listener = socket.create_server(('127.0.0.1', 0))
child = os.fork()
if child: link, _ = listener.accept()
else: link = socket.create_connection(listener.getsockname())
listener.close()
def write():
    rnd, at = random.Random(seed), 0
    while at < total:
        n = min(rnd.choice(SIZES), total - at)
        link.sendall(octets(at, n)); at += n
        if rnd.random() < 0.02: time.sleep(rnd.random() * 0.003)
def unseen_read(n):
    buffer = ctypes.create_string_buffer(n)
    got = unseen.syscall(0, link.fileno(), buffer, n)
    return buffer.raw[:got]
def peeked(n):
    first = link.recv(n, socket.MSG_PEEK); again = link.recv(len(first))
    assert first[:len(again)] == again
    return again
def read():
    rnd, at = random.Random(seed + 1), 0
    epoll = select.epoll(); epoll.register(link, select.EPOLLIN | (select.EPOLLET if mode == 'edge' else 0))
    poll = select.poll(); poll.register(link, select.POLLIN)
    while at < total:
        n, how = rnd.choice(SIZES), rnd.random()
        if mode == 'epoll': epoll.poll()
        if mode == 'mixed':
            if how < 0.2: epoll.poll()
            elif how < 0.4: poll.poll()
            elif how < 0.6: select.select([link], [], [])
        if mode == 'unseen' and how < 0.1: data = unseen_read(n)
        elif mode == 'edge':
            epoll.poll(20); data = b''
            try:
                while True:
                    part = link.recv(max(n, 5000), socket.MSG_DONTWAIT)
                    if not part: break
                    data += part
            except BlockingIOError: pass
        elif how < 0.05: data = peeked(n)
        else: data = link.recv(n)
        assert data or mode == 'edge', ('the end', at)
        while data:
            part = data[:PERIOD]; data = data[PERIOD:]
            assert part == octets(at, len(part)), ('other octets', at)
            at += len(part)
        if rnd.random() < 0.002: time.sleep(rnd.random() * 0.03)
writer = threading.Thread(target=write); writer.start()
try: read()
except BaseException as error: print(mode, repr(error), flush=True); os._exit(1)
writer.join(); link.close()
if child:
    _, status = os.waitpid(child, 0); assert status == 0, status
    print('streams are right', flush=True)
"""


def both(network, script, *arguments, wanted, seconds=LIMIT_S):
    """The script plain, then under Weft: each says `wanted`. What Weft's said."""
    argv = ["/usr/bin/python3", "-c", script, *arguments]
    plain = network.start(argv, raw=True).expect(0, seconds)
    check(wanted in plain, f"plain: {plain[-1500:]}")
    ours = network.start(argv, options=OPTIONS, env={"WEFT_SOCKETS_BUSY_CALLS": "1"}).expect(0, seconds)
    check(wanted in ours, f"under Weft: {ours[-1500:]}")
    return ours


def streams(mode):
    def case(network):
        for seed in 1, 2:
            out = both(network, STREAMS, mode, 3_000_000, seed, wanted="streams are right")
            check(out.count(": ring: ") == 2, out)
    return case


# Each step sends from one end by a call that is seen, goes on by another, and compares.
UNSEEN_CALLS = """
import ctypes, os, select, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def pair():
    listener = socket.create_server(('127.0.0.1', 0))
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); listener.close()
    for _ in range(50):
        a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
    wait = select.poll(); wait.register(b, select.POLLIN); assert not wait.poll(1)  # so that it grants its ring
    return a, b
def all_of(s, n):
    data = b''
    while len(data) < n:
        part = s.recv(n - len(data)); assert part, data; data += part
    return data
def step(name, send, wanted):
    a, b = pair()
    a.sendall(b'<'); send(a); a.sendall(b'>')
    got = all_of(b, len(wanted) + 2); assert got == b'<' + wanted + b'>', (name, got)
    a.close(); assert b.recv(1) == b''; print(name, flush=True)
def take(name, receive):
    a, b = pair()
    a.sendall(b'0123456789'); got = receive(b); got += all_of(b, 10 - len(got)) if len(got) < 10 else b''
    assert got == b'0123456789', (name, got); print(name, flush=True)
class Iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
class Msghdr(ctypes.Structure): _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint32), ('iov', ctypes.POINTER(Iovec)),
    ('iovlen', ctypes.c_size_t), ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int)]
class Mmsghdr(ctypes.Structure): _fields_ = [('message', Msghdr), ('length', ctypes.c_uint32)]
def onto_stdout(a):
    def child():
        os.dup2(a.fileno(), 1); subprocess.run(['/bin/echo', '-n', 'echo'])
    pid = os.fork()
    if pid == 0: child(); os._exit(0)
    os.waitpid(pid, 0)
def spliced(a):
    r, w = os.pipe(); os.write(w, b'splice'); os.splice(r, a.fileno(), 6); os.close(r); os.close(w)
def by_file(a):
    fd = os.memfd_create('x'); os.write(fd, b'file'); assert os.sendfile(a.fileno(), fd, 0, 4) == 4; os.close(fd)
def copy(a):
    other = os.dup(a.fileno()); os.write(other, b'dup'); os.close(other)
def stdio(a):
    with os.fdopen(os.dup(a.fileno()), 'w') as file: file.write('stdio')
step('dprintf', lambda a: libc.dprintf(a.fileno(), b'number %d', 7), b'number 7')
step('pwritev2', lambda a: libc.pwritev2(a.fileno(), ctypes.byref(Iovec(ctypes.cast(b'v2', ctypes.c_void_p), 2)), 1, ctypes.c_long(-1), 0), b'v2')
step('system', lambda a: (os.set_inheritable(a.fileno(), True), libc.system(b'echo -n sys >&%d' % a.fileno())), b'sys')
step('child on stdout', onto_stdout, b'echo')
step('splice', spliced, b'splice')
step('sendfile', by_file, b'file')
step('dup', copy, b'dup')
step('stdio', stdio, b'stdio')
step('syscall', lambda a: libc.syscall(1, a.fileno(), b'raw', ctypes.c_long(3)), b'raw')
def splice_in(b):
    r, w = os.pipe(); n = os.splice(b.fileno(), w, 10); return os.read(r, n)
def many(b):
    buffer = ctypes.create_string_buffer(10)
    one = Mmsghdr(Msghdr(None, 0, ctypes.pointer(Iovec(ctypes.addressof(buffer), 10)), 1, None, 0, 0), 0)
    assert libc.recvmmsg(b.fileno(), ctypes.byref(one), 1, 0, None) == 1, ctypes.get_errno()
    return buffer.raw[:one.length]
def raw(b, by=ctypes.CDLL('libc.so.6')):
    buffer = ctypes.create_string_buffer(10); return buffer.raw[:0] if (n := by.syscall(0, b.fileno(), buffer, 10)) < 0 else buffer.raw[:n]
take('recv', lambda b: b.recv(10))
take('recv of all', lambda b: b.recv(10, socket.MSG_WAITALL))
take('in parts', lambda b: b.recv(3))
take('splice in', splice_in)
take('recvmmsg', many)
take('past the library', raw)
take('syscall in', lambda b: raw(b, libc))
take('recvmsg', lambda b: b.recvmsg(10)[0])
take('dup in', lambda b: os.read(os.dup(b.fileno()), 10))
print('all steps', flush=True)
"""


def unseen_calls(network):
    """Octets by calls that are not seen keep their place between those of calls that are."""
    both(network, UNSEEN_CALLS, wanted="all steps")


# The writer is killed at a random moment of its sending, or ends by _exit: what it was told that it
# had sent arrives, in order.
KILLED = """
import os, random, signal, socket, struct, sys, time
for turn in range(40):
    listener = socket.create_server(('127.0.0.1', 0)); told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        link = socket.create_connection(listener.getsockname()); listener.close()
        for i in range(1 << 30):
            link.sendall(struct.pack('Q', i)); os.write(tell, struct.pack('Q', i))
            if turn % 4 == 3 and i == 100 * turn: os._exit(0)
    os.close(tell)
    link, _ = listener.accept(); listener.close()
    rnd = random.Random(turn); end = time.monotonic() + 0.01 + rnd.random() * 0.03; killed = False
    got, data = 0, b''
    while True:
        if not killed and turn % 4 != 3 and time.monotonic() > end:
            os.kill(pid, signal.SIGKILL); killed = True
        if turn % 2: time.sleep(0.0002)
        try: part = link.recv(rnd.choice((8, 13, 4096)))
        except ConnectionResetError: part = b''
        if not part: break
        data += part
        while len(data) >= 8:
            assert struct.unpack('Q', data[:8])[0] == got, (turn, got, data[:8]); data = data[8:]; got += 1
        os.set_blocking(told, False)
        try:
            while os.read(told, 65536): pass
        except BlockingIOError: pass
    os.waitpid(pid, 0); os.set_blocking(told, True)
    last = b''
    while part := os.read(told, 65536): last = part
    if last: assert got > struct.unpack('Q', last[-8:])[0], (turn, got)
    os.close(told); link.close()
print('nothing is lost', flush=True)
"""


def killed_writer(network):
    """A writer that is killed anywhere, or leaves without a close, loses nothing it has sent."""
    both(network, KILLED, wanted="nothing is lost")


SHORT_ONES = """
import resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
listener = socket.create_server(('127.0.0.1', 0), backlog=100); count = int(sys.argv[1])
def serve():
    for _ in range(count):
        a, _ = listener.accept(); a.sendall(a.recv(10)); a.close()
server = threading.Thread(target=serve); server.start()
for i in range(count):
    with socket.create_connection(listener.getsockname()) as c:
        c.sendall(b'%d' % i); assert c.recv(10) == b'%d' % i
server.join(); print('all served', flush=True)
"""


def short_connections(network):
    """10,000 connections of one request each, with 64 descriptors."""
    both(network, SHORT_ONES, 10_000, wanted="all served")


STOPPED = """
import os, signal, socket, sys, time
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
a, _ = listener.accept()
for _ in range(50): a.sendall(a.recv(100))
print('ready', flush=True)
time.sleep(3600)
"""

ASKS_A_STOPPED_ONE = """
import os, signal, socket, sys
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for i in range(50): c.sendall(b'%d' % i); c.recv(100)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
c.settimeout(0.5); sent = 0
try:
    while True: sent += c.send(b'x' * 65536)
except TimeoutError: print('full', flush=True)
"""


def stopped_reader(network):
    """A reader that is stopped holds up its writer as TCP does: by no room, in time."""
    port = free_port()
    env = {"WEFT_SOCKETS_BUSY_CALLS": "1"}
    server = network.start(["/usr/bin/python3", "-c", STOPPED, port], options=OPTIONS, env=env).listening(port)
    client = network.start(["/usr/bin/python3", "-c", ASKS_A_STOPPED_ONE, port, server.pid], options=OPTIONS, env=env)
    check("full" in client.expect(0, LIMIT_S), "not full")
    os.kill(server.pid, signal.SIGCONT)
    server.end()


# Both ends are one process; the second has read behind waits often enough that octets lie in the
# ring between its calls. Then its number is closed, or not, in some way.
ENDS = """
import ctypes, errno, os, select, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
listener = socket.create_server(('127.0.0.1', 0))
def busy(a, b):
    for _ in range(50): a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
def pair():
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); busy(a, b)
    wait = select.poll(); wait.register(b, select.POLLIN); assert not wait.poll(1)
    return a, b
def end_of(a):
    try: return a.recv(100)
    except OSError as error: return errno.errorcode[error.errno]
a, b = pair(); a.sendall(b'unread')
print('bad dup2', libc.dup2(-1, b.fileno()), b.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8), b.recv(10))
a, b = pair(); a.sendall(b'unread'); n = b.detach(); os.closerange(n, n + 1); print('close_range', end_of(a))
a, b = pair(); a.sendall(b'unread'); b.close(); print('close', end_of(a))
a, b = pair(); a.sendall(b'read'); b.recv(4); n = b.detach(); os.closerange(n, n + 1); print('all read', end_of(a))
def leaves(name, leave):
    go, tell = os.pipe(); pid = os.fork()
    if pid == 0:
        b = socket.create_connection(listener.getsockname())
        for _ in range(50): assert b.recv(4) == b'ping'; b.sendall(b'pong')
        os.read(go, 1); leave()
    a, _ = listener.accept()
    for _ in range(50): a.sendall(b'ping'); assert a.recv(4) == b'pong'
    a.sendall(b'unread'); os.write(tell, b'x'); os.waitpid(pid, 0); print(name, end_of(a))
leaves('_exit', lambda: os._exit(0))
leaves('exec', lambda: os.execv('/bin/true', ['true']))
print('all ends', flush=True)
"""


def ends(network):
    """Octets that lie unread when a number is closed make a reset, by whichever call; a call that
    closes nothing makes none."""
    argv = ["/usr/bin/python3", "-c", ENDS]
    plain = network.start(argv, raw=True).expect(0, LIMIT_S)
    ours = network.start(argv, options=("--sockets",), env={"WEFT_SOCKETS_BUSY_CALLS": "1"}).expect(0, LIMIT_S)
    check("all ends" in plain and plain == ours, f"plain:\n{plain}under Weft:\n{ours}")


# The writer is killed while its last octets lie in the ring. An edge tells of them and of the end.
EDGE_END = """
import os, select, signal, socket
for turn in range(10):
    listener = socket.create_server(('127.0.0.1', 0)); go, tell = os.pipe(); pid = os.fork()
    if pid == 0:
        b = socket.create_connection(listener.getsockname())
        for _ in range(100): b.sendall(b'ping'); assert b.recv(4) == b'pong'
        os.read(go, 1); b.sendall(b'last'); os.kill(os.getpid(), signal.SIGKILL)
    a, _ = listener.accept(); a.setblocking(False); listener.close()
    epoll = select.epoll(); epoll.register(a, select.EPOLLIN | select.EPOLLET)
    def until_no_more():
        data = b''
        while True:
            try: part = a.recv(100)
            except BlockingIOError: return data, False
            if not part: return data, True
            data += part
    for _ in range(100):
        data = b''
        while not data: epoll.poll(20); data, _ = until_no_more()
        assert data == b'ping', data
        a.send(b'pong')
    os.write(tell, b'x'); os.waitpid(pid, 0)
    data, end = b'', False
    while not end:
        assert epoll.poll(20), ('no event', turn, data)
        more, end = until_no_more(); data += more
    assert data == b'last', data
    a.close(); epoll.close()
print('all ends', flush=True)
"""


def edge_end(network):
    """A reader that waits for edges learns that its peer was killed behind its last octets."""
    both(network, EDGE_END, wanted="all ends")


# One thread waits for octets without a limit of time, another one takes them away.
NO_LIMIT = """
import select, socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()
for _ in range(100): a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
b.setblocking(False); over = False
def write():
    while not over: a.sendall(b'x')
    a.close()
def take():
    while not over:
        try: b.recv(1 << 20)
        except BlockingIOError: pass
threads = [threading.Thread(target=one) for one in (write, take)]
for one in threads: one.start()
p = select.poll(); p.register(b, 1); e = select.epoll(); e.register(b, 1); empty = 0
for wait in e.poll, p.poll, lambda: select.select([b], [], [])[0]:
    end = time.monotonic() + 0.7
    while time.monotonic() < end: empty += not wait()
over = True
for one in threads: one.join()
print('came back for nothing', empty, flush=True)
"""


def no_limit(network):
    """A wait without a limit of time never comes back with nothing."""
    both(network, NO_LIMIT, wanted="came back for nothing 0")


# Instances whose number is an older one's, or that have two; limits and lists that are not normal.
ODD_WAITS = """
import ctypes, errno, os, select, socket, threading, time
libc = ctypes.CDLL(None, use_errno=True)
listener = socket.create_server(('127.0.0.1', 0))
def pair():
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()
    for _ in range(100): a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
    return a, b
def busy(e, a, b):
    for _ in range(100): a.sendall(b'ping'); assert e.poll(20); assert b.recv(4) == b'ping'
a, b = pair(); first = select.epoll(); first.register(b, select.EPOLLIN); busy(first, a, b)
number = first.fileno(); first.close(); second = select.epoll()
print('same number', second.fileno() == number); a.sendall(b'x'); print('nothing of the first', second.poll(0.1)); b.recv(1)
a, b = pair(); busy_one = select.epoll(); busy_one.register(b, select.EPOLLIN); busy(busy_one, a, b)
copy = select.epoll.fromfd(os.dup(busy_one.fileno())); copy.unregister(b); a.sendall(b'x'); print('taken out by the copy', busy_one.poll(0.1)); b.recv(1)
class Time(ctypes.Structure): _fields_ = [('s', ctypes.c_long), ('u', ctypes.c_long)]
def later(): time.sleep(0.1); a.sendall(b'late')
t = threading.Thread(target=later); t.start(); bits = (ctypes.c_ulong * 16)(); bits[b.fileno() // 64] = 1 << b.fileno() % 64
print('for ever', libc.select(b.fileno() + 1, bits, None, None, ctypes.byref(Time((1 << 63) - 1, 0)))); t.join(); b.recv(9)
a, b = pair(); names = select.epoll(); names.register(b, select.EPOLLIN | 0x40); busy(names, a, b); names.poll(0.001); a.sendall(b'x'); print('two names', [bits for _, bits in names.poll(20)]); b.recv(1)
print('no list', libc.poll(None, ctypes.c_ulong(1), 0), errno.errorcode[ctypes.get_errno()])
print('too long', libc.poll(None, ctypes.c_ulong((1 << 64) - 1), 0), errno.errorcode[ctypes.get_errno()])
bits[b.fileno() // 64] = 1 << b.fileno() % 64; left = Time(0, 1000000)
print('odd time', libc.select(b.fileno() + 1, bits, None, None, ctypes.byref(left)), left.s, left.u)
"""


def odd_waits(network):
    """As the kernel waits."""
    argv = ["/usr/bin/python3", "-c", ODD_WAITS]
    plain = network.start(argv, raw=True).expect(0, LIMIT_S)
    ours = network.start(argv, options=("--sockets",), env={"WEFT_SOCKETS_BUSY_CALLS": "1"}).expect(0, LIMIT_S)
    check("same number True" in plain and plain == ours, f"plain:\n{plain}under Weft:\n{ours}")


# One thread asks an instance, another takes a socket out and only then is sent something.
TAKEN_OUT = """
import select, socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()
e = select.epoll(); over = False; told = 0; turns = 0; wrong = 0
def ask():
    global told, turns
    while not over: told += len(e.poll(0)); turns += 1
def two_turns():
    behind = turns + 2
    while turns < behind: time.sleep(0)
for _ in range(50): a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
wait = select.poll(); wait.register(b, select.POLLIN); asking = threading.Thread(target=ask); asking.start(); end = time.monotonic() + 1
while time.monotonic() < end:
    e.register(b, select.EPOLLIN)
    for _ in range(20): a.sendall(b'ping'); wait.poll(); assert b.recv(4, socket.MSG_DONTWAIT) == b'ping'
    two_turns(); before = told; e.unregister(b)
    a.sendall(b'x'); two_turns(); wrong += told != before; b.recv(1)
over = True; asking.join(); print('told of what was taken out', wrong, flush=True)
"""


def taken_out(network):
    """An instance tells nothing of a socket that was taken out of it before octets came."""
    both(network, TAKEN_OUT, wanted="told of what was taken out 0")


# A process that may make no more threads, by a filter that libseccomp sets so. A ring needs one.
FILTERED = """
import ctypes, select, socket
libc = ctypes.CDLL(None, use_errno=True)
listener = socket.create_server(('127.0.0.1', 0))
class Line(ctypes.Structure): _fields_ = [('code', ctypes.c_ushort), ('jt', ctypes.c_ubyte), ('jf', ctypes.c_ubyte), ('k', ctypes.c_uint)]
class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('lines', ctypes.c_void_p)]
lines = (Line * 5)(Line(0x20, 0, 0, 0), Line(0x15, 1, 0, 56), Line(0x15, 0, 1, 435), Line(6, 0, 0, 0x80000000), Line(6, 0, 0, 0x7fff0000))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(317, 1, 0, ctypes.byref(Program(5, ctypes.addressof(lines)))) == 0, ctypes.get_errno()
a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()
for _ in range(100): a.sendall(b'ping'); assert b.recv(4) == b'ping'; b.sendall(b'pong'); assert a.recv(4) == b'pong'
wait = select.poll(); wait.register(b, select.POLLIN); wait.poll(1)
for _ in range(100): a.sendall(b'ping'); assert b.recv(4) == b'ping'
print('lives', flush=True)
"""


def filtered(network):
    """A process that filters its own system calls by syscall(2)."""
    both(network, FILTERED, wanted="lives")


CASES = {case.__name__: case for case in (
    unseen_calls, killed_writer, ends, edge_end, short_connections, stopped_reader, no_limit, odd_waits, taken_out, filtered)} | {
    f"streams_{mode}": streams(mode) for mode in ("plain", "mixed", "epoll", "edge", "unseen")}

if __name__ == "__main__":
    sys.exit(main(CASES))
