#!/usr/bin/env python3
"""Checks that no file has more than 500 lines, and no function more than 60.

  scripts/check-sizes.py          what is beyond, or is in a list below and need not be
  scripts/check-sizes.py --all    every file and function that is beyond, longest first

C, C++, Python, shell and CMake that git tracks, tests included; functions of C, C++ and Python. A
function of C or C++ is found by its form, which clang-format gives it: from the line that opens its
body to the brace in the column where that line begins.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = (".h", ".c", ".cc")
LINES_MAX = 500
FUNCTION_MAX = 60

# Files and functions that may be longer, with their length. There is none now: a name that is
# added needs a reason beside it.
FILES = {}
FUNCTIONS = {}

NOT_A_FUNCTION = re.compile(r"\s*(?:(?:namespace|if|for|while|switch|do|else|return|case)\b|"
                            r"(?:class|struct|enum|union|extern)\b[^(]*$)")
BODY_OPENS = re.compile(r"\{(?:\s*//.*)?$")
ENDS_BEFORE = (";", "{", "}", ":", "\\")
NAME = re.compile(r"([\w:~]+)\(")


def tracked():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [n for n in out.stdout.decode().split("\0") if n and (ROOT / n).is_file()]


def functions_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def first_line(lines, at):
    """Of the declaration that line `at` ends."""
    while at > 0:
        before = lines[at - 1].rstrip()
        if not before or before.endswith(ENDS_BEFORE) or before.lstrip().startswith(("//", "*", "#")):
            break
        at -= 1
    return at


def without_template(whole):
    """What `template <...>` in front declares."""
    while whole.startswith("template <"):
        depth = 0
        for at, char in enumerate(whole):
            depth += {"<": 1, ">": -1}.get(char, 0)
            if char == ">" and depth == 0:
                break
        whole = whole[at + 1:].lstrip()
    return whole


def functions_of_c(lines):
    inside_until = 0
    for at, line in enumerate(lines):
        if at < inside_until or not BODY_OPENS.search(line) or line.lstrip().startswith("//"):
            continue
        first = first_line(lines, at)
        whole = without_template(" ".join(part.strip() for part in lines[first:at + 1]))
        before = whole.split("(")[0].replace("operator=", "operator")
        if "(" not in whole or "=" in before or whole.startswith("{") or NOT_A_FUNCTION.match(whole):
            continue
        column = len(lines[first]) - len(lines[first].lstrip())
        end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith(" " * column + "}")), None)
        if end is None:
            continue
        inside_until = end
        test = re.match(r"TEST\w*\((\w+), (\w+)\)", whole)
        name = NAME.search(whole)
        yield f"{test[1]}.{test[2]}" if test else name[1] if name else before.strip(), end - first + 1


def language(name):
    """Of a file, by its name or by the line that names its interpreter; None: it is no program."""
    if name.endswith(CODE):
        return "c"
    if name.endswith((".py", ".sh", ".cmake")) or name.endswith("CMakeLists.txt"):
        return "python" if name.endswith(".py") else "other"
    with (ROOT / name).open("rb") as file:
        start = file.readline(100)
    if not start.startswith(b"#!"):
        return None
    return "python" if b"python" in start else "other"


def sizes():
    """(what, name, lines) of each file, then of each of its functions."""
    for name in tracked():
        is_in = language(name)
        if is_in is None:
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        lines = text.split("\n")
        yield "file", name, len(lines) - 1
        found = {"python": lambda: functions_of_python(text),
                 "c": lambda: functions_of_c(lines), "other": lambda: ()}[is_in]()
        for function, length in found:
            yield "function", f"{name} {function}", length


def beyond():
    limits = {"file": LINES_MAX, "function": FUNCTION_MAX}
    return {(what, name): lines for what, name, lines in sizes() if lines > limits[what]}


def main():
    found = beyond()
    if "--all" in sys.argv[1:]:
        for (what, name), lines in sorted(found.items(), key=lambda item: -item[1]):
            print(f"{lines:5} {what} {name}")
        return 0
    listed = {**{("file", n): k for n, k in FILES.items()},
              **{("function", n): k for n, k in FUNCTIONS.items()}}
    problems = []
    for key in sorted(found.keys() | listed.keys()):
        lines, known = found.get(key), listed.get(key)
        what, name = key
        if known is None:
            limit = LINES_MAX if what == "file" else FUNCTION_MAX
            problems.append(f"{name}: a {what} of {lines} lines, the limit is {limit}")
        elif lines is None:
            problems.append(f"{name}: within the limit now, so it leaves the list of check-sizes.py")
        elif lines > known:
            problems.append(f"{name}: {lines} lines, and check-sizes.py lets it have {known}")
        elif lines < known:
            problems.append(f"{name}: {lines} lines now; write that in check-sizes.py, which has {known}")
    for problem in problems:
        print(problem)
    print(f"sizes: {len(listed)} longer than they should be, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
