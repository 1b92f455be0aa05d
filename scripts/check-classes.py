#!/usr/bin/env python3
"""Checks that no class of src has more than 25 data members or 60 functions.

  scripts/check-classes.py          what is beyond, or is in LARGE with other numbers
  scripts/check-classes.py --all    every class with its numbers, largest first

clang (CLANG names it) reads the headers of each part of src: what is linked together. Counted are a
class's own members, without those of its bases and of classes in it; no static data, constructors,
destructors, nor what is deleted or defaulted.
"""

import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Rooms that are linked together. Two parts may have two classes of one name.
PARTS = [["base", "wire", "proto", "roce", "os", "readsend", "shm", "io", "trace", "progress", "verbs"],
         ["ibverbs", "rdmacm", "rsockets"], ["rddp"], ["exs"], ["files"],
         ["sockets/grant", "sockets/granted"], ["sockets/iwarp"]]
MEMBERS_MAX = 25
FUNCTIONS_MAX = 60

# Those that are larger still. The numbers only go down: what is smaller now is to be lowered here.
LARGE = {}

Size = namedtuple("Size", "members functions")


def trees(folders):
    """What clang has to say of the headers of these folders: one tree after the other."""
    headers = [h for folder in folders for h in sorted((ROOT / "src" / folder).rglob("*.h"))]
    source = "".join(f'#include "{h.relative_to(ROOT / "src")}"\n' for h in headers)
    command = [os.environ.get("CLANG", "clang++"), "-std=c++20", "-Iinclude", "-Isrc",
               "-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang", "-ast-dump-filter=weft::",
               "-x", "c++", "-"]
    done = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"check-classes.py: clang does not understand the headers:\n{done.stderr}")
    text = done.stdout
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        tree, at = decoder.raw_decode(text, at)
        yield tree
        while at < len(text) and text[at].isspace():
            at += 1


def is_function(node):
    """Whether it counts as a function of its class."""
    if node["kind"] == "FunctionTemplateDecl":
        return any(is_function(inner) for inner in node.get("inner", []))
    return (node["kind"] in ("CXXMethodDecl", "CXXConversionDecl")
            and not node.get("isImplicit") and not node.get("explicitlyDeleted")
            and not node.get("explicitlyDefaulted"))


class Classes:
    """Sizes of classes by their names."""

    def __init__(self, folders):
        self.folders = tuple(f"src/{folder}/" for folder in folders)
        self.sizes = {}
        self.file = ""  # clang names it where it changes

    def see(self, node, within):
        """Adds the classes in this part of a tree."""
        self.note_file(node)
        inner = node.get("inner", [])
        kind = node.get("kind")
        if kind == "NamespaceDecl" and node.get("name"):
            within = [*within, node["name"]]
        if kind == "CXXRecordDecl" and node.get("completeDefinition"):
            within = [*within, node.get("name", "?")]
            if self.file.startswith(self.folders):
                members = sum(1 for n in inner if n["kind"] == "FieldDecl")
                self.sizes["::".join(within)] = Size(members, sum(map(is_function, inner)))
        for part in inner:
            self.see(part, within)

    def note_file(self, node):
        """Follows clang from file to file."""
        for place in (node.get("loc", {}), *node.get("range", {}).values()):
            for at in (place, place.get("spellingLoc", {}), place.get("expansionLoc", {})):
                name = at.get("file")
                if name is not None:
                    self.file = os.path.relpath(name, ROOT) if os.path.isabs(name) else name


def complaints(sizes):
    """A line for each class that is not as it should be."""
    for name, size in sorted(sizes.items()):
        large = size.members > MEMBERS_MAX or size.functions > FUNCTIONS_MAX
        said = f"{name}: {size.members} data members, {size.functions} functions"
        if large and name not in LARGE:
            yield f"{said}; at most {MEMBERS_MAX} and {FUNCTIONS_MAX}: take a part of it out"
        elif name in LARGE and not large:
            yield f"{said}: no longer large, so it leaves the list in scripts/check-classes.py"
        elif name in LARGE and size != LARGE[name]:
            more = size.members > LARGE[name][0] or size.functions > LARGE[name][1]
            rule = "it may not grow" if more else "write the new numbers there"
            yield f"{said}; in scripts/check-classes.py {LARGE[name][0]}, {LARGE[name][1]}: {rule}"
    for name in sorted(set(LARGE) - set(sizes)):
        yield f"{name}: there is no such class; it leaves the list in scripts/check-classes.py"


def main():
    """0 if no class is too large."""
    sizes = {}
    for folders in PARTS:
        classes = Classes(folders)
        for tree in trees(folders):
            classes.see(tree, [])
        if not classes.sizes:
            sys.exit(f"check-classes.py: clang has shown no class of {' '.join(folders)}")
        sizes.update(classes.sizes)
    if sys.argv[1:] == ["--all"]:
        for name, size in sorted(sizes.items(), key=lambda item: [-n for n in item[1]]):
            print(f"{size.members:4} {size.functions:4}  {name}")
    found = list(complaints(sizes))
    for line in found:
        print(line)
    print(f"classes: {len(sizes)}, {len(LARGE)} of them large, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
