"""iperf3: TCP bandwidth, asleep while it waits."""

import json

from ..bench import free_port
from ..plan import SHIPPED
from ..process import Failed


LARGEST = 2**20


def parse(text):
    try:
        end = json.loads(text)["end"]
        received = end["sum_received"]
        cpu = end["cpu_utilization_percent"]
        bytes_per_s = received["bits_per_second"] / 8
        cpu_share = (cpu["host_total"] + cpu["remote_total"]) / 100
        congestion = end.get("sender_tcp_congestion", "")
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"iperf3 printed no result ({error})") from None
    if bytes_per_s <= 0:
        raise Failed("iperf3 moved nothing")
    return {"bytes_per_s": bytes_per_s, "cpu_s_per_gb": cpu_share / bytes_per_s * 1e9,
            "congestion": congestion}


def bandwidth(bench, column, size):
    """It can choose its congestion control, so the column needs no namespace."""
    shipped = column == SHIPPED
    place = bench.loopback(column) if shipped else bench.anywhere()
    choice = [] if shipped else ["-C", bench.settings.congestion]
    if size > LARGEST:
        raise Failed("iperf3 sends at most 1 MiB at a time")
    key = ("iperf3", column, size)
    # By volume, since its shortest time is one second.
    messages = bench.count_for(key, bench.settings.seconds * 2, min(300e3, 3e9 / size), low=8)
    port = free_port()
    with bench.server(place, ["iperf3", "-s", "-1", "-p", port], pin=True) as server:
        server.wait_until_listening(port)
        argv = ["iperf3", "-c", place.address, "-p", port, "-l", size, "-n", messages * size, "-J",
                *choice]
        found = parse(bench.client(place, argv, 30).out)
    sample = {"bytes_per_s": found["bytes_per_s"], "cpu_s_per_gb": found["cpu_s_per_gb"],
              "messages_per_s": found["bytes_per_s"] / size}
    bench.rates[key] = sample["messages_per_s"]
    return sample
