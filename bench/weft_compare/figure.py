"""What a section of the report is made of. Values only; how it looks is for plot, page and
markdown."""

import dataclasses
import typing

from .contenders import order
from .plan import BOTH, SAME, SHIPPED

COLUMNS = (SHIPPED, SAME)


@dataclasses.dataclass
class Series:
    contender: str
    points: dict    # x key -> Summary
    errors: dict    # x key -> why there is none


@dataclasses.dataclass
class Figure:
    title: str
    unit: str
    xs: list                 # (key, label) in order
    columns: dict            # column -> [Series]; one of them where the column makes no difference
    scale: float = 1.0       # what a figure is divided by
    log: bool = False
    lower_is_better: bool = False
    x_title: str = ""
    linear_x: bool = False   # the x axis is a scale from 0, not a row of names
    plot: bool = True
    drawn: typing.Optional[tuple] = None   # contenders in the plot; the table has all
    command: str = ""
    note: str = ""
    conditions: str = ""     # instead of those of the report

    def empty(self):
        return not any(s.points or s.errors for column in self.columns.values() for s in column)


@dataclasses.dataclass
class Section:
    name: str
    number: int
    title: str
    about: str
    figures: typing.List[Figure]
    notes: typing.List[str] = dataclasses.field(default_factory=list)


def values_of(point):
    """size=64,depth=16 -> {"size": "64", "depth": "16"}"""
    return dict(part.split("=", 1) for part in point.split(",") if "=" in part)


def points_of(store, workload, variable, fixed=None):
    """The values that `variable` takes in the samples, in rising order where they are numbers."""
    fixed = fixed or {}
    found = set()
    for cell in store.samples:
        values = values_of(cell.point)
        if cell.workload == workload and variable in values and len(values) == len(fixed) + 1 \
                and all(values.get(k) == v for k, v in fixed.items()):
            found.add(values[variable])
    return sorted(found, key=lambda v: (0, int(v), v) if v.isdigit() else (1, 0, v))


def size_label(text):
    size = int(text)
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    if size >= 10000 and size % 1000 == 0:
        return f"{size // 1000} KB"
    return f"{size} B"


def build(store, workload, metric, title, unit, variable, *, fixed=None, keep=None, label=None,
          **options):
    """A figure over `variable`; `fixed` are the other parts of the point, `keep` chooses among
    the contenders."""
    label = label or (size_label if variable == "size" else str)
    keys = points_of(store, workload, variable, fixed)
    names = sorted({c.contender for c in store.samples if c.workload == workload
                    and (keep is None or keep(c.contender))}, key=order)
    columns = {}
    commands = []
    for column in COLUMNS:
        series = []
        for name in names:
            one = Series(name, {}, {})
            for key in keys:
                for cell in _cells(store, workload, name, column, {**(fixed or {}), variable: key}):
                    summary = store.summary(cell, metric)
                    if summary:
                        one.points[key] = summary
                        command = store.commands.get(cell) or store.commands.get(
                            dataclasses.replace(cell, column=BOTH))
                        if command and command not in commands:
                            commands.append(command)
                    elif store.error(cell):
                        one.errors[key] = store.error(cell)
            if one.points or one.errors:
                series.append(one)
        columns[column] = series
    figure = Figure(title, unit, [(key, label(key)) for key in keys], merged(columns), **options)
    figure.command = commands[0] if commands else ""
    return figure


def _cells(store, workload, contender, column, values):
    """Cells at these values, in whatever order their point names them."""
    for cell in store.samples:
        if cell.workload == workload and cell.contender == contender \
                and cell.column in (column, BOTH) and values_of(cell.point) == values:
            yield dataclasses.replace(cell, column=column)
            return


def merged(columns):
    """One column where both are the same, or where one of them is empty."""
    shipped, same = columns[SHIPPED], columns[SAME]
    if shipped == same:
        return {BOTH: same}
    if not shipped or not same:
        return {SAME: same} if same else {SHIPPED: shipped}
    return columns
