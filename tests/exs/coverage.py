#!/usr/bin/env python3
"""Checks coverage.txt: every call and event of <sys/exs.h> has a test that names it."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "include" / "sys" / "exs.h"
# Fields that every test of events looks at, by its helper.
SHARED = {"exs_evt_type", "exs_evt_error", "exs_evt_ahandle", "exs_evt_fd"}


def wanted():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    calls = set(re.findall(r"\b(exs_\w+)\s*\(", text)) - SHARED
    return calls | set(re.findall(r"\bEXS_EVT_[A-Z]+\b", text))


def tests():
    """name -> text of the test"""
    found = {}
    for path in sorted(HERE.glob("*_test.cc")):
        for part in re.split(r"^(?=TEST(?:_P|_F)?\()", path.read_text(), flags=re.M)[1:]:
            suite, name = re.match(r"TEST(?:_P|_F)?\((\w+),\s*(\w+)\)", part).groups()
            found[f"{suite}.{name}"] = part
    return found


def check(rows, names, bodies):
    """What is wrong, a line each."""
    for number, row in enumerate(rows, 1):
        if not row.strip() or row.startswith("#"):
            continue
        name, test = row.split()
        if name not in names:
            yield f"line {number}: {name} is not in <sys/exs.h>, or stands here twice"
        elif test not in bodies:
            yield f"line {number}: there is no test {test}"
        elif not re.search(rf"\b{name}\b", bodies[test]):
            yield f"line {number}: {test} does not name {name}"
        names.discard(name)
    for name in sorted(names):
        yield f"{name} of <sys/exs.h> has no test"


def main():
    rows = (HERE / "coverage.txt").read_text().splitlines()
    wrong = list(check(rows, wanted(), tests()))
    for line in wrong:
        print(f"tests/exs/coverage.txt: {line}", file=sys.stderr)
    # The check itself: a table without its last row has to be found out.
    if not wrong and not list(check(rows[:-1], wanted(), tests())):
        wrong.append("a missing row is not found")
    return 1 if wrong else 0


sys.exit(main())
