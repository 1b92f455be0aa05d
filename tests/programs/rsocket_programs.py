#!/usr/bin/env python3
"""rsocket programs of Debian over Weft: both ends unmodified, each compares what it gets or its
status says that it went well."""

import filecmp
import os
import sys
import tempfile

from harness import Skip, check, free_port, main, need

LIMIT_S = 60
PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


def pair(network, program, *options):
    """Runs `program` against itself. Both ends need the same options: sizes and counts are not
    part of what they exchange. The server is ended, as some of these programs serve forever."""
    need(program)
    port = free_port()
    server = network.start([program, "-p", port, *options]).listening(port)
    client = network.connect([program, "-s", network.server.v4, "-p", port, *options])
    status = client.wait(LIMIT_S)
    check(status == 0, f"client: status {status}\n{client.tail()}\n{server.tail()}")
    server.end()
    return client.output()


def measures(program, *options):
    """A case: `program` runs with these options at both ends, and prints what it measured."""
    def case(network):
        out = pair(network, program, *options)
        check("custom" in out, out)
    return case


rstream = measures("rstream", "-T", "v", "-S", "20000", "-C", "20")


def rstream_sizes(network):
    for size, count in (1, 500), (64, 500), (4096, 200), (65536, 50), (1_000_000, 10):
        pair(network, "rstream", "-T", "v", "-S", size, "-C", count)


rstream_blocking = measures("rstream", "-T", "b", "-S", "100", "-C", "1000")
rstream_polling = measures("rstream", "-T", "a", "-S", "3000", "-C", "20")
rstream_nonblocking = measures("rstream", "-T", "n", "-S", "70000", "-C", "50")
rstream_resolved = measures("rstream", "-T", "r", "-S", "70000", "-C", "50")
# The server forks a child for each connection, after raccept().
rstream_forking = measures("rstream", "-T", "f", "-S", "3000", "-C", "20")
rstream_keepalive = measures("rstream", "-k", "1", "-S", "3000", "-C", "20")
riostream = measures("riostream", "-S", "4096", "-C", "20")
riostream_verifying = measures("riostream", "-T", "v", "-S", "100000", "-C", "50")


def rcopy(network):
    need("rcopy")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        target = os.path.join(folder, "target")
        with open(source, "wb") as file:
            file.write(os.urandom(3_000_001))
        port = free_port()
        server = network.start(["rcopy", "-p", port]).listening(port)
        # The files come before the options: with an option in front, rcopy is a server.
        client = network.connect(["rcopy", source, f"{network.server.v4}:{target}", "-p", port])
        status = client.wait(LIMIT_S)
        check(status == 0, f"rcopy: {status}\n{client.tail()}\n{server.tail()}")
        server.end()
        check(filecmp.cmp(source, target, shallow=False), "the copy differs")


def udpong(network):
    need("udpong")
    port = free_port()
    server = network.start(["udpong", "-b", network.server.v4, "-p", port]).listening(port, kind="udp")
    client = network.connect(["udpong", "-s", network.server.v4, "-p", port, "-S", "100", "-C", "20"])
    check(client.wait(LIMIT_S) == 0, client.tail())
    server.end()


def nothing_listens(network):
    need("rstream")
    for options in [], ["-T", "b"]:
        client = network.connect(["rstream", *options, "-s", network.server.v4, "-p", free_port()])
        check(client.wait(LIMIT_S) > 0, client.output())
        # It connects without blocking: the failure shows in rpoll(), before it asks for the reason.
        check("rpoll" in client.output() or "Connection refused" in client.output(), client.output())


def preload(network):
    """librspreload.so under a program that knows only sockets; neither knows of Weft."""
    if not os.path.exists(PRELOAD):
        raise Skip("librspreload.so is not installed (Debian: librdmacm1)")
    need("nc.traditional")
    data = os.urandom(500_000)
    port = free_port()
    env = {"LD_PRELOAD": PRELOAD}
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        shell = ["/bin/sh", "-c"]
        capture = f"{file.name}.pcap"
        server = network.start(["nc.traditional", "-l", "-p", port], env=env,
                               options=("--pcap", capture)).listening(port)
        client = network.connect([*shell, f"exec nc.traditional -q 1 {network.server.v4} {port} <{file.name}"],
                                 env=env)
        check(client.wait(LIMIT_S) == 0, client.tail())
        check(server.wait(LIMIT_S) == 0, server.tail())
    with open(capture, "rb") as seen:
        check(b"MPA ID Req Frame" in seen.read(), "the connection was plain TCP")
    os.unlink(capture)
    got = os.pread(server.log.fileno(), len(data) + 1, 0)
    check(got == data, f"{len(got)} octets came, expected {len(data)}")


if __name__ == "__main__":
    sys.exit(main({name: globals()[name] for name in (
        "rstream", "rstream_sizes", "rstream_blocking", "rstream_polling", "rstream_nonblocking",
        "rstream_resolved", "rstream_forking", "rstream_keepalive", "riostream",
        "riostream_verifying", "rcopy", "udpong", "nothing_listens", "preload")}))
