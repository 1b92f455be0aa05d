"""Jobs and cells. A cell is one figure of the report: what a contender did at one point of one
workload, in one column. A job is one run of one program; it gives samples of one or more cells."""

import dataclasses
import typing

SHIPPED = "shipped"  # each as it comes
SAME = "same"        # all under one congestion control
BOTH = "both"        # a figure that the column makes no difference to


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    workload: str
    contender: str
    column: str
    point: str

    def text(self):
        return "|".join((self.workload, self.contender, self.column, self.point))

    @staticmethod
    def parse(text):
        return Cell(*text.split("|"))


# A sample is a dict: metric -> number; or {"error": why}. Metrics:
#   bytes_per_s, messages_per_s, cpu_s_per_gb, p50, p99, p999 (us), seconds, and some of one
#   workload only.
Samples = typing.Dict[Cell, dict]


@dataclasses.dataclass(frozen=True)
class Job:
    name: str                     # unique
    cells: tuple                  # those it gives samples of; all of them fail with it
    seconds: float                # what it takes, roughly
    work: typing.Callable         # (Bench) -> Samples
    max_rounds: int = 1000        # slow ones take part in the first rounds only
    program: str = ""             # a rival that has to be there


def point(**values):
    """size=64,depth=16: the order of the arguments counts."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def schedule(jobs, rounds):
    """(round, job) in the order of the run: each round has every job once."""
    return [(number, job) for number in range(rounds) for job in jobs
            if number < job.max_rounds]
