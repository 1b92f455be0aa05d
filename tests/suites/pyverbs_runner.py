"""Runs cases of pyverbs' own tests, unmodified, and prints a line of JSON as each starts and ends.

    pyverbs_runner.py FOLDER --dev weft0 --gid 0 --names
    pyverbs_runner.py FOLDER --dev weft0 --gid 0 CASE...

FOLDER holds the package `tests`. Runs under `weft run`, with the system's Python.
"""

import sys
import unittest

from unittest_reporter import MARK, Reporter, all_tests


def name_of(test):
    """`test_mr.MRTest.test_reg_mr`."""
    return test.id().partition("tests.")[2]


def main():
    folder = sys.argv.pop(1)
    sys.path[:0] = [folder, f"{folder}/tests"]
    listing = "--names" in sys.argv[1:]
    from args_parser import parser  # the one that `tests` reads its options from
    sys.modules["tests.args_parser"] = sys.modules["args_parser"]
    parser.parse_args()
    import tests
    wanted = sys.argv[1:]
    loaded = all_tests(unittest.defaultTestLoader.loadTestsFromModule(tests))
    if listing:
        print("\n".join(MARK + name_of(test) for test in loaded))
        return
    by_name = {name_of(test): test for test in loaded}
    for name in wanted:
        # A suite of its own for each: set-up and tear-down of classes is the suite's.
        unittest.TestSuite([by_name[name]]).run(Reporter(name_of))


main()
