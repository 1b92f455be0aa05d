"""Runs cases of CPython's own tests, unmodified, and prints a line of JSON as each starts and ends.

    cpython_runner.py --names MODULE...
    cpython_runner.py MODULE.CLASS.TEST...

The modules are those of Debian's libpython3.11-testsuite, so this runs with the system's Python.
"""

import importlib
import sys
import unittest

from unittest_reporter import MARK, Reporter, all_tests

BEFORE = "test."


def name_of(test):
    """`test_socket.BasicTCPTest.testRecv`."""
    return test.id().removeprefix(BEFORE)


def main():
    if sys.argv[1] == "--names":
        loader = unittest.defaultTestLoader
        for module in sys.argv[2:]:
            loaded = loader.loadTestsFromModule(importlib.import_module(BEFORE + module))
            print("\n".join(MARK + name_of(test) for test in all_tests(loaded)))
        return
    suite = unittest.defaultTestLoader.loadTestsFromNames([BEFORE + name for name in sys.argv[1:]])
    # One suite, so that what a class or module sets up is set up once.
    suite.run(Reporter(name_of))


main()
