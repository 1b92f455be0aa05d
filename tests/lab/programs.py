#!/usr/bin/env python3
"""Other people's programs under `weft run --check`: what they do wrong is known, line by line
(docs/check.md), and nothing else is reported."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
import other_programs  # noqa: E402
import ucx_programs  # noqa: E402
import wired_programs  # noqa: E402
from harness import WEFT, Process, Network, check, main  # noqa: E402

LIMIT_S = 60
# Errors and warnings that are right: rule, call, and a part of the text.
KNOWN = {
    "qperf": {("W51", "ibv_dealloc_pd", "this protection domain was not destroyed")},
    "pyverbs": {("W51", "ibv_dealloc_pd", "this protection domain was not destroyed")},
}


# The same of those that are not found in each run.
SOMETIMES = {
    "qperf": {("W50", "rdma_destroy_qp", "the queue pair is destroyed, and ")},
    "ucx": {("W11", "ibv_post_send", "the memory of a Send"),
            ("E12", "free", "a request that writes to it")},
    "perftest": {("W11", "ibv_post_send", "the memory of an RDMA Write")},
}


class Checked(Network):
    """The programs of another network, each under --check."""

    def __init__(self, network, folder):
        super().__init__(network.name, network.server, network.client)
        self._options = ("--check", "--report", folder)

    def start(self, argv, options=(), **more):
        return Process(self.server, argv, options=(*options, *self._options), **more)

    def connect(self, argv, options=(), **more):
        return Process(self.client, argv, options=(*options, *self._options), **more)


def case(name, program):
    def test(network):
        with tempfile.TemporaryDirectory() as folder:
            program(Checked(network, folder))
            shown = subprocess.run([WEFT, "check", "report", folder, "--json"], timeout=LIMIT_S,
                                   capture_output=True, text=True, check=False)
            found = json.loads(shown.stdout)
        unnamed = [one for one in found if one["call"] == "a verbs call"]
        check(not unnamed, json.dumps(unnamed, indent=1))
        serious = [one for one in found if one["rule"][0] != "N"]
        known = KNOWN.get(name, set())
        for rule, call, text in known:
            check(any(one["rule"] == rule and one["call"] == call and text in one["text"]
                      for one in serious), f"{rule} in {call} was not found")
        known = known | SOMETIMES.get(name, set())
        for one in serious:
            check(any(one["rule"] == rule and one["call"] == call and text in one["text"]
                      for rule, call, text in known), json.dumps(one, indent=1))
    return test


if __name__ == "__main__":
    main({
        "fio": case("fio", other_programs.fio),
        "open_mpi": case("open_mpi", other_programs.open_mpi),
        "qperf": case("qperf", lambda network: other_programs.qperf(network, ("rc_rdma_read_lat",))),
        "pyverbs": case("pyverbs", other_programs.pyverbs),
        "fi_pingpong": case("fi_pingpong", other_programs.fi_pingpong),
        "ucx": case("ucx", lambda network: ucx_programs.run(network, ("-t", "tag_bw", "-n", 200),
                                                            env=ucx_programs.OVER_WEFT)),
        "perftest": case("perftest", lambda network: wired_programs.pair(
            network, "ib_send_bw", "-F", "-n", 200)),
    })
