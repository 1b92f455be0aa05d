#!/usr/bin/env python3
"""What a hostile or unlucky peer can say to an rsocket, octet by octet: the hazards H1 to H10 of
the protocol (src/rsockets/rs_wire.h). After each the same server still serves a peer that keeps the
rules."""

import contextlib
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from crc32c import crc32c

from harness import Failure, check, free_port, main

# An rsocket server in a language that needs no compiler: it says what each connection came to.
SERVER = """
import ctypes, os, socket, struct, sys
lib = ctypes.CDLL('librdmacm.so.1', use_errno=True)
def must(n):
    if n < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return n
def say(text): print(text, flush=True)
def address(port): return struct.pack('=HH', socket.AF_INET, socket.htons(port)) + socket.inet_aton('127.0.0.1') + bytes(8)
listener = must(lib.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0))
one = ctypes.c_int(1)
must(lib.rsetsockopt(listener, socket.SOL_SOCKET, socket.SO_REUSEADDR, ctypes.byref(one), 4))
iomap = ctypes.c_int(4)
must(lib.rsetsockopt(listener, 0x10000, 3, ctypes.byref(iomap), 4))
if len(sys.argv) > 2:
    inline = ctypes.c_int(int(sys.argv[2])); size = ctypes.c_uint(4)
    must(lib.rsetsockopt(listener, 0x10000, 2, ctypes.byref(inline), 4))
    must(lib.rgetsockopt(listener, 0x10000, 2, ctypes.byref(inline), ctypes.byref(size)))
    say(f'inline {inline.value}')
must(lib.rbind(listener, address(int(sys.argv[1])), 16))
must(lib.rlisten(listener, 64))
say('listening')
buffer = ctypes.create_string_buffer(1 << 20)
while True:
    fd = must(lib.raccept(listener, None, None))
    data = b''
    while True:
        n = lib.rrecv(fd, buffer, len(buffer), 0)
        if n <= 0: break
        data += buffer.raw[:n]
        if data.startswith(b'echo') and lib.rsend(fd, buffer, n, 0) < 0: break
    error = os.strerror(ctypes.get_errno()) if n < 0 else 'end'
    say(f'{len(data)} octets, {error}')
    lib.rclose(fd)
"""

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
DATA, CREDIT, IOMAP, GOODBYE, SHUTDOWN = 0, 4 << 29, 6 << 29, 0xE0000000, 0xE0000002
SGL, RING, KEY = 0x1000, 0x9000, 0x77


def private_data(version=1, flags=2, credits=384, count=2, ring=65536, size=40):
    return (struct.pack(">BBH3xB", version, flags, credits, 0)
            + struct.pack(">QII", SGL, KEY, count) + struct.pack(">QII", RING, KEY, ring))[:size]


class Peer:
    """A peer that says what it is told to, over a plain TCP socket."""

    def __init__(self, port, **private):
        self.link = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.msn = 0
        data = private_data(**private)
        self.link.sendall(REQUEST + struct.pack(">BBH", 0x40, 1, len(data)) + data)

    def take(self, count):
        got = b""
        while len(got) < count:
            part = self.link.recv(count - len(got))
            if not part:
                raise EOFError
            got += part
        return got

    def accepted(self):
        """The server's Reply: where it lets us write."""
        head = self.take(20)
        check(head[:16] == REPLY, f"no Reply: {head!r}")
        data = self.take(struct.unpack(">H", head[18:20])[0])
        check(not head[16] & 0x20, "rejected")
        self.sgl, self.sgl_key, _ = struct.unpack(">QII", data[8:24])
        self.ring, self.ring_key, self.half = struct.unpack(">QII", data[24:40])
        self.credits = struct.unpack(">H", data[2:4])[0]
        return self

    def rejected(self):
        head = self.take(20)
        return head[:16] == REPLY and bool(head[16] & 0x20)

    def fpdu(self, ulpdu):
        body = struct.pack(">H", len(ulpdu)) + ulpdu
        body += bytes(-len(body) % 4)
        return body + struct.pack("<I", crc32c(body))

    def write(self, key, at, data):
        return self.fpdu(struct.pack(">BBIQ", 0xC1, 0x40, key, at) + data)

    def message(self, word, octets=4):
        self.msn += 1
        return self.fpdu(struct.pack(">BBIIII", 0x41, 0x43, 0, 0, self.msn, 0)
                         + struct.pack("<I", word).ljust(octets, b"\0")[:octets])

    def say(self, *parts):
        with contextlib.suppress(ConnectionError):
            self.link.sendall(b"".join(parts))

    def data(self, data, at=0):
        return self.write(self.ring_key, self.ring + at, data), self.message(DATA | len(data))

    def next_fpdu(self):
        length = struct.unpack(">H", self.take(2))[0]
        rest = self.take(length + -(length + 2) % 4 + 4)
        return rest[:length]

    def written(self, wanted, seconds=20):
        """What the server writes to us, until `wanted` octets have come to our ring."""
        self.link.settimeout(seconds)
        got = b""
        while len(got) < wanted:
            ulpdu = self.next_fpdu()
            if ulpdu[1] & 0xF == 0 and struct.unpack(">Q", ulpdu[6:14])[0] >= RING:
                got += ulpdu[14:]
        return got


class Server:
    def __init__(self, network, *options):
        self.port = free_port()
        self.process = network.start(["/usr/bin/python3", "-c", SERVER, self.port,
                                      *options]).wait_for("listening")
        self.seen = 0

    def verdicts(self):
        return [line for line in self.process.output().splitlines() if " octets, " in line]

    def verdict(self):
        """What the server says of the connection that ended last."""
        end = time.monotonic() + 20
        while len(self.verdicts()) <= self.seen:
            check(self.process.popen.poll() is None and time.monotonic() < end,
                  f"the server says nothing\n{self.process.tail()}")
            time.sleep(0.02)
        self.seen += 1
        return self.verdicts()[self.seen - 1]

    def serves(self):
        """A peer that keeps the rules gets its echo and a clean end."""
        peer = Peer(self.port).accepted()
        peer.say(*peer.data(b"echo, please"))
        check(peer.written(12) == b"echo, please", "the echo differs")
        peer.say(peer.message(GOODBYE))
        verdict = self.verdict()
        check(verdict == "12 octets, end", verdict)
        peer.link.close()

    def expects(self, what, peer, *parts, octets=0, error="Connection reset by peer"):
        peer.say(*parts)
        verdict = self.verdict()
        check(verdict == f"{octets} octets, {error}", f"{what}: {verdict}")
        peer.link.close()


def good_manners(network):
    Server(network).serves()


def private_data_is_checked(network):
    """H2, H4: other byte order, too short, another version, no entry, no credit."""
    server = Server(network)
    cases = {"no private data": {"size": 0}, "10 octets": {"size": 10}, "39 octets": {"size": 39},
             "version 2": {"version": 2}, "big-endian": {"flags": 3}, "no SGL entry": {"count": 0},
             "no credit": {"credits": 0}}
    for name, private in cases.items():
        peer = Peer(server.port, **private)
        try:
            check(peer.rejected(), f"{name}: accepted")
        except (EOFError, ConnectionError):
            raise Failure(f"{name}: no Reply") from None
        peer.link.close()
    server.serves()


def messages_are_checked(network):
    """H5, H7: lengths, operations and codes that rdma-core believes."""
    server = Server(network)
    half = Peer(server.port).accepted()
    size = half.half
    half.say(half.message(GOODBYE))
    check(server.verdict() == "0 octets, end", "the first peer")
    cases = {"DATA of nothing": DATA, "DATA beyond what was offered": DATA | (2 * size + 1),
             "largest DATA": (1 << 29) - 1, "operation 1": 1 << 29 | 4, "operation 3": 3 << 29,
             "operation 5": 5 << 29 | 1, "control code 1": 0xE0000001, "control code 9": 0xE0000009}
    for name, word in cases.items():
        peer = Peer(server.port).accepted()
        server.expects(name, peer, peer.message(word))
    for octets in 0, 3, 8:
        peer = Peer(server.port).accepted()
        server.expects(f"message of {octets} octets", peer, peer.message(DATA | 4, octets))
    peer = Peer(server.port).accepted()
    server.expects("DATA after the end", peer, *peer.data(b"abc"), peer.message(SHUTDOWN),
                   peer.message(DATA | 1), octets=3, error="end")
    server.serves()


def credits_are_kept(network):
    """H1: as many messages as there are credits, and a goodbye on top, in one go."""
    server = Server(network)
    peer = Peer(server.port).accepted()
    check(peer.credits == 384, f"{peer.credits} credits")
    parts = [part for i in range(peer.credits) for part in peer.data(b"x", i)]
    server.expects("all credits", peer, *parts, peer.message(GOODBYE), octets=384, error="end")
    server.serves()


def iomap_messages_cost_nothing(network):
    """H6: more of them than there are credits, as credits come back."""
    server = Server(network)
    peer = Peer(server.port).accepted()
    for turn in range(10):
        peer.say(*[peer.message(IOMAP) for _ in range(100)], *peer.data(b"echo", turn * 4))
        check(peer.written(4) == b"echo", "the echo differs")
    server.expects("iomap", peer, peer.message(GOODBYE), octets=40, error="end")
    server.serves()


def target_counts_when_announced(network):
    """H3: a target that is written but not announced is not used, whatever it holds."""
    server = Server(network)
    peer = Peer(server.port, ring=10).accepted()
    peer.say(*peer.data(b"echo of twenty octet"))
    check(peer.written(10) == b"echo of tw", "the first part differs")
    peer.say(peer.write(peer.sgl_key, peer.sgl + 16, struct.pack("<QII", RING + 99, 0xBAD, 0xFFFFFFFF)))
    try:
        more = peer.written(1, seconds=0.5)
        raise Failure(f"{more!r} went to a target that was not announced")
    except TimeoutError:
        pass
    peer.say(peer.write(peer.sgl_key, peer.sgl + 16, struct.pack("<QII", RING + 10, KEY, 500)),
             peer.message(CREDIT | 400))
    check(peer.written(10) == b"enty octet", "the second part differs")
    server.expects("goodbye", peer, peer.message(GOODBYE), octets=20, error="end")
    server.serves()


def unmapped_memory_is_safe(network):
    """H9: a Write to memory that was never offered, and around what was."""
    server = Server(network)
    for name, key, at in (("unknown STag", 0x666600, 0), ("before the ring", None, -1),
                          ("behind the ring", None, 1 << 30)):
        peer = Peer(server.port).accepted()
        part = peer.write(peer.ring_key if key is None else key, (peer.ring + at) % (1 << 64), b"x")
        server.expects(name, peer, part)
    server.serves()


def inline_of_nothing(network):
    """H8: RDMA_INLINE 0 or far too much; messages, targets and data still go."""
    for asked in 0, 1, 1 << 30:
        server = Server(network, asked)
        given = int(server.process.output().split("inline ")[1].split()[0])
        check(24 <= given <= 4096, f"RDMA_INLINE {asked} became {given}")
        peer = Peer(server.port).accepted()
        # Enough that the server has to offer its ring once more, and small and large answers.
        answers = b""
        for turn, size in enumerate((1, 4, 24, 25, 64, 65, 2000, 30_000)):
            data = (b"echo" if not turn else b"") + bytes([65 + turn]) * size
            peer.say(*peer.data(data, len(answers)))
            check(peer.written(len(data)) == data, f"RDMA_INLINE {asked}: {size} octets differ")
            answers += data
        server.expects("goodbye", peer, peer.message(GOODBYE), octets=len(answers), error="end")
        server.serves()
        server.process.end()


def slow_clients_delay_nobody(network):
    """H10: clients that send the key, or half of it, and then nothing."""
    server = Server(network)
    slow = []
    for octets in 0, 5, 16, 20, 40:
        link = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        data = private_data()
        link.sendall((REQUEST + struct.pack(">BBH", 0x40, 1, len(data)) + data)[:octets])
        slow.append(link)
    server.serves()
    for link in slow:
        link.close()
    server.serves()


def nonsense(network):
    server = Server(network)
    for data in b"GET / HTTP/1.0\r\n\r\n", bytes(200), os.urandom(300), REQUEST + b"\xff" * 100:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
            link.sendall(data)
    server.serves()


if __name__ == "__main__":
    sys.exit(main({name: globals()[name] for name in (
        "good_manners", "private_data_is_checked", "messages_are_checked", "credits_are_kept",
        "iomap_messages_cost_nothing", "target_counts_when_announced", "unmapped_memory_is_safe",
        "inline_of_nothing", "slow_clients_delay_nobody", "nonsense")}))
