"""Throughput and CPU use against size, asleep; and how much of the wire carries payload."""

from ..figure import Section, build
from ..plan import BOTH, SAME, Cell, Job, point
from ..places import wire_counters
from ..process import Failed
from ..rivals import weft
from .common import (congestion_options, loopback_cells, tcp_as_shipped, weft_job)

NAME = "exs"
NUMBER = 5
TITLE = "Throughput and CPU use, asleep; share of the wire"
NEEDS = ()
ABOUT = """After UNH EXS, which moves data by Sends (small) and by Reads that the receiver pulls
(large), and which used 93.33 % of its wire where framing left 93.63 %. Both sides sleep while
they wait, so that CPU seconds mean something. The share of the wire is payload divided by all
that an Ethernet would carry for it, preamble and gap included: computed from the framing, and
measured by the counters of a virtual adapter whose every TCP segment is a packet of its own.
Acknowledgments go the other way and are not in it."""

SIZES = (64, 1024, 8192, 65536, 2**20)
QUICK_SIZES = (1024, 65536)
MTUS = (1500, 9000)
WIRE_MESSAGE = 2**20
ETHERNET_REST = 24      # preamble, checksum and gap: no adapter counts them
FRAME = 14 + ETHERNET_REST
IP_TCP = 52             # with timestamps
# name -> options of weft perf
FRAMINGS = {
    "tcp": ("--transport", "tcp"),
    "weft-auto": ("--fpdu", "auto", "--crc", "on"),
    "weft-mss": ("--fpdu", "mss", "--crc", "on"),
    "weft-mss-markers": ("--fpdu", "mss", "--crc", "on", "--markers", "on"),
    "weft-64k": ("--fpdu", "64k", "--crc", "off"),
}
DDP_HEADER = 14  # of a tagged segment
FPDU_REST = 6    # length and CRC
MARKER_EVERY = 512
MARKER = 4


def _sleep_jobs(bench):
    for size in QUICK_SIZES if bench.settings.quick else SIZES:
        where = {"of": lambda r: point(size=r["size"]), "all": [point(size=size)]}
        names = [f"weft-{op}{crc}" for op in ("send", "read") for crc in ("", "-crc")]
        yield weft_job(f"{NAME}|weft|{size}", loopback_cells(bench, NAME), [*names, "tcp"], where,
                       ["--op", "send,read", "--transport", "rdma,tcp", "--crc", "on,off", "--mode",
                        "sleep", "--size", size, *congestion_options(bench)],
                       lambda b: b.anywhere(), 5 * (bench.settings.seconds + 0.06) + 0.2)
        if bench.column_differs():
            yield tcp_as_shipped(NAME, where, ["--mode", "sleep", "--size", size],
                                 bench.settings.seconds + 0.2)


def payload_share(mtu, max_ulpdu=0, per_segment=False, markers=False, message=WIRE_MESSAGE):
    """Payload of a long message divided by what the wire carries for it. max_ulpdu 0: plain TCP."""
    segment = mtu - IP_TCP
    if not max_ulpdu:
        return segment / (mtu + FRAME)
    payload = max_ulpdu - DDP_HEADER
    left, stream, packets = message, 0, 0
    while left > 0:
        part = min(payload, left)
        ulpdu = part + DDP_HEADER
        fpdu = ulpdu + FPDU_REST + (-(ulpdu + 2)) % 4
        if markers:
            # One every 512 octets of the stream, which they are part of.
            fpdu += MARKER * fpdu / (MARKER_EVERY - MARKER)
        stream += fpdu
        packets += 1 if per_segment else fpdu / segment
        left -= part
    return message / (stream + packets * (IP_TCP + FRAME))


def _wire_sample(bench, mtu, name):
    place = bench.veth(mtu, SAME, True)
    count = 60 if bench.settings.quick else 200
    before = wire_counters(place)
    results = weft.perf(bench, place, *FRAMINGS[name], "--size", WIRE_MESSAGE, "--iterations",
                        count, "--warmup", "0")
    octets, packets = (b - a for a, b in zip(before, wire_counters(place)))
    moved = sum(r["messages"] for r in results[0]["rounds"]) * WIRE_MESSAGE
    if packets == 0 or moved == 0:
        raise Failed("the adapter counted no packet")
    if octets / packets > mtu + 14:
        raise Failed("this adapter joins segments (no gso_max_segs): its packets are not those of "
                     "a wire")
    ulpdu = results[0]["max_ulpdu_bytes"]["client"] if name != "tcp" else 0
    left = payload_share(mtu, ulpdu, "mss" in name, "markers" in name)
    return {"wire_share": moved / (octets + packets * ETHERNET_REST), "framing_leaves": left,
            "max_ulpdu_bytes": ulpdu, **weft.sample_of(results[0])}


def _wire_job(mtu, name):
    cell = Cell(NAME, name, BOTH, point(mtu=mtu))
    return Job(f"{NAME}|wire|{mtu}|{name}", (cell,), 0.6,
               lambda bench: {cell: _wire_sample(bench, mtu, name)}, max_rounds=2)


def jobs(bench):
    yield from _sleep_jobs(bench)
    for mtu in MTUS:
        for name in FRAMINGS:
            yield _wire_job(mtu, name)


def section(store):
    label = lambda mtu: f"MTU {mtu}"  # noqa: E731
    figures = [
        build(store, NAME, "bytes_per_s", "Bandwidth, sleeping", "GB/s", "size", scale=1e9,
              log=True, x_title="message size"),
        build(store, NAME, "cpu_s_per_gb", "CPU seconds per GB, client and server, sleeping",
              "s/GB", "size", log=True, lower_is_better=True, x_title="message size"),
        build(store, NAME, "wire_share", "Share of the wire that carried payload, measured", "%",
              "mtu", scale=0.01, plot=False, label=label),
        build(store, NAME, "framing_leaves", "What framing leaves, computed", "%", "mtu",
              scale=0.01, plot=False, label=label),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
