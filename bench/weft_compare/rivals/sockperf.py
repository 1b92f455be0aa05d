"""sockperf: TCP latency, half a round trip."""

import re

from ..bench import free_port
from ..process import Failed, last_line

PERCENTILES = {"p50": "50.000", "p99": "99.000", "p999": "99.900"}
SMALLEST = 14  # bytes of a message


def parse(text):
    sample = {}
    for name, percentile in PERCENTILES.items():
        match = re.search(rf"percentile {re.escape(percentile)} =\s*([0-9.]+)", text)
        if match:
            sample[name] = float(match.group(1))
    if "p50" not in sample:
        raise Failed(f"sockperf printed no percentiles: {last_line(text)}")
    return sample


def latency(bench, place, size, sleep):
    if size < SMALLEST:
        raise Failed(f"sockperf sends at least {SMALLEST} bytes")
    port = free_port()
    how = [] if sleep else ["--nonblocked"]
    with bench.server(place, ["sockperf", "server", "--tcp", "-i", place.address, "-p", port,
                              *how]) as server:
        server.wait_until_listening(port)
        argv = ["sockperf", "ping-pong", "--tcp", "-i", place.address, "-p", port, "-m", size,
                "-t", "1", *how]
        return parse(bench.client(place, argv, 20).out)
