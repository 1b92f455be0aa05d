"""What every measurement needs: programs, places, CPUs, times."""

import dataclasses
import os
import random
import shutil
import socket

from .places import Places
from .process import Failed, Running, run, shell_text


@dataclasses.dataclass
class Settings:
    quick: bool
    seconds: float         # of one measurement
    latency_seconds: float
    congestion: str        # of the column in which all have the same


class Bench:
    def __init__(self, weft, settings, places, cpus):
        self.weft = weft
        self.settings = settings
        self.places: Places = places
        self.client_cpu, self.server_cpu = cpus
        self.calls = []   # commands of the job that runs
        self.rates = {}   # messages per second that a rival had last time, to choose its count

    # Where.

    def loopback(self, column):
        """SAME and BOTH: under the one congestion control; SHIPPED: under the system's."""
        return self.places.loopback(None if column == "shipped" else self.settings.congestion)

    def anywhere(self):
        """For programs that choose their congestion control themselves: the same namespace as the
        others where there is one, else loopback as it is."""
        congestion = None if self.places.refusal else self.settings.congestion
        return self.places.loopback(congestion)

    def veth(self, mtu, column, segments):
        congestion = None if column == "shipped" else self.settings.congestion
        return self.places.veth(mtu, congestion, segments)

    def column_differs(self):
        """Whether the two columns have different congestion controls."""
        return self.places.default != self.settings.congestion

    # With what.

    def costs(self):
        """The program that measures registration and posting."""
        folder = os.path.dirname(self.weft)
        for path in (os.path.join(folder, "weft-costs"),
                     os.path.join(folder, "../libexec/weft/weft-costs")):
            if os.access(path, os.X_OK):
                return os.path.normpath(path)
        raise Failed(f"weft-costs is not beside {self.weft}")

    def pinned(self, cpu):
        if cpu is None or shutil.which("taskset") is None:
            return []
        return ["taskset", "-c", str(cpu)]

    # How.

    def client(self, place, argv, deadline_s=20, env=None, pin=True):
        """Runs a client to its end."""
        command = [*place.client, *(self.pinned(self.client_cpu) if pin else []), *argv]
        self.note(argv, env)
        return run(command, deadline_s, env).require(os.path.basename(argv[0]))

    def start(self, place, argv, env=None):
        """One of several clients that run at once, on whatever CPU is free."""
        self.note(argv, env)
        return Running([*place.client, *argv], env)

    def server(self, place, argv, env=None, pin=True):
        command = [*place.server, *(self.pinned(self.server_cpu) if pin else []), *argv]
        self.note(argv, env)
        return Running(command, env)

    def note(self, argv, env=None):
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        self.calls.append(" ".join([*variables, shell_text([os.path.basename(argv[0]),
                                                            *argv[1:]])]))

    def take_calls(self):
        calls, self.calls = self.calls, []
        return "; ".join(calls)

    def count_for(self, key, seconds, guess_per_s, low=4, high=5_000_000):
        """How many messages take about `seconds`, by what was seen before."""
        return int(min(max(self.rates.get(key, guess_per_s) * seconds, low), high))


def free_port():
    """A port that nobody has now, outside those that the kernel gives to clients."""
    for _ in range(100):
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise Failed("no free port between 20000 and 32000")
