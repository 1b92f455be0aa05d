#!/usr/bin/env python3
"""Runs the image of a board under QEMU, on a tap device in a network namespace of its own, against
Weft programs there.

    board_test.py BOARD --image ELF --program board_test
                  [--soak ROUNDS [--soak-minutes M] [--case REGEX] [--boards N]]

Frames between tap and board pass a relay in this process, which can lose, double and reorder them by
a seed. A soak runs every case ROUNDS times, each round on a freshly started board and with a seed of
its own, and prints for each case how many runs there were and how many failed. A case that failed
while the whole machine stood still is run again, in a soak or not. With --boards several boards
share the rounds, each in a namespace of its own. The last frames before a failure are left as a
capture, soak-BOARD-SEED-CASE.pcap. Exit status 77: something that is needed is not there, and a
line says what.
"""

import argparse
import collections
import functools
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from board_net import Relay, Skip, checksum, enter_namespace, open_tap, write_capture

QEMU = {
    "mps2-an385": ["qemu-system-arm", "-M", "mps2-an385"],
    "mipssim": ["qemu-system-mips", "-M", "mipssim", "-m", "32M"],
}
READY_LIMIT_S = 60
PROGRAM_LIMIT_S = 240
ANSWER_LIMIT_S = 20
BURSTS, FRAMES_PER_BURST = 20, 4  # four frames are what the windows of two connections hold
STANDSTILL_S = 5  # a pause of the machine that may make a case fail

# The board's segments must fit what its adapter takes.
MTU = {"mps2-an385": 1500, "mipssim": 1496}


class Failed(Exception):
    """The test has failed."""


class Board:
    """QEMU with the image, and what the board says on its console."""

    def __init__(self, name, image, tap, seed, may_rest):
        self.may_rest = may_rest
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        ours.setblocking(False)
        self.command = [
            *QEMU[name], "-kernel", image, "-display", "none", "-monitor", "none",
            "-serial", "stdio", "-no-reboot",
            "-netdev", f"socket,id=n0,fd={theirs.fileno()}",
            "-net", "nic,netdev=n0,macaddr=02:57:45:46:00:02" +
            (",model=lan9118" if name == "mps2-an385" else ""),
        ]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, pass_fds=[theirs.fileno()])
        theirs.close()
        self.lines = []
        self.ready = threading.Event()
        threading.Thread(target=self.read_console, daemon=True).start()
        self.relay = Relay(tap, ours, seed)
        self.relay.start()

    def read_console(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if "weft-board: ready" in line:
                self.ready.set()
        self.ready.set()

    def wait_ready(self):
        # In short waits: a time in which the whole machine stands still counts as one of them.
        for _ in range(READY_LIMIT_S * 10):
            if self.ready.wait(0.1):
                break
        if not self.ready.is_set() or self.process.poll() is not None:
            raise Failed(f"the board did not start: {self.lines}")
        if self.may_rest:
            self.relay.resting = self.process

    def check(self):
        wrong = [line for line in self.lines if "weft-board:" in line and "ready" not in line]
        if wrong or self.process.poll() is not None:
            raise Failed(f"the board stopped: {self.lines}")

    def stop(self):
        self.relay.stopping = True
        self.relay.join()
        self.process.kill()
        self.process.wait()
        self.relay.qemu.close()


class Test:
    """The cases, run one after the other on one board."""

    def __init__(self, args):
        self.args = args
        self.tap = open_tap("weft0", MTU[args.board])
        self.board = None
        self.seed = 1

    def start_board(self):
        self.board = Board(self.args.board, self.args.image, self.tap, self.seed,
                           self.args.boards > 1)
        self.board.wait_ready()

    def program(self, cases, **environment):
        """Runs cases of the program on the workstation; returns its output."""
        done = subprocess.run(
            [self.args.program, f"--gtest_filter={cases}"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_LIMIT_S,
            env=dict(os.environ, WEFT_BOARD_TAP="1", **environment))
        self.board.check()
        if done.returncode != 0 or "[  PASSED  ]" not in done.stdout:
            raise Failed(f"{cases}:\n{done.stdout}\nconsole: {self.board.lines}")
        return done.stdout

    def every_case(self):
        self.program("*")

    def loss_and_reordering(self):
        relay = self.board.relay
        relay.loss, relay.double, relay.reorder = 0.02, 0.02, 0.1
        self.program("*EveryOperation*:*Markers*:*TwoConnections*")
        relay.loss = relay.double = relay.reorder = 0.0

    def streaming_server(self):
        """A server in the middle of a long stream of Writes."""
        server = subprocess.Popen(
            [self.args.program, "--gtest_filter=*.Streams"], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, WEFT_BOARD_TAP="1", WEFT_BOARD_MESSAGES="1000000"))
        for line in server.stdout:
            if "streaming" in line:
                break
        return server

    def server_killed(self):
        """A server that dies in the middle of a stream of Writes: the board comes back."""
        server = self.streaming_server()
        server.send_signal(signal.SIGKILL)
        server.wait()
        self.program("*BoardConnects:*BoardListens")

    def board_reset(self):
        """The board loses power in the middle of a stream; the fresh one connects again."""
        server = self.streaming_server()
        self.board.stop()
        server.kill()
        server.wait()
        self.start_board()
        self.program("*BoardConnects:*BoardListens")

    def sensor(self):
        """The example: a sensor on the board writes into the ring of a server here."""
        self.board.stop()
        server = subprocess.Popen([self.args.sensor_server, "server", "4792"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            if "listening" not in server.stdout.readline():
                raise Failed("the sensor's server does not listen")
            self.board = Board(self.args.board, self.args.sensor, self.tap, self.seed, False)
            output, _ = server.communicate(timeout=PROGRAM_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"the sensor is silent; its console: {self.board.lines}") from error
        finally:
            server.kill()
            server.wait()
        total = sum(i % 1000 for i in range(256 * 100))
        if f"100 blocks, sum {total}\n" not in output:
            raise Failed(f"the sensor's server: {output}; the sensor: {self.board.lines}")
        self.board.stop()
        self.start_board()

    def sums(self):
        """Code that only boards have, compared by an image of its own. It needs no network."""
        with subprocess.Popen(
                [*QEMU[self.args.board], "-kernel", self.args.sums, "-display", "none", "-monitor",
                 "none", "-serial", "stdio", "-net", "none"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as board:
            limit = threading.Timer(PROGRAM_LIMIT_S, board.kill)
            limit.start()
            lines = []
            for line in board.stdout:
                lines.append(line.rstrip())
                if "weft-board:" in line:
                    break
            limit.cancel()
            board.kill()
        if lines != ["sums: right", "largest sums: right", "copies: right", "weft-board: done"]:
            raise Failed(f"the image says {lines}")

    def bursts(self):
        """Frames that come together are all answered: the driver loses none while it sends."""
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pings:
            pings.settimeout(ANSWER_LIMIT_S)
            # The first one is of one frame: until the board knows where answers go it keeps few.
            for burst, frames in enumerate([1] + BURSTS * [FRAMES_PER_BURST]):
                asked = {struct.pack("!HH", burst, number) for number in range(frames)}
                for which in asked:  # an Echo Request without data
                    pings.sendto(b"\x08\x00" + checksum(b"\x08\x00" + which) + which,
                                 ("10.77.0.2", 0))
                while asked:
                    try:
                        answer = pings.recv(1500)[20:]
                    except TimeoutError as error:
                        raise Failed(f"burst {burst}: no answer to {len(asked)} of {frames} "
                                     "pings") from error
                    if answer[0] == 0:
                        asked.discard(answer[4:8])
        self.board.check()

    def own_cases(self):
        """Those that are not in the program."""
        cases = [self.bursts, self.loss_and_reordering, self.server_killed, self.board_reset]
        cases += [self.sensor] if self.args.sensor else []
        return cases + ([self.sums] if self.args.sums else [])

    def cases(self):
        """What the soak runs: each case of the program by itself, then those of this file."""
        listed = subprocess.run([self.args.program, "--gtest_list_tests"], stdout=subprocess.PIPE,
                                text=True, check=True).stdout
        cases, suite = [], ""
        for line in listed.splitlines():
            if not line.startswith(" "):
                suite = line.split()[0]
            else:
                name = suite + line.split()[0]
                cases.append((name, functools.partial(self.program, name)))
        if not cases:
            raise Failed(f"{self.args.program} lists no cases")
        return cases + [(case.__name__, case) for case in self.own_cases()]

    def attempt(self, name, case):
        """Runs one case. "stood still": it failed, but the machine gave nothing of this any time."""
        self.board.relay.longest_pause = 0.0
        try:
            case()
            return "passed"
        except (Failed, subprocess.TimeoutExpired) as failure:
            pause = self.board.relay.longest_pause
            print(f"seed {self.seed}: {name}: {failure}\nconsole: {self.board.lines}\n"
                  f"longest pause of the machine: {pause:.1f} s", flush=True)
            self.board.stop()
            write_capture(f"soak-{self.args.board}-{self.seed}-{name.replace('/', '-')}.pcap",
                          list(self.board.relay.passed))
            self.start_board()
            return "failed" if pause < STANDSTILL_S else "stood still"

    def soak(self, seeds, seconds):
        """Every case, again and again, on a board that is started afresh for each seed."""
        cases = [(name, case) for name, case in self.cases() if re.search(self.args.case, name)]
        if not cases:
            raise Failed(f"no case is called '{self.args.case}'")
        ended = collections.Counter({(name, "passed"): 0 for name, _ in cases})
        end = time.monotonic() + seconds
        for self.seed in seeds:
            self.board.stop()
            self.start_board()
            for name, case in cases:
                how = "stood still"
                while how == "stood still" and time.monotonic() < end:
                    how = self.attempt(name, case)
                    ended[name, how] += 1
            if time.monotonic() >= end:
                print(f"the time is over in the round of seed {self.seed}", flush=True)
                break
            print("part: round", flush=True)
        return ended


def soak_here(args):
    """The part of a soak that one board does."""
    enter_namespace()
    test = Test(args)
    test.start_board()
    try:
        seeds = range(args.first_seed, args.soak + 1, args.boards)
        for (name, how), runs in test.soak(seeds, 60 * args.soak_minutes).items():
            print(f"part: {name}: {runs} {how}", flush=True)
    finally:
        test.board.stop()


def soak(args):
    """Shares the rounds of a soak among boards, and prints the sums."""
    parts = [subprocess.Popen([sys.executable, *sys.argv, "--first-seed", str(number + 1)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for number in range(args.boards)]
    ended = collections.Counter()
    rounds = itertools.count(1)

    def collect(part):
        for line in part.stdout:
            if line == "part: round\n":
                if (number := next(rounds)) % 10 == 0:
                    print(f"{number} rounds", flush=True)
            elif counted := re.fullmatch(r"part: (.*): (\d+) ([a-z ]+)\n", line):
                ended[counted[1], counted[3]] += int(counted[2])
            else:
                print(line, end="", flush=True)

    readers = [threading.Thread(target=collect, args=[part]) for part in parts]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    statuses = [part.wait() for part in parts]
    for name in dict.fromkeys(name for name, _ in ended):
        print(f"soak: {name}: " + ", ".join(
            f"{ended[name, how]} {how}" for how in ("passed", "failed", "stood still")))
    failed = sum(runs for (_, how), runs in ended.items() if how == "failed")
    print(f"soak: {failed} of {ended.total()} runs failed")
    if 77 in statuses:
        raise Skip("a board could not be run")
    if failed or any(statuses):
        raise Failed(f"{failed} runs of the soak failed; the boards ended with {statuses}")


def run(args):
    if shutil.which(QEMU[args.board][0]) is None:
        raise Skip(f"{QEMU[args.board][0]} is not installed (scripts/install-deps.sh all)")
    if not pathlib.Path(args.image).exists():
        raise Skip(f"no image {args.image} (scripts/build-board.sh {args.board})")
    if args.soak:
        if args.first_seed:
            soak_here(args)
        else:
            soak(args)
        return
    enter_namespace()
    test = Test(args)
    test.start_board()
    try:
        for case in [test.every_case, *test.own_cases()]:
            start = time.monotonic()
            while (how := test.attempt(case.__name__, case)) == "stood still":
                pass
            if how == "failed":
                raise Failed(case.__name__)
            print(f"{case.__name__}: passed in {time.monotonic() - start:.1f} s", flush=True)
    finally:
        test.board.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("board", choices=sorted(QEMU))
    parser.add_argument("--image", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--sensor", metavar="ELF", help="image of examples/embedded, to be tried too")
    parser.add_argument("--sensor-server", metavar="PROGRAM", help="rddp_sensor, its server")
    parser.add_argument("--sums", metavar="ELF", help="weft_sums_image, to be tried too")
    parser.add_argument("--soak", type=int, default=0, metavar="ROUNDS",
                        help="run every case so many times")
    parser.add_argument("--soak-minutes", type=float, default=60, metavar="M",
                        help="end the soak after this time (default 60)")
    parser.add_argument("--case", default="", metavar="REGEX", help="soak these cases only")
    parser.add_argument("--boards", type=int, default=1, metavar="N",
                        help="soak so many boards at once (default 1)")
    parser.add_argument("--first-seed", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        run(args)
    except Skip as reason:
        print(f"skipped: {reason}")
        return 77
    except Failed as reason:
        print(f"FAILED: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
