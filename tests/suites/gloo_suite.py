"""gloo's collective algorithms over its ibverbs transport: Debian's library, and a program that
checks what they compute."""

import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import harness
import outcome

SOURCE = pathlib.Path(__file__).with_name("gloo_collectives.cc")
ALGORITHMS = ("allreduce_ring", "allreduce_ring_chunked", "allreduce_halving_doubling",
              "allreduce_bcube", "broadcast", "allgather", "barrier_all_to_all",
              "barrier_all_to_one", "pairwise_exchange")
RANKS = (2, 4)
COUNTS = (16, 1000, 250000)  # elements of four octets; how often, for a barrier
LIMIT_S = 100

_folder = None


def version():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libgloo-dev"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise harness.Skip("libgloo-dev is not installed (scripts/install-deps.sh suites)")
    return f"gloo {done.stdout}"


def program():
    global _folder
    if _folder is None:
        _folder = tempfile.mkdtemp(prefix="weft-gloo-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
        done = subprocess.run(["g++", "-std=c++17", "-O1", "-o", f"{_folder}/ranks", SOURCE, "-lgloo",
                               "-libverbs", "-lpthread"], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise harness.Failure(f"{SOURCE.name} does not compile:\n{done.stderr[-3000:]}")
    return f"{_folder}/ranks"


def cases():
    return [f"roce/{algorithm}/{ranks}_ranks/{count}" for algorithm in ALGORITHMS for ranks in RANKS
            for count in COUNTS if not algorithm.startswith("barrier") or count <= 1000]


def quick(name):
    return "/2_ranks/1000" in name


def attempt(name, network):
    _, algorithm, ranks, count = name.split("/")
    size = int(ranks.partition("_")[0])
    with tempfile.TemporaryDirectory(prefix="weft-gloo-") as store:
        started = [network.start([program(), store, rank, size, algorithm, count],
                                 options=("--personality", "roce", "--log", "off"))
                   for rank in range(size)]
        try:
            for process in started:
                process.expect(0, LIMIT_S)
        finally:
            for process in started:
                process.end()


def run(names, seconds, report):
    done, stop = [], time.monotonic() + seconds
    with harness.loopback() as network:
        for name in names:
            case = outcome.Case(name, outcome.PASSED, "")
            if time.monotonic() > stop:
                case = case._replace(verdict=outcome.SKIPPED, detail="no time left")
            else:
                try:
                    attempt(name, network)
                except harness.Failure as why:
                    case = case._replace(verdict=outcome.FAILED, detail=str(why))
            report(case)
            done.append(case)
    return done
