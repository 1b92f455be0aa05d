"""Runs cases of pyverbs' own tests, unmodified, and prints a line of JSON as each starts and ends.

    pyverbs_runner.py FOLDER --dev weft0 --gid 0 --names
    pyverbs_runner.py FOLDER --dev weft0 --gid 0 CASE...

FOLDER holds the package `tests`. Runs under `weft run`, with the system's Python.
"""

import json
import sys
import unittest

MARK = "@case "


class Reporter(unittest.TestResult):
    """Tells the outside, and keeps nothing."""

    def tell(self, test, verdict=None, detail=""):
        print(MARK + json.dumps({"name": name_of(test), "verdict": verdict, "detail": detail}),
              flush=True)

    def startTest(self, test):
        self.outcome = ("passed", "")
        self.tell(test)

    def stopTest(self, test):
        self.tell(test, *self.outcome)

    def failed(self, test, error):
        self.outcome = ("failed", self._exc_info_to_string(error, test))

    addError = addFailure = failed

    def addSkip(self, test, reason):
        self.outcome = ("skipped", reason)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failed(test, error)


def name_of(test):
    """`test_mr.MRTest.test_reg_mr`."""
    return test.id().partition("tests.")[2]


def all_tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test


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
        unittest.TestSuite([by_name[name]]).run(Reporter())


main()
