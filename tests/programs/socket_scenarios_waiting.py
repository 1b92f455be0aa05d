"""Scenarios of socket_scenarios.py: calls that wait, time limits, signals."""

import errno
import fcntl
import os
import signal
import socket
import struct
import threading
import time

from socket_scenario import both_ends, call, note, readiness


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
