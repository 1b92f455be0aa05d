#!/usr/bin/env python3
"""Tests of what runs other people's suites: the rules, and runners that die or hang."""

import sys
import unittest

import child
import outcome
from outcome import FAILED, PASSED, SKIPPED, Case

RULES = outcome.Rules("""
# a comment
weft       a.*        a limit
absent     b.hw       only adapters have it
theirs     a.theirs   their own fault
sometimes  c          now and then
never      d.*        ends the runner
""", "test")

# A runner: says what it does with each case, as its name demands.
RUNNER = """
import os, sys, time
for name in sys.argv[1:]:
    print("start", name, flush=True)
    print("a word of", name)
    if name.startswith("crash"): os.abort()
    if name.startswith("hang"): time.sleep(1000)
    print("end", name, "failed" if name.startswith("bad") else "passed", flush=True)
"""


def run(names, script=RUNNER, **more):
    def start(left):
        return [sys.executable, "-u", "-c", script, *left], None

    def read(line):
        words = line.split()
        if words[:1] == ["start"]:
            return child.Told(words[1])
        return child.Told(words[1], words[2]) if words[:1] == ["end"] else None

    return child.run_cases(names, start, read, **{"case_limit_s": 60, **more})


class Rules(unittest.TestCase):
    def test_the_last_line_that_matches_counts(self):
        self.assertEqual(RULES.of("a.x").kind, "weft")
        self.assertEqual(RULES.of("a.theirs").reason, "their own fault")
        self.assertIsNone(RULES.of("e"))
        self.assertTrue(RULES.never("d.1"))
        self.assertFalse(RULES.never("a.x"))

    def test_a_line_without_a_reason_or_of_another_kind_is_refused(self):
        for line in ("weft a", "flaky a for a reason"):
            with self.assertRaisesRegex(ValueError, "file:2"):
                outcome.Rules(f"\n{line}\n", "file")

    def test_every_file_of_exceptions_can_be_read(self):
        import run as driver
        for name in driver.SUITES:
            driver.rules_of(name)  # raises where a line is none


class Summary(unittest.TestCase):
    def test_a_failure_without_a_rule_is_new_and_every_other_is_counted_where_it_belongs(self):
        cases = [Case("a.x", FAILED, ""), Case("a.y", PASSED, ""), Case("b.hw", FAILED, ""),
                 Case("c", PASSED, ""), Case("d.1", SKIPPED, ""), Case("e", FAILED, ""),
                 Case("f", SKIPPED, ""), Case("g", PASSED, "")]
        got = outcome.Summary(cases, RULES)
        self.assertEqual([c.name for c in got.new], ["e"])
        self.assertEqual([c.name for c in got.excepted], ["a.x", "d.1"])
        self.assertEqual([c.name for c in got.absent], ["b.hw"])
        self.assertEqual([c.name for c in got.surprises], ["a.y"])
        self.assertEqual([c.name for c in got.skipped], ["f"])
        self.assertEqual(got.sensible, 6)
        self.assertEqual([row.pattern for row in got.unused], ["a.theirs"])


class Runner(unittest.TestCase):
    def verdicts(self, cases):
        return [(c.name, c.verdict) for c in cases]

    def test_a_case_that_ends_the_runner_fails_alone(self):
        cases = run(["one", "crash", "two", "bad", "crash2", "three"])
        self.assertEqual(self.verdicts(cases), [
            ("one", PASSED), ("crash", FAILED), ("two", PASSED), ("bad", FAILED),
            ("crash2", FAILED), ("three", PASSED)])
        self.assertIn("a word of crash", cases[1].detail)
        self.assertIn("a word of bad", cases[3].detail)

    def test_a_case_that_does_not_end_fails_alone(self):
        cases = run(["hang", "two"], case_limit_s=0.5)
        self.assertEqual(self.verdicts(cases), [("hang", FAILED), ("two", PASSED)])
        self.assertIn("no end within", cases[0].detail)

    def test_a_runner_that_does_not_start_fails_all(self):
        cases = run(["one", "two"], script="print('no device'); raise SystemExit(3)")
        self.assertEqual(self.verdicts(cases), [("one", FAILED), ("two", FAILED)])
        self.assertIn("no device", cases[0].detail)

    def test_what_no_time_is_left_for_is_skipped(self):
        cases = run(["one", "two"], seconds=-1)
        self.assertEqual(self.verdicts(cases), [("one", SKIPPED), ("two", SKIPPED)])

    def test_each_case_is_told_as_it_ends(self):
        told = []
        run(["one", "bad"], report=told.append)
        self.assertEqual([c.name for c in told], ["one", "bad"])


if __name__ == "__main__":
    unittest.main()
