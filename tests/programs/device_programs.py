#!/usr/bin/env python3
"""One device for each interface: what programs see of two, and that each leads where it should."""

import json
import os
import re
import subprocess
import tempfile
import time

from harness import WEFT, Process, check, free_port, ip, main, need
from wired_programs import ROCE, pair

LIMIT_S = 60
ENODATA = "No data available"
EINVAL = "Invalid argument"


def probe(place, network, *argv, options=(), **more):
    program = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "device_probe")
    start = network.start if place is network.server else network.connect
    return start([program, *argv], options=options, **more)


def looks(output):
    """By the device's name: its first line, and its GIDs by index."""
    out = {}
    for line in output.splitlines():
        if device := re.match(r"(weft\d+) (.*)", line):
            name = device[1]
            out[name] = (device[2], {})
        elif gid := re.match(r"  gid (\d+): (.*)", line):
            out[name][1][int(gid[1])] = gid[2].strip()
    return out


def index_of(place, link):
    shown = subprocess.run([*place.prefix, "cat", f"/sys/class/net/{link}/ifindex"], check=True,
                           capture_output=True, text=True, timeout=20)
    return shown.stdout.strip()


def roce_table(network):
    """Each device has the addresses of its interface, as RoCE v2, and nothing behind them: what
    rdma-core says of an empty entry, and of one behind the table."""
    server = network.server
    shown = looks(probe(server, network, "gids", options=ROCE).expect(0, LIMIT_S))
    check(sorted(shown) == ["weft0", "weft1"], f"{shown}")
    guids = set()
    for name, end in (("weft0", server), ("weft1", server.second)):
        about, gids = shown[name]
        v2 = f"type 2 interface {index_of(server, end.link)}"
        check("active, table of 256 with 3" in about, about)
        guids.add(about.split("guid ")[1].split(",")[0])
        check(gids[0] == f"::ffff:{end.v4} {v2}" and gids[1] == f"{end.v6} {v2}", f"{gids}")
        check(gids[2].startswith("fe80::") and gids[2].endswith(v2), f"{gids}")
        check(gids[3] == gids[5] == f":: {ENODATA}", f"{gids}")
        check(gids[256] == f"{EINVAL} {EINVAL}", f"{gids}")
    check(len(guids) == 2, f"{guids}")


def iwarp_table(network):
    """Each device has its Ethernet address for its only GID."""
    server = network.server
    shown = looks(probe(server, network, "gids").expect(0, LIMIT_S))
    check(sorted(shown) == ["weft0", "weft1"], f"{shown}")
    for name, end in (("weft0", server), ("weft1", server.second)):
        about, gids = shown[name]
        check("active, table of 1 with 1" in about, about)
        mac = subprocess.run([*server.prefix, "cat", f"/sys/class/net/{end.link}/address"],
                             check=True, capture_output=True, text=True, timeout=20).stdout.strip()
        octets = "".join(mac.split(":"))
        words = [f"{int(octets[i:i + 4], 16):x}" for i in (0, 4, 8)]
        check(gids[0].startswith(":".join(words) + "::"), f"{mac}: {gids}")


def narrowed(network):
    """`device` says which there are and in which order; another's address is no device's."""
    server = network.server
    links = server.link, server.second.link
    for wish, ends in ((links[1], (server.second,)), (",".join(reversed(links)),
                                                      (server.second, server)),
                       ("nothing0", ())):
        env = {"WEFT_DEVICE": wish}
        shown = looks(probe(server, network, "gids", options=ROCE, env=env).expect(0, LIMIT_S))
        check(len(shown) == len(ends), f"{wish}: {shown}")
        for i, end in enumerate(ends):
            check(shown[f"weft{i}"][1][0].startswith(f"::ffff:{end.v4} "), f"{wish}: {shown}")
    env = {"WEFT_DEVICE": links[1]}
    out = probe(server, network, "bind", server.v4, server.second.v4, env=env).expect(0, LIMIT_S)
    check(f"{server.v4}: No such device" in out and f"{server.second.v4}: weft0" in out, out)
    env = {"WEFT_GID": server.second.v6}
    shown = looks(probe(server, network, "gids", options=ROCE, env=env).expect(0, LIMIT_S))
    check(list(shown) == ["weft0"] and shown["weft0"][1][0].startswith(server.second.v6 + " ")
          and ENODATA in shown["weft0"][1][1], f"{shown}")


SHOW_GIDS = r"""
for device in $(ls /sys/class/infiniband); do
  for port in $(ls /sys/class/infiniband/$device/ports); do
    path=/sys/class/infiniband/$device/ports/$port
    for index in $(ls $path/gids); do
      gid=$(cat $path/gids/$index)
      echo "$device $port $index $gid $(cat $path/gid_attrs/types/$index)" \
        "$(cat $path/gid_attrs/ndevs/$index) $(ls /sys/class/infiniband/$device/device/net)"
    done
  done
done
"""


def show_gids(network):
    """A script that reads /sys, as `show_gids` of the vendors does."""
    server = network.server
    out = network.start(["sh", "-c", SHOW_GIDS], options=ROCE).expect(0, LIMIT_S)
    rows = [line.split() for line in out.splitlines() if line.startswith("weft")]
    check(len(rows) == 6, out)
    for name, end in (("weft0", server), ("weft1", server.second)):
        mine = [row[1:] for row in rows if row[0] == name]
        four = "".join(f"{int(octet):02x}" for octet in end.v4.split("."))
        want = f"0000:0000:0000:0000:0000:ffff:{four[:4]}:{four[4:]}"
        check(mine[0] == ["1", "0", want, "RoCE", "v2", end.link, end.link], f"{mine}")
        check([row[1] for row in mine] == ["0", "1", "2"], f"{mine}")
    for node in ("uverbs-weft0", "uverbs-weft1"):
        network.start(["test", "-c", f"/dev/infiniband/{node}"], options=ROCE).expect(0, LIMIT_S)


def binding(options):
    """An id that is bound to an address has the device of it; loopback addresses name none, and are
    the first one's when they are connected to."""
    def case(network):
        server, client = network.server, network.client
        ends = ((server, "weft0"), (server.second, "weft1"))
        out = probe(server, network, "bind", *[a for end, _ in ends for a in (end.v4, end.v6)],
                    "127.0.0.1", options=options).expect(0, LIMIT_S)
        for end, name in ends:
            for address in (end.v4, end.v6):
                check(f"{address}: {name} " in out, out)
                shown = f"::ffff:{address}" if "." in address else address
                check(not options or f"{address}: {name} {shown}\n" in out, out)
        check("127.0.0.1: no device" in out, out)
        out = probe(server, network, "resolve", client.v4, client.second.v4, client.second.v6,
                    "127.0.0.1", server.second.v4, options=options).expect(0, LIMIT_S)
        for address, name in ((client.v4, "weft0"), (client.second.v4, "weft1"),
                              (client.second.v6, "weft1"), ("127.0.0.1", "weft0"),
                              (server.second.v4, "weft1")):
            check(f"{address}: {name} " in out, out)
    return case


def requests(options):
    """A listener on all addresses hears on all devices: each request has that of its address. A
    device that is left out hears nothing."""
    def case(network):
        server = network.server
        addresses = [server.v4, server.second.v4, server.second.v6]
        listener = probe(server, network, "serve", 3, options=options).wait_for("port ")
        port = int(listener.output().split("port ")[1].split()[0])
        out = probe(network.client, network, "call", port, *addresses,
                    options=options).expect(0, LIMIT_S)
        check(out.count("Connection refused") == 3, out)
        seen = re.findall(r"request: (\w+)", listener.expect(0, LIMIT_S))
        check(seen == ["weft0", "weft1", "weft1"], f"{seen}")
        env = {"WEFT_DEVICE": server.second.link}
        listener = probe(server, network, "serve", 1, options=options, env=env).wait_for("port ")
        port = int(listener.output().split("port ")[1].split()[0])
        out = probe(network.client, network, "call", port, *addresses[:2],
                    options=options).expect(0, LIMIT_S)
        seen = re.findall(r"request: (\w+)", listener.expect(0, LIMIT_S))
        check(seen == ["weft0"], f"{seen}: the second's\n{out}")
    return case


def octets_of(place, link):
    shown = subprocess.run([*place.prefix, "cat", f"/sys/class/net/{link}/statistics/tx_bytes"],
                           check=True, capture_output=True, text=True, timeout=20)
    return int(shown.stdout)


def pingpong(program, size):
    """Of the second device, by each of its GIDs: by the second link, and by no other."""
    def case(network):
        server = network.server
        for index, gid in enumerate((f"::ffff:{server.second.v4}", server.second.v6, "fe80::")):
            before = [octets_of(server, link) for link in (server.link, server.second.link)]
            out, _ = pair(network, program, "-d", "weft1", "-g", index, "-n", 100, "-s", size)
            check("100 iters in" in out, out)
            check(f"GID {gid}" in out.split("remote")[1], out)
            first, second = (octets_of(server, link) - was for link, was in
                             zip((server.link, server.second.link), before))
            check(second > 100 * size > first, f"{first} octets by the first link, {second} by the "
                                               "second")
    return case


def index_without_gid(network):
    """Refused, as by an adapter; no other GID takes its place."""
    need("ibv_rc_pingpong")
    port = free_port()
    argv = ["ibv_rc_pingpong", "-d", "weft1", "-g", 3, "-p", port]
    server = network.start(argv, options=ROCE).listening(port)
    client = network.connect([*argv, network.server.v4], options=ROCE)
    client.expect_clean_failure(LIMIT_S)
    check("RTR" in server.expect_clean_failure(LIMIT_S), server.tail())


def across(network):
    """Queue pairs of two devices of one machine, each sending from its own address."""
    need("ibv_rc_pingpong")
    server = network.server
    for program in ("ibv_rc_pingpong", "ibv_ud_pingpong"):
        port = free_port()
        argv = [program, "-p", port, "-g", 0, "-n", 100, "-s", 1000]
        first = network.start([*argv, "-d", "weft0"], options=ROCE).listening(port)
        out = network.start([*argv, "-d", "weft1", server.v4], options=ROCE).expect(0, LIMIT_S)
        check(f"GID ::ffff:{server.second.v4}" in out.split("remote")[0], out)
        check(f"GID ::ffff:{server.v4}" in out.split("remote")[1], out)
        first.expect(0, LIMIT_S)


def eventually(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        check(time.monotonic() < end, "it did not come to be")
        time.sleep(0.02)


def sandboxed(network):
    """Where a program may not ask for interfaces, the address of the default route is its GID."""
    server = network.server
    ip("-n", server.prefix[-1], "route", "add", "default", "via", network.client.v4)
    shown = looks(probe(server, network, "sandboxed", options=ROCE).expect(0, LIMIT_S))
    check(list(shown) == ["weft0"] and
          shown["weft0"][1][0].startswith(f"::ffff:{server.v4} "), f"{shown}")


def weft_devices(network):
    """`weft devices` says which interface is which device."""
    shown = Process(network.server, [WEFT, "devices", "--json"], raw=True,
                    env={"WEFT_PERSONALITY": "roce"})
    ours = [device for device in json.loads(shown.expect(0, LIMIT_S))["devices"] if device["weft"]]
    ends = network.server, network.server.second
    check([device["interface"] for device in ours] == [end.link for end in ends], f"{ours}")
    check(all(len(device["gids"]) == 3 for device in ours), f"{ours}")


def coming_and_going(network):
    """The list is as it is when it is asked for; a device that comes back is the same one. Entries
    of the GID table keep their place."""
    server = network.server
    name = server.prefix[-1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fifo")
        os.mkfifo(path)
        program = probe(server, network, "again", path, options=ROCE)
        fifo = os.open(path, os.O_WRONLY)

        def now():
            before = program.output().count("end\n")
            os.write(fifo, b"\n")
            eventually(lambda: program.output().count("end\n") > before)
            return looks(program.output().split("end\n")[before])

        both = now()
        check(sorted(both) == ["weft0", "weft1"], f"{both}")
        ip("-n", name, "link", "set", server.link, "down")
        check(sorted(now()) == ["weft1"], "without the first link")
        ip("-n", name, "link", "set", server.link, "up")
        ip("-n", name, "addr", "add", "10.77.0.9/24", "dev", server.link)
        ip("-n", name, "addr", "del", f"{server.second.v4}/24", "dev", server.second.link)
        eventually(lambda: len(now()) == 2)
        after = now()
        check(after["weft0"][0].split()[0] == both["weft0"][0].split()[0], f"{both} {after}")
        check(any(gid.startswith("::ffff:10.77.0.9 ") for gid in after["weft0"][1].values()),
              f"{after}")
        table = after["weft1"][1]
        check(table[0] == f":: {ENODATA}" and table[1] == both["weft1"][1][1], f"{table}")
        os.close(fifo)
        program.expect(0, LIMIT_S)


def not_mixed(network):
    """A queue pair has its domain and its completion queues of one device."""
    out = probe(network.server, network, "mixed").expect(0, LIMIT_S)
    check(f"mixed: {EINVAL}" in out, out)


if __name__ == "__main__":
    main({
        "roce_table": roce_table,
        "iwarp_table": iwarp_table,
        "narrowed": narrowed,
        "show_gids": show_gids,
        "binding_iwarp": binding(()),
        "binding_roce": binding(ROCE),
        "requests_iwarp": requests(()),
        "requests_roce": requests(ROCE),
        "rc_pingpong": pingpong("ibv_rc_pingpong", 4096),
        "ud_pingpong": pingpong("ibv_ud_pingpong", 1000),
        "sandboxed": sandboxed,
        "weft_devices": weft_devices,
        "index_without_gid": index_without_gid,
        "across": across,
        "coming_and_going": coming_and_going,
        "not_mixed": not_mixed,
    })
