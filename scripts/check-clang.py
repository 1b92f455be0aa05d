#!/usr/bin/env python3
"""Has clang look at source files, without making code: its warnings as errors, and its analysis of
locks (-Wthread-safety), which knows the annotations of src/os/annotations.h.

  scripts/check-clang.py               the rooms with annotated locks
  scripts/check-clang.py --all         src/ and tools/
  scripts/check-clang.py FILE...
  scripts/check-clang.py --together    the rooms with annotated locks, as build/release compiles
                                       them, several sources at once: in a third of the time, but a
                                       missing include is not always found

Reads the compile commands of build/sources, which knows each source by itself and is configured
here, never built, or of build/release. CLANG names the compiler (clang++).
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(ROOT, "build", "sources")
RELEASE = os.path.join(ROOT, "build", "release")
COMPILER = re.compile(r"/(c\+\+|g\+\+|cc|gcc)(-\d+)?$")
LOCKING = r"src/(os|shm|io|trace|readsend|progress|verbs|ibverbs|rdmacm|rsockets|exs|sockets|files)/"
FLAGS = ["-fsyntax-only", "-Werror", "-Wthread-safety"]


def commands(build, chosen):
    """For each file that is chosen: the folder and the command of the build, by clang."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    seen = set()
    for entry in entries:
        # Several sources at once are a file in the folder of their room in the build.
        name = os.path.relpath(entry["file"], build if entry["file"].startswith(build) else ROOT)
        if not chosen(name) or name in seen:
            continue
        seen.add(name)
        words = shlex.split(entry["command"])
        compiler = next(i for i, w in enumerate(words) if COMPILER.search(w))
        clang = os.environ.get("CLANG", "clang++")
        clang = clang if name.endswith((".cc", ".cxx")) else clang.replace("++", "")
        yield name, entry["directory"], [clang, *without_pch(words[compiler + 1:]), *FLAGS]


def without_pch(words):
    """The options without the precompiled header, which is the other compiler's."""
    out = []
    for word in words:
        if word == "-Winvalid-pch":
            continue
        if word.endswith("cmake_pch.hxx"):
            out.pop()  # -include
            continue
        out.append(word)
    return out


def look(job):
    """The file's name, and what clang has to say of it."""
    name, folder, command = job
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return name, done.returncode, done.stderr


def main():
    """0 if clang finds nothing."""
    names = set(sys.argv[1:])
    build = RELEASE if names == {"--together"} else SOURCES
    if build == SOURCES:
        subprocess.run([os.path.join(ROOT, "scripts", "configure-sources.sh")], check=True)
    folders = r"(src|tools)/" if names == {"--all"} else LOCKING
    if names in (set(), {"--all"}, {"--together"}):
        jobs = list(commands(build, lambda name: re.match(folders + r".*\.(cc|cxx|c)$", name)))
    else:
        jobs = list(commands(build, lambda name: name in names))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, status, said in pool.map(look, jobs):
            if status != 0:
                bad += 1
                print(f"{name}:\n{said}")
    print(f"clang: {len(jobs)} files, {bad} with findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
