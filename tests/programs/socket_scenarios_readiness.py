"""Scenarios of socket_scenarios.py: poll, select, epoll."""

import errno
import os
import select
import socket
import threading
import time

from socket_scenario import IN, RDHUP, both_ends, call, each, note, pair, readiness


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
