#!/usr/bin/env python3
"""rsocket programs of Debian over Weft: both ends unmodified, each compares what it gets or its
status says that it went well."""

import filecmp
import os
import sys
import tempfile
import time

from harness import Skip, check, free_port, main, need

LIMIT_S = 120
PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


def pair(network, program, server_options, client_options):
    """Runs `program` against itself; the server is ended, as these programs serve for ever."""
    need(program)
    port = free_port()
    server = network.start([program, "-p", port, *server_options]).listening(port)
    client = network.connect([program, "-s", network.server.v4, "-p", port, *client_options])
    status = client.wait(LIMIT_S)
    check(status == 0, f"client: status {status}\n{client.tail()}\n{server.tail()}")
    server.end()
    return client.output()


def rstream(network):
    out = pair(network, "rstream", ["-T", "v"], ["-T", "v", "-S", "20000", "-C", "20"])
    check("custom" in out, out)


def rstream_blocking(network):
    pair(network, "rstream", ["-T", "b"], ["-T", "b", "-S", "100", "-C", "100"])


def rstream_polling(network):
    pair(network, "rstream", ["-T", "a"], ["-T", "a", "-S", "3000", "-C", "20"])


def riostream(network):
    out = pair(network, "riostream", [], ["-S", "4096", "-C", "20"])
    check("custom" in out, out)


def rcopy(network):
    need("rcopy")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        target = os.path.join(folder, "target")
        with open(source, "wb") as file:
            file.write(os.urandom(3_000_001))
        port = free_port()
        server = network.start(["rcopy", "-p", port]).listening(port)
        client = network.connect(["rcopy", "-p", port, source, f"{network.server.v4}:{target}"])
        status = client.wait(LIMIT_S)
        check(status == 0, f"rcopy: {status}\n{client.tail()}\n{server.tail()}")
        end = time.monotonic() + 20
        while time.monotonic() < end and os.path.getsize(target) < 3_000_001:
            time.sleep(0.05)
        server.end()
        check(filecmp.cmp(source, target, shallow=False), "the copy differs")


def udpong(network):
    need("udpong")
    port = free_port()
    server = network.start(["udpong", "-p", port])
    client = network.connect(["udpong", "-s", network.server.v4, "-p", port, "-S", "100", "-C", "20"])
    check(client.wait(LIMIT_S) == 0, client.tail())
    server.end()


def nothing_listens(network):
    need("rstream")
    client = network.connect(["rstream", "-s", network.server.v4, "-p", free_port()])
    check(client.wait(LIMIT_S) != 0, client.output())
    check("Connection refused" in client.output(), client.output())


SERVER = """
import socket, sys
s = socket.socket(); s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(1)
c, _ = s.accept()
got = b''
while len(got) < 500000:
    part = c.recv(65536)
    if not part: break
    got += part
c.sendall(got[::-1]); c.close()
"""
CLIENT = """
import socket, sys
s = socket.socket(); s.connect((sys.argv[1], int(sys.argv[2])))
data = bytes(i * 7 % 251 for i in range(500000)); s.sendall(data)
got = b''
while len(got) < len(data):
    part = s.recv(65536)
    if not part: break
    got += part
sys.exit(0 if got == data[::-1] else 1)
"""


def preload(network):
    """librspreload.so and Python's sockets, none of which know of Weft."""
    if not os.path.exists(PRELOAD):
        raise Skip("librspreload.so is not installed (Debian: librdmacm1)")
    port = free_port()
    env = {"LD_PRELOAD": PRELOAD}
    python = ["/usr/bin/python3", "-c"]
    server = network.start([*python, SERVER, network.server.v4, port], env=env).listening(port)
    client = network.connect([*python, CLIENT, network.server.v4, port], env=env)
    status = client.wait(LIMIT_S)
    check(status == 0, f"client: {status}\n{client.tail()}\n{server.tail()}")
    check(server.wait(LIMIT_S) == 0, server.tail())


if __name__ == "__main__":
    sys.exit(main({name: globals()[name] for name in (
        "rstream", "rstream_blocking", "rstream_polling", "riostream", "rcopy", "udpong",
        "nothing_listens", "preload")}))
