"""The workloads, in the order of the report. Each module has

    NAME, NUMBER, TITLE, ABOUT
    NEEDS              other workloads that it makes its section from
    jobs(bench)        what to measure
    section(store)     what to show
"""

from . import (bandwidth, costs, embedded, extended, exs, files, host, latency, osu, rate, segments,
               thesis, video)

ALL = (bandwidth, latency, rate, thesis, exs, osu, costs, segments, host, extended,
       files, video, embedded)


def by_name(text):
    """A workload by name or number, or None."""
    for workload in ALL:
        if text in (workload.NAME, str(workload.NUMBER)):
            return workload
    return None
