"""Bandwidth and CPU seconds per GB by message size."""

from ..figure import Section, build
from ..plan import BOTH, Cell, point
from ..rivals import iperf3, libfabric, perftest, ucx
from .common import (columns, congestion_options, loopback_cells, single, tcp_as_shipped,
                     weft_column, weft_job)

NAME = "bandwidth"
NUMBER = 1
TITLE = "Bandwidth by message size"
NEEDS = ()
ABOUT = """One connection, client and server on a CPU each, both polling, 128 messages outstanding
where the program lets one choose. Weft's clock stops when the server has said that everything is
in its place; UCX and perftest stop theirs when the sender's requests are complete. iperf3 sleeps
while it waits. Debian's libfabric comes with one test, a ping-pong: its figures are for one
message at a time."""

SIZES = (64, 1024, 8192, 65536, 2**20, 8 * 2**20)
QUICK_SIZES = (64, 65536, 2**20)
DROPIN_SIZES = (64, 65536, 2**20)
OPERATIONS = ("write", "read", "send")
DRAWN = ("weft-write", "weft-write-crc", "weft-read-crc", "weft-write16", "tcp", "iperf3",
         "ucx-tag", "ucx-put", "libfabric")


def _points():
    return {"of": lambda r: point(size=r["size"])}


def _weft_jobs(bench, size):
    options = [*congestion_options(bench), "--size", size]
    where = {**_points(), "all": [point(size=size)]}
    cell_of = loopback_cells(bench, NAME)
    names = [f"weft-{op}{crc}" for op in OPERATIONS for crc in ("", "-crc")]
    yield weft_job(f"{NAME}|weft|{size}", cell_of, [*names, "tcp"], where,
                   ["--op", ",".join(OPERATIONS), "--transport", "rdma,tcp", "--crc", "on,off",
                    *options], lambda b: b.anywhere(), 7 * (bench.settings.seconds + 0.06))
    if size <= 65536:
        together = {**where, "rename": lambda r: "weft-write16" + ("-crc" if r["crc"] else "")}
        yield weft_job(f"{NAME}|weft16|{size}", cell_of, ["weft-write16", "weft-write16-crc"],
                       together, ["--op", "write", "--batch", "16", "--crc", "on,off", *options],
                       lambda b: b.anywhere(), 2 * (bench.settings.seconds + 0.1))
    if bench.column_differs():
        yield tcp_as_shipped(NAME, where, ["--size", size], bench.settings.seconds + 0.2)


def _rival_jobs(bench, size):
    seconds = bench.settings.seconds
    where = point(size=size)
    for column in columns(bench):
        for name in ucx.TESTS:
            yield single(NAME, name, column, where, seconds * 1.5 + 0.2,
                         lambda b, n=name, c=column: ucx.bandwidth(b, b.loopback(c), n, size),
                         "ucx_perftest")
        yield single(NAME, "iperf3", column, where, seconds * 2 + 0.2,
                     lambda b, c=column: iperf3.bandwidth(b, c, size), "iperf3")
        if size in (64, 65536, 2**20):
            yield single(NAME, "libfabric", column, where, 0.6,
                         lambda b, c=column: libfabric.pingpong(b, b.loopback(c), size),
                         "fi_pingpong", max_rounds=2)


def jobs(bench):
    for size in QUICK_SIZES if bench.settings.quick else SIZES:
        yield from _weft_jobs(bench, size)
        yield from _rival_jobs(bench, size)
        if size in DROPIN_SIZES:
            for name in perftest.BANDWIDTH:
                yield single(NAME, name, weft_column(bench), point(size=size), 0.7,
                             lambda b, n=name, s=size: perftest.bandwidth(
                                 b, b.anywhere(), n, s), "ib_write_bw")
    yield verify_job()


def verify_job():
    """Every byte compared where it arrived, once: the figures are of something that works."""
    names = [f"weft-{op}-crc" for op in OPERATIONS]
    sizes = (64, 65536, 2**20)

    def cell_of(contender, where):
        return Cell(NAME, contender, BOTH, where)

    return weft_job(f"{NAME}|verify", cell_of, [*names, "tcp"],
                    {"of": lambda r: point(verified=r["size"]),
                     "all": [point(verified=s) for s in sizes]},
                    ["--op", ",".join(OPERATIONS), "--transport", "rdma,tcp", "--crc", "on",
                     "--size", ",".join(map(str, sizes)), "--verify-only", "--duration", "0.05"],
                    lambda b: b.anywhere(), 2.5, max_rounds=1, what="verify")


def verified_bytes(store):
    return sum(int(sample.get("verified_bytes", 0)) for cell, rounds in store.samples.items()
               if cell.workload == NAME for sample in rounds.values())


def section(store):
    with_cpu = lambda name: not name.startswith(("dropin", "libfabric"))  # noqa: E731
    figures = [
        build(store, NAME, "bytes_per_s", "Bandwidth", "GB/s", "size", scale=1e9, log=True,
              x_title="message size", drawn=DRAWN),
        build(store, NAME, "cpu_s_per_gb", "CPU seconds per GB, client and server", "s/GB", "size",
              keep=with_cpu, log=True, drawn=DRAWN, lower_is_better=True, x_title="message size",
              note="Programs that poll use both CPUs all the time."),
    ]
    notes = []
    checked = verified_bytes(store)
    if checked:
        notes.append(f"Before anything was timed, {checked / 1e6:.0f} MB of Writes, Reads, Sends "
                     f"and TCP messages were compared byte by byte where they arrived.")
    return Section(NAME, NUMBER, TITLE, ABOUT, figures, notes)

