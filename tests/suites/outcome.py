"""What became of the cases of a suite, and what was expected of them.

A file SUITE.exceptions has one line for each case, or pattern of cases, that is not expected to
pass:

    KIND  PATTERN  reason, to the end of the line

The pattern is a shell pattern over names of cases (`roce/test_mr.DeviceMemoryAPITest.*`). The last
line that matches a case counts.

    absent     makes no sense for this device: it tests what only other adapters or a kernel have
    theirs     the suite's own fault
    weft       Weft's fault or limit
    sometimes  the case fails only now and then, and passing is no news; the reason says whose fault
    never      as `weft`, and the case is not started, since it would end or hold up all others
"""

import collections
import fnmatch

KINDS = ("absent", "theirs", "weft", "sometimes", "never")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

Case = collections.namedtuple("Case", "name verdict detail")
Rule = collections.namedtuple("Rule", "kind pattern reason line")


def beside_native(case, native):
    """A case that failed under Weft: skipped, if `native()`, the same without Weft, fails too."""
    if case.verdict == FAILED and native() == FAILED:
        return Case(case.name, SKIPPED, "fails without Weft, too")
    return case


class Rules:
    """The expected exceptions of one suite."""

    def __init__(self, text="", name=""):
        self.rows = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            parts = line.split(None, 2)
            if len(parts) < 3 or parts[0] not in KINDS:
                raise ValueError(f"{name}:{number}: not 'KIND PATTERN reason', KIND one of "
                                 f"{', '.join(KINDS)}: {line}")
            self.rows.append(Rule(*parts, number))

    def of(self, name):
        """The rule that counts for this case, or None."""
        found = None
        for row in self.rows:
            if fnmatch.fnmatchcase(name, row.pattern):
                found = row
        return found

    def never(self, name):
        rule = self.of(name)
        return rule is not None and rule.kind == "never"


class Summary:
    """The cases of one run beside the rules."""

    def __init__(self, cases, rules):
        self.passed = [c for c in cases if c.verdict == PASSED]
        self.skipped = [c for c in cases if c.verdict == SKIPPED]
        self.absent, self.excepted, self.new = [], [], []
        for case in cases:
            rule = rules.of(case.name)
            if case.verdict == FAILED:
                kept = (self.new if rule is None else
                        self.absent if rule.kind == "absent" else self.excepted)
                kept.append(case)
            elif case.verdict == SKIPPED and rule is not None and rule.kind == "never":
                self.skipped.remove(case)
                self.excepted.append(case)
        self.surprises = [c for c in self.passed
                          if rules.of(c.name) is not None and rules.of(c.name).kind != "sometimes"]
        used = {rules.of(c.name) for c in cases}
        self.unused = [row for row in rules.rows if row not in used]

    @property
    def sensible(self):
        """Cases that make sense: what was run and is not absent."""
        return len(self.passed) + len(self.excepted) + len(self.new)

    def line(self):
        return (f"{self.sensible} cases make sense, {len(self.passed)} pass, "
                f"{len(self.excepted)} expected exceptions, {len(self.new)} new failures "
                f"({len(self.skipped)} skip, {len(self.absent)} test what the device has not)")
