#!/usr/bin/env python3
"""exs-perf from outside: it measures, and says what is wrong with its command line.

    WEFT_BIN_DIR   folder of `weft` and exs-perf (set by ctest)
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs"))

from harness import WEFT, check, main  # noqa: E402

EXS_PERF = os.path.join(os.path.dirname(WEFT), "exs-perf")
SHORT = ["--self", "--size", "4096", "--seconds", "0.05", "--rounds", "1"]


def run(*argv):
    return subprocess.run([*argv], capture_output=True, text=True, timeout=60, check=False)


def refused(status, *argv, words):
    done = run(EXS_PERF, *argv)
    lines = done.stderr.splitlines()
    check(done.returncode == status, f"{argv}: status {done.returncode}: {done.stderr}")
    check(len(lines) == 1 and lines[0].startswith("exs-perf: "), f"{argv}: {done.stderr}")
    for word in words:
        check(word in done.stderr, f"{argv}: no '{word}' in: {done.stderr}")


def usage(network):
    """Wrong usage: one line that names the option, the value and what is legal."""
    del network
    refused(2, "--self", "--mode", "strem", words=["--mode", "'strem'", "did you mean 'stream'?"])
    refused(2, "--mod", "tcp", words=["--mod", "did you mean '--mode'?", "exs-perf --help"])
    refused(2, "--self", "--depth", "0", words=["--depth", "'0'", "from 1 to 1024"])
    refused(2, "--self", "--size", "64,5x", words=["--size", "'5x'"])
    refused(2, "--self", "--seconds", "0", words=["--seconds"])
    refused(2, "--self", "--wait", "never", words=["--wait", "busy, adaptive or notify"])
    refused(2, "--listen", "99999", words=["--listen", "'99999'", "65535"])
    refused(2, "one", "two", words=["two", "one argument too many"])
    refused(2, words=["--self", "--listen"])
    refused(1, "127.0.0.1:1", words=["127.0.0.1:1", "refused", "exs-perf --listen 1"])
    refused(1, "[::1]:1", words=["[::1]:1", "exs-perf --listen 1"])
    refused(1, "::1", words=["[::1]:"])


def measures(network):
    """A row for each mode: plain TCP by itself, RDMA under `weft run`."""
    del network
    for prefix, mode in (([], "tcp"), ([WEFT, "run", "--"], "stream")):
        done = run(*prefix, EXS_PERF, *SHORT, "--mode", mode)
        rows = [line.split() for line in done.stdout.splitlines()]
        check(done.returncode == 0, done.stderr)
        check(len(rows) == 2 and rows[1][:2] == [mode, "4096"], done.stdout)
        check(all(float(figure) > 0 for figure in rows[1][2:5]), done.stdout)


if __name__ == "__main__":
    main({"usage": usage, "measures": measures})
