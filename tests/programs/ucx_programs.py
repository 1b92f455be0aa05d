#!/usr/bin/env python3
"""UCX of the distribution, unmodified, over Weft's RoCE-like device, and Open MPI over UCX."""

import os
import subprocess
import tempfile

from harness import Failure, Skip, check, free_port, main, need

LIMIT_S = 100
ROCE = ("--personality", "roce")
DEVICE = "weft0:1"
# Nothing but the device: with shared memory or TCP beside it UCX would take those.
OVER_WEFT = {"UCX_TLS": "rc_v,ud_v", "UCX_NET_DEVICES": DEVICE}


def info(network):
    """The device is found, with its reliable and its datagram transport."""
    need("ucx_info")
    out = network.start(["ucx_info", "-d"], options=ROCE).expect(0, LIMIT_S)
    for transport in ("rc_verbs", "ud_verbs"):
        check(f"Transport: {transport}" in out and f"Device: {DEVICE}" in out,
              f"no {transport} over {DEVICE} in\n{out}")


def run(network, options, env=None):
    """One measurement between two processes; the client's last line has the numbers."""
    need("ucx_perftest")
    port = free_port()
    argv = ["ucx_perftest", "-p", port]
    server = network.start(argv, options=ROCE, env=env).listening(port)
    client = network.connect([*argv, network.server.v4, "-f", *options], options=ROCE, env=env)
    out = client.expect(0, LIMIT_S)
    server.expect(0, LIMIT_S)
    for line in out.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[0].isdigit():
            return [float(field) for field in fields]
    raise Failure(f"{client.argv} shows no result\n{client.tail()}")


def uct(transport, *tests):
    """The transport itself, without the protocols above."""
    def case(network):
        for test, *options in tests:
            run(network, ("-d", DEVICE, "-x", transport, "-t", test, "-n", 200, "-w", 50, *options))
    return case


def ucp(*tests):
    def case(network):
        for test, *options in tests:
            run(network, ("-t", test, "-n", 200, "-w", 50, *options), env=OVER_WEFT)
    return case


def rails(network):
    """Two devices at each end, and no setting of UCX: a listener's endpoint has lanes over both,
    and large messages go by both links at once."""
    _, out = listen_and_call(network, ROCE, 0)
    for device in ("weft0:1", "weft1:1"):
        check(f"rc_verbs/{device}" in out, f"no lane over {device}:\n{out}")
    ends = network.client, network.client.second
    before = [sent(end) for end in ends]
    size, count = 1 << 20, 20
    run(network, ("-t", "tag_bw", "-n", count, "-w", 0, "-s", size))
    octets = [sent(end) - was for end, was in zip(ends, before)]
    back = [sent(end) for end in (network.server, network.server.second)]
    check(min(octets) > count * size // 10 or min(back) > count * size // 10,
          f"{octets} octets of {count * size} by the two links, {back} the other way")


def sent(end):
    """Octets that have left by a link."""
    shown = subprocess.run([*end.prefix, "cat", f"/sys/class/net/{end.link}/statistics/tx_bytes"],
                           check=True, capture_output=True, text=True, timeout=20)
    return int(shown.stdout)


def by_default(network):
    """ucx_perftest of each kind without any setting of UCX, which then chooses devices and
    transports itself."""
    for test in ("tag_lat", "tag_bw", "ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw",
                 "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_fadd"):
        size = 8 if test == "ucp_fadd" else 65536
        run(network, ("-t", test, "-n", 50, "-w", 5, "-s", size))


def listen_and_call(network, options, fixed):
    """What the ends of ucx_listener print."""
    program = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "ucx_listener")
    if not os.path.exists(program):
        raise Skip("libucx-dev is not installed (scripts/install-deps.sh test)")
    # No name of UCX's is set: not in this process either.
    check(not [name for name in os.environ if name.startswith("UCX_")], "UCX_* is set")
    server = network.start([program, "server", network.server.v4, fixed], options=options)
    server.wait_for("port ")
    port = int(server.output().split("port ", 1)[1].split()[0])
    check(fixed in (0, port), f"the server listens at {port}, not at {fixed}")
    client = network.connect([program, "client", network.server.v4, port], options=options)
    out = client.expect(0, LIMIT_S)
    check("all well" in server.expect(0, LIMIT_S), server.tail())
    check("all well" in out, out)
    return server.output(), out


def listener(options, lane):
    """ucp_listener on an address, and all of UCX's interfaces, without any setting of UCX: rdma_cm
    and TCP listen at one number, as UCX has them by default."""
    def case(network):
        for fixed in (0, free_port()):
            _, out = listen_and_call(network, options, fixed)
            check(lane in out, out)
    return case


MPI_PROGRAM = """
import array, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
for count in (1, 1000, 100000):
    mine = array.array("d", [rank + 1.0] * count)
    total = array.array("d", [0.0] * count)
    world.Allreduce(mine, total)
    assert total[0] == total[-1] == size * (size + 1) / 2
for octets in (8, 1 << 20):
    buffer = bytearray(octets)
    for turn in range(50):
        if rank == 0:
            buffer[-1] = turn
            world.Send(buffer, 1)
            world.Recv(buffer, 1)
            assert buffer[-1] == turn + 1
        elif rank == 1:
            world.Recv(buffer, 0)
            buffer[-1] += 1
            world.Send(buffer, 0)
world.Barrier()
sys.stdout.write(f"rank {rank} done\\n")  # at once: mpirun mixes what the ranks say
"""


def mpirun(network, ranks, *program, env=None):
    """What the ranks of an MPI program print, over pml ucx. More ranks than cores give way to each
    other when they find nothing."""
    need("mpirun")
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, "--mca", "pml", "ucx",
            "--mca", "osc", "^ucx,rdma", "--mca", "btl", "self", "--mca", "opal_common_ucx_tls",
            "any", "--mca", "opal_common_ucx_devices", "any", "--mca", "mpi_yield_when_idle", 1,
            *program]
    return network.start(argv, options=ROCE, env=env or OVER_WEFT).expect(0, LIMIT_S)


def open_mpi(ranks, env=None):
    """Allreduce, and a ping-pong of small and large messages."""
    def case(network):
        need("mpirun")
        python = "/usr/bin/python3"
        if os.system(f"{python} -c 'import mpi4py' 2>/dev/null") != 0:
            raise Skip("python3-mpi4py is not installed (scripts/install-deps.sh test)")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(MPI_PROGRAM)
            program.flush()
            out = mpirun(network, ranks, python, program.name, env=env)
            for rank in range(ranks):
                check(f"rank {rank} done" in out, out)
    return case


def netpipe(network):
    """NetPIPE's ping-pong, of each of its sizes below 1 MiB: it checks what arrives (-i)."""
    need("NPopenmpi")
    with tempfile.TemporaryDirectory() as folder:
        out = mpirun(network, 2, "NPopenmpi", "-i", "-n", 20, "-u", 1 << 20, "-o", f"{folder}/np.out")
    # Both ranks print to one pipe, so their lines may be mixed.
    check("786433 bytes" in out and out.count("check passed") == out.count(" times --> "), out)


if __name__ == "__main__":
    main({
        "info": info,
        "uct_rc": uct("rc_verbs", ("am_lat", "-s", 8), ("am_bw", "-s", 1000, "-D", "bcopy"),
                      ("put_lat", "-s", 8), ("put_bw", "-s", 65536, "-D", "zcopy"),
                      ("get", "-s", 4096, "-D", "zcopy"), ("add_lat", "-s", 8), ("fadd", "-s", 8),
                      ("cswap", "-s", 8)),
        "uct_ud": uct("ud_verbs", ("am_lat", "-s", 8), ("am_bw", "-s", 1000, "-D", "bcopy")),
        "tag": ucp(("tag_lat", "-s", 8), ("tag_bw", "-s", 8), ("tag_bw", "-s", 65536),
                   ("tag_lat", "-s", 1 << 20), ("tag_bw", "-s", 1 << 20)),
        "put_get": ucp(("ucp_put_lat", "-s", 8), ("ucp_put_bw", "-s", 65536),
                       ("ucp_get", "-s", 8), ("ucp_get", "-s", 65536)),
        "atomics": ucp(("ucp_add", "-s", 8), ("ucp_fadd", "-s", 8), ("ucp_swap", "-s", 8),
                       ("ucp_cswap", "-s", 8)),
        "am_stream": ucp(("ucp_am_lat", "-s", 8), ("ucp_am_bw", "-s", 65536),
                         ("stream_lat", "-s", 8), ("stream_bw", "-s", 65536)),
        "listener": listener(ROCE, "rc_verbs/weft0:1"),
        "rails": rails,
        "by_default": by_default,
        "listener_iwarp": listener((), "tcp/"),
        "open_mpi": open_mpi(2),
        "open_mpi_four": open_mpi(4),
        # Over all devices that there are.
        "open_mpi_rails": open_mpi(2, {"UCX_TLS": "rc_v,ud_v"}),
        "netpipe": netpipe,
    })
