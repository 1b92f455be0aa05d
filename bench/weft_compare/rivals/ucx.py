"""UCX over its tcp transport, or over another: ucx_perftest."""

from ..bench import free_port
from ..process import Failed, last_line

TESTS = {"ucx-tag": "tag_bw", "ucx-put": "ucp_put_bw", "ucx-get": "ucp_get"}
MIB = 2**20


OWN_CHOICE = ""  # as `transports`: what UCX picks itself


def environment(place, transports="tcp"):
    found = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
    if transports != OWN_CHOICE:
        found["UCX_TLS"] = transports
    if transports == "tcp":
        found["UCX_NET_DEVICES"] = place.device or "lo"
    return found


def parse(text):
    """The last line of -f -v output: iterations, percentile, average and overall latency,
    average and overall bandwidth in MiB/s, average and overall message rate."""
    for line in reversed(text.splitlines()):
        fields = line.strip().split(",")
        if len(fields) != 8:
            continue
        try:
            values = [float(field) for field in fields]
        except ValueError:
            continue
        return {"messages": values[0], "percentile_us": values[1], "average_us": values[2],
                "bytes_per_s": values[5] * MIB, "messages_per_s": values[7]}
    raise Failed(f"ucx_perftest printed no result: {last_line(text)}")


def _run(bench, place, *options, transports="tcp"):
    port = free_port()
    env = environment(place, transports)
    with bench.server(place, ["ucx_perftest", "-p", port], env) as server:
        server.wait_until_listening(port)
        argv = ["ucx_perftest", place.address, "-p", port, *options, "-f", "-v"]
        client = bench.client(place, argv, 30, env)
        cpu_s = client.cpu_s + (server.wait(10)).cpu_s
    return parse(client.out), cpu_s


def _start_cpu_s(bench, place, transports):
    """What starting and connecting costs, to be taken off the CPU use of a measurement."""
    key = ("ucx start", place.name, transports)
    if key not in bench.rates:
        bench.rates[key] = min(_run(bench, place, "-t", "tag_bw", "-s", 8, "-n", 1, "-w", 1,
                                    transports=transports)[1] for _ in range(2))
    return bench.rates[key]


def bandwidth(bench, place, contender, size, depth=None, transports="tcp"):
    """A sample. The number of messages follows from what the last run did."""
    key = (contender, place.name, size, depth, transports)
    start_cpu = _start_cpu_s(bench, place, transports)
    seconds = bench.settings.seconds
    for attempt in range(4):
        bench.take_calls()
        # A short look first: some of its operations take 3 us, others 1 ms.
        share = 0.05 if attempt == 0 and key not in bench.rates else 1
        count = bench.count_for(key, seconds * share, min(300e3, 0.3e9 / size))
        warm = max(count // 10, 2)
        extra = ["-O", depth] if depth else []
        found, cpu_s = _run(bench, place, "-t", TESTS[contender], "-s", size, "-n", count,
                            "-w", warm, *extra, transports=transports)
        if found["messages_per_s"] <= 0:
            raise Failed("ucx_perftest reports no messages")
        bench.rates[key] = found["messages_per_s"]
        if found["messages"] / found["messages_per_s"] >= seconds / 3:
            break
    moved = (count + warm) * size
    return {"bytes_per_s": found["messages_per_s"] * size,
            "messages_per_s": found["messages_per_s"], "messages": found["messages"],
            "cpu_s_per_gb": max(0.0, cpu_s - start_cpu) / moved * 1e9}


def latency(bench, place, test, size, ranks=(50,), transports="tcp"):
    """A sample with p50, and with p99 and p999 if asked for: each takes a run of its own."""
    names = {50: "p50", 99: "p99", 99.9: "p999"}
    key = (test, place.name, size, transports)
    sample = {}
    for rank in ranks:
        count = bench.count_for(key, bench.settings.latency_seconds * 2, 50e3, low=200)
        found, _ = _run(bench, place, "-t", test, "-s", size, "-n", count, "-w",
                        max(count // 10, 10), "-R", rank, transports=transports)
        bench.rates[key] = found["messages_per_s"]
        sample[names[rank]] = found["percentile_us"]
    return sample
