"""`weft perf`: Weft and plain TCP."""

import json

from ..bench import free_port
from ..process import Failed


def sample_of(result):
    """One entry of `results` in our own terms."""
    latency = result["latency_us"]
    sample = {}
    if result["bandwidth_bytes_per_s"] is not None:
        sample["bytes_per_s"] = result["bandwidth_bytes_per_s"]
        sample["messages_per_s"] = result["messages_per_s"]
        sample["messages"] = sum(r["messages"] for r in result["rounds"])
        cpu = result["cpu_s_per_gb"]
        if cpu["client"] is not None:
            sample["cpu_s_per_gb"] = cpu["client"] + cpu["server"]
    if latency["p50"] is not None:
        sample.update(p50=latency["p50"], p99=latency["p99"], p999=latency["p99.9"])
    if result["verified_bytes"]:
        sample["verified_bytes"] = result["verified_bytes"]
        sample["verified_messages"] = result["verified_messages"]
    if "idle_bytes_per_connection" in result:
        sample["idle_bytes"] = result["idle_bytes_per_connection"]["client"]
    return sample


def parse(text):
    try:
        return json.loads(text)["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"weft perf printed no results ({error})") from None


def perf(bench, place, *options, deadline_s=120, what="bandwidth"):
    """Results of `weft perf`, both sides at `place`. Each side pins itself. `what`: bandwidth,
    latency, or verify (then only that)."""
    settings = bench.settings
    timing = ["--rounds", "1", "--json", "-q"]
    if what != "verify":
        timing += [f"--{what}", "--latency-duration", f"{settings.latency_seconds:g}"]
        if not any(o in ("--iterations", "--bytes") for o in options):
            timing += ["--duration", f"{settings.seconds:g}"]
    options = [str(o) for o in options]
    if place.server == place.client:
        argv = [bench.weft, "perf", "--self", *options, *timing]
        return parse(bench.client(place, argv, deadline_s, pin=False).out)
    port = free_port()
    pins = [["--pin", cpu] if cpu is not None else []
            for cpu in (bench.server_cpu, bench.client_cpu)]
    server = [bench.weft, "perf", "--listen", f"{place.address}:{port}", "--once", "-q", *pins[0]]
    with bench.server(place, server, pin=False) as running:
        running.wait_until_listening(port)
        argv = [bench.weft, "perf", f"{place.address}:{port}", *options, *timing, *pins[1]]
        return parse(bench.client(place, argv, deadline_s, pin=False).out)


def contender_of(result):
    """How the report calls it: weft-write-crc, weft-send, tcp, tcp-copy."""
    if result["transport"] == "tcp":
        return "tcp-copy" if result["tcp_mode"] == "copy" else "tcp"
    return f"weft-{result['op']}" + ("-crc" if result["crc"] else "")
