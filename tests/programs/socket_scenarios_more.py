"""More scenarios of socket_scenarios.py: waiting for all, edges, copies, processes, set-up."""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time

from socket_scenarios import (IN, RDHUP, both_ends, call, each, events_of, note, pair, readiness,
                              scenario)

# --- more of what programs ask for ---


@both_ends
def sending_urgent_data(a, b):
    """The kernel sends it; Weft refuses (docs/sockets.md). Neither mixes it with other octets."""
    try:
        a.send(b"!", socket.MSG_OOB)
    except OSError as error:
        check_refused(error)
    a.send(b"in line")
    readiness_of = select.select([b], [], [], 5)[0]
    note("readable", len(readiness_of))
    call("recv", b.recv, 100)


def check_refused(error):
    if error.errno != errno.EOPNOTSUPP:
        note("sending urgent data", errno.errorcode[error.errno])


@both_ends
def more_to_come(a, b):
    call("send MSG_MORE", a.send, b"ab", socket.MSG_MORE)
    call("send", a.send, b"cd")
    b.settimeout(5)
    got = b""
    while len(got) < 4:
        got += b.recv(10)
    note("got", got)


@both_ends
def corked(a, b):
    a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    for part in b"a", b"b", b"c":
        call("send", a.send, part)
    a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    b.settimeout(5)
    got = b""
    while len(got) < 3:
        got += b.recv(10)
    note("got", got)


@both_ends
def peek_for_all(a, b):
    a.send(b"abc")
    readiness("b", b)
    call("recv 2 PEEK|WAITALL", b.recv, 2, socket.MSG_PEEK | socket.MSG_WAITALL)
    call("recv all", b.recv, 3, socket.MSG_WAITALL)


@both_ends
def wait_for_all_and_an_end(a, b):
    a.send(b"abc")
    a.shutdown(socket.SHUT_WR)
    call("recv 10", b.recv, 10, socket.MSG_WAITALL)
    call("recv 10", b.recv, 10, socket.MSG_WAITALL)


@both_ends
def wait_for_all_and_a_time_limit(a, b):
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
    a.send(b"abc")
    call("recv 10", b.recv, 10, socket.MSG_WAITALL)
    call("recv 10", b.recv, 10, socket.MSG_WAITALL)


@both_ends
def many_vectors(a, b):
    parts = [bytes([i % 251]) * (i % 7) for i in range(1000)]
    call("writev", os.writev, a.fileno(), parts)
    want = b"".join(parts)
    got = bytearray()
    while len(got) < len(want):
        rooms = [bytearray(1 + i % 5) for i in range(50)]
        n = os.readv(b.fileno(), rooms)
        got += b"".join(rooms)[:n]
    note("equal", bytes(got) == want)
    call("writev of too many", os.writev, a.fileno(), [b"x"] * 1025)
    call("readv of too many", os.readv, b.fileno(), [bytearray(1)] * 1025)


@both_ends
def messages_with_flags(a, b):
    a.send(b"abcdef")
    readiness("b", b)
    for flags in socket.MSG_PEEK, socket.MSG_TRUNC, 0, socket.MSG_DONTWAIT:
        try:
            data, control, got, _ = b.recvmsg(2, 64, flags)
            note(f"recvmsg {flags}", (len(data), control, got & ~socket.MSG_TRUNC))
        except OSError as error:
            note(f"recvmsg {flags}", errno.errorcode[error.errno])


@both_ends
def bad_addresses(a, b):
    """Memory that is not there: the call says EFAULT or what came first, and nothing dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.send.argtypes = libc.recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    note("send 0 of null", libc.send(a.fileno(), None, 0, 0))
    note("recv 0 of null", libc.recv(b.fileno(), None, 0, socket.MSG_DONTWAIT))


@both_ends
def end_while_polling(a, b):
    poller = select.poll()
    poller.register(a, IN | RDHUP)
    thread = threading.Thread(target=lambda: (time.sleep(0.1), b.close()))
    thread.start()
    note("poll", [bits & (IN | RDHUP) for _, bits in poller.poll(5000)])
    thread.join()
    call("recv", a.recv, 1)


@both_ends
def data_while_polling(a, b):
    poller = select.poll()
    poller.register(a, IN)
    thread = threading.Thread(target=lambda: (time.sleep(0.1), b.send(b"x")))
    thread.start()
    note("poll", [bits for _, bits in poller.poll(5000)])
    thread.join()
    note("again", [bits for _, bits in poller.poll(0)])
    call("recv", a.recv, 1)
    note("empty", [bits for _, bits in poller.poll(0)])


@both_ends
def poll_of_several(a, b):
    """A socket, a pipe, a closed number and a negative one, in one call."""
    reader, writer = os.pipe()
    poller = select.poll()
    for one in a.fileno(), reader:
        poller.register(one, IN)
    note("nothing", poller.poll(0))
    os.write(writer, b"x")
    note("pipe", [bits for _, bits in poller.poll(1000)])
    b.send(b"y")
    readiness("a", a)
    note("both", sorted(bits for _, bits in poller.poll(1000)))
    poller.register(writer + 100, IN)
    note("closed", sorted(bits for _, bits in poller.poll(1000)))


@both_ends
def poll_for_nothing(a, b):
    """No bits asked for: only an end is told."""
    poller = select.poll()
    poller.register(a, 0)
    b.send(b"x")
    readiness("a", a)
    note("data", poller.poll(0))


@both_ends
def epoll_twice(a, b):
    """Two instances, one of them nested in a third."""
    one, two, outer = select.epoll(), select.epoll(), select.epoll()
    one.register(a, select.EPOLLIN)
    two.register(a, select.EPOLLIN)
    outer.register(two, select.EPOLLIN)
    note("nothing", (events_of(one), events_of(outer)))
    b.send(b"x")
    note("data", (events_of(one), events_of(two), events_of(outer)))
    a.recv(1)
    note("read", (events_of(one), events_of(two), events_of(outer)))
    call("register again", one.register, a, select.EPOLLIN)


@both_ends
def epoll_for_writing(a, b):
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, select.EPOLLOUT)
    note("room", events_of(poller))
    poller.modify(a, select.EPOLLIN)
    note("not asked", events_of(poller))
    b.send(b"x")
    note("data", events_of(poller))
    poller.modify(a, select.EPOLLIN | select.EPOLLOUT)
    note("both", events_of(poller))


@both_ends
def edge_for_room(a, b):
    """EPOLLET | EPOLLOUT: full, then read empty by the other side."""
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, select.EPOLLOUT | select.EPOLLET)
    note("at first", events_of(poller))
    total = 0
    for _ in range(3):
        try:
            while True:
                total += a.send(b"x" * 50_000)
        except BlockingIOError:
            time.sleep(0.1)
    poller.poll(0)  # what moved on meanwhile
    got = 0
    while got < total:
        got += len(b.recv(1 << 20))
    note("room again", events_of(poller))
    call("send", a.send, b"y")


@both_ends
def edges_by_the_thousand(a, b):
    """A reader that waits for edges only, and small octets without pause: none may be lost."""
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, select.EPOLLIN | select.EPOLLET)
    def send():
        for i in range(3000):
            b.send(b"z" * (1 + i % 3))
    thread = threading.Thread(target=send)
    thread.start()
    got = 0
    while got < 6000:
        try:
            got += len(a.recv(64))
        except BlockingIOError:
            if not poller.poll(10):
                break
    thread.join()
    note("got", got)


@both_ends
def closed_in_epoll(a, b):
    """A number that is closed leaves the instance; the next socket with it is not watched."""
    poller = select.epoll()
    poller.register(a, select.EPOLLIN)
    b.send(b"x")
    note("data", len(events_of(poller)))
    a.close()
    note("closed", events_of(poller))


@both_ends
def select_time_limit(a, _):
    begin = time.monotonic()
    note("select", [len(part) for part in select.select([a], [], [a], 0.2)])
    note("long enough", time.monotonic() - begin > 0.19)


@both_ends
def signal_for_input(a, b):
    """O_ASYNC: a signal when there is something."""
    seen = []
    signal.signal(signal.SIGIO, lambda *_: seen.append(1))
    fcntl.fcntl(a, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_ASYNC)
    b.send(b"x")
    end = time.monotonic() + 5
    while not seen and time.monotonic() < end:
        time.sleep(0.01)
    note("signal", bool(seen))
    signal.signal(signal.SIGIO, signal.SIG_IGN)


@each(linger=(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5)),
      receive_limit=(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0)),
      send_limit=(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 3, 0)))
def wide_option(which):
    level, name, value = which
    a, b = pair()
    for one in a, b:
        call("set", one.setsockopt, level, name, value)
        call("get", one.getsockopt, level, name, len(value))
        call("set a short one", one.setsockopt, level, name, b"x")


@each(info=(socket.IPPROTO_TCP, socket.TCP_INFO), congestion=(socket.IPPROTO_TCP, 13),
      fastopen=(socket.IPPROTO_TCP, socket.TCP_FASTOPEN), incoming=(socket.SOL_SOCKET, 49))
def option_that_is_read(which):
    a, b = pair()
    for one in a, b:
        try:
            note("octets", len(one.getsockopt(*which, 64)) > 0)
        except OSError as error:
            note("octets", errno.errorcode[error.errno])


@each(raw=b"\x01", text=b"yes")
def buffer_sizes(_):
    a, b = pair()
    for name in socket.SO_RCVBUF, socket.SO_SNDBUF:
        a.setsockopt(socket.SOL_SOCKET, name, 20_000)
        call("size", a.getsockopt, socket.SOL_SOCKET, name)
    a.send(b"x" * 1000)
    note("got", len(b.recv(2000)))


@both_ends
def duplicated_over(a, b):
    """dup2 over the only number of a connection: the peer sees its end."""
    c, d = pair()
    os.dup2(c.fileno(), a.fileno())
    call("recv of the one that is gone", b.recv, 10)
    call("write", os.write, a.fileno(), b"by the other")
    call("recv", d.recv, 100)
    c.close()
    os.write(a.fileno(), b"!")
    call("recv", d.recv, 100)


@both_ends
def duplicated_with_flags(a, b):
    number = fcntl.fcntl(a, fcntl.F_DUPFD_CLOEXEC, 100)
    note("number", number >= 100)
    note("close-on-exec", bool(fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    a.setblocking(False)
    note("shared flag", bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK))
    call("write", os.write, number, b"copy")
    readiness("b", b)
    call("recv", b.recv, 10)
    os.close(number)
    b.send(b"still")
    readiness("a", a)
    call("recv", a.recv, 10)


@both_ends
def range_closed(a, b):
    """close_range over the connection; the peer sees its end."""
    number = a.detach()
    os.closerange(number, number + 1)
    call("recv", b.recv, 10)
    call("read", os.read, number, 1)


@both_ends
def both_processes_write(a, b):
    pid = os.fork()
    if pid == 0:
        for _ in range(200):
            a.sendall(b"c" * 100)
        os._exit(0)
    for _ in range(200):
        a.sendall(b"p" * 100)
    os.waitpid(pid, 0)
    a.shutdown(socket.SHUT_WR)
    got = b""
    while part := b.recv(65536):
        got += part
    note("got", (got.count(b"c"), got.count(b"p")))
    # A write of a stream is whole, as long as it fits.
    note("whole", all(len(set(got[i:i + 100])) == 1 for i in range(0, len(got), 100)))


@both_ends
def child_shuts_down(a, b):
    """SHUT_WR in one process is for all that share the socket."""
    pid = os.fork()
    if pid == 0:
        a.shutdown(socket.SHUT_WR)
        os._exit(0)
    os.waitpid(pid, 0)
    call("send", a.send, b"x", socket.MSG_NOSIGNAL)
    call("recv", b.recv, 10)
    b.send(b"back")
    call("recv", a.recv, 10)


@both_ends
def executed_reader(a, b):
    """A program that reads the socket as its standard input until it ends."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(a.fileno(), 0)
        os.dup2(writer, 1)
        os.execv("/bin/cat", ["cat"])
    a.close()
    os.close(writer)
    call("send", b.sendall, b"for the program" * 1000)
    b.shutdown(socket.SHUT_WR)
    got = b""
    while part := os.read(reader, 65536):
        got += part
    os.waitpid(pid, 0)
    note("equal", got == b"for the program" * 1000)


@scenario
def connecting_without_waiting():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.socket()
    a.setblocking(False)
    result = a.connect_ex(listener.getsockname())
    note("connect", result in (0, errno.EINPROGRESS))
    note("writable", len(select.select([], [a], [], 5)[1]))
    call("SO_ERROR", a.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)
    note("again", errno.errorcode.get(a.connect_ex(listener.getsockname()), 0) in (0, "EISCONN"))
    b, _ = listener.accept()
    call("peer", lambda: a.getpeername() == listener.getsockname())
    call("send", a.send, b"x")
    call("recv", b.recv, 1)


@scenario
def server_speaks_first():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    call("send", b.send, b"welcome")
    call("recv", a.recv, 100)
    call("send", a.send, b"hello")
    call("recv", b.recv, 100)


@scenario
def nobody_speaks():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    readiness("a", a)
    readiness("b", b)
    a.close()
    call("recv", b.recv, 10)


@scenario
def many_at_once():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(40)]
    for i, one in enumerate(clients):
        one.send(bytes([i]))
    servers = [listener.accept()[0] for _ in clients]
    note("got", sorted(one.recv(1)[0] for one in servers) == list(range(40)))
    for one in servers:
        one.send(b"ok")
    note("answers", {one.recv(2) for one in clients})


@scenario
def listener_closes_first():
    """Connections that were accepted go on; one that was not is reset."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    a = socket.create_connection(address)
    b, _ = listener.accept()
    listener.close()
    call("send", a.send, b"x")
    call("recv", b.recv, 1)
    call("connect", socket.socket().connect, address)


@scenario
def bound_client():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.socket()
    a.bind(("127.0.0.1", 0))
    mine = a.getsockname()
    a.connect(listener.getsockname())
    b, name = listener.accept()
    note("same name", name == mine == b.getpeername() == a.getsockname())


@both_ends
def passed_on(a, b):
    one, two = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _, fds, _, _ = socket.recv_fds(two, 10, 1)
        os.write(fds[0], b"by the receiver")
        os._exit(0)
    socket.send_fds(one, [b"x"], [a.fileno()])
    a.close()
    os.waitpid(pid, 0)
    b.settimeout(5)
    call("recv", b.recv, 100)
    call("recv", b.recv, 100)


@both_ends
def as_a_file(a, b):
    """stdio of the C library, whose reads and writes are its own."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    stream = libc.fdopen(a.fileno(), b"r+")
    libc.fputs(b"a line\n", ctypes.c_void_p(stream))
    libc.fflush(ctypes.c_void_p(stream))
    b.settimeout(5)
    call("recv", b.recv, 100)
