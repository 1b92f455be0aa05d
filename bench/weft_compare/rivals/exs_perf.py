"""`exs-perf`: extended sockets over Weft, and TCP by itself and by io_uring beside them."""

import json
import os
import shutil

from ..process import Failed


def program(bench):
    """exs-perf beside weft, or wherever the shell finds it."""
    beside = os.path.join(os.path.dirname(bench.weft), "exs-perf")
    found = beside if os.access(beside, os.X_OK) else shutil.which("exs-perf")
    if found is None:
        raise Failed(f"exs-perf is neither beside {bench.weft} nor installed")
    return found


def parse(text):
    """mode -> sample"""
    try:
        found = {row["mode"]: {"bytes_per_s": row["mb_per_s"] * 1e6,
                               "cpu_s_per_gb": row["cpu_s_per_gb"],
                               "us": row["latency_us"],
                               "direct": row["direct_percent"] / 100} for row in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"exs-perf printed no results ({error})") from None
    if not found:
        raise Failed("exs-perf printed no results")
    return found


def measure(bench, place, modes, size):
    """Each mode at one size: both ends on this machine, on a CPU each, polling."""
    seconds = bench.settings.seconds
    argv = [bench.weft, "run", "--path", "tcp", "--", program(bench), "--self", "--json", "--mode",
            ",".join(modes), "--size", str(size), "--rounds", "1", "--seconds", f"{seconds:g}"]
    return parse(bench.client(place, argv, 60 + 4 * len(modes) * seconds, pin=False).out)
