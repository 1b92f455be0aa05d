#!/usr/bin/env python3
"""Checks docs/wire-support.md against the tests.

    check_support.py ROOT            exit 1 and say why if anything is wrong
    check_support.py ROOT --write    first enters the tests that quote a requirement into its row

Each table row of the document is one requirement of an RFC:

    | id | section | sentence | where | tests |

Held true: ids are unique; "where" is a folder of the tree, or "-" with the reason in place of the
tests; each test named exists; each sentence that a test quotes

    //= RFC 5044 section 4.1
    //# The pad data MUST be set to zero by the sender ...

is part of a row of that section, and that row names the test. docs/security-rfc5042.md: each test
named exists, and rules S1 to S33 are all there.
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| (\d{4}-\d+) \| (.*?) \| (.*) \| (\S+) \| (.*) \|$")
TEST = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+),\s*(\w+)\s*\)", re.M)
NAME = re.compile(r"`([A-Z]\w*\.\w+)`")


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def tests_of(root):
    """Names of all tests, and what the conformance and loopback tests quote."""
    names, quotes = set(), []
    for path in sorted((root / "tests").rglob("*.cc")):
        text = path.read_text()
        names.update(f"{m[1]}.{m[2]}" for m in TEST.finditer(text))
        if path.parent.name in ("conformance", "loopback"):
            quotes += quotes_of(path, text)
    return names, quotes


def quotes_of(path, text):
    found, pending = [], []
    for line in text.splitlines():
        if match := re.match(r"//= RFC (\d+) section (\S+)$", line):
            pending.append([match[1], match[2], ""])
        elif line.startswith("//# ") and pending:
            pending[-1][2] += " " + line[4:]
        elif match := TEST.match(line):
            name = f"{match[1]}.{match[2]}"
            found += [(rfc, sec, squeeze(quote), name, path.name) for rfc, sec, quote in pending]
            pending = []
    return found


def rows_of(text):
    return [[i, *ROW.match(line).groups()]
            for i, line in enumerate(text.splitlines()) if ROW.match(line)]


def row_quoted(rows, rfc, section, quote):
    for row in rows:
        if row[1].startswith(rfc) and row[2] == section and quote in squeeze(row[3]):
            return row
    return None


def enter_quotes(document, rows, quotes):
    lines = document.read_text().splitlines()
    for rfc, section, quote, name, _ in quotes:
        row = row_quoted(rows, rfc, section, quote)
        if row and f"`{name}`" not in row[5]:
            row[5] = f"{row[5]} `{name}`".strip() if NAME.search(row[5]) else f"`{name}`"
            lines[row[0]] = "| " + " | ".join(row[1:]) + " |"
    document.write_text("\n".join(lines) + "\n")


def check_rows(root, rows, names):
    seen = set()
    for _, number, _, _, where, tests in rows:
        if number in seen:
            yield f"{number}: there twice"
        seen.add(number)
        cited = NAME.findall(tests)
        if where == "-":
            if not tests.strip() or cited:
                yield f"{number}: what does not apply needs a reason and no test"
            continue
        if not (root / where).is_dir():
            yield f"{number}: no folder {where}"
        if not cited:
            yield f"{number}: no test"
        for name in cited:
            if name not in names:
                yield f"{number}: no test {name}"


def check_quotes(rows, quotes):
    for rfc, section, quote, name, file in quotes:
        row = row_quoted(rows, rfc, section, quote)
        if row is None:
            yield f"{file}: {name} quotes what RFC {rfc} section {section} does not say: {quote}"
        elif f"`{name}`" not in row[5]:
            yield f"{row[1]}: does not name {name}, which quotes it (run with --write)"


def check_security(root, names):
    text = (root / "docs" / "security-rfc5042.md").read_text()
    for name in NAME.findall(text):
        if name not in names:
            yield f"security-rfc5042.md: no test {name}"
    there = {int(n) for n in re.findall(r"^\| S(\d+) \|", text, re.M)}
    for number in sorted(set(range(1, 34)) - there):
        yield f"security-rfc5042.md: rule S{number} is missing"


def main():
    root = pathlib.Path(sys.argv[1])
    document = root / "docs" / "wire-support.md"
    names, quotes = tests_of(root)
    rows = rows_of(document.read_text())
    if "--write" in sys.argv[2:]:
        enter_quotes(document, rows, quotes)
        rows = rows_of(document.read_text())
    problems = [*check_rows(root, rows, names), *check_quotes(rows, quotes),
                *check_security(root, names)]
    for problem in problems:
        print(problem)
    print(f"{len(rows)} requirements, {len(quotes)} quoted by tests, {len(problems)} problems")
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
