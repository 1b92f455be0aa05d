"""Debian's perftest, unmodified, over Weft's libibverbs and librdmacm."""

from ..bench import free_port
from ..process import Failed, last_line

BANDWIDTH = {"dropin-write": "ib_write_bw", "dropin-read": "ib_read_bw",
             "dropin-send": "ib_send_bw"}
LATENCY = {"dropin-write": "ib_write_lat", "dropin-send": "ib_send_lat"}


def _row(text, columns):
    """The last line of numbers with at least so many columns."""
    for line in reversed(text.splitlines()):
        fields = line.split()
        if len(fields) >= columns and fields[0].isdigit() and fields[1].isdigit():
            try:
                return [float(field) for field in fields]
            except ValueError:
                continue
    raise Failed(f"perftest printed no result: {last_line(text)}")


def parse_bandwidth(text):
    """bytes, iterations, peak, average MB/s, million messages per second. What a MB is depends on
    the version: bytes follow from the message rate."""
    row = _row(text, 5)
    rate = row[4] * 1e6
    return {"messages": row[1], "messages_per_s": rate, "bytes_per_s": rate * row[0]}


def parse_latency(text):
    """bytes, iterations, min, max, typical, average, stdev, 99 %, 99.9 % in us"""
    row = _row(text, 9)
    return {"p50": row[4], "p99": row[7], "p999": row[8]}


def _run(bench, place, program, *options, crc=True):
    port = free_port()
    weft = [bench.weft, "run", f"--crc={'on' if crc else 'off'}", "--"]
    common = [program, "-R", "-F", "-p", port, *options]
    with bench.server(place, [*weft, *common]) as server:
        server.wait_until_listening(port)
        client = bench.client(place, [*weft, *common, place.address], 30)
        server.wait(10)
    return client.out


def bandwidth(bench, place, contender, size, crc=True):
    key = (contender, place.name, size)
    seconds = bench.settings.seconds * 2  # its clock covers slow start where it cannot warm up
    # Up to 8 KiB it signals one request in a hundred, and its warm-up would wait for all of them.
    warm = ["--perform_warm_up"] if size > 8192 and contender != "dropin-send" else []
    for _ in range(3):
        bench.take_calls()
        count = bench.count_for(key, seconds, min(500e3, 4e9 / size), low=130)
        sample = parse_bandwidth(_run(bench, place, BANDWIDTH[contender], "-s", size, "-n", count,
                                      *warm, crc=crc))
        if sample["messages_per_s"] <= 0:
            raise Failed("perftest reports no messages")
        bench.rates[key] = sample["messages_per_s"]
        if sample["messages"] / sample["messages_per_s"] >= seconds / 3:
            break
    return sample


def latency(bench, place, contender, size, crc=True):
    key = (LATENCY[contender], place.name, size)
    count = bench.count_for(key, bench.settings.latency_seconds * 2, 50e3, low=1000)
    sample = parse_latency(_run(bench, place, LATENCY[contender], "-s", size, "-n", count,
                                crc=crc))
    bench.rates[key] = 1e6 / max(sample["p50"] * 2, 0.1)
    return sample
