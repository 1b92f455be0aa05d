"""Where a client and a server run, and how they reach each other.

Network namespaces have a congestion control of their own: inside one, even a program without an
option for it can be measured under any. Making them takes root.
"""

import dataclasses
import os
import re

from .process import Failed, last_line, run

PREFIX = "weft-compare-"


@dataclasses.dataclass(frozen=True)
class Place:
    name: str
    address: str
    server: tuple = ()     # what to put before a server's command
    client: tuple = ()
    congestion: str = ""   # of sockets whose program does not choose: what the namespace has
    client_namespace: str = ""
    device: str = ""       # in the client's namespace, of a veth pair
    mtu: int = 0


def _ip(*arguments):
    run(["ip", *arguments], 10).require("ip")


def can_make_namespaces():
    """None, or why not."""
    if os.geteuid() != 0:
        return "not root: network namespaces cannot be made"
    try:
        name = f"{PREFIX}{os.getpid()}-probe"
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except Failed as why:
        return f"network namespaces cannot be made here ({why})"
    return None


def remove_stale():
    """Namespaces of runs that were killed."""
    try:
        listed = run(["ip", "netns", "list"], 10).out
    except Failed:
        return
    for name in re.findall(rf"^({PREFIX}(\d+)-\S+)", listed, re.M):
        if not os.path.exists(f"/proc/{name[1]}"):
            run(["ip", "netns", "del", name[0]], 10)


def set_congestion(namespace, name):
    run(["ip", "netns", "exec", namespace, "sysctl", "-qw",
         f"net.ipv4.tcp_congestion_control={name}"], 10).require("sysctl")


class Places:
    """Makes places on demand and keeps them until close()."""

    def __init__(self, congestion_default, refusal):
        self.default = congestion_default
        self.refusal = refusal  # why there are no namespaces, or None
        self._made = {}
        self._namespaces = []

    def close(self):
        for name in self._namespaces:
            run(["ip", "netns", "del", name], 10)
        self._namespaces.clear()
        self._made.clear()

    def _namespace(self, label, congestion):
        name = f"{PREFIX}{os.getpid()}-{label}"
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        set_congestion(name, congestion)
        return name

    def loopback(self, congestion=None):
        """None: the system's congestion control, otherwise a namespace that has the one named."""
        key = ("loopback", congestion)
        if key not in self._made:
            self._made[key] = self._make_loopback(congestion)
        return self._made[key]

    def _make_loopback(self, congestion):
        if self.refusal:
            if congestion not in (None, self.default):
                raise Failed(f"{self.refusal}, so the system's congestion control "
                             f"({self.default}) cannot be exchanged for {congestion}")
            return Place("loopback", "127.0.0.1", congestion=self.default)
        wanted = congestion or self.default
        name = self._namespace(f"lo-{wanted}", wanted)
        inside = ("ip", "netns", "exec", name)
        return Place(f"loopback, {wanted}", "127.0.0.1", inside, inside, wanted, name)

    def veth(self, mtu, congestion=None, segments=False):
        """Two namespaces joined by a pair of virtual adapters. `segments`: no offload, so that
        each TCP segment is a packet of its own."""
        key = ("veth", mtu, congestion, segments)
        if key not in self._made:
            self._made[key] = self._make_veth(mtu, congestion or self.default, segments)
        return self._made[key]

    def _make_veth(self, mtu, congestion, segments):
        if self.refusal:
            raise Failed(self.refusal)
        label = f"{mtu}{'s' if segments else ''}-{congestion}"
        one = self._namespace(f"c{label}", congestion)
        two = self._namespace(f"s{label}", congestion)
        device = "veth0"
        _ip("-n", one, "link", "add", device, "type", "veth", "peer", "name", device, "netns", two)
        for name, address in ((one, "10.77.0.1/24"), (two, "10.77.0.2/24")):
            limits = ("gso_max_segs", "1") if segments else ()
            _ip("-n", name, "link", "set", device, "mtu", str(mtu), *limits)
            _ip("-n", name, "address", "add", address, "dev", device)
            _ip("-n", name, "link", "set", device, "up")
        return Place(f"veth, MTU {mtu}, {congestion}", "10.77.0.2",
                     ("ip", "netns", "exec", two), ("ip", "netns", "exec", one),
                     congestion, one, device, mtu)


def netem(place, *options):
    """Delay and loss on the client's adapter. Raises where the kernel has no netem."""
    done = run(["ip", "netns", "exec", place.client_namespace, "tc", "qdisc", "replace", "dev",
                place.device, "root", "netem", *options], 10)
    if done.code != 0:
        raise Failed("this kernel has no netem (tc: " + last_line(done.err) + ")")


def clear_netem(place):
    run(["ip", "netns", "exec", place.client_namespace, "tc", "qdisc", "del", "dev", place.device,
         "root"], 10)


def wire_counters(place):
    """Bytes and packets that the client's adapter has sent, by the kernel's count."""
    out = run([*place.client, "cat", "/proc/net/dev"], 10).require("cat").out
    for line in out.splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == place.device:
            fields = rest.split()
            return int(fields[8]), int(fields[9])
    raise Failed(f"no counters for {place.device}")
