"""Scenarios of socket_scenarios.py: setting up connections, names, options."""

import errno
import fcntl
import os
import select
import socket
import struct

from socket_scenario import both_ends, call, each, note, pair, readiness, scenario


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
