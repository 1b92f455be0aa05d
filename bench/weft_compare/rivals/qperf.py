"""qperf: TCP latency, asleep while it waits."""

import re

from ..bench import free_port
from ..process import Failed, last_line

UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6}


def parse(text):
    match = re.search(r"latency\s*=\s*([0-9.]+) (ns|us|ms|sec)", text)
    if not match:
        raise Failed(f"qperf printed no latency: {last_line(text)}")
    return {"p50": float(match.group(1)) * UNITS[match.group(2)]}


def latency(bench, place, size):
    """Its average stands as p50: it shows no percentiles."""
    port = free_port()
    with bench.server(place, ["qperf", "-lp", port]) as server:
        server.wait_until_listening(port)
        argv = ["qperf", "-lp", port, place.address, "-m", size, "-t", "1", "tcp_lat"]
        return parse(bench.client(place, argv, 20).out)
