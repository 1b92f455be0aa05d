"""A path with real segments: veth between two namespaces, FPDU policies, markers, loss, delay."""

from ..figure import Section, build
from ..places import clear_netem, netem
from ..plan import BOTH, SAME, SHIPPED, Cell, Job, point
from ..rivals import weft
from .common import congestion_options

NAME = "segments"
NUMBER = 8
TITLE = "Across a link: segments, markers, loss"
NEEDS = ()
ABOUT = """Writes of 1 MiB with CRC over a pair of virtual adapters between two network
namespaces, both sides polling. Policy auto is the default; mss puts one FPDU into each TCP
segment, as RFC 5044 asks. On such a path Weft keeps the system's congestion control. The first
table has the offloads that virtual adapters come with, which join segments; the last table has
none: every segment crosses alone."""

SIZE = 2**20
MTUS = (1500, 9000)
POLICIES = ("auto", "mss", "16k", "64k")
QUICK_POLICIES = ("auto", "mss")
LOSSES = (("1 ms", ("delay", "500us")), ("1 ms, 0.1 % lost", ("delay", "500us", "loss", "0.1%")))


def _name(result):
    if result["transport"] == "tcp":
        return "tcp"
    return f"weft-{result['fpdu']}" + ("-markers" if result["markers"] else "")


def _names(policies):
    return ["tcp", *(f"weft-{p}{m}" for p in policies for m in ("", "-markers"))]


def _options(policies):
    return ["--op", "write", "--transport", "rdma,tcp", "--size", SIZE, "--crc", "on", "--markers",
            "on,off", "--fpdu", ",".join(policies)]


def _column_options(bench, column):
    if column == SAME:
        return congestion_options(bench)
    return ["--tcp-congestion", "keep"]


def _job(bench, mtu, column, offload, policies):
    kind = "on" if offload else "off"
    names = _names(policies)

    def where():
        return point(offload=kind, mtu=mtu)

    def work(bench):
        place = bench.veth(mtu, column, not offload)
        results = weft.perf(bench, place, *_options(policies), *_column_options(bench, column))
        return {Cell(NAME, _name(r), column, where()): weft.sample_of(r) for r in results}
    cells = tuple(Cell(NAME, n, column, where()) for n in names)
    return Job(f"{NAME}|{mtu}|{column}|{kind}", cells,
               len(names) * (bench.settings.seconds + 0.08) + 0.3, work)


def _netem_job(label, options):
    cells = tuple(Cell(NAME, n, BOTH, point(path=label)) for n in _names(("auto", "mss")))

    def work(bench):
        place = bench.places.veth(1500, bench.settings.congestion, True)
        netem(place, *options)
        try:
            results = weft.perf(bench, place, *_options(("auto", "mss")))
        finally:
            clear_netem(place)
        return {Cell(NAME, _name(r), BOTH, point(path=label)): weft.sample_of(r) for r in results}
    return Job(f"{NAME}|netem|{label}", cells, 1.5, work, max_rounds=3)


def jobs(bench):
    quick = bench.settings.quick
    policies = QUICK_POLICIES if quick else POLICIES
    columns = (SHIPPED, SAME) if bench.column_differs() else (BOTH,)
    for mtu in MTUS:
        for column in columns:
            shown = policies if column == columns[-1] else QUICK_POLICIES
            yield _job(bench, mtu, column, True, shown)
        yield _job(bench, mtu, columns[-1], False, policies)
    for label, options in LOSSES:
        yield _netem_job(label, options)


def section(store):
    label = lambda mtu: f"MTU {mtu}"  # noqa: E731
    figures = [
        build(store, NAME, "bytes_per_s", "Bandwidth between namespaces", "GB/s", "mtu",
              fixed={"offload": "on"}, scale=1e9, label=label, plot=False),
        build(store, NAME, "bytes_per_s", "The same without offloads", "GB/s", "mtu",
              fixed={"offload": "off"}, scale=1e9, label=label, plot=False),
        build(store, NAME, "bytes_per_s", "With delay, and with loss, MTU 1500", "GB/s", "path",
              scale=1e9, plot=False),
    ]
    return Section(NAME, NUMBER, TITLE, ABOUT, figures)
