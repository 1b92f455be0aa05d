"""Extended sockets: every kind of transfer against message size, and TCP beside it."""

from ..figure import Section, build
from ..plan import BOTH, Cell, Job, point
from ..process import Failed
from ..rivals import exs_perf

NAME = "extended"
NUMBER = 10
TITLE = "Extended sockets"
NEEDS = ()
ABOUT = """libexs over Weft's TCP path with CRC on, one connection, 16 operations outstanding, both
ends polling on a CPU each. Normal: the receiver fetches each message by an RDMA Read. Immediate:
the data is inside the message. Persistent: each receive reads the sender's memory anew, and the
sender does nothing. Stream: Writes into receives that wait. TCP through the same calls is beside
them, and TCP by io_uring: linked sends, and one receive request for all that comes. CPU seconds
are those of both ends, which poll; latency is half a round trip, or one receive of a persistent
send."""

SIZES = (64, 1024, 8192, 65536, 2**20)
QUICK_SIZES = (64, 65536)
MODES = ("normal", "immediate", "persistent", "stream", "tcp", "uring")
IMMEDIATE_MOST = 65536


def modes_of(size):
    return tuple(m for m in MODES if m != "immediate" or size <= IMMEDIATE_MOST)


def cell(mode, size):
    return Cell(NAME, f"exs-{mode}", BOTH, point(size=size))


def _measure(bench, size):
    wanted = modes_of(size)
    found = {}
    try:
        found = exs_perf.measure(bench, bench.anywhere(), wanted, size)
    except Failed as error:
        if "uring" not in str(error):
            raise
        wanted = wanted[:-1]
        found = exs_perf.measure(bench, bench.anywhere(), wanted, size)
    missing = {"error": "exs-perf has no result"}
    return {cell(mode, size): found.get(mode, missing) for mode in modes_of(size)}


def jobs(bench):
    for size in QUICK_SIZES if bench.settings.quick else SIZES:
        modes = modes_of(size)
        seconds = 2 * len(modes) * (bench.settings.seconds + 0.1)
        yield Job(f"{NAME}|{size}", tuple(cell(m, size) for m in modes), seconds,
                  lambda b, s=size: _measure(b, s))


def section(store):
    figures = [
        build(store, NAME, "bytes_per_s", "Bandwidth", "GB/s", "size", scale=1e9, log=True,
              x_title="message size"),
        build(store, NAME, "cpu_s_per_gb", "CPU seconds per GB, both ends", "s/GB", "size", log=True,
              lower_is_better=True, x_title="message size",
              note="Both ends poll, and so use both CPUs all the time."),
        build(store, NAME, "us", "One-way latency", "us", "size", log=True, lower_is_better=True,
              x_title="message size"),
        build(store, NAME, "direct", "Share of the bytes that no end has copied", "%", "size",
              scale=0.01, plot=False),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
