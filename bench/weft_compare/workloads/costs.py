"""Registration beside mlock, and posting beside a null system call."""

import json

from ..figure import Section, build
from ..machine import available_memory_bytes
from ..plan import BOTH, Cell, Job, point
from ..process import Failed

NAME = "expether"
NUMBER = 7
TITLE = "Registering memory, posting a request"
NEEDS = ()
ABOUT = """After a paper on RDMA over ExpEther, whose registration took 8.35 us for 1 MiB (mlock:
15.1 us) and 8.58 ms for 1 GiB (mlock: 624 ms), and whose posting avoids the kernel. The memory is
touched before. A post is timed singly, with the clock's own cost taken off, into a queue that is
not full: the median is of posts that leave the sending to a later one, the mean includes those
that send."""

SIZES = (4096, 65536, 2**20, 16 * 2**20, 256 * 2**20, 2**30)
QUICK_SIZES = (4096, 2**20, 16 * 2**20)
SHARE_OF_MEMORY = 0.5


def parse(text):
    try:
        found = json.loads(text)
        return {"memory": found["memory"], "post": found["post"]}
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"weft-costs printed no result ({error})") from None


def _cells(sizes):
    for size in sizes:
        for name in ("register", "deregister", "mlock"):
            yield Cell(NAME, name, BOTH, point(size=size))
    for name in ("post", "null-call"):
        for what in ("median", "mean"):
            yield Cell(NAME, name, BOTH, point(call=what))


def _measure(bench, sizes):
    place = bench.anywhere()
    fitting = [s for s in sizes if s <= available_memory_bytes() * SHARE_OF_MEMORY]
    argv = [bench.costs(), "--sizes", ",".join(map(str, fitting))]
    found = parse(bench.client(place, argv, 60).out)
    samples = {cell: {"error": "this machine has too little free memory"}
               for cell in _cells(sizes)}
    for row in found["memory"]:
        for name in ("register", "deregister", "mlock"):
            cell = Cell(NAME, name, BOTH, point(size=row["size"]))
            value = row[f"{name}_us"]
            samples[cell] = ({"us": value} if value is not None else
                             {"error": "mlock was refused: the limit of locked memory (ulimit -l)"})
    for name, key in (("post", "post"), ("null-call", "null_call")):
        for what in ("median", "mean"):
            samples[Cell(NAME, name, BOTH, point(call=what))] = {
                "ns": found["post"][f"{key}_{what}_ns"]}
    return samples


def jobs(bench):
    sizes = QUICK_SIZES if bench.settings.quick else SIZES
    yield Job(f"{NAME}|costs", tuple(_cells(sizes)), 2.5, lambda b: _measure(b, sizes))


def section(store):
    figures = [
        build(store, NAME, "us", "Time to register or lock memory", "us", "size", log=True,
              lower_is_better=True, x_title="size of the buffer"),
        build(store, NAME, "ns", "Posting one RDMA Write of 64 bytes", "ns", "call", plot=False,
              lower_is_better=True),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
