"""More scenarios of socket_scenarios.py: busy loops of epoll, and what ends them. Under Weft the
sockets of such a loop are looked at in memory; nothing may be missed, and nothing told that is not
so."""

import fcntl
import os
import select
import signal
import socket
import threading
import time

from socket_scenario import IN, both_ends, call, note, pair, scenario

WAIT_S = 5  # for what has to come
SHORT_S = 0.1  # for what must not


def bits(poller, wait=WAIT_S):
    return sorted(found for _, found in poller.poll(wait))


def busy(a, b, mask=select.EPOLLIN, turns=20):
    """An instance that watches `a`, after some turns of a loop."""
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, mask)
    seen = set()
    for _ in range(turns):
        b.send(b"x")
        seen.add((tuple(bits(poller)), a.recv(10)))
    note("turns", seen)
    return poller


@both_ends
def busy_loop(a, b):
    poller = busy(a, b, turns=300)
    note("nothing", bits(poller, 0))
    note("nothing", bits(poller, SHORT_S))
    b.send(b"y")
    note("data", bits(poller, 0.5))
    note("still there", bits(poller, 0))
    call("recv", a.recv, 10)
    call("recv", a.recv, 10)
    note("nothing", bits(poller, 0))


@both_ends
def busy_loop_until_it_would_block(a, b):
    poller = busy(a, b)
    for _ in range(20):
        b.send(b"x")
        note("data", bits(poller))
        call("recv", a.recv, 10)
        call("recv", a.recv, 10)
    b.close()
    note("end", [found & IN for found in bits(poller)])
    call("recv", a.recv, 10)


@both_ends
def busy_loop_in_pieces(a, b):
    poller = busy(a, b)
    b.send(bytes(range(50)))
    got = []
    while bits(poller, SHORT_S):
        got.append(a.recv(7))
    note("got", got)


@both_ends
def busy_loop_that_modifies(a, b):
    """As programs do that ask for room whenever they have something to write."""
    poller = busy(a, b)
    seen = set()
    for _ in range(50):
        poller.modify(a, select.EPOLLIN | select.EPOLLOUT)
        found = bits(poller)
        a.send(b"request")
        poller.modify(a, select.EPOLLIN)
        nothing = bits(poller, 0)
        b.recv(100)
        b.send(b"answer")
        seen.add((tuple(found), tuple(nothing), tuple(bits(poller)), a.recv(100)))
    note("turns", seen)
    seen = set()
    for _ in range(50):
        poller.unregister(a)
        poller.register(a, select.EPOLLOUT)
        found = bits(poller)
        poller.modify(a, 0)
        b.send(b"answer")
        unasked = bits(poller, 0)
        poller.modify(a, select.EPOLLIN)
        seen.add((tuple(found), tuple(unasked), tuple(bits(poller)), a.recv(100)))
    note("turns", seen)
    call("register twice", poller.register, a, select.EPOLLIN)
    call("unregister", poller.unregister, a)
    call("unregister", poller.unregister, a)
    call("modify", poller.modify, a, select.EPOLLIN)
    b.send(b"z")
    note("not watched", bits(poller, SHORT_S))


@both_ends
def busy_loop_to_edges(a, b):
    poller = busy(a, b)
    poller.modify(a, select.EPOLLIN | select.EPOLLET)
    note("nothing", bits(poller, SHORT_S))
    for _ in range(3):
        b.send(b"x")
        note("edge", bits(poller))
        note("no edge", bits(poller, SHORT_S))
        call("recv", a.recv, 10)
        call("recv", a.recv, 10)
    b.send(b"x")
    poller.modify(a, select.EPOLLIN | select.EPOLLONESHOT)
    note("once", bits(poller))
    note("no more", bits(poller, SHORT_S))
    poller.modify(a, select.EPOLLIN)
    note("level", (bits(poller), bits(poller)))


@both_ends
def busy_loop_and_others(a, b):
    """Another descriptor of the instance is heard although the socket always has something."""
    poller = busy(a, b)
    reader, writer = os.pipe()
    poller.register(reader, select.EPOLLIN)
    os.write(writer, b"p")
    end = time.monotonic() + WAIT_S
    heard = both = False
    while not both and time.monotonic() < end:
        b.send(b"x")
        found = dict(poller.poll(WAIT_S, 1))
        heard = heard or reader in found
        if a.fileno() in found:
            a.recv(10)
            both = heard
    note("heard", both)


@both_ends
def busy_loop_ends(a, b):
    poller = busy(a, b, select.EPOLLIN | select.EPOLLRDHUP)
    b.send(b"last")
    b.shutdown(socket.SHUT_WR)
    time.sleep(SHORT_S)
    note("data and end", bits(poller))
    call("recv", a.recv, 10)
    note("end", bits(poller))
    call("recv", a.recv, 10)
    call("send", a.send, b"back")
    b.settimeout(WAIT_S)
    call("recv", b.recv, 10)


@both_ends
def busy_loop_is_reset(a, b):
    poller = busy(a, b)
    a.send(b"never read")
    time.sleep(SHORT_S)
    b.close()
    time.sleep(SHORT_S)
    note("reset", bits(poller))
    call("recv", a.recv, 10)


@scenario
def busy_loop_of_a_killed_peer():
    a, b = pair()
    pid = os.fork()
    if pid == 0:
        a.close()
        while True:
            b.send(b"x")
            b.recv(10)
    b.close()
    a.setblocking(False)
    poller = select.epoll()
    poller.register(a, select.EPOLLIN)
    for turn in range(100):
        bits(poller)
        a.recv(10)
        if turn < 99:
            a.send(b"y")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    note("end", [bit & IN for bit in bits(poller)])
    call("recv", a.recv, 10)


@both_ends
def busy_loop_inside_another(a, b):
    """The instance is waited for as a descriptor, by poll and by an outer instance."""
    inner = busy(a, b)
    outer = select.epoll()
    outer.register(inner, select.EPOLLIN)
    poller = select.poll()
    poller.register(inner, select.POLLIN)
    for _ in range(3):
        note("nothing", (bits(outer, 0), poller.poll(0)))
        later = threading.Timer(SHORT_S, b.send, (b"x",))
        later.start()
        note("outer", bits(outer))
        note("poll", len(poller.poll(WAIT_S * 1000)))
        note("inner", bits(inner))
        call("recv", a.recv, 10)
        later.join()


@both_ends
def busy_loop_inside_edges(a, b):
    """An outer instance is told of edges of the inner one, whose socket is read until EAGAIN."""
    a.setblocking(False)
    inner, outer = select.epoll(), select.epoll()
    inner.register(a, select.EPOLLIN)
    outer.register(inner, select.EPOLLIN | select.EPOLLET)
    seen = set()
    for _ in range(20):
        b.send(b"x")
        found = (tuple(bits(outer)), tuple(bits(inner)))
        got = a.recv(10)
        try:
            a.recv(10)
        except BlockingIOError:
            seen.add((found, got))
    note("turns", seen)
    outer.poll(0)  # what is left of the last edge
    thread = threading.Thread(target=lambda: (time.sleep(SHORT_S), b.send(b"y")))
    thread.start()
    note("edge", bits(outer))
    thread.join()


@both_ends
def busy_loop_then_signals(a, b):
    poller = busy(a, b)
    heard = []
    signal.signal(signal.SIGIO, lambda *_: heard.append(1))
    fcntl.fcntl(a, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    heard.clear()
    b.send(b"x")
    end = time.monotonic() + WAIT_S
    while not heard and time.monotonic() < end:
        time.sleep(0.01)
    note("heard", bool(heard))
    note("data", bits(poller))


@both_ends
def busy_loop_of_two_instances(a, b):
    one = busy(a, b)
    two = select.epoll()
    two.register(a, select.EPOLLIN)
    for _ in range(3):
        note("nothing", (bits(one, 0), bits(two, 0)))
        b.send(b"x")
        note("data", (bits(two), bits(one)))
        call("recv", a.recv, 10)
    two.close()
    b.send(b"x")
    note("data", bits(one))


@both_ends
def busy_loop_of_a_closed_instance(a, b):
    """The number of the instance comes back with another, which does not watch the socket."""
    poller = busy(a, b)
    number = poller.fileno()
    poller.close()
    poller = select.epoll()
    note("same number", poller.fileno() == number)
    b.send(b"x")
    note("not watched", bits(poller, SHORT_S))
    poller.register(a, select.EPOLLIN)
    note("watched", bits(poller))


@scenario
def busy_loop_of_a_closed_socket():
    """The number of the socket comes back with another connection."""
    lower = os.open("/dev/null", os.O_RDONLY)
    a, b = pair()
    poller = busy(a, b)
    b.send(b"x")
    number = a.fileno()
    a.close()
    os.close(lower)  # for the listener
    c, d = pair()
    note("same number", number in (c.fileno(), d.fileno()))
    c.send(b"c")
    d.send(b"d")
    note("not watched", bits(poller, SHORT_S))
    poller.register(c, select.EPOLLIN)
    poller.register(d, select.EPOLLIN)
    note("watched", bits(poller))
    note("data", (c.recv(10), d.recv(10)))
    note("nothing", bits(poller, SHORT_S))


@both_ends
def busy_loop_that_forks(a, b):
    poller = busy(a, b)
    b.send(b"for the child")
    pid = os.fork()
    if pid == 0:
        found = bits(poller)
        os._exit(0 if found == [IN] and a.recv(100) == b"for the child" else 1)
    note("child", os.waitpid(pid, 0)[1])
    note("nothing", bits(poller, SHORT_S))
    b.send(b"x")
    note("data", bits(poller))
    call("recv", a.recv, 10)


@both_ends
def busy_loop_of_two_threads(a, b):
    """One thread has been busy; then another waits, for the instance and for the socket."""
    poller = busy(a, b)
    for wait in (lambda: bits(poller), lambda: len(select.select([a], [], [], WAIT_S)[0])):
        found = []
        thread = threading.Thread(target=lambda w=wait, f=found: f.append(w()))
        thread.start()
        time.sleep(SHORT_S)
        b.send(b"x")
        thread.join()
        note("the other", found)
        note("this one", bits(poller))
        call("recv", a.recv, 10)
        note("nothing", bits(poller, 0))


@both_ends
def busy_loop_and_a_copy(a, b):
    poller = busy(a, b)
    copy = a.dup()
    b.send(b"x")
    note("data", bits(poller))
    call("recv", copy.recv, 10)
    note("nothing", bits(poller, SHORT_S))
    poller.register(copy, select.EPOLLIN)
    b.send(b"x")
    note("both", bits(poller))
    a.close()
    call("recv", copy.recv, 10)
    b.send(b"x")
    note("copy", IN in bits(poller))


@scenario
def busy_loop_of_many():
    """More sockets than the list has room for."""
    pairs = [pair() for _ in range(150)]
    poller = select.epoll()
    for a, _ in pairs:
        a.setblocking(False)
        poller.register(a, select.EPOLLIN)
    by_number = {a.fileno(): a for a, _ in pairs}
    for turn in range(5):
        for _, b in pairs:
            b.send(b"x")
        got = 0
        while got < len(pairs):
            found = poller.poll(WAIT_S, 20)
            if not found:
                break
            for number, _ in found:
                got += len(by_number[number].recv(10))
        note(f"turn {turn}", got)
    note("nothing", bits(poller, 0))


@scenario
def busy_loop_as_many_leave():
    """Some sockets of the loop are closed by this end, some by the other, in each turn: the others
    are told once each."""
    pairs = [pair() for _ in range(60)]
    poller = select.epoll()
    for a, _ in pairs:
        a.setblocking(False)
        poller.register(a, select.EPOLLIN)
    turn = doubled = missed = 0
    while len(pairs) > 10:
        for _, b in pairs:
            b.send(b"x")
        waiting = {a.fileno(): a for a, _ in pairs}
        while waiting:
            found = [number for number, _ in poller.poll(WAIT_S)]
            doubled += len(found) - len(set(found))
            if not set(found) & set(waiting):
                missed += len(waiting)
                break
            for number in found:
                if number in waiting:
                    waiting.pop(number).recv(10)
        turn += 1
        for mine, other in pairs[turn % 3::9]:
            poller.unregister(mine)
            mine.close()
            other.close()
        pairs = [one for one in pairs if one[0].fileno() >= 0]
    note("told twice", doubled)
    note("not told", missed)


@both_ends
def busy_loop_with_a_limit(a, b):
    poller = busy(a, b)
    begin = time.monotonic()
    note("nothing", bits(poller, 0.3))
    note("waited", 0.25 < time.monotonic() - begin < 3)
