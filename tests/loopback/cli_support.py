"""What tests of the `weft` program share: running it, and servers. Each is called as

    NAME_test.py PATH/TO/weft [unittest arguments]

and needs nothing but Python and the program. Every process that it starts has a deadline.
"""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
import unittest

WEFT = os.path.abspath(sys.argv.pop(1))
DEADLINE_S = 60
# Short phases, asleep while waiting: the tests ask whether it works, never how fast.
QUICK = ["--mode", "sleep", "--rounds", "1", "--duration", "0.03", "--latency-duration", "0.01"]


def run(*args, env=None, stdout=subprocess.PIPE, **kwargs):
    environment = dict(os.environ, **(env or {}))
    return subprocess.run([WEFT, *args], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=DEADLINE_S, stdin=subprocess.DEVNULL, env=environment, **kwargs)


def read_line(stream, deadline_s=20):
    """One line of a pipe, or an error: never forever."""
    end = time.monotonic() + deadline_s
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise TimeoutError(f"no line in time, only {line!r}")
        byte = os.read(stream.fileno(), 1)
        if not byte:
            raise EOFError(f"closed after {line!r}")
        line += byte
    return line.decode()


@contextlib.contextmanager
def server(command="perf", where="127.0.0.1:0", *args):
    """A server process; gives (process, port)."""
    process = subprocess.Popen([WEFT, command, "--listen", where, *args],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL)
    try:
        line = read_line(process.stdout)
        yield process, int(re.search(r":(\d+)$", line.strip()).group(1))
    finally:
        process.kill()
        process.communicate()


class Test(unittest.TestCase):
    def assert_done(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def assert_usage(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_failed(self, result, *words):
        self.assertEqual(result.returncode, 1, (result.stdout or "") + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def perf_json(self, *args):
        result = run("perf", "--self", "--json", *QUICK, *args)
        self.assert_done(result)
        return json.loads(result.stdout)["results"]
