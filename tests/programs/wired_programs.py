#!/usr/bin/env python3
"""Programs that wire queue pairs by hand, unmodified, under `weft run --personality roce`."""

import collections
import pathlib
import sys
import tempfile

from cm_programs import tshark
from harness import again_if_unsure, check, free_port, main, need
from perftest import rows_of

LIMIT_S = 100
# Of perftest, with every type of queue pair.
# Receives for all that is sent: UC and UD lose what meets none, as on adapters, and the programs
# then wait for ever.
MORE = (("-e",), ("-q", 4), ("-b",), ("-r", 256), ("-I", 64, "-s", 64))
ROCE = ("--personality", "roce")


def pair(network, program, *options, weft=ROCE):
    """Both sides with the same options; what the client prints."""
    need(program)
    port = free_port()
    argv = [program, "-p", port, *options]
    server = network.start(argv, options=weft).listening(port)
    client = network.connect([*argv, network.server.v4], options=weft)
    out = client.expect(0, LIMIT_S)
    server.expect(0, LIMIT_S)
    return out, client


def devices(network):
    """The device is a RoCE device whose GIDs are IP addresses."""
    need("ibv_devinfo")
    out = network.start(["ibv_devinfo", "-v"], options=ROCE).expect(0, LIMIT_S)
    for text in ("InfiniBand (0)", "link_layer:\t\tEthernet", "PORT_ACTIVE", "RoCE v2"):
        check(text in out, f"no '{text}' in\n{out}")
    out = network.start(["ibv_devinfo", "-v"]).expect(0, LIMIT_S)
    check("iWARP" in out and "RoCE v2" not in out, f"the default has changed:\n{out}")


def device_node(network):
    """What UCX asks for: a character device of the device's name, to read and to write. With the
    other personality there is none, and with --sysfs=off neither."""
    code = """
import os, stat, sys
node = "/dev/infiniband/uverbs-weft0"
there = os.path.exists(node)
if there:
    assert stat.S_ISCHR(os.stat(node).st_mode) and os.access(node, os.R_OK | os.W_OK)
    os.close(os.open(node, os.O_RDWR))
assert not os.path.exists("/dev/infiniband/uverbs-weft99")
assert not os.path.exists("/dev/infinibandx")
assert os.path.exists("/dev/null")
print(there)
"""
    for options, seen in ((ROCE, "True"), ((), "False"), ((*ROCE, "--sysfs=off"), "False")):
        out = network.start([sys.executable, "-c", code], options=options).expect(0, LIMIT_S)
        check(out.strip() == seen, f"{options}: {out}")


def pingpong(program, *variants):
    def case(network):
        for options in variants:
            out, _ = pair(network, program, "-n", 200, *options)
            check("200 iters in" in out, out)
    return case


def pcap(network):
    """Each side's capture begins with the hellos, as MPA frames, and Wireshark reads the Sends."""
    need("tshark")
    iterations = 200  # of pair()
    with tempfile.TemporaryDirectory() as folder:
        out, _ = pair(network, "ibv_rc_pingpong", "-g", 0, "-n", iterations,
                      weft=(*ROCE, "--pcap", f"{folder}/%p.pcap"))
        check(f"{iterations} iters in" in out, out)
        captures = sorted(pathlib.Path(folder).iterdir())
        check(len(captures) == 2, f"{len(captures)} captures of two processes")
        for capture in captures:
            wrong = tshark(capture, "-Y", "_ws.malformed || tcp.checksum.status == 0")
            check(wrong == "", f"tshark finds fault with\n{wrong}")
            for start in ("iwarp_mpa.req", "iwarp_mpa.rep"):
                frames = tshark(capture, "-Y", start, "-T", "fields", "-e", "iwarp_mpa.privatedata")
                check(len(frames.splitlines()) == 1 and b"WEFTROCE".hex() in frames,
                      f"{start}: {frames}")
            text = tshark(capture, "-Y", "iwarp_rdma", "-T", "fields", "-e", "iwarp_rdma.opcode")
            opcodes = collections.Counter(int(word, 0) for word in text.replace(",", " ").split())
            check(opcodes[3] == 2 * iterations and opcodes[12] > 0,
                  f"Sends and Acks: {dict(opcodes)}")


def pingpong_needs_a_gid(network):
    """Without -g the programs name a LID, which no RoCE device has: refused, no hang."""
    need("ibv_rc_pingpong")
    port = free_port()
    server = network.start(["ibv_rc_pingpong", "-p", port], options=ROCE).listening(port)
    client = network.connect(["ibv_rc_pingpong", "-p", port, network.server.v4], options=ROCE)
    for process in (client, server):
        out = process.expect_clean_failure(LIMIT_S)
        check("RTR" in out or "Couldn't" in out, out)


def secret(network):
    """Two that share a secret talk; two that do not get the error of a peer that is not there, and
    the log says why."""
    need("ibv_rc_pingpong")
    argv = ["ibv_rc_pingpong", "-g", 0, "-n", 100, "-p"]
    ours, theirs = ({"WEFT_ROCE_SECRET": letter * 16} for letter in "ab")
    for env in (ours, theirs):
        port = free_port()
        server = network.start([*argv, port], options=ROCE, env=ours).listening(port)
        client = network.connect([*argv, port, network.server.v4], options=ROCE, env=env)
        if env is ours:
            check("100 iters in" in client.expect(0, LIMIT_S), client.tail())
            server.expect(0, LIMIT_S)
            continue
        out = client.expect_clean_failure(LIMIT_S)
        check("transport retry counter exceeded" in out, out)
        check("roce_secret" in out + server.output(), f"{out}\n{server.output()}")
        server.end()


def perftest(*programs, options=("-n", 300)):
    def case(network):
        for program in programs:
            rows = again_if_unsure(
                lambda program=program: rows_of(*pair(network, program, "-F", *options)))
            check(rows[0][1] >= 1, f"{program}: {rows}")
    return case


def variants(program, *each):
    """One program with each of these lists of options."""
    def case(network):
        for options in each:
            perftest(program, options=("-n", 200, *options))(network)
    return case


def all_sizes(program):
    """-a: from 2 bytes to 8 MiB."""
    def case(network):
        rows = again_if_unsure(lambda: rows_of(*pair(network, program, "-F", "-a", "-n", 10)))
        sizes = [int(row[0]) for row in rows]
        check(sizes == [2**n for n in range(1, 24)], f"{program} -a went through {sizes}")
    return case


def by_rdma_cm(network):
    """rdma_cm works on the same device."""
    perftest("ib_write_bw", "ib_send_bw", options=("-R", "-n", 200))(network)
    need("rping")
    port = free_port()
    server = network.start(["rping", "-s", "-a", network.server.v4, "-p", port, "-C", 3, "-q"],
                           options=ROCE).listening(port)
    client = network.connect(["rping", "-c", "-a", network.server.v4, "-p", port, "-C", 3, "-q"],
                             options=ROCE)
    client.expect(0, LIMIT_S)
    server.wait(LIMIT_S)


if __name__ == "__main__":
    main({
        "devices": devices,
        "device_node": device_node,
        "rc_pingpong": pingpong("ibv_rc_pingpong", ("-g", 0), ("-g", 0, "-s", 100000),
                                ("-g", 0, "-e")),
        "srq_pingpong": pingpong("ibv_srq_pingpong", ("-g", 0), ("-g", 0, "-e", "-q", 4)),
        "uc_pingpong": pingpong("ibv_uc_pingpong", ("-g", 0), ("-g", 0, "-s", 100000),
                                ("-g", 0, "-e")),
        "unreliable": perftest("ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat",
                               options=("-c", "UC", "-n", 300)),
        "ud_pingpong": pingpong("ibv_ud_pingpong", ("-g", 0), ("-g", 0, "-s", 1000),
                                ("-g", 0, "-e")),
        "datagrams": perftest("ib_send_bw", "ib_send_lat", options=("-c", "UD", "-n", 300)),
        "pingpong_needs_a_gid": pingpong_needs_a_gid,
        "secret": secret,
        "pcap": pcap,
        "write": perftest("ib_write_bw", "ib_write_lat"),
        "read": perftest("ib_read_bw", "ib_read_lat"),
        "send": perftest("ib_send_bw", "ib_send_lat"),
        "atomic": perftest("ib_atomic_bw", "ib_atomic_lat"),
        "bidirectional": perftest("ib_write_bw", "ib_read_bw", "ib_send_bw", options=("-b", "-n", 200)),
        "events": perftest("ib_read_bw", "ib_send_bw", "ib_send_lat", options=("-e", "-n", 200)),
        "four_qps": perftest("ib_write_bw", "ib_read_bw", "ib_send_bw", options=("-q", 4, "-n", 200)),
        "inline": perftest("ib_write_bw", "ib_send_lat", options=("-I", 64, "-s", 64, "-n", 300)),
        "srq": perftest("ib_send_bw", options=("--use-srq", "-n", 200)),
        "depth": variants("ib_send_bw", ("-r", 16), ("-r", 1024, "-t", 16), ("-l", 8)),
        "unreliable_send": variants("ib_send_bw", *[("-c", "UC", *more) for more in MORE]),
        "unreliable_write": variants("ib_write_bw", ("-c", "UC", "-q", 4), ("-c", "UC", "-b"),
                                     ("-c", "UC", "-I", 64, "-s", 64)),
        "unreliable_sizes": variants("ib_write_bw", ("-c", "UC", "-a", "-n", 5)),
        "datagrams_send": variants("ib_send_bw", *[("-c", "UD", *more) for more in MORE],
                                   ("-c", "UD", "-a", "-n", 10)),
        "datagrams_latency": variants("ib_send_lat", ("-c", "UD", "-e"),
                                      ("-c", "UD", "-I", 32, "-s", 32), ("-c", "UD", "-a")),
        "all_sizes_write": all_sizes("ib_write_bw"),
        "all_sizes_send": all_sizes("ib_send_bw"),
        "all_sizes_read": all_sizes("ib_read_bw"),
        "by_rdma_cm": by_rdma_cm,
    })
