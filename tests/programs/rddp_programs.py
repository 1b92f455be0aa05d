"""A program of the calls of RFC 4296 (tests/rddp/rping.c) with rping of rdma-core, which runs over
Weft's verbs. Each case is named on the command line, and `case@namespaces` runs it between two
network namespaces."""

import os

import harness
from harness import check, free_port, need

LIMIT_S = 60
RPING = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "rddp_rping")
SIZES = (23, 64, 1000, 4096, 65535)
ROUNDS = 20


def rddp_serves(network):
    need("rping")
    for size in SIZES:
        port = free_port()
        server = network.start([RPING, "-s", "-p", port, "-C", ROUNDS], raw=True).listening(port)
        network.connect(["rping", "-c", "-a", network.server.v4, "-p", port, "-C", ROUNDS, "-S", size,
                         "-V"]).expect(0, LIMIT_S)
        check(f"served {ROUNDS} rounds" in server.expect(0, LIMIT_S), server.output())


def rddp_asks(network):
    need("rping")
    for size in SIZES:
        port = free_port()
        server = network.start(["rping", "-s", "-a", network.server.v4, "-p", port, "-C",
                                ROUNDS, "-S", size]).listening(port)
        out = network.connect([RPING, "-c", network.server.v4, "-p", port, "-C", ROUNDS, "-S", size],
                              raw=True).expect(0, LIMIT_S)
        check(f"{ROUNDS} rounds of {size} octets came back" in out, out)
        server.end()  # rping waits for an event that depends on who closes first


def both_ends(network):
    for address in (network.server.v4, network.server.v6):
        port = free_port()
        server = network.start([RPING, "-s", "-p", port], raw=True).listening(port)
        network.connect([RPING, "-c", address, "-p", port, "-C", ROUNDS, "-S", 65536],
                        raw=True).expect(0, LIMIT_S)
        check(f"served {ROUNDS} rounds" in server.expect(0, LIMIT_S), server.output())


if __name__ == "__main__":
    harness.main({"rddp_serves": rddp_serves, "rddp_asks": rddp_asks, "both_ends": both_ends})
