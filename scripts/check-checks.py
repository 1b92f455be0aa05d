#!/usr/bin/env python3
"""Checks the checks: breaks each rule in a copy of the tree and demands that its check says so.

  scripts/check-checks.py

A check that refuses nothing looks like a tree that is in order. Each line of PLANTED is a file that
is added to the copy, or text that goes to the end of one, and a part of the line that the check has
to print for it. The checks have to pass before.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = 61 * "  go();\n"

# check -> (file, text, what the check says)
PLANTED = {
    "includes": [
        ("src/progress/planted_up.cc", '#include "verbs/pd.h"\n', "progress may not include from verbs"),
        ("src/rsockets/planted_io.cc", '#include "io/socket.h"\n', "rsockets may not include from io"),
        ("src/rsockets/planted_angled.cc", "#include <io/socket.h>\n", "include it with quotes"),
        ("src/base/planted_os.cc", "#include <unistd.h>\n", "base knows no operating system"),
        ("src/base/planted_weft.cc", "#include <weft/device.h>\n", "base may use only"),
        ("src/io/planted_weft.cc", "#include <weft/device.h>\n", "io may use only"),
        ("src/planted/room.h", "\n", "in no room"),
        ("src/io/planted_gone.cc", '#include "io/no_such_file.h"\n', "src/io/no_such_file.h does not exist"),
        ("src/io/pd.h", "\n", "files of one name in src"),
        ("tools/weft/top/stat.h", "\n", "files of one name in tools"),
        ("src/io/planted_one.h", '#include "io/planted_two.h"\n', "files that need each other"),
        ("src/io/planted_two.h", '#include "io/planted_one.h"\n', "io/planted_one, io/planted_two"),
        ("include/weft/planted.h", '#include "io/socket.h"\n', "public headers include no file"),
        ("tools/weft/planted.cc", '#include "io/socket.h"\n', "tools/weft/planted.cc:1: programs are"),
        ("examples/planted.cc", "#include <io/socket.h>\n", "examples/planted.cc:1: programs are"),
    ],
    "sizes": [
        ("src/io/planted_long.cc", 501 * "\n", "planted_long.cc: a file of 501 lines"),
        ("tests/planted.cmake", 501 * "\n", "planted.cmake: a file of 501 lines"),
        ("scripts/planted", "#!/bin/sh\n" + 500 * "\n", "scripts/planted: a file of 501 lines"),
        ("src/io/planted_plain.cc", f"void plain() {{\n{LONG}}}\n", "plain: a function of 63"),
        ("src/io/planted_struct.cc", f"struct T* structured() {{\n{LONG}}}\n", "structured: a function of 63"),
        ("src/io/planted_c.cc", f'extern "C" int as_c() {{\n{LONG}}}\n', "as_c: a function of 63"),
        ("src/io/planted_template.cc", f"template <class T = int>\nvoid templated() {{\n{LONG}}}\n",
         "templated: a function of 64"),
        ("src/io/planted_comment.cc", f"void commented() {{  // why\n{LONG}}}\n", "commented: a function of 63"),
        ("src/io/planted_method.cc", f"class A {{\n  void method() {{\n{LONG}  }}\n}};\n", "method: a function of 63"),
        ("tests/unit/planted_test.cc", f"TEST(Planted, Long) {{\n{LONG}}}\n", "Planted.Long: a function of 63"),
        ("scripts/planted.py", "def long():\n" + 60 * "    go()\n", "long: a function of 61"),
    ],
    "habits": [
        ("src/io/planted_opening.cc", "// What it is.\n", "opening src/io: 1"),
        ("src/base/planted_words.cc", "// It seldom is.\n", "words src/base: 1"),
        ("src/verbs/planted_mutex.cc", "std::shared_timed_mutex m;\n", "mutex src/verbs: 1"),
        ("src/rdmacm/planted_output.cc", 'perror("x");\n', "output src/rdmacm: 1"),
        ("src/files/client/planted_output.cc", 'std::clog << "x";\n', "output src/files: 1"),
        ("fuzz/planted.cc", "// Who knows.\n", "opening fuzz: "),
        ("src/files/planted_clock.cc", "auto t = std::chrono::steady_clock::now();\n", "clock src/files: 1"),
        ("src/trace/planted_clock.cc", "auto t = time(nullptr);\n", "clock src/trace: 1"),
        ("src/io/planted_lock.h", "struct A {\n  mutable os::Mutex mutex_;\n  int guarded_ = 0;\n};\n", "lock src/io: 1"),
        ("src/shm/planted_spin.cc", "os::SpinLock g_lock;\n", "lock src/shm: 1"),
        ("src/files/client/planted_close.cc", "A::~A() {\n  if (fd_ >= 0) ::close(fd_);\n}\n", "close src/files: 1"),
    ],
    "names": [
        ("docs/planted.md", "`src/io/no_such_file.cc`\n", "src/io/no_such_file.cc"),
        ("docs/planted.md", "`Socket::no_such_call()`\n", "no_such_call"),
        ("docs/planted.md", "`kNoSuch" + "Constant`\n", "kNoSuch" + "Constant"),
    ],
    "text": [
        ("docs/planted_wide.md", "x" * 101 + "\n\n" + "word " * 30 + "\n", "docs/planted_wide.md"),
    ],
    "classes": [
        ("src/io/planted_class.h", "#pragma once\nnamespace weft::io {\nstruct Planted {\n" +
         "".join(f"  int m{n};\n" for n in range(26)) + "};\n}\n", "Planted: 26 data members"),
        ("src/files/client/planted_class.h", "#pragma once\nnamespace weft::files {\nstruct Planted {\n" +
         "".join(f"  void f{n}();\n" for n in range(61)) + "};\n}\n", "Planted: 0 data members, 61 functions"),
    ],
    "commits": [
        (None, "x\n\nA body.", "the subject is one word"),
        (None, "A subject of more than a line that goes on and on until it is too long to read\n\nA body.",
         "the subject has 78 columns"),
        (None, "One; two\n\nA body.", "has a ';'"),
        (None, "No reason is given\n\nSigned-off-by: A Person <a@example.org>", "no body that says why"),
    ],
}


def run(command, where):
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def git(where, *arguments):
    who = ["-c", "user.name=Checks", "-c", "user.email=checks@example.org"]
    status, said = run(["git", *who, *arguments], where)
    if status != 0:
        sys.exit(f"git {' '.join(arguments)}: {said}")


def plant(tree, number, name, text):
    """Adds it to the copy; a name of None: a commit with this message."""
    if name is None:
        (tree / f"planted-{number}.txt").write_text("one\ntwo\n", encoding="utf-8")
        git(tree, "add", "-A")
        git(tree, "commit", "--quiet", "-m", text)
        return
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    git(tree, "add", "-A")


def try_check(check, plants):
    """A line for each violation that this check does not see."""
    with tempfile.TemporaryDirectory(prefix="weft-checks-") as folder:
        tree = Path(folder) / "tree"
        git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(tree))
        git(tree, "config", "commit.gpgsign", "false")
        command = [sys.executable, f"scripts/check-{check}.py"]
        before, said = run(command, tree)
        if before not in (0, 77):
            yield f"check-{check}.py refuses the last commit as it is:\n{said}"
            return
        if before == 77:
            return
        for number, (name, text, _) in enumerate(plants):
            plant(tree, number, name, text)
        status, said = run(command, tree)
        if status != 1:
            yield f"check-{check}.py ended with {status} beside {len(plants)} violations:\n{said}"
        for name, _, wanted in plants:
            if wanted not in said:
                yield f"check-{check}.py does not refuse '{wanted}' ({name or 'a commit'})"


def main():
    """0 if every check sees what was planted for it."""
    problems = [line for check, plants in PLANTED.items() for line in try_check(check, plants)]
    for problem in problems:
        print(problem)
    print(f"checks: {sum(map(len, PLANTED.values()))} violations planted, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
