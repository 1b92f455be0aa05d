"""Scenarios of socket_scenarios.py: how connections end."""

import ctypes
import os
import signal
import socket
import struct
import time

from socket_scenario import both_ends, call, each, note, pair, readiness


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


@both_ends
def connects_anew(a, b):
    """Leaves its peer by AF_UNSPEC, and has another one on the same number."""
    for _ in range(50):
        a.send(b"to the first")
        b.recv(100)
        b.send(b"back")
        a.recv(100)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = ctypes.create_string_buffer(struct.pack("H14x", socket.AF_UNSPEC))
        left = ctypes.CDLL(None).connect(a.fileno(), nowhere, 16)
        a.connect(listener.getsockname())
        a.send(b"to the second")
        call("first", b.recv, 100)
        note("left", left)
        second, _ = listener.accept()
    second.settimeout(5)
    a.settimeout(5)
    call("second", second.recv, 100)
    for i in range(50):
        call("send", a.send, b"to the second %d" % i)
        call("second", second.recv, 100)
        call("answer", second.send, b"answer %d" % i)
        call("recv", a.recv, 100)
