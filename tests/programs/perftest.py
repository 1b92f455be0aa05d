#!/usr/bin/env python3
"""perftest, unmodified, with connections by rdma_cm (-R). It resolves names to IPv4 only."""

from harness import Failure, again_if_unsure, check, free_port, main, need

LIMIT_S = 100

BANDWIDTH = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
LATENCY = ("ib_write_lat", "ib_read_lat", "ib_send_lat")
ATOMIC = ("ib_atomic_bw", "ib_atomic_lat")


def run(network, program, *options, weft=(), limit=LIMIT_S):
    """Both sides with the same options; the client's table, a row of numbers for each size."""
    need(program)
    return again_if_unsure(lambda: run_once(network, program, options, weft, limit))


def run_once(network, program, options, weft, limit):
    port = free_port()
    argv = [program, "-R", "-F", "-p", port, *options]
    server = network.start(argv, options=weft).listening(port)
    client = network.connect([*argv, network.server.v4], options=weft)
    out = client.expect(0, limit)
    server.expect(0, limit)
    return rows_of(out, client)


def rows_of(out, client):
    rows = []
    for line in out.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[0].isdigit() and fields[1].isdigit():
            try:
                rows.append([float(f) for f in fields])
            except ValueError:  # what it prints to stderr came between
                raise Failure(f"{client.argv} shows {line}\n{client.tail()}") from None
    check(rows, f"{client.argv} shows no result\n{client.tail()}")
    return rows


def basic(*programs, options=("-n", 500), weft=()):
    def case(network):
        for program in programs:
            rows = run(network, program, *options, weft=weft)
            check(rows[0][1] >= 1, f"{program}: {rows}")
    return case


def all_sizes(*programs, count=20):
    """-a: from 2 bytes to 8 MiB."""
    def case(network):
        for program in programs:
            rows = run(network, program, "-a", "-n", count)
            sizes = [int(row[0]) for row in rows]
            check(sizes == [2**n for n in range(1, 24)], f"{program} -a went through {sizes}")
    return case


def send_ends(network):
    """ib_send_bw ends on both sides, every time: whoever is done first must not cut the other
    off."""
    for round_number in range(15):
        try:
            run(network, "ib_send_bw", "-n", 200, "-s", 4096)
        except Failure as why:
            raise Failure(f"round {round_number}: {why}") from None


def without_rdma_cm(network):
    """Plain perftest wants InfiniBand addresses: refused with a message, no hang."""
    for program in ("ib_write_bw", "ib_send_lat"):
        need(program)
        port = free_port()
        server = network.start([program, "-p", port]).listening(port)
        client = network.connect([program, "-p", port, network.server.v4])
        for process in (client, server):
            out = process.expect_clean_failure(LIMIT_S)
            check("RTR" in out or "connect" in out.lower(), out)


if __name__ == "__main__":
    main({
        "write": basic("ib_write_bw", "ib_write_lat"),
        "read": basic("ib_read_bw", "ib_read_lat"),
        "send": basic("ib_send_bw", "ib_send_lat"),
        "atomic": basic(*ATOMIC),
        "fetch_and_add": basic(*ATOMIC, options=("-n", 200, "-A", "FETCH_AND_ADD")),
        "compare_and_swap": basic(*ATOMIC, options=("-n", 200, "-A", "CMP_AND_SWAP")),
        "all_sizes_write": all_sizes("ib_write_bw"),
        "all_sizes_read": all_sizes("ib_read_bw"),
        "all_sizes_send": all_sizes("ib_send_bw"),
        "all_sizes_latency": all_sizes("ib_write_lat", "ib_read_lat", "ib_send_lat", count=5),
        "bidirectional": basic(*BANDWIDTH, options=("-b", "-n", 500)),
        # perftest has no events for writes.
        "events": basic("ib_read_bw", "ib_send_bw", "ib_read_lat", "ib_send_lat",
                        options=("-e", "-n", 300)),
        "four_qps": basic(*BANDWIDTH, options=("-q", 4, "-n", 300)),
        "duration": basic(*BANDWIDTH, "ib_send_lat", options=("-D", 1)),
        "srq": basic("ib_send_bw", "ib_send_lat", options=("--use-srq", "-n", 300)),
        "inline": basic("ib_write_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat",
                        options=("-I", 64, "-s", 64, "-n", 500)),
        "one_completion_each": basic(*BANDWIDTH, options=("-Q", 1, "-n", 300)),
        "no_crc": basic(*BANDWIDTH, *LATENCY, weft=("--crc=off",)),
        "markers": basic("ib_write_bw", "ib_send_bw", weft=("--markers",)),
        "send_ends": send_ends,
        "without_rdma_cm": without_rdma_cm,
    })
