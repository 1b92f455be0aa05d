"""Scenarios of socket_scenarios.py: descriptors that are copied, and processes that share them."""

import ctypes
import fcntl
import os
import socket
import threading
import time

from socket_scenario import both_ends, call, each, note, pair, readiness


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


LIBC = ctypes.CDLL(None)
CHILD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
SIGCHLD = 17


def fork_by_clone(child):
    stack = ctypes.create_string_buffer(1 << 20)
    top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15)
    # It returns in the child as fork does, but on another stack.
    run = CHILD(lambda _: child() or 0)
    return LIBC.clone(run, top, SIGCHLD, None)


def fork_without_handlers(child):
    pid = LIBC._Fork()
    if pid == 0:
        child()
        os._exit(0)
    return pid


@each(clone=fork_by_clone, fork=fork_without_handlers)
def child_by_another_call(fork):
    """No handler of pthread_atfork() runs, and parent and child use the socket at once."""
    a, b = pair()
    for _ in range(50):
        b.send(b"before")
        a.recv(6)

    def talk(octet):
        for _ in range(2000):
            a.sendall(octet * 100)

    pid = fork(lambda: talk(b"c"))
    thread = threading.Thread(target=talk, args=(b"p",))
    thread.start()
    got = b""
    b.settimeout(5)
    while len(got) < 400000:
        got += b.recv(1000)
    os.waitpid(pid, 0)
    thread.join()
    note("octets", [got.count(b"c"), got.count(b"p")])
    call("send", a.send, b"behind it")
    call("recv", b.recv, 100)


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
