"""Messages over lwIP on boards and on this machine, in instructions: bench/embedded/evaluate.py."""

import json
import os
import shutil
import sys
import tempfile

from ..figure import Section, build
from ..plan import BOTH, Cell, Job, point
from ..process import Failed

NAME = "embedded"
NUMBER = 13
TITLE = "Messages over lwIP, on a microcontroller"
NEEDS = ()
ABOUT = """The plots of the thesis of workload 4 again, over the kind of TCP stack that it used: N
messages of 50, 500 and 1400 KB from one lwIP host to another, by TCP whose octets both ends copy
and by RDMA Writes, on boards under QEMU and in one process of this machine. Instructions of both
ends and of the link between them are counted, so nothing depends on how fast or how busy the
machine is. Runs of up to 5.6 MB are measured; larger N lie on the straight line through them."""

CONDITIONS = """One run each, in instructions: QEMU's -icount for a board, callgrind for this
machine. Small profile and -Os on boards, assertions on."""

CONTENDERS = {
    "tcp-copy-plain": "lwip-plain", "tcp-copy": "lwip-tcp", "rdma": "weft-lwip",
    "rdma-crc": "weft-lwip-crc", "rdma-crc-markers": "weft-lwip-markers",
}
PLACES = {"mps2-an385": "Cortex-M3 (mps2-an385)", "mipssim": "MIPS, big-endian (mipssim)",
          "host": "this machine"}
SIZES = (50_000, 500_000, 1_400_000)
COUNTS = (250, 1000, 2000, 3500, 5000)
LIMIT_S = 3600
EVALUATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../embedded/evaluate.py")


def cell(way, **values):
    return Cell(NAME, CONTENDERS[way], BOTH, point(**values))


def cells_of(place):
    for way in CONTENDERS:
        for size in SIZES:
            yield cell(way, place=place, size=size)
            for count in COUNTS:
                yield cell(way, place=place, size=size, n=count)
        yield cell(way, place=place, reordered=10)


def samples_of(place, result):
    """Samples of what evaluate.py wrote about one place."""
    out = {}
    for way, sizes in result["lines"].items():
        for size, (slope, start, _) in sizes.items():
            out[cell(way, place=place, size=size)] = {"per_octet": slope / int(size)}
            for count in COUNTS:
                out[cell(way, place=place, size=size, n=count)] = {
                    "instructions": start + slope * count}
    for run in result["samples"]:
        if run["reordered"]:
            sample = {"per_octet": run["instructions"] / (run["size"] * run["count"])}
            if run["ahead"]:
                sample["placed"] = run["placed"] / run["ahead"]
            out[cell(run["way"], place=place, reordered=run["reordered"])] = sample
    return out


def _measure(bench, place):
    if not os.path.exists(EVALUATE):
        raise Failed("bench/embedded is in Weft's source tree only")
    folder = tempfile.mkdtemp(prefix="weft-compare-")
    try:
        where = ["--no-boards"] if place == "host" else ["--no-host", "--board", place]
        tree = os.path.dirname(os.path.dirname(bench.weft))
        argv = [sys.executable, os.path.normpath(EVALUATE), "--out", folder, "--build", tree, *where]
        bench.client(bench.anywhere(), argv, LIMIT_S, pin=False)
        with open(os.path.join(folder, "samples.json"), encoding="utf-8") as file:
            return samples_of(place, json.load(file)[place])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def jobs(bench):
    if bench.settings.quick:
        return  # minutes for each place
    for place in PLACES:
        yield Job(f"{NAME}|{place}", tuple(cells_of(place)), 120, lambda b, p=place: _measure(b, p),
                  max_rounds=1)


def section(store):
    figures = []
    for place, title in PLACES.items():
        figures += [build(store, NAME, "instructions", f"{title}: messages of {size // 1000} KB",
                          "billion instructions", "n", fixed={"place": place, "size": str(size)},
                          scale=1e9, lower_is_better=True, x_title="messages N", linear_x=True)
                    for size in SIZES]
        figures.append(build(store, NAME, "per_octet", f"{title}: instructions per octet", "1/B",
                             "size", fixed={"place": place}, lower_is_better=True,
                             x_title="message", plot=False))
        for metric, what, unit, scale, lower in (
                ("per_octet", "instructions per octet", "1/B", 1, True),
                ("placed", "segments ahead of their turn that were placed", "%", 0.01, False)):
            figures.append(build(store, NAME, metric, f"{title}, reordered: {what}", unit,
                                 "reordered", fixed={"place": place}, scale=scale,
                                 label=lambda percent: f"{percent} %", lower_is_better=lower,
                                 x_title="frames behind the next one", plot=False))
    for figure in figures:
        figure.conditions = " ".join(CONDITIONS.split())
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
