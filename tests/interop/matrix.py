"""What the interop tests do, as data. run.py does it; docs/interop.md shows the outcome.

A command runs through `weft run` on Weft's side, except `weft ...` itself.
Placeholders in commands: {probe} the program of probe/, {verbs} weft-selftest-verbs,
{exs_perf} and {echo} programs of libexs, {target} and {initiator} the scripts of iser/, {rddp}
rping by the calls of RFC 4296 (Weft's side only), {addr} where the client finds the server, {port},
{own} an address of the side that runs it. In patterns over
the wire: {weft} and {siw} become "client" or "server".
"""

import dataclasses
import os
import re

BOTH = ("weft>siw", "siw>weft")  # client>server
WEFT_CLIENT = ("weft>siw",)
WEFT_SERVER = ("siw>weft",)
SIW_SIW = ("siw>siw",)

PROBE_SERVER = "{probe} server {port} "
PROBE_CLIENT = "{probe} client {addr} {port} "


@dataclasses.dataclass(frozen=True)
class Row:
    """One meeting of a server and its client, or of several clients one after the other."""

    name: str
    group: str
    server: str
    client: str | tuple
    roles: tuple = BOTH
    siw: dict = dataclasses.field(default_factory=dict)  # module parameters, rest as by default
    crc: str = "off"  # weft run --crc=
    weft: dict = dataclasses.field(default_factory=dict)  # WEFT_* settings beside that
    client_rc: tuple = (0,)  # exit status that the last client may have
    server_rc: tuple | None = (0,)  # None: the server is ended by the test
    server_has: tuple = ()  # regular expressions, each found in the output
    client_has: tuple = ()
    weft_has: tuple = ()  # the same for whichever side is Weft
    siw_has: tuple = ()
    weft_lacks: tuple = ()
    wire: tuple = ()  # each matches a line of wire.render(); needs the tap network
    netem: str = ""  # makes the guest's side of the path slow or lossy, as tc-netem(8) says
    kill: tuple = ()  # (side, text): killed with SIGKILL once its output has the text
    # A fault of the program itself: {side of the client: regular expression of what it then says}.
    # With that it has another try.
    again_if: dict = dataclasses.field(default_factory=dict)
    tries: int = 1
    also_siw_siw: bool = False  # a few run without Weft too, to prove the guest
    timeout: int = 30  # seconds for each program


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


def crc():
    """Each wish of one side against each of the other: CRC is used when either wants it.

    As server siw does as the Request says, whatever its mpa_crc_required.
    """
    for siw_wants in (0, 1):
        for weft_wants in ("off", "on"):
            for role in BOTH:
                used = weft_wants == "on" or (siw_wants and role in WEFT_SERVER)
                state = "ok" if used else "off"
                yield Row(
                    f"CRC siw {'on' if siw_wants else 'off'}, Weft {weft_wants}",
                    "crc",
                    PROBE_SERVER + "--echo",
                    PROBE_CLIENT + "send:100 write:5001 read:5001 send:1 recv:3",
                    roles=(role,),
                    siw={"mpa_crc_required": siw_wants},
                    crc=weft_wants,
                    wire=(f"client Send len=100 crc={state}", f"server Send len=100 crc={state}"),
                )
    yield Row(
        "CRC refused by siw (strict, off) ends in a reject",
        "crc",
        PROBE_SERVER + "--timeout 3000",
        PROBE_CLIENT + "--timeout 3000 send:1",
        roles=WEFT_CLIENT,
        siw={"mpa_crc_strict": 1},
        crc="on",
        client_rc=(3,),
        server_rc=None,
        client_has=("rejected conn=0",),
    )
    yield Row(
        "rping with CRC",
        "crc",
        "rping -s -p {port} -C 5 -S 5000 -V",
        "rping -c -a {addr} -p {port} -C 5 -S 5000 -V",
        siw={"mpa_crc_required": 1},
        crc="on",
        also_siw_siw=True,
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


def private_data():
    for size in (0, 1, 56, 196, 251):
        yield Row(
            f"private data {size} octets, both ways",
            "private-data",
            PROBE_SERVER + f"--pdata {size}",
            PROBE_CLIENT + f"--pdata {size} send:10",
            server_has=(f"request conn=0 status=0 pdata={size} ok",),
            client_has=(f"established conn=0 status=0 pdata={size} ok",),
            also_siw_siw=size == 56,
        )
    for size in (0, 1, 56, 196, 251):
        yield Row(
            f"reject with {size} octets",
            "private-data",
            PROBE_SERVER + f"--reject --pdata {size}",
            PROBE_CLIENT + "--pdata 7 send:10",
            client_rc=(3,),
            server_has=("request conn=0 status=0 pdata=7 ok",),
            client_has=(f"rejected conn=0 status=-1(04|11) pdata={size} ok",),
            wire=("server reply .*R=1 ",),
        )
    yield Row(
        "nobody listens",
        "private-data",
        "sleep 0.1",
        PROBE_CLIENT + "send:10",
        client_rc=(3,),
        client_has=("connect conn=0 error=111|conn=0 .*status=-1",),
    )


def startup():
    for size in (0, 56, 196):
        yield Row(
            f"siw connects with MPA revision 1, private data {size}",
            "startup",
            PROBE_SERVER + f"--pdata {size} --echo",
            PROBE_CLIENT + f"--pdata {size} send:100 recv:1 write:5000 read:5000",
            roles=WEFT_SERVER,
            siw={"mpa_version": 1},
            server_has=(f"request .*pdata={size} ok",),
            client_has=(f"established .*pdata={size} ok",),
            wire=("client request rev=1", "server reply rev=1 .*S=0"),
        )
        yield Row(
            f"Weft connects with MPA revision 1, private data {size}",
            "startup",
            PROBE_SERVER + f"--pdata {size} --echo",
            PROBE_CLIENT + f"--pdata {size} send:100 recv:1 write:5000 read:5000",
            roles=WEFT_CLIENT,
            weft={"WEFT_MPA_REVISION": "1"},
            server_has=(f"request .*pdata={size} ok",),
            client_has=(f"established .*pdata={size} ok",),
            wire=("client request rev=1 .*S=0", "server reply rev=1"),
        )
    for name, parameters, first in (
        ("Write or Read", {}, "(Write|ReadRequest)"),
        ("Write only", {"rtr_read": 0}, "Write"),
        ("Read only", {"rtr_write": 0}, "ReadRequest"),
    ):
        yield Row(
            f"siw connects peer-to-peer, {name} as first message",
            "startup",
            PROBE_SERVER + "--echo",
            PROBE_CLIENT + "sleep:100 send:100 recv:1 write:5000 read:5000",
            roles=WEFT_SERVER,
            siw={"peer_to_peer": 1, **parameters},
            wire=("client request .*p2p=1", "server reply .*p2p=1", f"client {first} len=(0|28) "),
        )
    for rtr in ("auto", "write", "read"):
        offers = {"auto": "(both|read|write)"}.get(rtr, rtr)
        first = {"auto": "(Write|ReadRequest)", "read": "ReadRequest", "write": "Write"}[rtr]
        yield Row(
            f"Weft connects peer-to-peer, WEFT_RTR={rtr}",
            "startup",
            PROBE_SERVER + "--echo",
            PROBE_CLIENT + "sleep:100 send:100 recv:1 write:5000 read:5000",
            roles=WEFT_CLIENT,
            weft={"WEFT_PEER_TO_PEER": "on", "WEFT_RTR": rtr},
            wire=(f"client request .*p2p=1 rtr={offers}", "server reply .*p2p=1",
                  f"client {first} len=(0|28) "),
        )  # fmt: skip
    yield Row(
        "siw refuses markers, which it does not have",
        "startup",
        PROBE_SERVER + "--timeout 3000",
        PROBE_CLIENT + "send:10",
        roles=WEFT_CLIENT,
        weft={"WEFT_MARKERS": "on"},
        client_rc=(3,),
        client_has=("rejected conn=0",),
        server_rc=None,
        wire=("client request rev=2 M=1", "server reply .*M=0 .*R=1"),
    )
    # siw rounds its depths up to a power of two: for a peer that serves 3 Reads it sends 4.
    for ird, ord_ in ((1, 16), (16, 1), (0, 0), (128, 128)):
        yield Row(
            f"read depth in {ird}, out {ord_}",
            "startup",
            PROBE_SERVER + "--ird 4 --ord 2",
            PROBE_CLIENT
            + f"--ird {ird} --ord {ord_} send:10 " + ("batch:8,read:100" if ord_ else ""),
            server_has=(f"request .*ird={ord_} ord={ird}",),
        )


def operations():
    yield Row(
        "sizes around the limits of pad and segment",
        "operations",
        PROBE_SERVER + "--echo --recvs 64 --rsize 70000",
        PROBE_CLIENT + "--recvs 64 --rsize 70000 send:0 send:1 send:2 send:3 send:4 send:5 "
        "send:1424 send:1425 send:3000 send:65535 send:65536 write:0 write:1 write:1428 "
        "write:1429@7 write:9000@100 write:65537@3 read:0 read:1 read:1428@1 read:70000 recv:11",
        also_siw_siw=True,
    )
    yield Row(
        "solicited, inline, several pieces, batches",
        "operations",
        PROBE_SERVER + "--echo --recvs 64",
        PROBE_CLIENT + "--recvs 64 sendse:50 sendse:2000 sendinl:30 sendsge:1003 writeinl:20 "
        "writesge:5003@9 batch:6,send:700 batch:8,write:3000 batch:20,read:3000 recv:10",
    )
    for name, crc_on in (("", 0), (" with CRC", 1)):
        yield Row(
            f"1 MiB each way{name}",
            "operations",
            PROBE_SERVER + "--echo --recvs 2 --rsize 1048576",
            PROBE_CLIENT
            + "--recvs 2 --rsize 1048576 send:1048576 recv:1 write:1048576@11 read:1048576@11",
            siw={"mpa_crc_required": crc_on},
            crc="on" if crc_on else "off",
        )
    for policy in ("mss", "16k", "64k"):
        yield Row(
            f"Weft sends FPDUs as WEFT_FPDU={policy} says",
            "operations",
            PROBE_SERVER + "--echo --recvs 4 --rsize 200000",
            PROBE_CLIENT + "--recvs 4 --rsize 200000 send:200000 recv:1 write:300000 read:300000",
            weft={"WEFT_FPDU": policy},
        )
    yield Row(
        "a path that delays and loses packets",
        "operations",
        PROBE_SERVER + "--echo --recvs 4 --rsize 200000",
        PROBE_CLIENT
        + "--recvs 4 --rsize 200000 batch:3,send:50000 recv:3 write:300000 read:300000",
        siw={"mpa_crc_required": 1},
        crc="on",
        netem="delay 2ms 1ms loss 2%",
        timeout=40,
    )
    yield Row(
        "siw sends FPDUs of up to 64 KiB",
        "operations",
        PROBE_SERVER + "--echo --recvs 4 --rsize 200000",
        PROBE_CLIENT + "--recvs 4 --rsize 200000 send:200000 recv:1 write:300000 read:300000",
        siw={"try_gso": 1},
    )
    yield Row(
        "shared receive queue, 4 connections",
        "operations",
        PROBE_SERVER + "--srq --conns 4 --recvs 32",
        PROBE_CLIENT + "--conns 4 send:10 write:100 read:200 send:3000 batch:4,send:20",
        server_has=tuple(f"recv conn={i} len=3000 ok" for i in range(4)),
    )
    yield Row(
        "16 connections at once",
        "operations",
        PROBE_SERVER + "--conns 16 --echo",
        PROBE_CLIENT + "--conns 16 send:100 write:4000 read:4000 recv:1",
        server_has=("ended conn=15",),
        timeout=40,
    )
    yield Row(
        "Send with Invalidate, and the region is gone",
        "operations",
        PROBE_SERVER,
        PROBE_CLIENT + "write:64 !sendinv:20 sleep:100 !write:64 waitdisc",
        roles=WEFT_CLIENT,
        client_has=("disconnected conn=0",),
        # siw's library does not say in the completion that an STag has gone.
        server_has=("recv conn=0 len=20 ok",),
        wire=("client SendInv len=20 .*stag=(?!00000000)", "server Terminate .*control=11000[0-7]"),
    )


def errors():
    """Each broken rule costs that connection; the same server then serves the next client."""
    good = PROBE_CLIENT + "send:100 write:100 read:100"
    server = PROBE_SERVER + "--conns 2 "
    # Terminate Control of RFC 5040: layer, type, code; then M, D, R in the top three bits. siw
    # swaps layer and type, has M, D, R in the low bits, and does not tell a message that is too
    # long from one without buffer.
    cases = [
        ("Write to an unknown STag", "", "!writebadstag:64 waitdisc", "1100", "1100"),
        ("Write beyond the region", "", "!writeoob:3000 waitdisc", "1101", "1101"),
        ("Write without the right", "--access r", "!write:64 waitdisc", "1100", "1101|1100"),
        ("Read of an unknown STag", "", "!readbadstag:64 waitdisc", "0100", "1000"),
        ("Read beyond the region", "", "!readoob:3000 waitdisc", "0101", "1001"),
        ("Send longer than the receive", "--rsize 16", "!send:17 waitdisc", "1205", "2102"),
        ("Send without a receive", "--recvs 0", "!send:17 waitdisc", "1202", "2102"),
    ]
    for name, options, words, weft_sends, siw_sends in cases:
        second = good if not options else PROBE_CLIENT
        rfc, siw = f"({weft_sends})[02468ace]0", f"({siw_sends})0[0-7]"
        for role, sends in ((WEFT_SERVER, rfc), (WEFT_CLIENT, siw)):
            yield Row(
                name,
                "errors",
                server + options,
                (PROBE_CLIENT + words, second),
                roles=role,
                server_has=("ended conn=1",),
                wire=(f"server Terminate .*control={sends}",),
            )
    yield Row(
        "Read beyond the region is told to the one who asked",
        "errors",
        server,
        (PROBE_CLIENT + "write:64 !readoob:3000 waitdisc", good),
        roles=WEFT_CLIENT,
    )
    yield Row(
        "Send with Invalidate of STag 0, which is all that siw can send",
        "errors",
        server,
        (PROBE_CLIENT + "send:16 !sendinv:20 waitdisc", good),
        roles=WEFT_SERVER,
        server_has=("ended conn=1",),
        wire=("client SendInv .*stag=00000000", "server Terminate .*control=0209[02468ace]0"),
    )


def teardown():
    good = PROBE_CLIENT + "send:100 write:100 read:100"
    yield Row(
        "the server disconnects",
        "teardown",
        PROBE_SERVER + "--close-after 1",
        PROBE_CLIENT + "send:10 waitdisc",
        client_has=("disconnected conn=0", "ended conn=0"),
    )
    yield Row(
        "the server disconnects amid Writes",
        "teardown",
        PROBE_SERVER + "--close-after 3",
        PROBE_CLIENT + "--timeout 3000 send:10 write:1 send:10 loop:write:30000 waitdisc",
        client_has=("disconnected conn=0",),
    )
    for name, words in (
        ("the client destroys its queue pair", "send:10 destroy sleep:200"),
        ("the client disconnects at once", "disconnect"),
        ("the client leaves without a word", "send:10 abort"),
        ("the client leaves right after connecting", "abort"),
    ):
        yield Row(
            name,
            "teardown",
            PROBE_SERVER + "--conns 2",
            (PROBE_CLIENT + words, good),
            server_has=("ended conn=1",),
        )
    for name, words, text in (
        ("idle", "send:100 write:65536 hang", "hanging"),
        ("amid Writes", "loop:write:30000", "looping"),
        ("amid Reads", "loop:read:30000", "looping"),
        ("amid Sends", "loop:send:4000", "looping"),
    ):
        yield Row(
            f"the client is killed, {name}",
            "teardown",
            PROBE_SERVER + "--conns 2",
            (PROBE_CLIENT + words, good),
            kill=("client", text),
            server_has=("ended conn=0", "ended conn=1"),
        )
    for name, words in (
        ("idle", "write:64"),
        ("amid Writes", "loop:write:30000"),
        ("amid Reads", "loop:read:30000"),
        ("amid Sends", "loop:send:4000"),
    ):
        yield Row(
            f"the server is killed, {name}",
            "teardown",
            PROBE_SERVER,
            PROBE_CLIENT + f"--timeout 3000 send:10 {words} waitdisc",
            kill=("server", "recv conn=0 len=10 ok"),
            server_rc=None,
            client_has=("disconnected conn=0",),
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


GROUPS = {
    "rping": rping,
    "rddp": rddp,
    "crc": crc,
    "librdmacm": librdmacm,
    "private-data": private_data,
    "startup": startup,
    "operations": operations,
    "errors": errors,
    "teardown": teardown,
    "selftest": selftest,
    "exs": extended_sockets,
    "rsockets": rsockets,
    "iser": iser,
    "perftest": perftest,  # last: what is left out where time is short is less of the same
}


def rows(group=None):
    for name, make in GROUPS.items():
        if group in (None, name):
            yield from make()
