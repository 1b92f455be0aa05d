#!/usr/bin/env python3
"""The data server beside crowds of strangers: an honest client is served while they stand there.

    data_crowd_test.py WEFT_DATA CASE...     without cases: all

Each case prints how long the honest client took; nothing depends on it.
"""

import contextlib
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from raw_data import RawClient  # noqa: E402
from serving import Serving, run_cases  # noqa: E402

PROGRAM = sys.argv[1]
LIMIT_S = 60
CROWD = 10000
UNPROVEN = 500  # each has a queue pair and its memory for as long as the server lets it
REQUEST = b"MPA ID Req Frame" + bytes([0x40, 1, 0, 0])
# Comes again and again, with so many connections at a time, until it is ended.
FLOOD = """
import collections, socket, sys
to, says, last = ("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2]), collections.deque(maxlen=2000)
while True:
    try:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(to)
        last.append(one)
        one.send(says)
    except OSError:
        pass
"""


def make_room():
    wanted = CROWD + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        print(f"skipped: this process may open {hard} files only")
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@contextlib.contextmanager
def crowd(port, says):
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                one.send(says)
        yield


@contextlib.contextmanager
def flood(port, says):
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(port), says.hex()]) as process:
        try:
            time.sleep(0.5)
            yield
            assert process.poll() is None, "the flood has ended by itself"
        finally:
            process.kill()


class Honest:
    """A server with a file, and a client that takes it."""

    def __init__(self, tmp, *arguments):
        self.folder = tmp / "shared"
        self.folder.mkdir()
        (self.folder / "file").write_bytes(os.urandom(100000))
        self.server = Serving(PROGRAM, "--quiet", *arguments, self.folder, limit_s=LIMIT_S)
        self.tmp = tmp

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()

    @property
    def port(self):
        return self.server.port

    def get(self, *arguments):
        start = time.monotonic()
        to = self.tmp / "got"
        done = subprocess.run([PROGRAM, "get", *map(str, arguments), self.server.url("file"), str(to)],
                              capture_output=True, timeout=LIMIT_S, check=False, text=True)
        took = time.monotonic() - start
        assert done.returncode == 0, f"not served after {took:.2f} s: {done.stderr}"
        assert to.read_bytes() == (self.folder / "file").read_bytes()
        print(f"  served in {took:.2f} s, by {self.server.cpu_seconds():.2f} s of the server", flush=True)
        to.unlink()


def case_nobody(tmp):
    with Honest(tmp) as honest:
        honest.get()


def case_silent(tmp):
    with Honest(tmp) as honest, crowd(honest.port, b""):
        honest.get()


def case_requests(tmp):
    with Honest(tmp) as honest, crowd(honest.port, REQUEST):
        honest.get()


def case_flood_of_silence(tmp):
    with Honest(tmp) as honest, flood(honest.port, b""):
        honest.get()


def case_without_proof(tmp):
    """Strangers that have a queue pair, and said hello, and do not prove that they know the token."""
    token = tmp / "token"
    token.write_text("a token that strangers do not know\n")
    token.chmod(0o600)
    with Honest(tmp, "--token-file", token) as honest, contextlib.ExitStack() as stack:
        for _ in range(UNPROVEN):
            with contextlib.suppress(OSError, AssertionError):
                one = stack.enter_context(RawClient(honest.port))
                one.hello()
        honest.get("--token-file", token)


CASES = {name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")}

if __name__ == "__main__":
    make_room()
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-data-crowd-")
