"""Two processes of one machine: the ring of shared memory beside what others use there."""

import sys

from ..figure import Section, build
from ..plan import BOTH, Cell, point
from ..process import Failed
from ..rivals import libfabric, ucx
from .common import congestion_options, single, weft_job

NAME = "host"
NUMBER = 9
TITLE = "Two processes of one machine"
NEEDS = ()
ABOUT = """`weft perf --path ring` beside the same over TCP, raw TCP, UCX over shared memory
(posix and cma: a copy through shared memory for small messages, one by the kernel for large ones)
and over what UCX picks itself, and libfabric's shm provider. There is no CRC on a ring; Weft over
TCP is without CRC here, too. memcpy is one process that copies from one buffer to another, with no
second process and no shared memory: nobody can be faster who copies. fi_pingpong has one message
under way, and prints an average."""

SIZES = (65536, 2**20, 8 * 2**20)
LATENCY_SIZE = 64
DEPTH = 128
SHARED = {"ucx-shm": "posix,cma", "ucx-own": ucx.OWN_CHOICE}

MEMCPY = """
import ctypes, sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])
a, b = (ctypes.create_string_buffer(b"x" * size, size) for _ in range(2))
turns, start = 0, time.perf_counter()
while (now := time.perf_counter()) - start < seconds:
    for _ in range(8):
        ctypes.memmove(a, b, size)
    turns += 8
print(turns * size / (now - start))
"""


def _cell(contender, where):
    return Cell(NAME, contender, BOTH, where)


def _name(path):
    """ring-write, tcp-send; raw TCP is tcp."""
    return lambda r: "tcp" if r["transport"] == "tcp" else f"{path}-{r['op']}"


def _weft_jobs(bench, what, where, options, operations, seconds, measure="bandwidth"):
    points = {"of": lambda _: where, "all": [where]}
    for path in ("ring", "tcp"):
        transports = "rdma,tcp" if path == "tcp" else "rdma"
        names = [f"{path}-{op}" for op in operations] + (["tcp"] if path == "tcp" else [])
        yield weft_job(f"{NAME}|{path}|{what}", _cell, names, {**points, "rename": _name(path)},
                       ["--op", ",".join(operations), "--transport", transports, "--crc", "off",
                        "--path", path, *congestion_options(bench), *options],
                       lambda b: b.anywhere(), len(names) * (seconds + 0.1), what=measure)


def memcpy(bench, size):
    argv = [sys.executable, "-c", MEMCPY, size, bench.settings.seconds]
    out = bench.client(bench.anywhere(), [str(a) for a in argv], 20).out
    try:
        return {"bytes_per_s": float(out)}
    except ValueError:
        raise Failed(f"memcpy printed {out!r}") from None


def _bandwidth_jobs(bench, size):
    seconds = bench.settings.seconds
    where = point(size=size)
    yield from _weft_jobs(bench, size, where, ["--size", size], ("write", "send"), seconds)
    for name, transports in SHARED.items():
        yield single(NAME, name, BOTH, where, seconds * 1.5 + 0.2,
                     lambda b, t=transports: ucx.bandwidth(b, b.anywhere(), "ucx-tag", size,
                                                           transports=t), "ucx_perftest")
    yield single(NAME, "libfabric-shm", BOTH, where, 0.6,
                 lambda b: libfabric.pingpong(b, b.anywhere(), size, "shm"), "fi_pingpong", 2)
    yield single(NAME, "memcpy", BOTH, where, seconds + 0.1, lambda b: memcpy(b, size))


def _latency_jobs(bench, mode):
    seconds = bench.settings.latency_seconds
    where = point(mode=mode, latency=LATENCY_SIZE)
    spin = ["--config", "spin=0"] if mode == "sleep" else []
    yield from _weft_jobs(bench, mode, where, ["--size", LATENCY_SIZE, "--mode", mode, *spin],
                          ("write", "send"), seconds, measure="latency")
    if mode == "sleep":
        return
    for name, transports in SHARED.items():
        yield single(NAME, name, BOTH, where, 1.2,
                     lambda b, t=transports: ucx.latency(b, b.anywhere(), "tag_lat", LATENCY_SIZE,
                                                         (50, 99), t), "ucx_perftest")
    yield single(NAME, "libfabric-shm", BOTH, where, 0.8,
                 lambda b: libfabric.pingpong(b, b.anywhere(), LATENCY_SIZE, "shm"), "fi_pingpong",
                 2)


def jobs(bench):
    for mode in ("poll", "sleep"):
        yield from _latency_jobs(bench, mode)
    for size in SIZES[:2] if bench.settings.quick else SIZES:
        yield from _bandwidth_jobs(bench, size)
    depth = point(depth=DEPTH)
    yield from _weft_jobs(bench, "depth", depth, ["--size", LATENCY_SIZE, "--depth", DEPTH],
                          ("write",), bench.settings.seconds)
    where = point(setup="rate")
    yield from _weft_jobs(bench, "setup", where, [], ("connect",), bench.settings.seconds)


def section(store):
    figures = []
    for mode, word in (("poll", "polled"), ("sleep", "sleeping at once")):
        for metric, rank in (("p50", "median"), ("p99", "99th percentile")):
            figures.append(build(store, NAME, metric, f"64 B one way, {word}, {rank}", "us",
                                 "latency", fixed={"mode": mode}, lower_is_better=True, plot=False,
                                 x_title="message size"))
    figures += [
        build(store, NAME, "bytes_per_s", "Bandwidth", "GB/s", "size", scale=1e9,
              x_title="message size"),
        build(store, NAME, "messages_per_s", "64 B writes per second, 128 outstanding", "M/s",
              "depth", scale=1e6, plot=False),
        build(store, NAME, "messages_per_s",
              "Connection set-ups per second, with the change to a ring", "1/s", "setup",
              plot=False),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
