"""More scenarios of socket_scenarios.py: calls that are seldom a program's first choice."""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import tempfile
import time

from socket_scenario import IN, OUT, both_ends, call, each, note, pair, readiness

LIBC = ctypes.CDLL(None, use_errno=True)
MSG_WAITFORONE = 0x10000
SIOCATMARK = 0x8905


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Message(ctypes.Structure):
    """struct mmsghdr"""
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.POINTER(Iovec)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("pad", ctypes.c_int), ("length", ctypes.c_uint32)]


def messages(*buffers):
    """An array of struct mmsghdr, one buffer each."""
    made = (Message * len(buffers))()
    for one, buffer in zip(made, buffers):
        one.parts = ctypes.pointer(Iovec(ctypes.cast(buffer, ctypes.c_void_p), len(buffer)))
        one.count = 1
    return made


def in_c(what, function, *arguments):
    """Notes what a call of the C library gave."""
    ctypes.set_errno(0)
    value = function(*arguments)
    note(what, value if value >= 0 else f"-1 {errno.errorcode[ctypes.get_errno()]}")
    return value


@both_ends
def several_messages(a, b):
    parts = [ctypes.create_string_buffer(text, len(text)) for text in (b"one", b"twotwo", b"3")]
    made = messages(*parts)
    in_c("sendmmsg", LIBC.sendmmsg, a.fileno(), made, 3, 0)
    note("lengths", [one.length for one in made])
    note("together", b.recv(10, socket.MSG_WAITALL))


@both_ends
def several_messages_received(a, b):
    a.sendall(b"0123456789")
    readiness("before", b)
    buffers = [ctypes.create_string_buffer(4) for _ in range(4)]
    made = messages(*buffers)
    count = in_c("recvmmsg", LIBC.recvmmsg, b.fileno(), made, 4, MSG_WAITFORONE, None)
    note("octets", [bytes(buffers[i].raw[:made[i].length]) for i in range(max(count, 0))])
    b.setblocking(False)
    call("what is left", b.recv, 10)


@both_ends
def messages_of_nobody(_, b):
    b.setblocking(False)
    made = messages(ctypes.create_string_buffer(4))
    in_c("recvmmsg", LIBC.recvmmsg, b.fileno(), made, 1, 0, None)
    in_c("none asked", LIBC.recvmmsg, b.fileno(), made, 0, 0, None)
    in_c("none sent", LIBC.sendmmsg, b.fileno(), made, 0, 0)


@both_ends
def splice_in(a, b):
    reader, writer = os.pipe()
    os.write(writer, b"through a pipe")
    call("splice", os.splice, reader, a.fileno(), 100)
    note("got", b.recv(14, socket.MSG_WAITALL))
    os.close(writer)
    call("empty pipe", os.splice, reader, a.fileno(), 100)


@both_ends
def sendfile_at_an_offset(a, b):
    with tempfile.TemporaryFile() as file:
        file.write(bytes(range(256)) * 400)
        file.flush()
        file.seek(5)
        call("sendfile", os.sendfile, a.fileno(), file.fileno(), 1000, 300)
        note("position", file.tell())
        note("got", b.recv(300, socket.MSG_WAITALL) == bytes((1000 + i) % 256 for i in range(300)))
        call("beyond the end", os.sendfile, a.fileno(), file.fileno(), 1 << 20, 10)
        call("from a socket", os.sendfile, a.fileno(), b.fileno(), 0, 10)


@both_ends
def sendfile_at_the_position(a, b):
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        call("sendfile", os.sendfile, a.fileno(), file.fileno(), None, 100)
        note("position", os.lseek(file.fileno(), 0, os.SEEK_CUR))
    note("got", b.recv(6, socket.MSG_WAITALL))


@both_ends
def what_files_can(a, _):
    call("lseek", os.lseek, a.fileno(), 0, os.SEEK_SET)
    call("pread", os.pread, a.fileno(), 1, 0)
    call("pwrite", os.pwrite, a.fileno(), b"x", 0)
    call("ftruncate", os.ftruncate, a.fileno(), 0)
    note("a socket", stat.S_ISSOCK(os.fstat(a.fileno()).st_mode))
    note("a terminal", os.isatty(a.fileno()))


@both_ends
def flags(a, _):
    note("access", fcntl.fcntl(a, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR)
    note("inherited", fcntl.fcntl(a, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)
    copy = fcntl.fcntl(a, fcntl.F_DUPFD_CLOEXEC, 50)
    note("copy", (copy >= 50, fcntl.fcntl(copy, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    fcntl.fcntl(copy, fcntl.F_SETFL, os.O_NONBLOCK)
    note("shared", fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK != 0)
    call("of both", a.recv, 1)


@both_ends
def urgent_mark(a, b):
    a.sendall(b"x")
    readiness("readable", b)
    call("at the mark", fcntl.ioctl, b, SIOCATMARK, struct.pack("i", 7))


@both_ends
def low_water(a, b):
    """SO_RCVLOWAT: neither poll nor recv is satisfied by less."""
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    note("option", b.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
    a.sendall(b"12345")
    readiness("with 5", b)
    a.sendall(b"67890")
    readiness("with 10", b)
    call("recv", b.recv, 100)


@both_ends
def on_a_connection(a, _):
    call("listen", a.listen, 5)
    call("bind", a.bind, ("127.0.0.1", 0))
    call("accept", a.accept)


@both_ends
def shut_twice(a, b):
    for how in socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR:
        call(f"shutdown {how}", a.shutdown, how)
    readiness("own", a)
    readiness("peer's", b)
    call("recv", a.recv, 10)
    call("peer's recv", b.recv, 10)
    call("peer's shutdown", b.shutdown, socket.SHUT_RDWR)
    readiness("own at the end", a)


@both_ends
def shut_for_reading_with_data(a, b):
    a.sendall(b"before")
    readiness("before", b)
    b.shutdown(socket.SHUT_RD)
    call("recv", b.recv, 100)
    call("recv", b.recv, 100)
    b.sendall(b"still")
    note("other way", a.recv(5, socket.MSG_WAITALL))


@both_ends
def polled_with_odd_numbers(a, b):
    a.sendall(b"x")
    poller = select.poll()
    poller.register(b, IN)
    poller.register(9999, IN)
    found = dict(poller.poll(5000))
    note("bad number", found.get(9999) == select.POLLNVAL)
    note("good one", found.get(b.fileno()) == IN)


@each(EPOLLONESHOT=select.EPOLLONESHOT, EPOLLET_ONESHOT=select.EPOLLET | select.EPOLLONESHOT)
def armed_again(flag):
    a, b = pair()
    poller = select.epoll()
    poller.register(b, select.EPOLLIN | flag)
    a.sendall(b"x")
    note("first", [e for _, e in poller.poll(5)])
    note("disarmed", poller.poll(0.1))
    poller.modify(b, select.EPOLLIN | flag)
    note("again", [e for _, e in poller.poll(5)])
    b.recv(10)
    poller.modify(b, select.EPOLLIN | select.EPOLLOUT | flag)
    note("room", [e for _, e in poller.poll(5)])


@both_ends
def all_closed_and_on(a, b):
    """A child closes every number it does not know, one by one, and then makes new connections."""
    pid = os.fork()
    if pid == 0:
        for fd in range(3, 1100):
            if fd != a.fileno():
                with contextlib.suppress(OSError):
                    os.close(fd)
        c, d = pair()
        c.sendall(b"by a new one")
        os.write(a.fileno(), d.recv(12, socket.MSG_WAITALL))
        os._exit(0)
    os.waitpid(pid, 0)
    call("recv", b.recv, 100)
    a.sendall(b"the parent's")
    call("recv", b.recv, 100)


@both_ends
def epoll_of_a_copy(a, b):
    """The copy stays a member when the first number is closed."""
    copy = b.dup()
    poller = select.epoll()
    poller.register(copy, select.EPOLLIN)
    b.close()
    a.sendall(b"x")
    note("events", [e for _, e in poller.poll(5)])
    note("data", copy.recv(5))
    a.close()
    note("end", [e & select.EPOLLIN for _, e in poller.poll(5)])


@both_ends
def linger_with_time(a, b):
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    a.sendall(b"last words" * 1000)
    a.close()
    got = b""
    while part := b.recv(4096):
        got += part
    note("all", len(got))


@each(IN=IN, OUT=OUT, both=IN | OUT, none=0)
def polled_when_reset(events):
    a, b = pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    poller = select.poll()
    poller.register(b, events)
    end = time.monotonic() + 5
    while not (found := poller.poll(100)) and time.monotonic() < end:
        pass
    note("bits", [bits for _, bits in found])


@both_ends
def error_of_a_reset(a, b):
    """SO_ERROR tells of it once, and then the calls do not."""
    a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    a.close()
    poller = select.poll()
    poller.register(b, IN)
    note("readable", len(poller.poll(5000)))
    time.sleep(0.2)
    for _ in range(2):
        note("error", b.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    readiness("afterwards", b)
    call("recv", b.recv, 10)
