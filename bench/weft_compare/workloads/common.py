"""Jobs that several workloads make."""

from ..plan import BOTH, SAME, SHIPPED, Cell, Job
from ..rivals import weft

WEFT_LOOPBACK_CONGESTION = "reno"  # what Weft chooses on loopback, whatever the system has


def columns(bench):
    """Those in which a rival can come out differently."""
    return (SHIPPED, SAME) if bench.column_differs() else (BOTH,)


def weft_column(bench):
    """On loopback Weft as shipped is under Reno: with that for all, one figure stands in both."""
    return BOTH if bench.settings.congestion == WEFT_LOOPBACK_CONGESTION else SAME


def tcp_column(bench):
    return SAME if bench.column_differs() else BOTH


def single(workload, contender, column, where, seconds, measure, program="", max_rounds=1000):
    """One run, one cell. `measure`: (Bench) -> sample."""
    cell = Cell(workload, contender, column, where)
    return Job(cell.text(), (cell,), seconds, lambda bench: {cell: measure(bench)}, max_rounds,
               program)


def weft_job(name, cell_of, contenders, points, options, place, seconds, max_rounds=1000,
             **how):
    """One run of `weft perf`. `cell_of`: (contender, point) -> Cell. Each result of the run goes
    to the point that `points` gives for it: (result) -> point."""
    cells = tuple(cell_of(c, p) for c in contenders for p in points["all"])

    def work(bench):
        samples = {}
        for result in weft.perf(bench, place(bench), *options, **how):
            rename = points.get("rename", weft.contender_of)
            samples[cell_of(rename(result), points["of"](result))] = weft.sample_of(result)
        return samples
    return Job(name, cells, seconds, work, max_rounds)


def loopback_cells(bench, workload):
    """Weft's cells are of both columns, raw TCP beside it is of the one congestion control."""
    def cell_of(contender, where):
        column = tcp_column(bench) if contender.startswith("tcp") else weft_column(bench)
        return Cell(workload, contender, column, where)
    return cell_of


def tcp_as_shipped(workload, points, options, seconds, max_rounds=1000, contender="tcp", **how):
    """Raw TCP under the system's congestion control."""
    return weft_job(f"{workload}|tcp shipped|{' '.join(map(str, options))}",
                    lambda c, p: Cell(workload, c, SHIPPED, p), [contender], points,
                    ["--transport", "tcp", "--tcp-congestion", "keep", *options],
                    lambda b: b.loopback(SHIPPED), seconds, max_rounds, **how)


def congestion_options(bench):
    return ["--congestion", bench.settings.congestion]
