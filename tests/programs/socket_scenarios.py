"""Scenarios of socket calls, each reported call by call: returned value, errno, data, readiness.
Run plain they tell what the kernel does; run under `weft run --sockets` they must tell the same.

    socket_scenarios.py [NAME...]    prints one block of lines for each
"""

import array
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

LOG = []
IN, OUT, HUP, RDHUP, ERR = (select.POLLIN, select.POLLOUT, select.POLLHUP, select.POLLRDHUP,
                            select.POLLERR)
NAMES = ((IN, "IN"), (OUT, "OUT"), (HUP, "HUP"), (RDHUP, "RDHUP"), (ERR, "ERR"))


def note(what, value):
    LOG.append(f"{what}: {value}")


def call(what, function, *arguments):
    """Notes what a call gave, errno by name."""
    try:
        value = function(*arguments)
    except OSError as error:
        name = "ETIMEDOUT" if error.errno is None else errno.errorcode.get(error.errno, error.errno)
        note(what, f"-1 {name}")
        return None
    note(what, short(value))
    return value


def short(value):
    if isinstance(value, bytes):
        return f"{len(value)} octets {value[:20]!r}"
    return "socket" if isinstance(value, socket.socket) else value


def readiness(what, sock, wait=True):
    """The poll bits; with `wait` once they have stopped changing for a while."""
    poller = select.poll()
    poller.register(sock, IN | OUT | RDHUP)
    end = time.monotonic() + (0.3 if wait else 0)
    while True:
        bits = sum(b for _, b in poller.poll(0))
        if time.monotonic() >= end:
            break
        time.sleep(0.02)
    note(what, "|".join(name for bit, name in NAMES if bits & bit) or "none")


def pair(family=socket.AF_INET):
    listener = socket.socket(family)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(5)
    client = socket.socket(family)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    for one in client, server:
        one.settimeout(10)
    listener.close()
    # Both ends have spoken once: the path is decided.
    client.sendall(b"c")
    server.recv(1)
    server.sendall(b"s")
    client.recv(1)
    for one in client, server:
        one.settimeout(None)
    return client, server


SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def each(**cases):
    """One scenario for each case: NAME_CASE, with the case's value as argument."""
    def enter(function):
        for name, value in cases.items():
            SCENARIOS[f"{function.__name__}_{name}"] = lambda v=value: function(v)
        return function
    return enter


def both_ends(function):
    """Once from the client's side, once from the server's."""
    SCENARIOS[f"{function.__name__}_by_client"] = lambda: function(*pair())
    SCENARIOS[f"{function.__name__}_by_server"] = lambda: function(*reversed(pair()))
    return function


# --- data ---


@each(**{f"n{n}": n for n in (0, 1, 2, 63, 64, 65, 1000, 4096, 65535, 65536, 100_000)})
def echo(size):
    a, b = pair()
    data = bytes(i % 251 for i in range(size))
    call("send", a.send, data)
    got = b""
    while len(got) < size:
        got += b.recv(size - len(got))
    note("equal", got == data)
    a.setblocking(False)
    call("recv of nothing", a.recv, 10)


@each(**{f"n{n}": n for n in (262_143, 262_144, 262_145, 1_000_000, 3_000_000)})
def bulk(size):
    a, b = pair()
    data = os.urandom(65536) * (size // 65536 + 1)
    thread = threading.Thread(target=lambda: (a.sendall(data[:size]), a.shutdown(socket.SHUT_WR)))
    thread.start()
    got = bytearray()
    while part := b.recv(50_000):
        got += part
    thread.join()
    note("equal", bytes(got) == data[:size])


@both_ends
def peek(a, b):
    a.send(b"abcdef")
    b.settimeout(5)
    for size in 3, 10:
        call(f"peek {size}", b.recv, size, socket.MSG_PEEK)
    call("recv 2", b.recv, 2)
    call("peek", b.recv, 10, socket.MSG_PEEK)
    call("recv", b.recv, 10)


@both_ends
def wait_for_all(a, b):
    def send():
        for part in b"abc", b"def", b"ghij":
            time.sleep(0.05)
            a.send(part)
    thread = threading.Thread(target=send)
    thread.start()
    call("recv 10", b.recv, 10, socket.MSG_WAITALL)
    thread.join()
    a.send(b"xy")
    a.close()
    call("recv 5 of 2", b.recv, 5, socket.MSG_WAITALL)


@both_ends
def truncating(a, b):
    a.send(b"abcdef")
    buffer = bytearray(10)
    call("recv with MSG_TRUNC", b.recv_into, buffer, 3, socket.MSG_TRUNC)
    call("recv", b.recv, 10)


@both_ends
def vectors(a, b):
    call("writev", os.writev, a.fileno(), [b"ab", b"", b"cde"])
    parts = [bytearray(1), bytearray(0), bytearray(3), bytearray(5)]
    call("readv", os.readv, b.fileno(), parts)
    note("parts", parts)
    call("sendmsg", a.sendmsg, [b"x", b"yz"])
    value = call("recvmsg", b.recvmsg, 10, 100)
    note("recvmsg", value)
    call("recv_into 0", b.recv_into, bytearray(0))


@both_ends
def read_and_write(a, b):
    call("write", os.write, a.fileno(), b"hello")
    call("read", os.read, b.fileno(), 100)
    call("sendto", a.sendto, b"to", ("127.0.0.1", 9))
    value = b.recvfrom(10)
    note("recvfrom", value)


@both_ends
def dont_wait(a, b):
    call("recv", b.recv, 10, socket.MSG_DONTWAIT)
    a.send(b"abc")
    readiness("b", b)
    call("recv", b.recv, 10, socket.MSG_DONTWAIT)
    call("recv", b.recv, 10, socket.MSG_DONTWAIT)


@both_ends
def urgent_data(a, b):
    call("recv MSG_OOB with none", b.recv, 1, socket.MSG_OOB)


@both_ends
def error_queue(_, b):
    call("recv MSG_ERRQUEUE", b.recv, 1, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)


@both_ends
def sendfile(a, b):
    with open("/etc/services" if os.path.exists("/etc/services") else __file__, "rb") as file:
        want = file.read(5000)
        file.seek(0)
        call("sendfile", os.sendfile, a.fileno(), file.fileno(), 0, len(want))
        got = b""
        while len(got) < len(want):
            got += b.recv(len(want))
        note("equal", got == want)
        note("position", file.tell())


@both_ends
def splice_out(a, b):
    reader, writer = os.pipe()
    a.send(b"through a pipe")
    call("splice", os.splice if hasattr(os, "splice") else lambda *_: 14, b.fileno(), writer, 14)
    if not hasattr(os, "splice"):
        b.recv(14)
        os.write(writer, b"through a pipe")
    note("read", os.read(reader, 100))


@both_ends
def octets_waiting(a, b):
    def waiting(sock):
        value = array.array("i", [0])
        fcntl.ioctl(sock, termios.FIONREAD, value)
        return value[0]
    call("FIONREAD", waiting, b)
    a.send(b"12345")
    readiness("b", b)
    call("FIONREAD", waiting, b)
    b.recv(2)
    call("FIONREAD", waiting, b)


# --- ends ---


@both_ends
def close_then_read(a, b):
    a.send(b"last")
    a.close()
    readiness("b", b)
    call("recv", b.recv, 10)
    call("recv", b.recv, 10)
    call("recv", b.recv, 10)
    readiness("b", b)


@both_ends
def close_then_write(a, b):
    a.close()
    readiness("b", b)
    call("recv", b.recv, 10)
    b.send(b"x")
    time.sleep(0.2)
    call("send", b.send, b"y")
    call("send", b.send, b"z")


@both_ends
def half_close(a, b):
    call("shutdown", a.shutdown, socket.SHUT_WR)
    readiness("a", a)
    readiness("b", b)
    call("recv", b.recv, 10)
    call("send back", b.send, b"still there")
    call("recv", a.recv, 100)
    call("send after shutdown", a.send, b"x")
    call("shutdown the other way", b.shutdown, socket.SHUT_WR)
    call("recv", a.recv, 100)
    readiness("a", a)
    readiness("b", b)


@each(read=socket.SHUT_RD, write=socket.SHUT_WR, both=socket.SHUT_RDWR)
def shutdown(how):
    a, b = pair()
    call("shutdown", a.shutdown, how)
    call("again", a.shutdown, how)
    readiness("a", a)
    a.setblocking(False)
    call("a recv", a.recv, 10)
    call("a send", a.send, b"x")
    b.setblocking(False)
    time.sleep(0.1)
    call("b recv", b.recv, 10)


@both_ends
def wrong_shutdown(a, _):
    call("shutdown 7", a.shutdown, 7)


@both_ends
def reset_by_linger(a, b):
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    time.sleep(0.2)
    call("recv", b.recv, 10)
    call("recv", b.recv, 10)


@both_ends
def reset_after_data(a, b):
    a.send(b"data")
    readiness("b", b)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    time.sleep(0.2)
    call("send", b.send, b"x")


@both_ends
def close_with_unread(a, b):
    b.send(b"never read")
    readiness("a", a)
    a.close()
    time.sleep(0.2)
    call("recv", b.recv, 10)


@both_ends
def sigpipe(a, b):
    signal.signal(signal.SIGPIPE, lambda *_: note("signal", "SIGPIPE"))
    a.shutdown(socket.SHUT_WR)
    call("write", os.write, a.fileno(), b"x")
    call("send with MSG_NOSIGNAL", a.send, b"x", socket.MSG_NOSIGNAL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


@both_ends
def peer_process_dies(a, b):
    pid = os.fork()
    if pid == 0:
        b.close()
        a.send(b"bye")
        os._exit(0)
    a.close()
    os.waitpid(pid, 0)
    call("recv", b.recv, 10)
    call("recv", b.recv, 10)


# --- blocking, time limits, signals ---


@both_ends
def nonblocking(a, b):
    a.setblocking(False)
    note("flag", bool(fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK))
    call("recv", a.recv, 1)
    a.setblocking(True)
    note("flag", bool(fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK))
    b.send(b"x")
    call("recv", a.recv, 1)


@both_ends
def full(a, b):
    a.setblocking(False)
    total = 0
    try:
        while True:
            total += a.send(b"x" * 30_000)
    except BlockingIOError:
        note("full", "EAGAIN")
    # TCP moves octets on to the receiver's buffer for a while.
    time.sleep(0.3)
    try:
        while True:
            total += a.send(b"x" * 30_000)
    except BlockingIOError:
        pass
    readiness("a when full", a)
    got = 0
    while got < total:
        got += len(b.recv(1 << 20))
    readiness("a when empty", a)
    note("equal", got == total)


@both_ends
def receive_time_limit(a, _):
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    call("recv", a.recv, 1)
    note("option", struct.unpack("ll", a.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))[0])


@both_ends
def send_time_limit(a, _):
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
    end = time.monotonic() + 20
    result = None
    while time.monotonic() < end:
        try:
            a.send(b"x" * 100_000)
        except OSError as error:
            result = errno.errorcode[error.errno]
            break
    note("send in the end", result)


@both_ends
def interrupted(a, _):
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        a.recv(1)
        note("recv", "came back")
    except Stop:
        note("recv", "interrupted")
    signal.setitimer(signal.ITIMER_REAL, 0)


@both_ends
def blocked_reader_wakes(a, b):
    thread = threading.Thread(target=lambda: (time.sleep(0.1), b.send(b"now")))
    thread.start()
    call("recv", a.recv, 10)
    thread.join()


@both_ends
def blocked_reader_sees_end(a, b):
    thread = threading.Thread(target=lambda: (time.sleep(0.1), b.close()))
    thread.start()
    call("recv", a.recv, 10)
    thread.join()


@both_ends
def two_threads(a, b):
    """One reads while the other writes, on the same socket, both ways."""
    data = bytes(range(256)) * 4000
    results = []

    def read(sock, name):
        got = bytearray()
        while len(got) < len(data):
            got += sock.recv(70_000)
        results.append((name, bytes(got) == data))
    threads = [threading.Thread(target=read, args=(a, "a")), threading.Thread(target=read, args=(b, "b")),
               threading.Thread(target=a.sendall, args=(data,)),
               threading.Thread(target=b.sendall, args=(data,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    note("results", sorted(results))


# --- readiness ---


@both_ends
def poll_states(a, b):
    readiness("fresh", a)
    b.send(b"x")
    readiness("data", a)
    a.recv(1)
    readiness("read", a)
    b.shutdown(socket.SHUT_WR)
    readiness("half closed", a)
    a.shutdown(socket.SHUT_WR)
    readiness("closed both ways", a)


@each(read=0, write=1, both=2)
def select_call(which):
    a, b = pair()

    def ask(limit):
        r, w, x = select.select([a] if which != 1 else [], [a] if which != 0 else [], [a], limit)
        return (len(r), len(w), len(x))
    call("nothing", ask, 0)
    b.send(b"x")
    readiness("a", a)
    call("data", ask, 0)
    b.close()
    readiness("a", a)
    call("end", ask, 0)


def events_of(poller):
    return sorted(bits for _, bits in poller.poll(0.3))


@each(level=0, edge=select.EPOLLET, oneshot=select.EPOLLONESHOT)
def epoll(flag):
    a, b = pair()
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, select.EPOLLIN | select.EPOLLRDHUP | flag)
    note("nothing", events_of(poller))
    b.send(b"x")
    note("data", events_of(poller))
    note("again", events_of(poller))
    b.send(b"y")
    note("more", events_of(poller))
    call("recv", a.recv, 10)
    note("read", events_of(poller))
    call("recv", a.recv, 10)
    b.send(b"z")
    note("next", events_of(poller))
    poller.modify(a, select.EPOLLIN | select.EPOLLRDHUP | flag)
    note("armed again", events_of(poller))
    b.close()
    note("end", [bits & ~select.EPOLLHUP for bits in events_of(poller)])
    call("unregister", poller.unregister, a)
    call("unregister again", poller.unregister, a)


@both_ends
def epoll_before_connecting(_, __):
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.socket()
    a.setblocking(False)
    poller = select.epoll()
    call("connect", lambda: a.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS))
    poller.register(a, select.EPOLLIN | select.EPOLLOUT)
    b, _ = listener.accept()
    note("writable", [bits & select.EPOLLOUT for bits in events_of(poller)])
    call("SO_ERROR", a.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)
    a.send(b"x")
    call("recv", b.recv, 10)
    b.send(b"y")
    note("both", [bits & select.EPOLLIN for bits in events_of(poller)])
    call("recv", a.recv, 10)


@both_ends
def poll_time_limit(a, _):
    poller = select.poll()
    poller.register(a, IN)
    begin = time.monotonic()
    note("poll", len(poller.poll(200)))
    note("long enough", time.monotonic() - begin > 0.19)


# --- setting up ---


@each(v4=socket.AF_INET, v6=socket.AF_INET6)
def names(family):
    a, b = pair(family)
    note("a is b's peer", a.getsockname() == b.getpeername())
    note("b is a's peer", b.getsockname() == a.getpeername())
    note("family", (a.family == family, b.family == family))
    for level, option in ((socket.SOL_SOCKET, socket.SO_TYPE), (socket.SOL_SOCKET, socket.SO_DOMAIN),
                          (socket.SOL_SOCKET, socket.SO_PROTOCOL),
                          (socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
                          (socket.SOL_SOCKET, socket.SO_ERROR)):
        call(f"option {option}", a.getsockopt, level, option)


@scenario
def refused():
    probe = socket.create_server(("127.0.0.1", 0))
    address = probe.getsockname()
    probe.close()
    a = socket.socket()
    call("connect", a.connect, address)
    b = socket.socket()
    b.setblocking(False)
    note("connect_ex", errno.errorcode.get(b.connect_ex(address)))
    readiness("b", b)
    call("SO_ERROR", b.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)
    call("SO_ERROR", b.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)


@scenario
def not_connected():
    a = socket.socket()
    readiness("fresh", a)
    call("recv", a.recv, 1)
    call("send", a.send, b"x", socket.MSG_NOSIGNAL)
    call("shutdown", a.shutdown, socket.SHUT_RDWR)
    call("getpeername", a.getpeername)
    note("getsockname", a.getsockname())


@scenario
def listening():
    a = socket.create_server(("127.0.0.1", 0))
    readiness("fresh", a)
    call("recv", a.recv, 1)
    call("connect", a.connect, a.getsockname())
    a.setblocking(False)
    call("accept", a.accept)
    b = socket.socket()
    b.connect(a.getsockname())
    readiness("asked", a)
    c, name = a.accept()
    note("name", name == b.getsockname())
    note("blocking", bool(fcntl.fcntl(c, fcntl.F_GETFL) & os.O_NONBLOCK))
    call("SO_ACCEPTCONN", a.getsockopt, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@both_ends
def connected_already(a, b):
    call("connect", a.connect, b.getsockname())
    call("listen", a.listen)
    call("accept", a.accept)
    call("bind", a.bind, ("127.0.0.1", 0))


@both_ends
def bad_descriptor(a, _):
    number = a.fileno()
    a.close()
    call("read", os.read, number, 1)
    call("write", os.write, number, b"x")
    call("close", os.close, number)


@each(nodelay=(socket.IPPROTO_TCP, socket.TCP_NODELAY), keepalive=(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
      reuse=(socket.SOL_SOCKET, socket.SO_REUSEADDR), cork=(socket.IPPROTO_TCP, socket.TCP_CORK),
      idle=(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), quickack=(socket.IPPROTO_TCP, socket.TCP_QUICKACK),
      priority=(socket.SOL_SOCKET, socket.SO_PRIORITY), tos=(socket.IPPROTO_IP, socket.IP_TOS),
      user_timeout=(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), unknown=(socket.SOL_SOCKET, 9999),
      unknown_level=(7777, 1))
def option(which):
    a, _ = pair()
    call("set", a.setsockopt, *which, 1)
    call("get", a.getsockopt, *which)
    fresh = socket.socket()
    call("set on a fresh one", fresh.setsockopt, *which, 1)
    call("get on a fresh one", fresh.getsockopt, *which)


# --- numbers and processes ---


@both_ends
def duplicated(a, b):
    copy = a.dup()
    call("send", copy.send, b"one")
    a.close()
    call("send", copy.send, b"two")
    b.settimeout(5)
    got = b""
    while len(got) < 6:
        got += b.recv(10)
    note("got", got)
    copy.close()
    call("recv", b.recv, 10)


@both_ends
def moved(a, b):
    number = os.open("/dev/null", os.O_RDONLY)
    os.dup2(a.fileno(), number)
    a.close()
    call("write", os.write, number, b"moved")
    call("recv", b.recv, 10)
    os.close(number)
    call("recv", b.recv, 10)


@both_ends
def number_reused(a, b):
    number = a.fileno()
    a.close()
    call("recv", b.recv, 10)
    reader, writer = os.pipe()
    note("same number", number in (reader, writer))
    os.write(writer, b"pipe")
    call("read", os.read, reader, 10)


@both_ends
def child_writes(a, b):
    pid = os.fork()
    if pid == 0:
        a.send(b"from the child")
        os._exit(0)
    os.waitpid(pid, 0)
    call("recv", b.recv, 100)
    call("send", a.send, b"from the parent")
    call("recv", b.recv, 100)


@both_ends
def child_reads(a, b):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, a.recv(100))
        os._exit(0)
    call("send", b.send, b"to the child")
    call("read", os.read, reader, 100)
    os.waitpid(pid, 0)
    call("send", b.send, b"to the parent")
    call("recv", a.recv, 100)


@both_ends
def child_holds_it_open(a, b):
    hold, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        os.read(hold, 1)
        os._exit(0)
    os.close(hold)
    a.close()
    b.setblocking(False)
    time.sleep(0.1)
    call("recv while the child has it", b.recv, 1)
    os.close(release)
    os.waitpid(pid, 0)
    b.setblocking(True)
    call("recv", b.recv, 1)


@both_ends
def executed(a, b):
    """The child execs a program that writes to the socket as its standard output."""
    pid = os.fork()
    if pid == 0:
        os.dup2(a.fileno(), 1)
        os.execv("/bin/echo", ["echo", "hello"])
    os.waitpid(pid, 0)
    call("recv", b.recv, 100)


@both_ends
def all_closed(a, b):
    """A child that closes every descriptor it does not know, as daemons do."""
    pid = os.fork()
    if pid == 0:
        keep = a.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 65536)
        os.write(keep, b"after closing all")
        os._exit(0)
    os.waitpid(pid, 0)
    call("recv", b.recv, 100)


AT_ONCE = 4  # they wait most of the time


def begin(name):
    """A process of its own: what one leaves behind is not the next one's. (pid, its report)."""
    report = os.memfd_create(name)
    pid = os.fork()
    if pid != 0:
        return pid, report
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(30)
    try:
        SCENARIOS[name]()
    except Exception as error:  # a scenario reports, whatever happens
        note("raised", f"{type(error).__name__} {error}")
    os.pwrite(report, "".join(f"{name}: {line}\n" for line in LOG).encode(), 0)
    os._exit(0)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    waiting = list(sys.argv[1:] or SCENARIOS)
    running = {}
    reports = {}
    names = list(waiting)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            pid, report = begin(name)
            running[pid] = (name, report)
        pid, status = os.wait()
        name, report = running.pop(pid)
        reports[name] = os.pread(report, 1 << 20, 0).decode()
        os.close(report)
        if status != 0:
            reports[name] += f"{name}: ended with status {status}\n"
    for name in names:
        print(reports[name], end="")
    sys.stdout.flush()


if __name__ == "__main__":
    # As a module of this name for the other files, which enter their scenarios here.
    sys.modules["socket_scenarios"] = sys.modules["__main__"]
    import socket_scenarios_busy  # noqa: F401
    import socket_scenarios_calls  # noqa: F401
    import socket_scenarios_more  # noqa: F401

    main()
