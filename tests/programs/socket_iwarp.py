#!/usr/bin/env python3
"""IWARP mode: the calls of sockets on a socket that is an rsocket inside the program. Each script
runs twice, over plain TCP and with WEFT_MODE set on both sides, and must print the same."""

import difflib
import os
import re
import sys

from harness import Skip, check, free_port, main
from socket_setting import LIMIT_S

# A listener, and pairs of connected sockets: `pair()` gives the client's and the accepted one.
BEGIN = """
import array, errno, fcntl, os, select, signal, socket, struct, sys, threading, time
DIRECT = len(sys.argv) > 1
def fresh():
    s = socket.socket(); s.settimeout(60)
    if DIRECT: s.setsockopt(0x10000, 0x57, 1)
    s.settimeout(None)
    return s
listener = fresh(); listener.bind(('127.0.0.1', 0)); listener.listen(64)
def is_direct(s): return DIRECT and s.getsockopt(0x10000, 0x57) == 1
def pair():
    c = fresh()
    thread = threading.Thread(target=c.connect, args=(listener.getsockname(),)); thread.start()
    a, _ = listener.accept()
    assert is_direct(a) == DIRECT
    thread.join()
    assert is_direct(c) == DIRECT
    return c, a
def bits(b):
    names = [(1, 'IN'), (2, 'PRI'), (4, 'OUT'), (8, 'ERR'), (16, 'HUP'), (0x2000, 'RDHUP')]
    return '|'.join(n for v, n in names if b & v) or '-'
def look(p, names, timeout=0.5, most=-1):
    got = sorted((names[fd], bits(b)) for fd, b in p.poll(timeout, most))
    return ' '.join(f'{n}:{b}' for n, b in got) or 'nothing'
def error(call, *arguments):
    try: return call(*arguments)
    except OSError as why: return errno.errorcode[why.errno]
def later(seconds, call, *arguments):
    def run(): time.sleep(seconds); call(*arguments)
    thread = threading.Thread(target=run); thread.start()
    return thread
"""

EPOLL = """
c, a = pair(); d, b = pair()
names = {c.fileno(): 'c', a.fileno(): 'a', d.fileno(): 'd', b.fileno(): 'b'}
p = select.epoll(); IN, OUT, ET, ONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLONESHOT
p.register(a, IN)
print('quiet', look(p, names, 0.05)); start = time.monotonic()
print('quiet for a while', look(p, names, 0.2), time.monotonic() - start >= 0.19)
c.sendall(b'one'); print('one', look(p, names)); print('again', look(p, names), a.recv(2), look(p, names), a.recv(9), look(p, names, 0.05))
print('twice', error(p.register, a, IN)); p.modify(a, IN | OUT); print('out', look(p, names))
p.unregister(a); print('gone', look(p, names, 0.05), error(p.unregister, a), error(p.modify, a, IN))
p.register(a, IN | OUT | ET); print('edge', look(p, names), look(p, names, 0.05))
c.sendall(b'x'); print('in', look(p, names)); print('unread', look(p, names, 0.05), a.recv(9))
c.sendall(b'y'); print('more', look(p, names), a.recv(9), error(a.recv, 1, socket.MSG_DONTWAIT))
c.sendall(b'z'); print('after EAGAIN', look(p, names), a.recv(9))
p.modify(a, IN | OUT | ET); print('modified', look(p, names), look(p, names, 0.05))
p.modify(a, IN | ONE); c.sendall(b'1'); print('once', look(p, names), a.recv(9)); c.sendall(b'2'); print('off', look(p, names, 0.1))
p.modify(a, IN | ONE); print('on', look(p, names), a.recv(9)); p.unregister(a)
r, w = os.pipe(); names[r] = 'pipe'; p.register(r, IN); p.register(a, IN); p.register(b, IN)
os.write(w, b'x'); c.sendall(b'x'); d.sendall(b'x')
found = set()
for _ in range(12): found |= {names[fd] for fd, _ in p.poll(1, 1)}
print('each comes', sorted(found))
print('all', look(p, names)); os.read(r, 9); a.recv(9); b.recv(9)
t = later(0.2, c.sendall, b'late'); print('woken', look(p, names, 20), a.recv(9)); t.join()
t = later(0.2, os.write, w, b'p'); print('by the pipe', look(p, names, 20), os.read(r, 9)); t.join()
e, f = pair(); names[f.fileno()] = 'f'; e.sendall(b'e')
t = later(0.2, p.register, f, IN); print('registered meanwhile', look(p, names, 20), f.recv(9)); t.join()
q = select.epoll(); names[p.fileno()] = 'p'; q.register(p, IN); print('poll of it', [n for n, in [('no',)] if select.select([p], [], [], 0)[0]])
t = later(0.2, c.sendall, b'deep'); print('select of it', len(select.select([p], [], [], 20)[0]), a.recv(9)); t.join()
c.shutdown(socket.SHUT_WR); print('end', look(p, names), a.recv(9)); p.modify(a, IN | select.EPOLLRDHUP); print('end', look(p, names))
p.unregister(a); d.close(); print('closed', look(p, names), b.recv(9))
fd = b.fileno(); b.close(); print('forgotten', look(p, names, 0.05))
a.close(); c.close(); e.close(); print('last', look(p, names), f.recv(1)); p.close(); print('no instance', error(lambda: select.epoll.fromfd(p.fileno() if p.closed is False else 0)) if False else 'closed')
"""

# A socket that is watched before anybody knows what it is; a client that connects without waiting.
EPOLL_EARLY = """
p = select.epoll(); names = {}
c = fresh(); c.setblocking(False); names[c.fileno()] = 'c'
print('connect', errno.errorcode[c.connect_ex(listener.getsockname())])
p.register(c, select.EPOLLOUT | select.EPOLLIN)
a, _ = listener.accept(); a.setblocking(False); names[a.fileno()] = 'a'; p.register(a, select.EPOLLIN)
end = time.monotonic() + 20; connected = False; got = b''
while got != b'hello' and time.monotonic() < end:
    for fd, b in p.poll(1):
        if fd == c.fileno() and not connected:
            connected = True
            print('connected', c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)); p.modify(c, select.EPOLLIN); c.sendall(b'hello')
        if fd == a.fileno():
            part = error(a.recv, 100)
            if part != 'EAGAIN': got += part
print(got, is_direct(a) == DIRECT); a.sendall(b'back'); print(look(p, names, 20), c.recv(9))
"""

# Sleepers of one instance, some of them there before any such socket was.
EPOLL_THREADS = """
p = select.epoll(); taken = []; done = threading.Event(); lock = threading.Lock(); ROUNDS = 60
sockets = {}
def serve():
    while not done.is_set():
        for fd, b in p.poll(0.5, 2):
            data = sockets[fd].recv(100)
            with lock: taken.append(data)
            if data: p.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
threads = [threading.Thread(target=serve) for _ in range(3)]
for one in threads: one.start()
time.sleep(0.1); clients = []
for i in range(4):
    c, a = pair(); sockets[a.fileno()] = a; clients.append(c); c.sendall(b'first%d' % i); p.register(a, select.EPOLLIN | select.EPOLLONESHOT)
for i in range(ROUNDS):
    for n, c in enumerate(clients): c.sendall(b'%d.%d;' % (n, i))
end = time.monotonic() + 30; wanted = sum(len(b'first0') for _ in clients) + sum(len(b'%d.%d;' % (n, i)) for n in range(4) for i in range(ROUNDS))
while sum(map(len, taken)) < wanted and time.monotonic() < end: time.sleep(0.01)
print('octets', sum(map(len, taken)) == wanted, 'empty', taken.count(b'')); done.set()
for one in threads: one.join()
"""

# A thread is cancelled asleep in epoll_wait. It never ends for Python, so neither does the program.
EPOLL_CANCELLED = """
import ctypes; libc = ctypes.CDLL(None); events = (ctypes.c_char * 64)()
c, a = pair(); p = select.epoll(); p.register(a, select.EPOLLIN)
t = threading.Thread(target=lambda: libc.epoll_wait(p.fileno(), events, 4, -1), daemon=True); t.start()
time.sleep(0.3); print('cancelled', libc.pthread_cancel(ctypes.c_ulong(t.ident))); time.sleep(0.2)
d, b = pair(); p.register(b, select.EPOLLIN); names = {a.fileno(): 'a', b.fileno(): 'b'}
print('quiet', look(p, names, 0.2)); c.sendall(b'x'); print('one', look(p, names, 20), a.recv(9))
sys.stdout.flush(); os._exit(0)
"""

DUP = """
c, a = pair()
n = os.dup(a.fileno()); m = fcntl.fcntl(a, fcntl.F_DUPFD_CLOEXEC, 40); k = os.dup2(a.fileno(), 55)
print('numbers', m >= 40, k, bool(fcntl.fcntl(m, fcntl.F_GETFD) & 1), bool(fcntl.fcntl(k, fcntl.F_GETFD) & 1))
c.sendall(b'abcdef'); print(os.read(n, 1), os.read(m, 1), os.read(k, 1), a.recv(1))
peer = a.getpeername(); copy = socket.socket(fileno=k); print('name', copy.getpeername() == peer)
fcntl.fcntl(n, fcntl.F_SETFL, fcntl.fcntl(n, fcntl.F_GETFL) | os.O_NONBLOCK); a.recv(9); print('shared flags', error(os.read, m, 1)); copy.setblocking(True)
a.close(); os.write(n, b'still'); print(c.recv(9)); os.close(n); os.close(m)
c.sendall(b'last'); print(copy.recv(9), select.select([copy], [], [], 0)[0] == [])
other, otherend = pair(); os.dup2(copy.fileno(), otherend.fileno()); print('over another', other.recv(9))
c.sendall(b'new'); print(otherend.recv(9)); copy.close(); c.sendall(b'end'); print(otherend.recv(9)); otherend.close(); print('all closed', c.recv(9))
r, w = os.pipe(); c, a = pair(); os.dup2(r, a.fileno()); print('replaced by a pipe', c.recv(9)); os.write(w, b'p'); print(os.read(a.fileno(), 9))
c, a = pair(); print('bad', error(os.dup2, a.fileno(), 1 << 22), error(os.dup2, 999, a.fileno())); a.sendall(b'intact'); print(c.recv(9))
"""

# Sockets of several kinds waited for together, masks, and descriptors closed by the range.
OTHERS = """
c, a = pair(); plain = socket.socket(); server = socket.create_server(('127.0.0.1', 0)); plain.connect(server.getsockname()); other, _ = server.accept()
other.sendall(b'12'); print(plain.recv(1)); p = select.poll(); p.register(plain, 1); p.register(a, 1)
print('the other', len(p.poll(20000)), plain.recv(9), len(p.poll(50))); c.sendall(b'x'); print('ours', len(p.poll(20000)), a.recv(9))
def on(number, frame): print('signal', number == signal.SIGUSR1)
signal.signal(signal.SIGUSR1, on)
import ctypes; libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)
class Pollfd(ctypes.Structure): _fields_ = [('fd', ctypes.c_int), ('events', ctypes.c_short), ('revents', ctypes.c_short)]
class Spec(ctypes.Structure): _fields_ = [('s', ctypes.c_long), ('n', ctypes.c_long)]
empty = (ctypes.c_ulong * 16)(); one = Pollfd(a.fileno(), 1, 0)
print('ppoll', libc.ppoll(ctypes.byref(one), ctypes.c_ulong(1), ctypes.byref(Spec(20, 0)), empty), errno.errorcode[ctypes.get_errno()])
os.kill(os.getpid(), signal.SIGUSR1); e = select.epoll(); e.register(a, 1); events = (ctypes.c_char * 64)()
print('epoll_pwait', libc.epoll_pwait(e.fileno(), events, 4, 20000, empty), errno.errorcode[ctypes.get_errno()])
print('fine time', libc.ppoll(ctypes.byref(one), ctypes.c_ulong(1), ctypes.byref(Spec(0, 100)), None))
first, second = pair(); low = fcntl.fcntl(first, fcntl.F_DUPFD, 200); top = os.dup2(low, 210); os.close(first.detach()); os.closerange(low, top + 1); second.settimeout(20); print('closed by range', error(second.recv, 1))
class Iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
r, w = os.pipe(); os.write(w, b'of a pipe'); print('sendfile of a pipe', error(os.sendfile, c.fileno(), r, None, 9), os.read(r, 9))
print('dprintf', libc.dprintf(c.fileno(), b'number %d', 7), a.recv(20)); room = ctypes.create_string_buffer(8); part = Iovec(ctypes.addressof(room), 8)
c.sendall(b'v2'); print('preadv2', libc.preadv2(a.fileno(), ctypes.byref(part), 1, ctypes.c_long(-1), 0), room.value)
print('pwritev2', libc.pwritev2(a.fileno(), ctypes.byref(part), 1, ctypes.c_long(-1), 0), c.recv(8), libc.preadv2(a.fileno(), ctypes.byref(part), 1, ctypes.c_long(5), 0), errno.errorcode[ctypes.get_errno()])
if DIRECT: os.write(w, b'x'); print('splice', error(os.splice, r, c.fileno(), 1))
else: print('splice EINVAL')
c.sendall(b'intact'); print(a.recv(9))
c.close(); print('the end', len(e.poll(20)), a.recv(1))
"""

# Threads that touch a connection before anybody has: its client has not asked yet.
TWO_THREADS = """
ROUNDS = 40
def take(s, how, out):
    try:
        if how == 1: select.select([s], [], [], 30)
        if how == 2: s.getsockname(); s.settimeout(30)
        out.append(s.recv(1))
    except OSError as why: out.append(repr(why).encode())
wrong = 0
for i in range(ROUNDS):
    c = fresh()
    client = threading.Thread(target=lambda: (c.connect(listener.getsockname()), c.sendall(b'abc'))); client.start()
    a, _ = listener.accept(); out = []
    threads = [threading.Thread(target=take, args=(a, how, out)) for how in (0, 0, i % 3)]
    for one in threads: one.start()
    for one in threads: one.join()
    client.join(); wrong += sorted(out) != [b'a', b'b', b'c']; c.close(); a.close()
print('wrong', wrong)
"""


def compared(script):
    def case(network):
        argv = ["/usr/bin/python3", "-c", BEGIN + script]
        wanted = network.start(argv, raw=True).expect(0, LIMIT_S).splitlines()
        ours = network.start([*argv, "direct"], options=("--sockets", "--why")).expect(0, LIMIT_S).splitlines()
        got = [line for line in ours if not line.startswith("weft: ")]
        check(sum(": rdma: " in line for line in ours) >= 2, "the connections were not rsockets")
        differ = difflib.unified_diff(wanted, got, "TCP", "IWARP mode", n=1, lineterm="")
        check(wanted == got, "\n".join(["not as TCP:", *differ]))
    return case


CASES = {"epoll": compared(EPOLL), "epoll_early": compared(EPOLL_EARLY), "epoll_threads": compared(EPOLL_THREADS),
         "epoll_cancelled": compared(EPOLL_CANCELLED), "dup": compared(DUP), "others": compared(OTHERS),
         "two_threads": compared(TWO_THREADS)}

if __name__ == "__main__":
    sys.exit(main(CASES))
