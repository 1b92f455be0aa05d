"""The network of a board: a tap device in a namespace, and the relay of frames between tap
and board, which can lose, double and reorder them by a seed."""

import collections
import fcntl
import os
import random
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time

# A board of several at once that has moved no frame runs for RUN_S, then rests for REST_S.
RUN_S = 0.003
REST_S = 0.020
FRAMES_KEPT = 5000  # for a capture of what came before a failure


def checksum(octets):
    """That of RFC 1071, of an even number of octets."""
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!H", ~((total >> 16) + total) & 0xFFFF)


class Skip(Exception):
    """This machine cannot run the test."""


def enter_namespace():
    """Starts this program again in a fresh network namespace, where it may make a tap device."""
    if os.environ.get("WEFT_BOARD_NAMESPACE") == "1":
        return
    flags = ["-n"] if os.geteuid() == 0 else ["-rn"]
    if subprocess.run(["unshare", *flags, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("no right to make a network namespace")
    os.environ["WEFT_BOARD_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])


def open_tap(name, mtu):
    """A tap device with the workstation's address, as a file."""
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # TUNSETIFF with IFF_TAP and IFF_NO_PI.
        fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
    except OSError as error:
        raise Skip(f"no tap device: {error}") from error
    for command in (f"link set {name} mtu {mtu}", f"addr add 10.77.0.1/24 dev {name}",
                    f"link set {name} up", "link set lo up"):
        if subprocess.run(["ip", *command.split()]).returncode != 0:
            raise Skip(f"'ip {command}' failed")
    return tap


class Relay(threading.Thread):
    """Moves frames between the tap and QEMU. Its faults may be changed at any time."""

    def __init__(self, tap, qemu, seed):
        super().__init__(daemon=True)
        self.tap = tap
        self.qemu = qemu
        self.loss = self.double = self.reorder = 0.0
        self.random = random.Random(seed)
        self.held = {}
        self.stopping = False
        self.resting = None  # a process that is stopped while there is nothing to do
        self.asleep = False
        self.longest_pause = 0.0  # of this thread, which never waits long
        self.passed = collections.deque(maxlen=FRAMES_KEPT)  # (time, frame)

    def run(self):
        selector = selectors.DefaultSelector()
        selector.register(self.tap, selectors.EVENT_READ, self.from_tap)
        selector.register(self.qemu, selectors.EVENT_READ, self.from_qemu)
        before = time.monotonic()
        while not self.stopping:
            events = selector.select(RUN_S if self.resting and not self.asleep else REST_S)
            for key, _ in events:
                key.data()
            self.let_go()
            self.rest(not events)
            now = time.monotonic()
            self.longest_pause = max(self.longest_pause, now - before)
            before = now

    def rest(self, idle):
        """A board polls and so uses a whole CPU. Where several share a few, each one rests while no
        frame moves, but for short times, which are for its timers."""
        if self.resting and (self.asleep or idle):
            self.asleep = not self.asleep
            self.resting.send_signal(signal.SIGSTOP if self.asleep else signal.SIGCONT)

    def from_tap(self):
        self.pass_on("tap", os.read(self.tap, 65536), self.qemu.send)

    def from_qemu(self):
        self.pass_on("qemu", self.qemu.recv(65536), lambda frame: os.write(self.tap, frame))

    def pass_on(self, side, frame, send):
        self.passed.append((time.time(), frame))
        if self.random.random() < self.loss:
            return
        if side not in self.held and self.random.random() < self.reorder:
            self.held[side] = (time.monotonic() + 0.02, frame, send)
            return
        self.send(send, frame)
        if self.random.random() < self.double:
            self.send(send, frame)
        # What was held back goes behind a later one.
        if side in self.held and self.random.random() < 0.5:
            self.send(self.held[side][2], self.held.pop(side)[1])

    def let_go(self):
        for side in [s for s, held in self.held.items() if held[0] < time.monotonic()]:
            _, frame, send = self.held.pop(side)
            self.send(send, frame)

    @staticmethod
    def send(send, frame):
        try:
            send(frame)
        except (BlockingIOError, ConnectionError, OSError):
            pass  # as a wire whose end is full: TCP sends it again


def write_capture(path, frames):
    """A pcap file of Ethernet frames, those that the relay then lost among them."""
    with open(path, "wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for at, frame in frames:
            file.write(struct.pack("=IIII", int(at), int(at % 1 * 1e6), len(frame), len(frame)))
            file.write(frame)
