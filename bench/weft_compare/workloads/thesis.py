"""The time to move N messages of 50, 500 and 1400 KB, over TCP with copy and over RDMA."""

from ..figure import Section, build
from ..plan import point
from .common import congestion_options, loopback_cells, tcp_as_shipped, weft_job

NAME = "thesis"
NUMBER = 4
TITLE = "Time to move N messages"
NEEDS = ()
ABOUT = """The plots of a thesis of 2004 on RDMA over an embedded TCP stack (its figures 4.2 to
4.7): the time to move N messages of 50, 500 and 1400 KB. There, RDMA took 0.55 of the time of TCP
with 1400 KB, 0.69 with 500 KB, and 1.83 with 50 KB. TCP here reads each message into a buffer and
copies it to its place, as there. Both sides poll."""

SIZES = (50_000, 500_000, 1_400_000)
COUNTS = (250, 1000, 2000, 3500, 5000)
QUICK_COUNTS = (250, 1000)
SHIPPED_COUNTS = (1000, 5000)
ROUNDS = 3


def jobs(bench):
    quick = bench.settings.quick
    for count in QUICK_COUNTS if quick else COUNTS:
        volume = count * sum(SIZES)
        where = {"of": lambda r: point(size=r["size"], n=sum(x["messages"] for x in r["rounds"])),
                 "all": [point(size=s, n=count) for s in SIZES]}
        options = ["--size", ",".join(map(str, SIZES)), "--iterations", count, "--warmup", "0.01"]
        yield weft_job(f"{NAME}|weft|{count}", loopback_cells(bench, NAME),
                       ["weft-write", "weft-write-crc", "tcp-copy"], where,
                       ["--op", "write", "--transport", "rdma,tcp", "--tcp-mode", "copy", "--crc",
                        "on,off", *congestion_options(bench), *options],
                       lambda b: b.anywhere(), 3 * volume / 6e9 + 0.5, max_rounds=ROUNDS)
        if bench.column_differs() and (quick or count in SHIPPED_COUNTS):
            yield tcp_as_shipped(NAME, where, ["--tcp-mode", "copy", *options], volume / 3e9 + 0.4,
                                 max_rounds=ROUNDS, contender="tcp-copy")


def add_seconds(store):
    """The time that all N messages took, from the rate at which they went."""
    for cell, rounds in store.samples.items():
        if cell.workload != NAME:
            continue
        count = int(cell.point.rsplit("n=", 1)[1])
        for sample in rounds.values():
            if sample.get("messages_per_s"):
                sample["seconds"] = count / sample["messages_per_s"]


def section(store):
    add_seconds(store)
    figures = [build(store, NAME, "seconds", f"Messages of {size // 1000} KB", "s", "n",
                     fixed={"size": str(size)}, lower_is_better=True, x_title="messages N",
                     linear_x=True)
               for size in SIZES]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
