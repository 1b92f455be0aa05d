"""One-way latency by message size, polled and sleeping."""

from ..figure import Section, build
from ..plan import point
from ..rivals import libfabric, perftest, qperf, sockperf, ucx
from .common import (columns, congestion_options, loopback_cells, single, tcp_as_shipped,
                     weft_column, weft_job)

NAME = "latency"
NUMBER = 2
TITLE = "One-way latency"
NEEDS = ()
ABOUT = """One message at a time, there and back; half of that. Polled: both sides spin. Sleeping:
both sides sleep in the kernel at once (RDMA waits with spin=0); beside it Weft as it comes, which
polls for 50 us before it sleeps. A Weft write is a Write and an
empty Send in one list, since the target's program may not look at memory to learn of a Write.
ib_write_lat looks at memory. ucx_perftest, fi_pingpong and perftest as run here only poll; qperf
and fi_pingpong print an average, no percentiles."""

SIZES = (1, 64, 1024, 8192, 65536)
QUICK_SIZES = (64, 8192)
LARGE = 500_000   # one message, to see what waits for what: polled, Weft and TCP only
FOCUS = 64   # the size at which everybody is measured, with all percentiles
MODES = ("poll", "sleep")
DRAWN = ("weft-write-crc", "weft-send-crc", "tcp", "ucx-tag", "ucx-put", "libfabric", "sockperf")


def _where(mode, size):
    return point(mode=mode, size=size)


def _weft_jobs(bench, mode, size):
    seconds = bench.settings.latency_seconds + 0.06
    where = {"of": lambda r: _where(r["mode"], r["size"]), "all": [_where(mode, size)]}
    options = ["--mode", mode, "--size", size]
    spin = ["--config", "spin=0"] if mode == "sleep" else []
    names = [f"weft-{op}{crc}" for op in ("write", "send") for crc in ("", "-crc")]
    yield weft_job(f"{NAME}|weft|{mode}|{size}", loopback_cells(bench, NAME), [*names, "tcp"],
                   where, ["--op", "write,send", "--transport", "rdma,tcp", "--crc", "on,off",
                    *congestion_options(bench), *options, *spin], lambda b: b.anywhere(),
                   5 * seconds + 0.2, what="latency")
    if mode == "sleep" and size == FOCUS:
        as_shipped = {**where, "rename": lambda _: "weft-wait-crc"}
        yield weft_job(f"{NAME}|weft|wait|{size}", loopback_cells(bench, NAME), ["weft-wait-crc"],
                       as_shipped, ["--op", "send", "--transport", "rdma", "--crc", "on",
                        *congestion_options(bench), *options], lambda b: b.anywhere(),
                       seconds + 0.2, what="latency")
    if bench.column_differs():
        yield tcp_as_shipped(NAME, where, options, seconds + 0.2, what="latency")


def _polling_jobs(bench, size):
    where = _where("poll", size)
    ranks = (50, 99, 99.9) if size == FOCUS and not bench.settings.quick else (50,)
    for column in columns(bench):
        tests = {"ucx-tag": "tag_lat", "ucx-put": "ucp_put_lat"}
        if size not in QUICK_SIZES:
            del tests["ucx-put"]
        for name, test in tests.items():
            yield single(NAME, name, column, where, 0.4 * len(ranks),
                         lambda b, t=test, c=column: ucx.latency(b, b.loopback(c), t, size, ranks),
                         "ucx_perftest")
        if size in (FOCUS, 65536):
            yield single(NAME, "libfabric", column, where, 0.8,
                         lambda b, c=column: libfabric.pingpong(b, b.loopback(c), size),
                         "fi_pingpong", max_rounds=2)
    if size == FOCUS:
        for name in perftest.LATENCY:
            yield single(NAME, name, weft_column(bench), where, 0.8,
                         lambda b, n=name: perftest.latency(b, b.anywhere(), n, size),
                         "ib_write_bw")


def _slow_jobs(bench):
    """At one size, in a few rounds: these programs measure for a second at least."""
    rounds = 1 if bench.settings.quick else 2
    for column in columns(bench):
        for mode in MODES:
            yield single(NAME, "sockperf", column, _where(mode, FOCUS), 2.2,
                         lambda b, c=column, s=(mode == "sleep"): sockperf.latency(
                             b, b.loopback(c), FOCUS, s), "sockperf", rounds)
        yield single(NAME, "qperf", column, _where("sleep", FOCUS), 1.6,
                     lambda b, c=column: qperf.latency(b, b.loopback(c), FOCUS), "qperf",
                     1)


def jobs(bench):
    for size in QUICK_SIZES if bench.settings.quick else SIZES:
        for mode in MODES:
            yield from _weft_jobs(bench, mode, size)
        yield from _polling_jobs(bench, size)
    if not bench.settings.quick:
        yield from _weft_jobs(bench, "poll", LARGE)
    yield from _slow_jobs(bench)


def section(store):
    figures = []
    for mode, word in (("poll", "polled"), ("sleep", "sleeping")):
        figures.append(build(store, NAME, "p50", f"Median latency, {word}", "us", "size",
                             fixed={"mode": mode}, log=True, lower_is_better=True,
                             x_title="message size", drawn=DRAWN))
    for metric, name in (("p99", "99th percentile"), ("p999", "99.9th percentile")):
        for mode, word in (("poll", "polled"), ("sleep", "sleeping")):
            figures.append(build(store, NAME, metric, f"{name}, {word}", "us", "size",
                                 fixed={"mode": mode}, log=True, lower_is_better=True, plot=False))
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
