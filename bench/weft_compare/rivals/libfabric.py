"""libfabric's tcp and shm providers. Debian ships one test program of it, fi_pingpong: one message at a
time in each direction."""

from ..bench import free_port
from ..process import Failed, last_line

SUFFIXES = {"k": 1e3, "m": 1e6, "g": 1e9}


def parse(text):
    """bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec"""
    for line in reversed(text.splitlines()):
        fields = line.split()
        if len(fields) == 8 and fields[0][0].isdigit() and fields[4].endswith("s"):
            try:
                return {"p50": float(fields[6]), "bytes_per_s": float(fields[5]) * 1e6}
            except ValueError:
                continue
    raise Failed(f"fi_pingpong printed no result: {last_line(text)}")


ENDPOINTS = {"tcp": "msg", "shm": "rdm"}


def pingpong(bench, place, size, provider="tcp"):
    """Its average stands as p50: it shows no percentiles."""
    key = ("libfabric", place.name, size, provider)
    count = bench.count_for(key, bench.settings.latency_seconds * 2, min(20e3, 0.3e9 / size),
                            low=20)
    port = free_port()
    how = ["-p", provider, "-e", ENDPOINTS[provider], "-I", count, "-S", size]
    with bench.server(place, ["fi_pingpong", "-B", port, *how]) as server:
        server.wait_until_listening(port)
        argv = ["fi_pingpong", "-P", port, *how, place.address]
        sample = parse(bench.client(place, argv, 15).out)
    bench.rates[key] = 1e6 / max(sample["p50"] * 2, 0.1)
    return sample
