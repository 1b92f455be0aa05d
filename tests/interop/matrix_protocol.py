"""Rows of the matrix for the protocol, by the probe: start-up, operations, errors, endings."""

from matrix_row import BOTH, PROBE_CLIENT, PROBE_SERVER, WEFT_CLIENT, WEFT_SERVER, Row


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


def revision_1():
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


def peer_to_peer():
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


def startup():
    yield from revision_1()
    yield from peer_to_peer()
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


def sizes():
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


def operations():
    yield from sizes()
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
