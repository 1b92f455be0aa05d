"""What the tests of films share: a server of films, films, and a viewer. sys.argv[1] is weft-video."""

import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from serving import Serving

PROGRAM = sys.argv[1]
LIMIT_S = 60


class Server(Serving):
    """A server of films on a free port of the loopback address; ends with the block."""

    def __init__(self, *files, path=None):
        environment = dict(os.environ)
        if path is not None:
            environment["PATH"] = path
        super().__init__(PROGRAM, *files, limit_s=LIMIT_S, env=environment)


def make(tmp, name, size="160x120", rate="50", frames=60):
    done = subprocess.run([PROGRAM, "make", str(tmp / name), "--size", size, "--rate", rate, "--frames", str(frames)],
                          check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return pathlib.Path(done.stdout.strip())


def show(*arguments, code=0, text=None):
    done = subprocess.run([PROGRAM, "show", "--headless", "--json", *map(str, arguments)], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, {done.stderr}"
    if text is not None:
        assert text in done.stderr, f"{arguments}: {text!r} is not in {done.stderr!r}"
    return json.loads(done.stdout)["films"] if done.stdout else None


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def wait_for_a_frame(dump):
    deadline = time.monotonic() + LIMIT_S
    while not (dump.exists() and dump.stat().st_size):
        assert time.monotonic() < deadline, "no frame"
        time.sleep(0.001)
