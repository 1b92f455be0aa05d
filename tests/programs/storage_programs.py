#!/usr/bin/env python3
"""Programs of other projects that move disks and whole machines by verbs, unmodified: iSER between
tgtd and libiscsi, live migration by QEMU; and uDAPL's own tests."""

import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile
import time

from harness import Failure, Skip, check, free_port, main, need

LIMIT_S = 100
MIB = 1 << 20

INITIATOR = "iqn.2026-11.test:guest"
TARGET = "iqn.2026-11.test:disk"


@contextlib.contextmanager
def iser_target(network, size):
    """The URL of a disk of tgtd, and its file."""
    need("tgtd")
    need("tgtadm")
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, "disk")
        with open(disk, "wb") as file:
            file.truncate(size)
        # Its control socket is found by this name, beside those of others.
        control = {"TGT_IPC_SOCKET": os.path.join(folder, "control")}
        port = free_port()
        daemon = network.start(["tgtd", "-f", "--iser", f"port={port},pool_sz_mb=64", "--iscsi",
                                f"portal=127.0.0.1:{free_port()}"], env=control).listening(port)

        def tell(mode, *words):
            command = ["tgtadm", "--lld", "iser", "--mode", mode, "--op", *words, "--tid", "1"]
            done = subprocess.run(command, env={**os.environ, **control}, capture_output=True,
                                  text=True, timeout=LIMIT_S, check=False)
            check(done.returncode == 0, f"{' '.join(command)}: {done.stderr}\n{daemon.tail()}")

        tell("target", "new", "-T", TARGET)
        tell("logicalunit", "new", "--lun", "1", "-b", disk)
        # It wants the address and the name of who may come.
        tell("target", "bind", "-I", "ALL")
        tell("target", "bind", "--initiator-name", INITIATOR)
        try:
            yield f"iser://{network.server.v4}:{port}/{TARGET}/1", disk
        finally:
            daemon.end()


def iser(network):
    """A disk of tgtd read by libiscsi's programs: both ends in user space."""
    for program in ("iscsi-inq", "iscsi-readcapacity16", "iscsi-perf"):
        need(program)
    with iser_target(network, 32 * MIB) as (url, _):
        who = ["-i", INITIATOR, url]
        out = network.connect(["iscsi-inq", *who]).expect(0, LIMIT_S)
        check("Product:VIRTUAL-DISK" in out, out)
        out = network.connect(["iscsi-readcapacity16", *who]).expect(0, LIMIT_S)
        check(f"Total size:{32 * MIB}" in out, out)
        # Random reads of 4 KiB, then long ones, 16 at a time, for two seconds each.
        for blocks in (8, 256):
            out = network.connect(["iscsi-perf", "-b", blocks, "-m", 16, "-t", 2, "-r", *who]
                                  ).expect(0, LIMIT_S)
            check("finished." in out and re.search(r"iops average [1-9]", out), out)


def iser_writes(network):
    """Writes by QEMU's block layer (libiscsi), compared in the disk's file."""
    need("qemu-img")
    if not any(re.search(r"\biser\b", line) for line in supported_formats()):
        raise Skip("this qemu-img has no iser (package qemu-block-extra)")
    with iser_target(network, 32 * MIB) as (url, disk):
        image = f"json:{{\"driver\":\"raw\",\"file\":{{\"driver\":\"iscsi\",\"transport\":\"iser\"," \
                f"\"portal\":\"{url.split('/')[2]}\",\"target\":\"{TARGET}\",\"lun\":1," \
                f"\"initiator-name\":\"{INITIATOR}\"}}}}"
        for size, pattern in ((4096, 0x5a), (65536, 0xa5), (262144, 0x3c)):
            count = 8 * MIB // size
            common = ["qemu-img", "bench", "-t", "none", "-c", count, "-s", size, "-d", 8]
            network.connect([*common, "-w", "--pattern", pattern, image]).expect(0, LIMIT_S)
            with open(disk, "rb") as file:
                check(file.read(8 * MIB) == bytes([pattern]) * (8 * MIB),
                      f"what was written in pieces of {size} is not what the disk has")
            network.connect([*common, image]).expect(0, LIMIT_S)


def supported_formats():
    done = subprocess.run(["qemu-img", "--help"], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)
    return [line for line in done.stdout.splitlines() if line.startswith("Supported formats")]


class Machine:
    """A virtual machine whose processors stand still: it is its memory that counts here."""

    MEMORY_MIB = 256
    AT = 0x48000000  # inside it

    def __init__(self, start, folder, name, options=()):
        self.path = os.path.join(folder, name)
        self.process = start(["qemu-system-arm", "-M", "virt", "-m", self.MEMORY_MIB, "-S",
                              "-display", "none", "-nodefaults", "-qmp",
                              f"unix:{self.path},server,nowait", *options])
        end = time.monotonic() + LIMIT_S
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        while True:
            try:
                self.socket.connect(self.path)
                break
            except OSError:
                check(self.process.popen.poll() is None and time.monotonic() < end,
                      f"no monitor\n{self.process.tail()}")
                time.sleep(0.05)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.lines.readline()  # its greeting
        self.tell("qmp_capabilities")

    def tell(self, command, **arguments):
        text = json.dumps({"execute": command, "arguments": arguments})
        self.socket.sendall(text.encode())
        while True:
            try:
                line = self.lines.readline()
            except TimeoutError:
                raise Failure(f"no answer to {text}\n{self.process.tail()}") from None
            answer = json.loads(line or '{"error": "the monitor is gone"}')
            if "event" in answer:
                continue
            check("return" in answer, f"{text}: {answer}\n{self.process.tail()}")
            return answer["return"]

    def pin(self):
        self.tell("migrate-set-capabilities", capabilities=[
            {"capability": "rdma-pin-all", "state": True}])

    def migration(self):
        return self.tell("query-migrate").get("status")

    def wait_for(self, *states):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            state = self.migration()
            if state in states:
                return state
            time.sleep(0.1)
        raise Failure(f"the migration is '{self.migration()}', not {states}\n{self.process.tail()}")


@contextlib.contextmanager
def two_machines(network, blob_size):
    """The source with a file of random octets in its memory, the destination, and the file."""
    need("qemu-system-arm")
    with tempfile.TemporaryDirectory() as folder:
        blob = os.path.join(folder, "blob")
        with open(blob, "wb") as file:
            file.write(os.urandom(blob_size))
        port = free_port()
        there = Machine(network.start, folder, "there", ["-incoming", "defer"])
        here = Machine(network.connect, folder, "here",
                       ["-device", f"loader,file={blob},addr={Machine.AT},force-raw=on"])
        yield here, there, blob, f"rdma:{network.server.v4}:{port}"


def migrate(network, pinned):
    with two_machines(network, 64 * MIB) as (here, there, blob, uri):
        if pinned:
            here.pin()
            there.pin()
        there.tell("migrate-incoming", uri=uri)
        here.tell("migrate-set-parameters", **{"max-bandwidth": 10 << 30})
        here.tell("migrate", uri=uri)
        here.wait_for("completed")
        there.wait_for("completed")
        copy = blob + ".copy"
        there.tell("pmemsave", val=Machine.AT, size=64 * MIB, filename=copy)
        with open(blob, "rb") as first, open(copy, "rb") as second:
            check(first.read() == second.read(), "the memory that arrived differs")


def qemu_migration(network):
    """A machine of 256 MiB moves to another QEMU: chunks are registered as they are needed."""
    migrate(network, pinned=False)


def qemu_migration_pinned(network):
    """With all of the memory registered before it starts."""
    migrate(network, pinned=True)


def qemu_destination_killed(network):
    """The source is told, goes on, and can move somewhere else then."""
    with two_machines(network, 64 * MIB) as (here, there, _, uri):
        there.tell("migrate-incoming", uri=uri)
        here.tell("migrate-set-parameters", **{"max-bandwidth": 8 << 20})
        here.tell("migrate", uri=uri)
        here.wait_for("active")
        time.sleep(0.5)
        there.process.kill()
        here.wait_for("failed")
        check(here.tell("query-status")["status"] in ("prelaunch", "paused", "postmigrate"),
              "the source is in no state to go on")


@contextlib.contextmanager
def dapl_providers(network):
    """For server and client, an environment in which their address is uDAPL's adapter "weft".
    rdma_bind_addr to a loopback address names no device, so it takes an address of the machine's
    own."""
    for program in ("dtest", "dtestsrq", "dtestcm", "dapltest"):
        need(program)
    if network.name != "namespaces":
        raise Skip("uDAPL opens no loopback address: it is run between namespaces")
    with tempfile.TemporaryDirectory() as folder:
        environments = []
        for name, place in (("server", network.server), ("client", network.client)):
            path = os.path.join(folder, f"{name}.conf")
            with open(path, "w", encoding="ascii") as file:
                file.write("weft u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "
                           f"\"{place.v4} 0\" \"\"\n")
            environments.append({"DAT_OVERRIDE": path})
        yield environments


def dapl(network):
    """dtest: messages, Writes, Reads; dtestsrq: a shared receive queue; dtestcm: 1000
    connections."""
    with dapl_providers(network) as (servers, clients):
        for program, port in (("dtest", 15828), ("dtestsrq", 45248), ("dtestcm", 15828)):
            server = network.start([program, "-P", "weft"], env=servers).listening(port)
            client = network.connect([program, "-P", "weft", "-h", network.server.v4], env=clients)
            client.expect(0, LIMIT_S)
            server.expect(0, LIMIT_S)


def dapltest(network):
    """Transactions by several threads and endpoints, with what arrives checked, and a rate."""
    with dapl_providers(network) as (servers, clients):
        server = network.start(["dapltest", "-T", "S", "-D", "weft"], env=servers)
        server.wait_for("Service Point Ready", LIMIT_S)
        common = ["-D", "weft", "-s", network.server.v4]

        def run(kind, *words):
            command = ["dapltest", "-T", kind, *common, *words]
            return network.connect(command, env=clients).expect(0, LIMIT_S)

        for words in ("client SR 256 1 server SR 256 1",
                      "client RW 4096 1 server RR 4096 1 client SR 100 1 server SR 100 1"):
            out = run("T", "-i", 100, "-t", 2, "-w", 4, "-V", *words.split())
            check("Total Send" in out and "mismatch" not in out.lower(), out)
        out = run("P", "-i", 1000, "-p", 16, "-m", "p", "RW", 4096, 1)
        check("raw: RW, 1000, 4096" in out, out)
        run("Q")
        server.expect(0, LIMIT_S)


if __name__ == "__main__":
    main({
        "iser": iser,
        "iser_writes": iser_writes,
        "qemu_migration": qemu_migration,
        "qemu_migration_pinned": qemu_migration_pinned,
        "qemu_destination_killed": qemu_destination_killed,
        "dapl": dapl,
        "dapltest": dapltest,
    })
