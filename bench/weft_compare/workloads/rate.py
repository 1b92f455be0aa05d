"""Messages per second at 64 bytes, by depth and by number of connections; set-ups; idle ones."""

from ..figure import Section, build
from ..plan import point
from ..rivals import ucx
from .common import (columns, congestion_options, loopback_cells, single, tcp_as_shipped, weft_job)

NAME = "rate"
NUMBER = 3
TITLE = "Message rate, connections, set-up"
NEEDS = ()
ABOUT = """Messages of 64 bytes, both sides polling. Depth is how many messages may be outstanding
on a connection; a plain TCP connection has no such thing, one send() is one message, so its line
is flat but for the noise. With several connections on one CQ, each has a depth of 128, and of 1
where they take turns ("active"). A set-up is a queue
pair, TCP and MPA for Weft, and a connect with 20 bytes each way for TCP. Memory is what an idle
connection makes the process grow by; kernel socket memory is not in it. UCX's test program has no
several connections."""

SIZE = 64
DEPTHS = (1, 16, 128, 1024)
CONNECTIONS = (1, 16, 64, 256)   # depth 128
ACTIVE = (64, 1000)              # depth 1
QUICK_DEPTHS = (1, 128)
QUICK_CONNECTIONS = (1, 64)
QUICK_ACTIVE = (64,)
IDLE = 1000


def _depth_jobs(bench, depth):
    seconds = bench.settings.seconds
    where = {"of": lambda r: point(depth=depth), "all": [point(depth=depth)]}
    names = [f"weft-{op}{crc}" for op in ("write", "send") for crc in ("", "-crc")]
    yield weft_job(f"{NAME}|weft|depth{depth}", loopback_cells(bench, NAME), [*names, "tcp"], where,
                   ["--op", "write,send", "--transport", "rdma,tcp", "--crc", "on,off", "--size",
                    SIZE, "--depth", depth, *congestion_options(bench)],
                   lambda b: b.anywhere(), 5 * (seconds + 0.05) + 0.2)
    if bench.column_differs():
        yield tcp_as_shipped(f"{NAME}", where, ["--size", SIZE, "--depth", depth], seconds + 0.2)
    for column in columns(bench):
        for name in ("ucx-put", "ucx-tag"):
            yield single(NAME, name, column, point(depth=depth), seconds * 1.5 + 0.2,
                         lambda b, n=name, c=column: ucx.bandwidth(b, b.loopback(c), n, SIZE,
                                                                   depth),
                         "ucx_perftest")


def _connection_jobs(bench, axis, depth, count):
    where = {"of": lambda r: point(**{axis: count}), "all": [point(**{axis: count})]}
    options = ["--size", SIZE, "--depth", depth, "--connections", count]
    slow = 0.5 + count / 300
    yield weft_job(f"{NAME}|weft|{axis}{count}", loopback_cells(bench, NAME),
                   ["weft-write-crc", "tcp"], where,
                   ["--op", "write", "--transport", "rdma,tcp", "--crc", "on", *options,
                    *congestion_options(bench)], lambda b: b.anywhere(), slow,
                   max_rounds=3 if count >= 1000 else 1000)


def _setup_jobs(bench):
    where = {"of": lambda r: point(setup="rate"), "all": [point(setup="rate")]}
    rename = lambda r: "weft-connect" if r["transport"] == "rdma" else "tcp"  # noqa: E731
    yield weft_job(f"{NAME}|setup", loopback_cells(bench, NAME), ["weft-connect", "tcp"],
                   {**where, "rename": rename}, ["--op", "connect", "--transport", "rdma,tcp",
                                                 *congestion_options(bench)],
                   lambda b: b.anywhere(), 1.0)
    idle = 100 if bench.settings.quick else IDLE
    for count in (0, idle):
        where = {"of": lambda r, n=count: point(idle=n), "all": [point(idle=count)]}
        yield weft_job(f"{NAME}|idle{count}", loopback_cells(bench, NAME), ["weft-send-crc", "tcp"],
                       where, ["--op", "send", "--transport", "rdma,tcp", "--size", SIZE, "--idle",
                               count, "--crc", "on", *congestion_options(bench)],
                       lambda b: b.anywhere(), 0.5 + count / 300, max_rounds=3,
                       what="latency")


def jobs(bench):
    quick = bench.settings.quick
    for depth in QUICK_DEPTHS if quick else DEPTHS:
        yield from _depth_jobs(bench, depth)
    for count in QUICK_CONNECTIONS if quick else CONNECTIONS:
        yield from _connection_jobs(bench, "connections", 128, count)
    for count in QUICK_ACTIVE if quick else ACTIVE:
        yield from _connection_jobs(bench, "active", 1, count)
    yield from _setup_jobs(bench)


def section(store):
    figures = [
        build(store, NAME, "messages_per_s", "Messages per second by depth", "M/s", "depth",
              scale=1e6, log=True, x_title="messages outstanding"),
        build(store, NAME, "messages_per_s", "Messages per second by connections, depth 128", "M/s",
              "connections", scale=1e6, log=True, x_title="connections"),
        build(store, NAME, "messages_per_s", "Messages per second by connections, depth 1", "M/s",
              "active", scale=1e6, log=True, plot=False, x_title="connections"),
        build(store, NAME, "messages_per_s", "Connection set-ups per second, one after another",
              "1/s", "setup", plot=False),
        build(store, NAME, "p50", "Latency of one connection beside idle ones, polled", "us",
              "idle", lower_is_better=True, plot=False, x_title="idle connections"),
        build(store, NAME, "idle_bytes", "Memory for each idle connection", "KiB", "idle",
              scale=1024, lower_is_better=True, plot=False, x_title="idle connections"),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
