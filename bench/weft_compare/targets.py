"""What Weft wants to reach, and whether this run says so."""

import dataclasses
import typing

from .plan import BOTH, SAME, SHIPPED, Cell, point

MIB = 2**20
NOT_IN_RUN = "not part of this run"


@dataclasses.dataclass(frozen=True)
class Target:
    workload: str            # as the table calls it
    name: str                # the ratio
    mine: Cell
    other: Cell
    metric: str
    at_least: typing.Optional[float] = None
    at_most: typing.Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    target: Target
    ratio: typing.Optional[tuple]   # median, lowest, highest
    met: typing.Optional[bool]      # None: not measured
    why: str = ""

    def verdict(self):
        return {True: "met", False: "not met", None: "not measured"}[self.met]

    def wanted(self):
        if self.target.at_least is not None:
            return f"≥ {self.target.at_least:g}"
        return f"≤ {self.target.at_most:g}"


def _bandwidth(workload, size, mine, other, column, least, words):
    where = point(size=size)
    return Target(workload, words, Cell("bandwidth", mine, column, where),
                  Cell("bandwidth", other, column, where), "bytes_per_s", at_least=least)


def _latency(workload, mode, mine, other, most, words, metric="p50", size=64):
    where = point(mode=mode, size=size)
    return Target(workload, words, Cell("latency", mine, SAME, where),
                  Cell("latency", other, SAME, where), metric, at_most=most)


def _rate(workload, where, mine, other, least, words):
    return Target(workload, words, Cell("rate", mine, SAME, where),
                  Cell("rate", other, SAME, where), "messages_per_s", at_least=least)


def _thesis(size, mine):
    where = point(size=size, n=5000)
    words = "CRC on" if mine.endswith("crc") else "CRC off"
    return Target(f"{size // 1000} KB × 5000", f"rate of TCP with copy, {words}",
                  Cell("thesis", mine, SAME, where), Cell("thesis", "tcp-copy", SAME, where),
                  "messages_per_s", at_least=1.0)


def _costs(workload, size, most):
    where = point(size=size)
    return Target(workload, "time of mlock", Cell("expether", "register", BOTH, where),
                  Cell("expether", "mlock", BOTH, where), "us", at_most=most)


def _host(workload, where, metric, mine, other, words, **limit):
    return Target(f"one machine: {workload}", words, Cell("host", mine, BOTH, where),
                  Cell("host", other, BOTH, where), metric, **limit)


def _host_targets():
    for op in ("write", "send"):
        where = point(mode="poll", latency=64)
        yield _host(f"64 B {op}, polled", where, "p50", f"ring-{op}", "tcp", "raw TCP", at_most=0.2)
        yield _host(f"64 B {op}, polled", where, "p50", f"ring-{op}", "ucx-shm",
                    "UCX posix and cma", at_most=1.5)
    yield _host("64 B send, sleeping at once", point(mode="sleep", latency=64), "p50", "ring-send",
                "tcp", "raw TCP, blocked", at_most=1.0)
    for size, name in ((65536, "64 KiB"), (MIB, "1 MiB"), (8 * MIB, "8 MiB")):
        where = point(size=size)
        yield _host(f"{name} write", where, "bytes_per_s", "ring-write", "tcp", "raw TCP",
                    at_least=1.4)
        for rival in ("ucx-shm", "ucx-own"):
            yield _host(f"{name} write", where, "bytes_per_s", "ring-write", rival,
                        "UCX posix and cma" if rival == "ucx-shm" else "UCX, its own choice",
                        at_least=1.0)
    yield _host("64 B write, depth 128", point(depth=128), "messages_per_s", "ring-write",
                "tcp-write", "Weft over TCP", at_least=1.5)


def _segments(markers, least):
    where = point(offload="on", mtu=1500)
    name = "weft-auto" + ("-markers" if markers else "")
    return Target(f"MTU 1500 veth, CRC on, markers {'on' if markers else 'off'}", "raw TCP",
                  Cell("segments", name, SAME, where), Cell("segments", "tcp", SAME, where),
                  "bytes_per_s", at_least=least)


def _files(what, mine, other, words, metric="bytes_per_s", **limit):
    where = point(what=what, clients=1)
    titles = {"large": "a large file", "into": "a large file into a file",
              "between": "into a file, between namespaces", "direct": "past the page cache",
              "tree": "10,000 small files", "same": "a tree that is there"}
    return Target(f"data server: {titles[what]}, {mine.removeprefix('files-')}", words,
                  Cell("files", mine, BOTH, where), Cell("files", other, BOTH, where), metric,
                  **limit)


def _files_targets():
    yield _files("large", "files-ring", "files-nginx", "nginx and curl", at_least=1.5)
    yield _files("large", "files-tcp", "files-nginx", "nginx and curl", at_least=1.0)
    yield _files("large", "files-tcp", "files-plain", "the server's CPU for pread and send",
                 "server_cpu_s_per_gb", at_most=1.2)
    yield _files("into", "files-ring", "files-cp", "cp", at_least=0.9)
    yield _files("between", "files-tcp", "files-nc", "nc", at_least=0.95)
    yield _files("direct", "files-tcp", "files-fio", "fio", at_least=0.95)
    for mine in ("files-tcp", "files-ring"):
        yield _files("tree", mine, "files-rsync", "rsync", at_least=3.0)


ALL = (
    _bandwidth("1 MiB write, CRC off", MIB, "weft-write", "tcp", SAME, 0.85, "raw TCP"),
    _bandwidth("1 MiB write, CRC off", MIB, "weft-write", "ucx-tag", SHIPPED, 1.5,
               "UCX tag, as shipped"),
    _bandwidth("1 MiB write, CRC off", MIB, "weft-write", "ucx-tag", SAME, 1.0, "UCX tag"),
    _bandwidth("1 MiB write, CRC on", MIB, "weft-write-crc", "tcp", SAME, 0.70, "raw TCP"),
    _bandwidth("1 MiB write, CRC on", MIB, "weft-write-crc", "ucx-tag", SHIPPED, 1.3,
               "UCX tag, as shipped"),
    _bandwidth("8 MiB write, CRC off", 8 * MIB, "weft-write", "ucx-tag", SAME, 1.0, "UCX tag"),
    _bandwidth("64 KiB write, 16 together, CRC off", 65536, "weft-write16", "ucx-tag", SAME, 2.0,
               "UCX tag"),
    *(_rate(f"64 B write, depth {depth}, CRC on", point(depth=depth), "weft-write-crc", other,
            least, words)
      for depth, other, least, words in (
          (128, "ucx-put", 10, "UCX put"), (128, "tcp", 25, "raw send"),
          (1, "tcp", 0.95, "raw send"), (1, "ucx-put", 1.0, "UCX put"))),
    *(_rate(f"64 B write, depth 128, {count} connections on one CQ", point(connections=count),
            "weft-write-crc", "tcp", least, "raw send")
      for count, least in ((16, 15), (64, 10), (256, 8))),
    _rate("64 B write, depth 1, 1000 connections", point(active=1000), "weft-write-crc", "tcp", 1.0,
          "raw send"),
    _latency("64 B ping-pong, polled", "poll", "weft-send-crc", "tcp", 1.03, "raw TCP"),
    _latency("64 B ping-pong, polled, p99", "poll", "weft-send-crc", "tcp", 1.3, "raw TCP", "p99"),
    _latency("64 B, ib_write_lat (looks at memory)", "poll", "dropin-write", "dropin-send", 1.3,
             "ib_send_lat"),
    _latency("500 KB write, one way, CRC on", "poll", "weft-write-crc", "tcp", 1.25, "raw TCP",
             size=500_000),
    _latency("500 KB write, one way, CRC off", "poll", "weft-write", "tcp", 1.08, "raw TCP",
             size=500_000),
    _latency("64 B ping-pong, polled", "poll", "weft-send-crc", "ucx-tag", 0.92, "UCX tag"),
    _latency("64 B ping-pong, sleeping, as shipped", "sleep", "weft-wait-crc", "tcp", 1.05,
             "raw TCP, blocked"),
    _latency("64 B ping-pong, sleeping at once", "sleep", "weft-send-crc", "tcp", 1.05,
             "raw TCP, blocked"),
    _bandwidth("through the drop-in, 1 MiB write", MIB, "dropin-write", "weft-write-crc", SAME,
               0.97, "C++ API"),
    _bandwidth("through the drop-in, 1 MiB read", MIB, "dropin-read", "weft-read-crc", SAME, 0.97,
               "C++ API"),
    _bandwidth("through the drop-in, 1 MiB send", MIB, "dropin-send", "weft-send-crc", SAME, 0.97,
               "C++ API"),
    _latency("through the drop-in, 64 B send", "poll", "dropin-send", "weft-send-crc", 1.05,
             "C++ API"),
    *(_thesis(size, name) for size in (50_000, 500_000, 1_400_000)
      for name in ("weft-write", "weft-write-crc")),
    _costs("registration of 1 MiB", MIB, 1.0),
    _costs("registration of 1 GiB", 2**30, 0.1),
    Target("posting a 64 B write, median", "a null system call",
           Cell("expether", "post", BOTH, point(call="median")),
           Cell("expether", "null-call", BOTH, point(call="median")), "ns", at_most=1.0),
    _segments(False, 0.70),
    _segments(True, 0.55),
    *_host_targets(),
    *_files_targets(),
)


def judge(store):
    return [_judge(store, target) for target in ALL]


def _judge(store, target):
    ratio = store.ratio(target.mine, target.other, target.metric)
    if ratio is None:
        why = store.error(target.mine) or store.error(target.other) or NOT_IN_RUN
        return Outcome(target, None, None, why)
    if target.at_least is not None:
        return Outcome(target, ratio, ratio[0] >= target.at_least)
    return Outcome(target, ratio, ratio[0] <= target.at_most)
