"""What the runners of suites by Python's unittest have in common."""

import json
import unittest

MARK = "@case "


class Reporter(unittest.TestResult):
    """Tells the outside, and keeps nothing. `name_of(test)`: what a case is called there."""

    def __init__(self, name_of):
        super().__init__()
        self.name_of = name_of

    def tell(self, test, verdict=None, detail=""):
        print(MARK + json.dumps({"name": self.name_of(test), "verdict": verdict, "detail": detail}),
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


def all_tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test
