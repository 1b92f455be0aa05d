#!/usr/bin/env python3
"""Each program of the zoo for `weft run --shake`: the wrong one works without it, and fails by its
effect with one of 20 seeds. Its mended twin never fails. And other people's programs."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
import cm_programs  # noqa: E402
import wired_programs  # noqa: E402
from harness import WEFT, Network, Process, check, main  # noqa: E402

LIMIT_S = 60
SEEDS = 20
TWIN_SEEDS = 3
ANIMALS = ("shake1", "shake2", "shake3", "shake4", "shake4_tail", "shake4_private", "shake4_written",
           "shake5", "shake6", "shake6_inline", "shake6_cq", "shake6_srq", "shake7", "shake7_numbers",
           "shake7_keys")


def run(program, *options):
    path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], program)
    return subprocess.run([WEFT, "run", *options, "--", path], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)


def animal(name):
    effect = re.search(r"\d", name).group()

    def test(_network):
        plain = run(f"zoo_{name}_wrong")
        check(plain.returncode == 0, f"it fails without --shake:\n{plain.stderr}")
        check(any(run(f"zoo_{name}_wrong", "--shake", f"{seed}:{effect}").returncode != 0
                  for seed in range(SEEDS)), f"{SEEDS} seeds did not find it")
        for seed in range(TWIN_SEEDS):
            twin = run(f"zoo_{name}_mended", "--shake", str(seed))
            check(twin.returncode == 0, f"seed {seed}: the twin ended with {twin.returncode}:\n"
                  f"{twin.stderr}")
    return test


def usage(_network):
    for text in ("x", "7:9", "7:"):
        refused = run("zoo_shake1_mended", "--shake", text)
        check(refused.returncode == 2 and "--shake: '" in refused.stderr, f"{text}: {refused}")


class Shaken(Network):
    """The programs of another network, each under --shake."""

    def __init__(self, network, seed):
        super().__init__(network.name, network.server, network.client)
        self._options = ("--shake", str(seed))

    def start(self, argv, options=(), **more):
        return Process(self.server, argv, options=(*options, *self._options), **more)

    def connect(self, argv, options=(), **more):
        return Process(self.client, argv, options=(*options, *self._options), **more)


def rping(network):
    for seed in range(3):
        cm_programs.rping_of(4)(Shaken(network, seed))


def perftest(network):
    for seed in range(2):
        wired_programs.pair(Shaken(network, seed), "ib_send_bw", "-F", "-n", 200)
        wired_programs.pair(Shaken(network, seed), "ib_read_lat", "-F", "-n", 50)


if __name__ == "__main__":
    main({"usage": usage, "rping": rping, "perftest": perftest,
          **{name: animal(name) for name in ANIMALS}})
