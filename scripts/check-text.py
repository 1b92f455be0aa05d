#!/usr/bin/env python3
"""Checks what no compiler or formatter checks: leftovers, line ends, include guards, that prose and
comments fit 100 columns, and that docs/threads.md names every lock. (Rows of tables in Markdown
cannot be wrapped.)

Looks at the files that git tracks. Prints each finding; exit status 1 if there is one.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".h", ".hpp", ".c", ".cc"}
TEXT = CODE | {".py", ".sh", ".cmake", ".txt", ".md", ".json", ".yml"}
MAN = {".1", ".3", ".5", ".7"}
MAX_COLUMNS = 100
# The words are put together here so that this file does not find itself.
LEFTOVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
# Captured bytes and their descriptions are kept as they were recorded.
EXEMPT = ("tests/vectors/", "fuzz/corpus/", "LICENSE")


def tracked_files():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in out.stdout.decode().split("\0"):
        path = ROOT / name
        if name and not name.startswith(EXEMPT) and path.is_file():
            yield name, path


def is_prose(path, line):
    if path.suffix == ".md":
        return not line.startswith("|")
    if path.suffix in MAN:
        return not line.startswith(".")
    return path.suffix not in CODE and line.lstrip().startswith("# ")


def findings(name, path):
    if path.suffix not in TEXT | MAN:
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        yield f"{name}: no newline at the end"
    lines = data.decode("utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if line.endswith((" ", "\t", "\r")):
            yield f"{name}:{number}: white space at the end of the line"
        if len(line) > MAX_COLUMNS and is_prose(path, line):
            yield f"{name}:{number}: {len(line)} columns, the limit is {MAX_COLUMNS}"
        if LEFTOVER.search(line):
            yield f"{name}:{number}: leftover marker; write an issue instead"
    if path.suffix in CODE:
        if name.startswith("include/weft/") and "namespace weft {" in lines:
            if "#pragma GCC visibility push(default)" not in lines:
                yield f"{name}: public, but without visibility push(default)"
        if path.suffix in (".h", ".hpp") and "#pragma once" not in lines:
            yield f"{name}: no #pragma once"


LOCKED = ("src/os/", "src/shm/", "src/io/", "src/progress/", "src/verbs/")
CLASS = re.compile(r"^(?:class|struct) (?:WEFT_\w+(?:\(.*?\))? )?(\w+)")
LOCK = re.compile(r"(?:Mutex|SpinLock|KickLock|std::(?:shared_)?mutex) (\w+_);")


def unnamed_locks(name, path, page):
    """Locks of classes that docs/threads.md does not name in a row of its table."""
    owner = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        begins = CLASS.match(line)
        owner = begins.group(1) if begins else owner
        lock = LOCK.search(line)
        if lock and owner not in ("Mutex", "SharedMutex"):
            row = re.compile(rf"^\|.*\b{owner}(::|`).*", re.M)
            if not any(lock.group(1) in found.group(0) or f"{owner}`" in found.group(0)
                       for found in row.finditer(page)):
                yield f"{name}:{number}: docs/threads.md does not name {owner}::{lock.group(1)}"


def main():
    problems = [f for name, path in tracked_files() for f in findings(name, path)]
    page = (ROOT / "docs/threads.md").read_text(encoding="utf-8")
    for name, path in tracked_files():
        if name.startswith(LOCKED) and path.suffix == ".h":
            problems += unnamed_locks(name, path, page)
    for problem in problems:
        print(problem)
    print(f"text: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
