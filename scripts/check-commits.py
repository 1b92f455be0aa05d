#!/usr/bin/env python3
"""Checks the messages of commits: a subject of at most 72 columns without ";", and a body that says
why where more than a line changed.

  scripts/check-commits.py [RANGE]      default: what came since the rule, as far as it is here
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SINCE = "7ddfba6432506d2bf5cf9ddaf00c41c3a8727fdb"
SUBJECT_MAX = 72
NOT_RUN = 77  # as .ci/run and ctest know it
TRAILER = re.compile(r"[A-Z][A-Za-z-]*: .*")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def lines_changed(commit):
    total = 0
    for line in git("show", "--numstat", "--format=", commit).stdout.splitlines():
        added, removed, _ = line.split("\t", 2)
        total += max(int(n) if n.isdigit() else 2 for n in (added, removed))  # "-": not text
    return total


def findings(commit):
    subject, _, body = git("show", "-s", "--format=%B", commit).stdout.partition("\n")
    if len(subject) > SUBJECT_MAX:
        yield f"the subject has {len(subject)} columns, the limit is {SUBJECT_MAX}"
    if ";" in subject:
        yield "the subject has a ';': two commits, or one that says what both are for"
    if len(subject.split()) < 2:
        yield "the subject is one word: say what changed"
    says_why = any(line.strip() and not TRAILER.fullmatch(line) for line in body.splitlines())
    if not says_why and lines_changed(commit) > 1:
        yield "there is no body that says why"


def main():
    which = sys.argv[1] if len(sys.argv) > 1 else f"{SINCE}..HEAD"
    if len(sys.argv) == 1 and git("cat-file", "-e", SINCE).returncode != 0:
        print("commits: the history here begins later, so none is looked at")
        return NOT_RUN
    listed = git("rev-list", "--no-merges", which)
    if listed.returncode != 0:
        print(listed.stderr, end="", file=sys.stderr)
        return 2
    commits = listed.stdout.split()
    problems = [f"{commit[:10]}: {why}" for commit in commits for why in findings(commit)]
    for problem in problems:
        print(problem)
    print(f"commits: {len(commits)}, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
