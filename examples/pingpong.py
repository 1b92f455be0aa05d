#!/usr/bin/python3
"""Ping-pong in Python, with pyverbs (Debian: python3-pyverbs). It knows nothing of Weft.

Try:    weft run -- /usr/bin/python3 pingpong.py server 7484               in one terminal
        weft run -- /usr/bin/python3 pingpong.py client 127.0.0.1 7484     in another

An optional last argument of the client is the number of rounds (default: 1000). The server serves
one client and ends.
"""

import statistics
import sys
import time

import pyverbs.cm_enums as ce
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

MESSAGE_BYTES = 64


class Side:
    """A connection with one buffer for each direction."""

    def __init__(self, cmid):
        self.cmid = cmid
        self.incoming = cmid.reg_msgs(MESSAGE_BYTES)
        self.outgoing = cmid.reg_msgs(MESSAGE_BYTES)
        self.post_receive()  # before the connection is up: a message may follow at once

    def post_receive(self):
        self.cmid.post_recv(self.incoming, MESSAGE_BYTES)

    def send(self, text):
        self.outgoing.write(text.ljust(MESSAGE_BYTES, "\0"), MESSAGE_BYTES)
        self.cmid.post_send(self.outgoing, MESSAGE_BYTES)
        self.cmid.get_send_comp()

    def receive(self):
        self.cmid.get_recv_comp()
        text = self.incoming.read(MESSAGE_BYTES, 0).decode().rstrip("\0")
        self.post_receive()
        return text


def qp_attributes():
    return QPInitAttr(cap=QPCap(max_send_wr=4, max_recv_wr=4))


def serve(port):
    where = AddrInfo(src="0.0.0.0", src_service=port, port_space=ce.RDMA_PS_TCP,
                     flags=ce.RAI_PASSIVE)
    listener = CMID(creator=where, qp_init_attr=qp_attributes())
    listener.listen()
    print(f"listening on port {port}", flush=True)
    cmid = listener.get_request()
    side = Side(cmid)
    cmid.accept()
    rounds = 0
    while (text := side.receive()) != "bye":
        rounds += 1
        side.send(text.replace("ping", "pong"))
    print(f"answered {rounds} messages")


def run_client(host, port, rounds):
    where = AddrInfo(dst=host, dst_service=port, port_space=ce.RDMA_PS_TCP)
    cmid = CMID(creator=where, qp_init_attr=qp_attributes())
    side = Side(cmid)
    cmid.connect()
    times_us = []
    for i in range(1, rounds + 1):
        start = time.perf_counter()
        side.send(f"ping {i}")
        answer = side.receive()
        times_us.append((time.perf_counter() - start) * 1e6)
        if answer != f"pong {i}":
            sys.exit(f"pingpong.py: wrong answer to round {i}: {answer!r}")
    side.send("bye")
    cmid.disconnect()
    median_us = statistics.median(times_us)
    print(f"{rounds} round trips of {MESSAGE_BYTES} bytes, median {median_us:.1f} us")


def main(words):
    if len(words) == 2 and words[0] == "server":
        serve(words[1])
    elif len(words) in (3, 4) and words[0] == "client":
        run_client(words[1], words[2], int(words[3]) if len(words) == 4 else 1000)
    else:
        sys.exit("usage: pingpong.py server PORT | pingpong.py client HOST PORT [ROUNDS]")


if __name__ == "__main__":
    main(sys.argv[1:])
