#!/usr/bin/env python3
"""The programs of ibverbs-utils and rdmacm-utils, unmodified: what runs, runs; what iWARP does not
have ends with the program's own message."""

import collections
import json
import pathlib
import signal
import subprocess
import tempfile
import time

from harness import Failure, WEFT, check, free_port, main, need

LIMIT_S = 60


def pair(network, server, client, status=(0, 0), **more):
    """Both sides of a program; `server` and `client` are given the port."""
    port = free_port()
    need(server(port)[0])
    first = network.start(server(port), **more).listening(port)
    second = network.connect(client(port), **more)
    out = second.expect(status[1], LIMIT_S)
    return first.expect(status[0], LIMIT_S), out


def devices(network):
    need("ibv_devices")
    out = network.start(["ibv_devices"]).expect(0, LIMIT_S)
    check("weft0" in out, f"ibv_devices shows no weft0:\n{out}")
    out = network.start(["ibv_devinfo", "-v"]).expect(0, LIMIT_S)
    for text in ("hca_id:\tweft0", "iWARP (1)", "PORT_ACTIVE (4)", "Ethernet", "ATOMIC_HCA",
                 "board_id"):
        check(text in out, f"ibv_devinfo does not show '{text}':\n{out}")
    shown = json.loads(network.start([WEFT, "devices", "--json"], raw=True).expect(0, LIMIT_S))
    check([d["name"] for d in shown["devices"]].count("weft0") == 1, f"weft devices: {shown}")


def rping_of(family, *options):
    def run(network):
        address = network.server.v6 if family == 6 else network.server.v4
        for size in (23, 64, 1000, 4096, 65535):
            _, out = pair(
                network,
                lambda port: ["rping", "-s", "-a", address, "-p", port, "-C", 20, "-S", size],
                lambda port: ["rping", "-c", "-a", address, "-p", port, "-C", 20, "-S", size, "-V",
                              "-v"], options=options)
            seen = out.count("ping data: rdma-ping-")
            check(seen == 20, f"{seen} pings of 20 at {size} bytes:\n{out[-2000:]}")
    return run


def rping_own_qp(network):
    _, out = pair(network,
                  lambda port: ["rping", "-s", "-a", network.server.v4, "-p", port, "-C", 10, "-q"],
                  lambda port: ["rping", "-c", "-a", network.server.v4, "-p", port, "-C", 10, "-q",
                                "-V", "-v"])
    check(out.count("ping data: rdma-ping-") == 10, out)


def rping_persistent(network):
    port = free_port()
    need("rping")
    address = network.server.v4
    server = network.start(["rping", "-s", "-P", "-a", address, "-p", port]).listening(port)
    ping = ["rping", "-c", "-a", address, "-p", port, "-C", 10, "-V"]
    for _ in range(3):
        network.connect(ping).expect(0, LIMIT_S)
    # Several at once, the server has a thread for each. Connected one after the other: the server
    # keeps the latest request in one variable and would lose the one before.
    clients = []
    for _ in range(4):
        clients.append(network.connect(["rping", "-c", "-a", address, "-p", port, "-C", 200, "-v"]))
        clients[-1].wait_for("ping data", LIMIT_S)
    for client in clients:
        client.expect(0, LIMIT_S)
    check(server.popen.poll() is None, f"the persistent server ended\n{server.tail()}")
    server.kill()


def tshark(capture, *options):
    # Our ports may be those of other protocols; and two dissectors take any Send for theirs.
    done = subprocess.run(["tshark", "-r", str(capture), "-o", "tcp.try_heuristic_first:TRUE",
                           "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct",
                           *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    check(done.returncode == 0, f"tshark cannot read {capture}: {done.stderr}")
    return done.stdout


def rping_pcap(network):
    """Each side's own capture holds the whole connection, and Wireshark can read it."""
    need("tshark")
    pings = 5
    for options in ((), ("--markers",), ("--crc=off",)):
        with tempfile.TemporaryDirectory() as folder:
            pair(network,
                 lambda port: ["rping", "-s", "-a", network.server.v4, "-p", port, "-C", pings],
                 lambda port: ["rping", "-c", "-a", network.server.v4, "-p", port, "-C", pings, "-V",
                               "-v"],
                 options=("--pcap", f"{folder}/%p.pcap", *options))
            captures = sorted(pathlib.Path(folder).iterdir())
            check(len(captures) == 2, f"{options}: {len(captures)} captures of two processes")
            for capture in captures:
                check_rping_capture(capture, pings, options)


def check_rping_capture(capture, pings, options):
    # One start for all: it takes longer than what it reads.
    fields = ("_ws.malformed", "tcp.checksum.status", "iwarp_mpa.req", "iwarp_mpa.rep",
              "iwarp_rdma.opcode")
    lines = tshark(capture, "-T", "fields", *(word for name in fields for word in ("-e", name)))
    rows = [dict(zip(fields, line.split("\t"), strict=True)) for line in lines.splitlines()]
    faults = [row for row in rows if row["_ws.malformed"] or row["tcp.checksum.status"] == "0"]
    check(faults == [], f"{options}: tshark finds fault with\n{faults}")
    for start in ("iwarp_mpa.req", "iwarp_mpa.rep"):
        check(sum(bool(row[start]) for row in rows) == 1, f"{options}: not one {start}")
    # Several FPDUs of one packet are in one field, with commas.
    text = " ".join(row["iwarp_rdma.opcode"] for row in rows)
    opcodes = collections.Counter(int(word, 0) for word in text.replace(",", " ").split())
    # A ping is a Read, a Write, and two Sends of each side. A zero-length Read or Write may have
    # begun the connection.
    write, read, response, send = (opcodes[code] for code in (0, 1, 2, 3))
    check(send == 4 * pings and min(write, read, response) >= pings,
          f"{options}: {dict(opcodes)} for {pings} pings in\n{tshark(capture)}")


def ucmatose(network):
    for address in (network.server.v4, network.server.v6):
        for options in ([], ["-c", 10, "-C", 20, "-S", 1000], ["-c", 3, "-m"]):
            family = ["-f", "ipv6"] if ":" in address else []
            server, client = pair(
                network,
                lambda port: ["ucmatose", "-p", port, "-b", address, *options, *family],
                lambda port: ["ucmatose", "-s", address, "-p", port, *options, *family])
            for out in (server, client):
                check("test complete" in out and "return status 0" in out, out)


def cmtime(network):
    port = free_port()
    need("cmtime")
    server = network.start(["cmtime", "-p", port]).listening(port)
    out = network.connect(["cmtime", "-s", network.server.v4, "-p", port, "-c", 50]).expect(
        0, LIMIT_S)
    check("connect" in out, out)
    server.kill()  # its server goes on forever


def endpoints(network):
    for address in (network.server.v4, network.server.v6):
        server, client = pair(network, lambda port: ["rdma_server", "-s", address, "-p", port],
                              lambda port: ["rdma_client", "-s", address, "-p", port])
        check("rdma_server: end 0" in server and "rdma_client: end 0" in client, server + client)


def datagram_programs_say_no(network):
    """Multicast and datagrams are not iWARP."""
    for argv in (["mckey", "-m", "239.1.1.1", "-b", network.client.v4],
                 ["udaddy", "-s", network.server.v4],
                 ["udaddy"]):
        need(argv[0])
        out = network.connect(argv).expect_clean_failure(LIMIT_S)
        check(len(out.strip()) > 0, f"{argv} failed without a word")


def infiniband_programs_say_no(network):
    """Without rdma_cm they exchange InfiniBand addresses, which an RNIC refuses."""
    for program in ("ibv_rc_pingpong", "ibv_srq_pingpong"):
        need(program)
        port = free_port()
        server = network.start([program, "-p", port]).listening(port)
        client = network.connect([program, "-p", port, network.server.v4])
        out = server.expect_clean_failure(LIMIT_S)
        check("to RTR" in out, out)
        client.kill()  # some of them wait forever for a server that has gone
    need("ibv_ud_pingpong")
    network.start(["ibv_ud_pingpong", "-p", free_port()]).expect_clean_failure(LIMIT_S)


def xrc_programs_say_no(network):
    need("rdma_xserver")
    network.start(["rdma_xserver", "-p", free_port(), "-c", "x"]).expect_clean_failure(LIMIT_S)


def two_at_once(network):
    """The same program, started twice at the same time, on two ports."""
    need("rping")
    ports = [free_port(), free_port()]
    address = network.server.v4
    servers = [network.start(["rping", "-s", "-a", address, "-p", p, "-C", 100]) for p in ports]
    for server, port in zip(servers, ports):
        server.listening(port)
    clients = [network.connect(["rping", "-c", "-a", address, "-p", p, "-C", 100, "-V"])
               for p in ports]
    for process in clients + servers:
        process.expect(0, LIMIT_S)


def killed_server(network):
    """The client of a server that is killed is told, and ends."""
    need("rping")
    port = free_port()
    address = network.server.v4
    server = network.start(["rping", "-s", "-a", address, "-p", port]).listening(port)
    client = network.connect(["stdbuf", "-oL", "rping", "-c", "-a", address, "-p", port, "-v"])
    client.wait_for("ping data: rdma-ping-20")
    server.kill()
    client.wait(LIMIT_S)
    out = client.output()
    check("DISCONNECT EVENT" in out or "cq completion failed status" in out, client.tail())


# Each time limit by itself, far below the one that holds by default, and the other out of the way:
# the kernel's own way of keeping them lets one override the other.
BUSY = {"WEFT_KEEPALIVE": "0", "WEFT_USER_TIMEOUT": "2s"}
IDLE = {"WEFT_KEEPALIVE": "2s", "WEFT_USER_TIMEOUT": "600s"}
GIVEN_UP_S = 25


def dead_link_busy(network):
    """Both ends of a connection that carries octets give up when nothing passes any more."""
    need("rping")
    need("tc")
    port = free_port()
    address = network.server.v4
    server = network.start(["rping", "-s", "-a", address, "-p", port], env=BUSY).listening(port)
    client = network.connect(["stdbuf", "-oL", "rping", "-c", "-a", address, "-p", port, "-v"],
                             env=BUSY)
    client.wait_for("ping data: rdma-ping-20")
    network.cut()
    # The end that waits for the other's answer has nothing under way, and no limit of its own here.
    ended = client if ends_first(client, server) else server
    out = ended.output()
    check("DISCONNECT EVENT" in out or "cq completion failed status" in out, ended.tail())


def ends_first(one, other):
    """True: `one` ends, False: `other` does, within the limit."""
    deadline = time.monotonic() + GIVEN_UP_S
    while time.monotonic() < deadline:
        for process in (one, other):
            if process.popen.poll() is not None:
                return process is one
        time.sleep(0.05)
    raise Failure(f"neither end gave up\n{one.tail()}\n{other.tail()}")


def all_acknowledged(network, port):
    """Waits until nothing that the server sent is on its way."""
    need("ss")
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        rows = network.start(["ss", "-tnH", "state", "established", f"sport = :{port}"],
                             raw=True).expect(0, LIMIT_S).splitlines()
        if rows and all(row.split()[1] == "0" for row in rows):
            return
    raise Failure("the client's kernel does not acknowledge what the server sent")


def dead_link_idle(network):
    """A server whose client has nothing to say learns that the client's host is gone."""
    need("rping")
    need("tc")
    port = free_port()
    address = network.server.v4
    server = network.start(["stdbuf", "-oL", "rping", "-s", "-v", "-a", address, "-p", port],
                           env=IDLE).listening(port)
    client = network.connect(["rping", "-c", "-a", address, "-p", port], env=IDLE)
    server.wait_for("server ping data: rdma-ping-20")
    client.kill(signal.SIGSTOP)  # its kernel still acknowledges
    all_acknowledged(network, port)
    network.cut()
    server.wait(GIVEN_UP_S)
    client.kill()
    # A Read that the client was to answer fails first, where one was under way.
    out = server.output()
    check("DISCONNECT EVENT" in out or "cq completion failed status" in out, server.tail())


def killed_client(network):
    need("rping")
    port = free_port()
    address = network.server.v4
    server = network.start(["stdbuf", "-oL", "rping", "-s", "-v", "-a", address, "-p", port])
    server.listening(port)
    client = network.connect(["rping", "-c", "-a", address, "-p", port])
    server.wait_for("server ping data: rdma-ping-20")
    client.kill()
    server.wait(LIMIT_S)
    out = server.output()
    check("DISCONNECT EVENT" in out or "cq completion failed status" in out, server.tail())


def run_passes_status_and_signals(network):
    network.start(["sh", "-c", "exit 7"]).expect(7, LIMIT_S)
    sleeper = network.start(["sleep", 100])
    time.sleep(0.2)
    sleeper.kill(15)
    sleeper.expect(-15, LIMIT_S)
    out = network.start(["no-such-program"]).expect(127, LIMIT_S)
    check("no-such-program" in out, out)
    # As a shell has it: 127 where there is no such file, 126 where it is no program.
    network.start(["/no/such/program"]).expect(127, LIMIT_S)
    out = network.start(["/etc/passwd"]).expect(126, LIMIT_S)
    check("/etc/passwd: this file cannot be executed" in out, out)
    out = network.start(["true"], options=["--markers", "--fpdu=huge"]).expect(2, LIMIT_S)
    check("weft: --fpdu: 'huge' " in out and "16k" in out, out)
    out = network.start(
        ["sh", "-c", "echo $WEFT_CRC $WEFT_MARKERS $WEFT_LOG"],
        options=["--crc=off", "--markers", "--log=info"]).expect(0, LIMIT_S)
    check(out.split() == ["off", "on", "info"], out)


def run_refuses_what_cannot_work(network):
    """Static and set-id programs would ignore the libraries without a word."""
    import os
    import shutil
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        static = os.path.join(folder, "static")
        with open(static, "wb") as file:
            file.write(static_elf())
        os.chmod(static, 0o755)
        out = network.start([static]).expect(1, LIMIT_S)
        check("statically linked" in out, out)
        script = os.path.join(folder, "script")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!{static} -x\n")
        os.chmod(script, 0o755)
        out = network.start([script]).expect(1, LIMIT_S)
        check("statically linked" in out, out)
        if os.geteuid() == 0:
            copy = os.path.join(folder, "other-user")
            shutil.copy("/bin/true", copy)
            os.chown(copy, 65534, 65534)
            os.chmod(copy, 0o4755)
            out = network.start([copy]).expect(1, LIMIT_S)
            check("set-user-id" in out, out)


def static_elf():
    """The head of a 64-bit program for this processor with one segment and no interpreter."""
    with open("/proc/self/exe", "rb") as file:
        head = bytearray(file.read(64))
    head[32:40] = (64).to_bytes(8, "little")  # e_phoff
    head[56:58] = (1).to_bytes(2, "little")   # e_phnum
    load = (1).to_bytes(4, "little") + bytes(52)
    return bytes(head) + load


if __name__ == "__main__":
    main({
        "devices": devices,
        "rping_v4": rping_of(4),
        "rping_v6": rping_of(6),
        "rping_markers": rping_of(4, "--markers"),
        "rping_no_crc": rping_of(4, "--crc=off"),
        "rping_thread": rping_of(4, "--progress=thread"),
        "rping_preload": rping_of(4, "--preload"),
        "rping_own_qp": rping_own_qp,
        "rping_persistent": rping_persistent,
        "rping_pcap": rping_pcap,
        "ucmatose": ucmatose,
        "cmtime": cmtime,
        "endpoints": endpoints,
        "datagram_programs_say_no": datagram_programs_say_no,
        "infiniband_programs_say_no": infiniband_programs_say_no,
        "xrc_programs_say_no": xrc_programs_say_no,
        "two_at_once": two_at_once,
        "killed_server": killed_server,
        "killed_client": killed_client,
        "dead_link_busy": dead_link_busy,
        "dead_link_idle": dead_link_idle,
        "run_passes_status_and_signals": run_passes_status_and_signals,
        "run_refuses_what_cannot_work": run_refuses_what_cannot_work,
    })
