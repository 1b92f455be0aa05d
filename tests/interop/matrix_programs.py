"""Rows of the matrix for programs that others wrote, and for Weft's own."""

import dataclasses
import os
import re

from matrix_row import BOTH, WEFT_CLIENT, WEFT_SERVER, Row


def rping():
    both = lambda name, options, **more: Row(
        f"rping {name}",
        "rping",
        f"rping -s -p {{port}} {options}",
        f"rping -c -a {{addr}} -p {{port}} {options}",
        **more,
    )
    yield both("10 x 64", "-C 10", also_siw_siw=True)
    yield both("validated, 1000 octets", "-C 10 -S 1000 -V")
    yield both("largest, 65535 octets", "-C 5 -S 65535 -V")
    yield both("smallest, 23 octets, verbose", "-C 3 -S 23 -v")
    yield Row(
        "rping debug output, each at a named address of its own (-d, -a, -I)",
        "rping",
        "rping -s -d -a {own} -p {port} -C 3",
        "rping -c -d -I {own} -a {addr} -p {port} -C 3",
    )
    # Over siw -q ends in "rdma_establish: Invalid argument", so only Weft's side has it.
    for role, server, client in ((WEFT_SERVER, "-q", ""), (WEFT_CLIENT, "", "-q")):
        yield Row(
            "rping own queue pair (-q) on Weft's side",
            "rping",
            f"rping -s -p {{port}} -C 5 {server}",
            f"rping -c -a {{addr}} -p {{port}} -C 5 {client}",
            roles=role,
        )
    yield Row(
        "rping persistent server, three clients",
        "rping",
        "rping -s -P -p {port}",
        ("rping -c -a {addr} -p {port} -C 5 -V",) * 3,
        server_rc=None,
    )


def rddp():
    """A program of the calls of RFC 4296 (tests/rddp/rping.c) with rping over siw."""
    for size in (23, 64, 4096, 65535):
        yield Row(
            f"rddp asks, {size} octets",
            "rddp",
            f"rping -s -p {{port}} -C 10 -S {size}",
            f"{{rddp}} -c {{addr}} -p {{port}} -C 10 -S {size}",
            roles=WEFT_CLIENT,
            server_rc=None,
            client_has=(f"10 rounds of {size} octets came back",),
        )
        yield Row(
            f"rddp serves, {size} octets",
            "rddp",
            "{rddp} -s -p {port} -C 10",
            f"rping -c -a {{addr}} -p {{port}} -C 10 -S {size} -V",
            roles=WEFT_SERVER,
            server_has=("served 10 rounds",),
        )


def perftest():
    # It connects twice, and its server does not listen in between. Where the first attempt to
    # connect is refused at once, as over siw, the client dies of its own way to try again.
    early = "Event: RDMA_CM_EVENT_REJECTED; error: -104"
    refused = r"\Arc=139\nFailed to connect through RDMA CM\.\nERRNO: Connection refused\."
    own_fault = {"weft": early, "siw": f"{early}|{refused}"}

    def row(name, program, options, **more):
        command = f"{program} -R -F -p {{port}} {options}"
        client = command + " {addr}"
        return Row(name, "perftest", command, client, timeout=30, again_if=own_fault, **more)

    sizes = {1: 20, 1000: 20, 4096: 20, 65536: 10, 1048576: 5}
    for operation in ("write", "read", "send"):
        for kind in ("bw", "lat"):
            for size, count in sizes.items():
                if kind == "lat" and size in (1000, 65536):
                    continue
                program = f"ib_{operation}_{kind}"
                yield row(f"{program} {size}", program, f"-s {size} -n {count}")
    for name, options in (
        ("ib_write_bw, 4 queue pairs", "-q 4 -s 4096 -n 20"),
        ("ib_write_bw, both directions", "-b -s 4096 -n 20"),
        ("ib_send_bw, completion of every 5th", "-Q 5 -s 4096 -n 20"),
        ("ib_send_lat, sleeping for events", "-e -s 4096 -n 20"),
    ):
        yield row(name, name.split(",")[0], options)
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        yield row(f"{program} 65536 with CRC", program, "-s 65536 -n 10",
                  siw={"mpa_crc_required": 1}, crc="on")  # fmt: skip
    yield row("ib_write_lat 4096, siw connects peer-to-peer", "ib_write_lat", "-s 4096 -n 20",
              roles=WEFT_SERVER, siw={"peer_to_peer": 1})  # fmt: skip
    yield row("ib_write_bw 65536, siw sends large FPDUs", "ib_write_bw", "-s 65536 -n 10",
              siw={"try_gso": 1})  # fmt: skip


def librdmacm():
    for name, options in (
        ("1 connection", "-C 10 -S 100"),
        ("10 connections", "-c 10 -C 5 -S 1000"),
        ("migrated ids", "-c 2 -C 5 -m"),
        ("no messages", "-c 3 -C 0"),
    ):
        # Its server speaks first, siw's client has promised nothing: Weft waits, then speaks too.
        row = Row(
            f"ucmatose {name}",
            "librdmacm",
            f"ucmatose -p {{port}} {options}",
            f"ucmatose -s {{addr}} -p {{port}} {options}",
        )
        yield row
        yield dataclasses.replace(
            row,
            name=f"{row.name}, siw connects peer-to-peer",
            roles=WEFT_SERVER,
            siw={"peer_to_peer": 1},
        )
    # Without the usual delay siw as server overlooks a fast client's first octets now and then.
    for program, server, client in (
        ("ucmatose", "ucmatose -p {port} -c 20 -C 5", "ucmatose -s {addr} -p {port} -c 20 -C 5"),
        ("rping", "rping -s -p {port} -C 5", "rping -c -a {addr} -p {port} -C 5"),
    ):
        yield Row(
            f"{program} on a path without delay",
            "librdmacm",
            server,
            client,
            roles=WEFT_CLIENT,
            netem="limit 20000",
        )
    yield Row(
        "rdma_client and rdma_server",
        "librdmacm",
        "rdma_server -p {port}",
        "rdma_client -s {addr} -p {port}",
        also_siw_siw=True,
    )


def rsockets():
    """Debian's rsocket programs, unmodified at both ends. Over siw of this kernel they need a size
    (-S) to go beyond their first half: without one they ask for no inline data (RDMA_INLINE 0),
    which rdma-core 44 can't do over iWARP."""
    def row(program, name, options, roles=BOTH):
        return Row(
            f"{program}, {name}",
            "rsockets",
            f"{program} -p {{port}} {options}",
            f"{program} -s {{addr}} -p {{port}} {options}",
            roles=roles,
            server_rc=None,
            client_has=(r"custom +\d",),
        )

    for name, options in (
        ("1 octet", "-S 1 -C 200"),
        ("64 octets, verified", "-T v -S 64 -C 200"),
        ("4096 octets, verified", "-T v -S 4096 -C 50"),
        ("blocking calls", "-T b -S 3000 -C 50"),
        ("nonblocking calls", "-T n -S 70000 -C 20"),
        ("65536 octets, verified", "-T v -S 65536 -C 50"),
        ("1 MB", "-S 1000000 -C 20"),
        ("1 MB, verified", "-T v -S 1000000 -C 10"),
    ):
        yield row("rstream", name, options)
    # With siw as client these may end early, see docs/sockets.md.
    for name, options in (
        ("asynchronous calls", "-T a -S 3000 -C 50"),
        ("keepalive", "-k 1 -S 3000 -C 20"),
    ):
        yield row("rstream", name, options, WEFT_CLIENT)
    for name, options in (
        ("4096 octets", "-S 4096 -C 20"),
        ("100000 octets, verified", "-T v -S 100000 -C 20"),
        ("1 MB, verified", "-T v -S 1000000 -C 10"),
    ):
        yield row("riostream", name, options)
    # The file is the probe, which both sides have; the server compares. rcopy serves for ever.
    copy = f"/tmp/weft-rcopy-{os.getpid()}"
    yield Row(
        "rcopy of a file, compared",
        "rsockets",
        f"sh -c 'rcopy -p {{port}} & for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
        f"sleep 1; cmp {{probe}} {copy} && echo the same && break; done; kill $!; rm -f {copy}'",
        f"rcopy {{probe}} {{addr}}:{copy} -p {{port}}",
        server_has=("the same",),
    )


def selftest():
    """`weft selftest` finds of siw what is known of it; docs/interop.md has the whole list."""
    right = ("startup.rev2", "startup.rev1", "startup.crc-off", "startup.private-251", "p2p.read",
             "fpdu.coalesced", "fpdu.pad", "stag.write-of-nothing", "read.of-nothing", "send.sizes",
             "send.interleaved", "write.sizes", "read.many", "peer.reads", "peer.depth",
             "end.terminate-siw", "memory.untouched")  # fmt: skip
    noted = ("fpdu.crc", "header.rdmap-version", "header.queue-4", "header.send-msn-2",
             "stag.write-unknown", "stag.read-unknown", "send.invalidate", "write.one-too-far",
             "write.foreign", "read.one-too-far", "response.too-long")  # fmt: skip
    wrong = ("startup.markers", "header.read-not-last", "header.read-on-queue-0", "header.read-mo",
             "read.write-only", "response.jumps")  # fmt: skip
    yield Row(
        "weft selftest --gentle, with weft-selftest-verbs at siw's side",
        "selftest",
        "{verbs} {port}",
        "weft selftest --peer {addr}:{port} --gentle --timeout 2",
        roles=WEFT_CLIENT,
        client_rc=(1,),
        server_rc=None,
        client_has=found(right=right, noted=noted, WRONG=wrong),
        weft_lacks=("takes no connection any more",),
        timeout=150,
        # siw may overlook octets that come right behind its Reply, see docs/interop.md; Weft's
        # engine mends that, but these octets are the tool's own.
        tries=2,
    )


def extended_sockets():
    """The same binaries of libexs's programs at both ends."""
    for words, what in (("some words", "a few octets"), ("x" * 60000, "60000 octets")):
        yield Row(
            f"exs_echo, {what}",
            "exs",
            "{echo} serve {port}",
            f"{{echo}} {{addr}} {{port}} '{words}'",
            server_rc=None,
            client_has=(words[:50], r"\(over RDMA\)"),
        )
    for mode, sizes in (
        ("normal", "64,65536"),
        ("immediate", "64,16384"),
        ("persistent", "64,65536"),
        ("stream", "64,65536"),
    ):
        rates = tuple(rf"{mode} +{size} +\d" for size in sizes.split(","))
        yield Row(
            f"exs-perf, {mode}",
            "exs",
            "{exs_perf} --listen {port} --once",
            f"{{exs_perf}} --mode {mode} --size {sizes} --depth 4 --rounds 1 --seconds 0.05"
            " --bandwidth"
            " {addr}:{port}",
            client_has=rates,
            timeout=60,
        )


def iser():
    """The kernel's own iSER, over siw, with a disk of the program tgtd, over Weft."""
    yield Row(
        "a disk: writes, reads, tgtd killed and started again",
        "iser",
        "{target} {port}",
        "{initiator} {addr} {port}",
        roles=WEFT_SERVER,
        server_rc=None,
        server_has=("iser_cm_conn_established", "target: killed, and started again"),
        client_has=("initiator: 8 MiB there and back", "after the target was killed",
                    "initiator: logged out"),
        timeout=90,
    )  # fmt: skip


def found(**ids):
    """Patterns for the lines of `weft selftest` that have these checks in these grades."""
    return tuple(f"{word} *{re.escape(name)} " for word, names in ids.items() for name in names)
