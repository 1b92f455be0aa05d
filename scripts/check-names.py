#!/usr/bin/env python3
"""Checks that documents name files, functions and constants that exist.

  scripts/check-names.py

In `code` of Markdown: a path with a folder is one of the tree (from the root, or from src/), and a
name with :: or (), or one like kThis, is written somewhere in the sources; of a name with ::, the
later part in a file that defines the earlier one. CHANGELOG.md tells of
what was, and is left out.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = (".h", ".c", ".cc", ".py", ".sh", ".cmake", ".txt", ".json", ".in", ".map", ".y4m")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w.+-]+/)+[\w.+*{},-]*")
NAME = re.compile(r"(?:\w+::)*~?\w+(?=\(\))|\w+(?:::~?\w+)+|\bk[A-Z]\w+")
DEFINES = re.compile(r"^\s*(?:class|struct|enum class|enum|namespace)\s+(?:WEFT_\w+(?:\([^)]*\))?\s+)?"
                     r"((?:\w+::)*\w+)\b([^;\n]*(?:\n +[^;\n]*)?)$", re.M)
BASES = re.compile(r"\b(?:public|private|protected)\s+(?:\w+::)*(\w+)")
FENCE = re.compile(r"^```", re.M)
# Files and folders that others make: the build, the system, the user, another project.
ELSEWHERE = re.compile(r"^(/|~|\.\./|\$|build/|tests-bin/|report/|etc/|proc/|sys/|dev/|usr/|lib/|bin/|weft/|rdma/|infiniband/)")
EXAMPLES = re.compile(r"film\.y4m$|NAME|^device/net/|^iwarp/")


def tracked():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [n for n in out.stdout.decode().split("\0") if n and (ROOT / n).is_file()]


def spans(text):
    """(line, what stands between backticks) outside fenced code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced:
            for span in SPAN.finditer(line):
                yield number, span.group(1)


def is_inside(owner, name, inside, bases, words):
    """`name` stands in a file that defines `owner`, or a class that `owner` is derived from."""
    return name in inside.get(owner, words) or any(
        is_inside(base, name, inside, bases, set()) for base in bases.get(owner, ()))


def main():
    files = tracked()
    words = set()
    bases = {}
    inside = {}  # what is written in the files that define a class or a namespace
    for name in files:
        if name.endswith(CODE) or "." not in Path(name).name:
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            found = set(re.findall(r"\w+", text))
            words |= found
            for defined, behind in DEFINES.findall(text):
                for part in defined.split("::"):
                    inside.setdefault(part, set()).update(found)
                bases.setdefault(part, set()).update(BASES.findall(behind))
    places = set(files)
    for name in files:
        places.update(str(parent) for parent in Path(name).parents)
    problems = []
    for page in files:
        if not page.endswith(".md") or page == "CHANGELOG.md":
            continue
        for line, span in spans((ROOT / page).read_text(encoding="utf-8")):
            for path in PATH.findall(span) if " " not in span else ():
                plain = path.rstrip("/")
                if "." not in Path(plain).name and not path.endswith("/"):
                    continue  # a pair of words, a unit
                if any(c in plain for c in "*{},") or ELSEWHERE.match(path) or EXAMPLES.search(path):
                    continue
                plain = plain.removeprefix("./")
                beside = str(Path(page).parent / plain)
                if not {plain, beside, f"src/{plain}", f"include/{plain}"} & places:
                    problems.append(f"{page}:{line}: there is no {path}")
            for name in NAME.findall(span):
                parts = name.replace("~", "").split("::")
                missing = [part for part in parts if part not in words]
                strangers = [b for a, b in zip(parts, parts[1:]) if not is_inside(a, b, inside, bases, words)]
                if missing or strangers:
                    problems.append(f"{page}:{line}: nothing is called {name}")
    for problem in problems:
        print(problem)
    print(f"names: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
