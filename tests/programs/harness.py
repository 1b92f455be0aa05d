"""Runs unmodified RDMA programs over Weft: in two processes, on loopback or between two network
namespaces, each with a time limit, and nothing left behind.

    WEFT_BIN_DIR   folder of the `weft` program (set by ctest)
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

SKIPPED = 77
WEFT = os.path.join(os.environ.get("WEFT_BIN_DIR", "build/release/bin"), "weft")


class Failure(Exception):
    """A test that did not hold; the text says what was seen."""


class Skip(Exception):
    """This machine cannot run the test; the text says why."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def need(program):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not installed (scripts/install-deps.sh test)")


class Process:
    """A program under `weft run`, its output kept in memory by a file of its own."""

    def __init__(self, place, argv, options=(), env=None, raw=False, command=WEFT):
        self.argv = [str(a) for a in argv]
        argv = self.argv if raw else [command, "run", *options, "--", *self.argv]
        self.log = open(os.memfd_create("output"), "w+b", buffering=0)
        # Else what two processes print at one moment has one place: such a file does not lock it.
        fcntl.fcntl(self.log, fcntl.F_SETFL, os.O_APPEND)
        merged = {**os.environ, **(env or {})}
        # A session of its own: whatever the program starts can be ended with it.
        self.popen = subprocess.Popen(
            [*place.prefix, *argv], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, env=merged, start_new_session=True)
        _running.append(self)
        _all.append(self)

    @property
    def pid(self):
        return self.popen.pid

    def output(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode(errors="replace")

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self):
        """Kills it if it still runs."""
        if self in _running:
            self.kill()
            self.popen.wait()
            _running.remove(self)

    def wait(self, seconds):
        """The exit status; negative: the signal that ended it. A program that does not end
        fails."""
        try:
            status = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            where = stacks(self.pid)
            self.kill()
            self.popen.wait()
            raise Failure(f"{' '.join(self.argv)} did not end within {seconds} s\n"
                          f"{where}{self.tail()}") from None
        _running.remove(self)
        return status

    def tail(self, lines=25):
        text = self.output().splitlines()[-lines:]
        return "\n".join(f"    | {line[:200]}" for line in text)

    def expect(self, status, seconds):
        got = self.wait(seconds)
        check(got == status, f"{' '.join(self.argv)} ended with {got}, expected {status}\n"
                             f"{self.tail()}")
        return self.output()

    def expect_clean_failure(self, seconds):
        """Ends by itself with a status of its own: no success, no signal."""
        got = self.wait(seconds)
        check(got > 0 and got not in (126, 127), f"{' '.join(self.argv)} ended with {got}, expected a failure of its "
                             f"own\n{self.tail()}")
        return self.output()

    def listening(self, port, seconds=20, kind="rdma_cm"):
        """Waits until somebody listens on `port` in the network namespace of this program."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.popen.poll() is not None:
                raise Failure(f"{' '.join(self.argv)} ended with {self.popen.returncode} before it "
                              f"listened\n{self.tail()}")
            if is_listening(self.pid, port, kind):
                return self
            time.sleep(0.02)
        raise Failure(f"{' '.join(self.argv)} does not listen on port {port}\n{self.tail()}")

    def wait_for(self, text, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if text in self.output():
                return self
            time.sleep(0.02)
        raise Failure(f"{' '.join(self.argv)} did not print '{text}'\n{self.tail()}")


_all = []
_running = []


@atexit.register
def _kill_all():
    for process in _running:
        process.kill()


def stacks(pid):
    """Where the threads of a hanging program are, when a debugger is at hand."""
    if shutil.which("gdb") is None:
        return ""
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 8"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              check=False)
        rows = [line[:160] for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]
        return "".join(f"    > {row}\n" for row in rows)
    return ""


def is_listening(pid, port, kind="tcp"):
    """kind "rdma_cm": a listener of rdma_cm on a RoCE-like device has the UDP port (docs/
    rdma-cm-ports.md), a program that asks over a socket first the TCP port."""
    if kind == "rdma_cm":
        return is_listening(pid, port, "udp") or is_listening(pid, port, "tcp")
    wanted = f":{port:04X}"
    state = "0A" if kind == "tcp" else "07"  # as the kernel numbers them: LISTEN, and bound
    for name in (kind, f"{kind}6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
                rows = table.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[1].endswith(wanted) and fields[3] == state:
                return True
    return False


class Place:
    """Where a program runs and how the other side reaches it: by one link, or by the second of
    two."""

    def __init__(self, prefix, v4, v6, link="lo"):
        self.prefix = prefix
        self.v4 = v4
        self.v6 = v6
        self.link = link
        self.second = None


class Network:
    """A server's place and a client's."""

    def __init__(self, name, server, client, cut=None):
        self.name = name
        self.server = server
        self.client = client
        self._cut = cut

    def cut(self):
        """From now on nothing passes between the two, and neither is told."""
        if self._cut is None:
            raise Skip("one machine has no link to cut: name this case ...@namespaces")
        self._cut()

    def start(self, argv, **more):
        return Process(self.server, argv, **more)

    def connect(self, argv, **more):
        return Process(self.client, argv, **more)


# perftest measures the CPU's frequency, and gives up where others keep the CPU busy meanwhile.
UNSURE_OF_THE_CPU = "Correlation coefficient r^2"
# libfabric 1.17 (rxm) posts a receive again on an endpoint that it has just closed, now and then.
CRASH_IN_LIBFABRIC = "/libfabric.so.1("


def again_if_unsure(attempt, times=2):
    """When perftest could not measure the CPU's frequency. Every other failure is one."""
    return again_if(UNSURE_OF_THE_CPU, "perftest could not measure the CPU's frequency", attempt,
                    times)


def again_if(sign, why, attempt, times=2):
    """attempt(), and once more, at most `times`, when it failed and one of its programs printed
    `sign`."""
    for left in range(times, -1, -1):
        before = len(_all)
        try:
            return attempt()
        except Failure:
            mine = _all[before:]
            if left == 0 or not any(sign in p.output() for p in mine):
                raise
            for process in mine:
                process.end()
            print(f"    {why}: once more", flush=True)
    raise AssertionError("unreachable")


_held_ports = []  # as long as this process lives


def held(port):
    """Whether `port` is now this test's: another that has it, in whichever network namespace its
    programs listen, holds the name."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0weft-test-port/{port}")
    except OSError:
        name.close()
        return False
    _held_ports.append(name)
    return True


def free_port():
    """A port that is free now on loopback, below the ephemeral range of most systems. No test gets
    it again."""
    for _ in range(200):
        port = 20000 + int.from_bytes(os.urandom(2), "big") % 10000
        with socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("::", port))
            except OSError:
                continue
            if held(port):
                return port
    raise Failure("no free port")


@contextlib.contextmanager
def loopback(name="loopback"):
    place = Place([], "127.0.0.1", "::1")
    yield Network(name, place, place)


def ip(*argv):
    subprocess.run(["ip", *argv], check=True, capture_output=True, timeout=20)


def wait_until_up(namespace, link, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        shown = subprocess.run(["ip", "-n", namespace, "link", "show", link], check=True,
                               capture_output=True, text=True, timeout=20).stdout
        if " state UP " in shown:
            return
        time.sleep(0.02)
    raise Skip(f"the link {link} does not come up")


def join(names, links, net):
    """Joins two network namespaces by a veth pair; the places at its ends."""
    ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1],
       "netns", names[1])
    places = []
    for index, (name, link) in enumerate(zip(names, links)):
        v4, v6 = f"10.{net}.0.{index + 1}", f"fd{net}::{index + 1}"
        # The address of the link is usable at once, too.
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c",
                        f"echo 0 > /proc/sys/net/ipv6/conf/{link}/accept_dad"], check=False,
                       capture_output=True, timeout=20)
        ip("-n", name, "addr", "add", f"{v4}/24", "dev", link)
        ip("-n", name, "addr", "add", f"{v6}/64", "dev", link, "nodad")
        ip("-n", name, "link", "set", link, "up")
        places.append(Place(["ip", "netns", "exec", name], v4, v6, link))
    # The link of a veth is up a moment later, and UCX passes over interfaces that are not.
    for name, link in zip(names, links):
        wait_until_up(name, link)
    return places


@contextlib.contextmanager
def two_links():
    """As namespaces(), and a second link between the two: place.second is that end of it."""
    with namespaces() as network:
        places = [network.server, network.client]
        names = [place.prefix[-1] for place in places]
        ends = join(names, [place.link + "2" for place in places], 78)
        for place, end in zip(places, ends):
            place.second = end
        yield network


@contextlib.contextmanager
def namespaces():
    """Two network namespaces joined by a veth pair, gone at the end whatever happened."""
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    need("ip")
    names = [f"weft-{os.getpid()}-{side}" for side in "ab"]
    links = [f"wv{os.getpid()}{side}" for side in "ab"]
    made = []
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                raise Skip(f"no network namespaces here: {error.stderr.decode().strip()}") from None
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        places = join(names, links, 77)
        # A cable that is pulled would show at both ends; this drops without a word.
        def cut():
            for name, link in zip(names, links):
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", link, "root", "tbf", "rate",
                                "8bit", "burst", "1", "limit", "1"], check=True, capture_output=True)

        yield Network("namespaces", places[0], places[1], cut)
    finally:
        for process in list(_running):
            process.kill()
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def beside(first):
    """What each program since `first` said last: the other side often knows why this one failed."""
    told = []
    for process in _all[first:][-4:]:
        try:
            state = f"ended with {process.popen.wait(0.5)}"
        except subprocess.TimeoutExpired:
            state = "still running"
        told.append(f"  {' '.join(process.argv)}: {state}\n{process.tail(12)}\n")
    return "".join(told)


def main(cases):
    """harness.main({"name": function(network)}): runs the cases named on the command line, each
    `name`, `name@namespaces`, `name@two_links`, or `name@WORD`: on loopback, with a network of
    that name; all of them on loopback without arguments."""
    wanted = sys.argv[1:] or sorted(cases)
    networks = {"namespaces": namespaces, "two_links": two_links}
    failed = skipped = 0
    for text in wanted:
        name, _, where = text.partition("@")
        start = time.monotonic()
        before = len(_all)
        try:
            make = networks.get(where, lambda where=where: loopback(where or "loopback"))
            with make() as network:
                cases[name](network)
            verdict = "ok"
        except Skip as why:
            verdict = f"skipped: {why}"
            skipped += 1
        except Failure as why:
            verdict = f"FAILED: {why}\n{beside(before)}"
            failed += 1
        for process in list(_running):
            process.end()
        print(f"{text}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    if failed:
        sys.exit(1)
    sys.exit(SKIPPED if skipped == len(wanted) else 0)
