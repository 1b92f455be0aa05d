"""The words that scenarios of socket calls are written in: call() notes a value or errno, and
a scenario enters itself in SCENARIOS. socket_scenarios.py runs them."""

import errno
import select
import socket
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
