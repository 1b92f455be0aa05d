#!/usr/bin/env python3
"""The harness itself: what the other tests rely on."""

import sys

from harness import check, main

LINES = """
import os
pid = os.fork()
for i in range(2000): os.write(1, b'%s %d\\n' % (b'parent' if pid else b'child', i))
if pid == 0: os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def lines_of_two(network):
    """Two processes that print at one moment lose no line and mix none."""
    for _ in range(5):
        out = network.start(["/usr/bin/python3", "-c", LINES], raw=True).expect(0, 60).splitlines()
        for name in "parent", "child":
            mine = [line for line in out if line.startswith(name)]
            check(mine == [f"{name} {i}" for i in range(2000)], f"{len(mine)} lines of the {name}")


CASES = {"lines_of_two": lines_of_two}

if __name__ == "__main__":
    sys.exit(main(CASES))
