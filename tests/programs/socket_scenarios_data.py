"""Scenarios of socket_scenarios.py: data in every form that calls move it."""

import array
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time

from socket_scenario import both_ends, call, each, note, pair, readiness


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
