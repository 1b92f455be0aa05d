"""Overhead over TCP, from the figures of bandwidth and latency."""

from ..figure import COLUMNS, Figure, Section, Series, merged, points_of, size_label
from ..plan import Cell, point
from ..store import Summary

NAME = "osu"
NUMBER = 6
TITLE = "Overhead over TCP"
NEEDS = ("bandwidth", "latency")
ABOUT = """After a paper on software iWARP (OSU), whose user-level stack added 100 us to the
latency of TCP and reached well under its bandwidth for small and medium messages. Here from the
runs of workloads 1 and 2: what Weft adds to the latency of raw TCP, and its share of the
bandwidth of raw TCP, with CRC and without, polled."""


def jobs(bench):
    del bench
    return ()


def _pairs(store, column, metric, workload, name, where, combine):
    """Combines Weft's and TCP's figure of each round."""
    mine = store.rounds(Cell(workload, name, column, where), metric)
    tcp = store.rounds(Cell(workload, "tcp", column, where), metric)
    values = sorted(combine(mine[n], tcp[n]) for n in mine.keys() & tcp.keys() if tcp[n] > 0)
    if not values:
        return None
    half = len(values) // 2
    middle = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    return Summary(middle, values[0], values[-1], len(values))


def _figure(store, title, unit, workload, metric, fixed, names, combine, **options):
    sizes = points_of(store, workload, "size", fixed)
    columns = {}
    for column in COLUMNS:
        series = []
        for name in names:
            one = Series(name, {}, {})
            for size in sizes:
                where = point(**(fixed or {}), size=size)
                found = _pairs(store, column, metric, workload, name, where, combine)
                if found:
                    one.points[size] = found
            if one.points:
                series.append(one)
        columns[column] = series
    return Figure(title, unit, [(s, size_label(s)) for s in sizes], merged(columns),
                  x_title="message size", **options)


def section(store):
    sends = ("weft-send", "weft-send-crc")
    figures = [
        _figure(store, "Latency added to raw TCP, polled", "us", "latency", "p50",
                {"mode": "poll"}, sends, lambda a, b: a - b, lower_is_better=True),
        _figure(store, "Latency added to raw TCP, sleeping", "us", "latency", "p50",
                {"mode": "sleep"}, sends, lambda a, b: a - b, lower_is_better=True, plot=False),
        _figure(store, "Bandwidth as a share of raw TCP", "%", "bandwidth", "bytes_per_s", None,
                ("weft-write", "weft-write-crc", *sends), lambda a, b: 100 * a / b, log=True),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
