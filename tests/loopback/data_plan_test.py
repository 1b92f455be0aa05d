#!/usr/bin/env python3
"""Which names a copy takes (--filter and the like, beside rsync), what it says that it would do (--dry-run), and what
it says that it did (--json, --manifest).

    data_plan_test.py WEFT_DATA CASE...     without cases: all
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import LIMIT_S, PROGRAM, Server, client, fails, filled, run, tree_of  # noqa: E402
from serving import run_cases  # noqa: E402

COPIES = ("get", "put")


def names_in(folder):
    return {str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file()}


def ends(way, server, tmp, source="source", copy="copy"):
    """The two paths of a sync of what is in a folder, from a server or to one."""
    if way == "get":
        return server.url(f"{source}/"), tmp / copy
    return f"{tmp}/{source}/", server.url(copy)


def case_filters_are_those_of_rsync(tmp):
    if shutil.which("rsync") is None:
        print("no rsync to compare with")
        return
    words, rng = ("a", "b", "ab", "a.o", "b.c", "core"), random.Random(5)
    files = {"/".join(rng.choice(words) + "d" * (i < depth - 1) for i in range(depth))
             for depth in (1, 2, 3, 4) for _ in range(25)}
    filled(tmp / "source", *files)
    parts = ("*", "**", "?", "/", "a", "b", "ab", "*.o", "[ab]", "[!a]*", "d", "ad", "abd", "bd", ".c", "***", "core")
    with Server(tmp, "--writable") as server:
        for number in range(12):
            rules = []
            for _ in range(rng.randint(1, 4)):
                pattern = "".join(rng.choice(parts) for _ in range(rng.randint(1, 4)))
                if pattern.strip("/"):
                    rules += ["--filter", rng.choice("+-") + " " + pattern]
            listed = subprocess.run(["rsync", "-rn", "--out-format=%n", *rules, f"{tmp}/source/", tmp / "none"],
                                    capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.split()
            way, copy = COPIES[number % 2], f"weft{number}"
            steps = steps_of(run("sync", "-n", "--json", *rules, *ends(way, server, tmp, copy=copy)).decode())
            taken = {step["path"].partition(f"{copy}/")[2] for step in steps if step.get("action") == "copy"}
            assert taken == {name for name in listed if not name.endswith("/")}, (way, rules)


def case_the_first_rule_that_matches_decides(tmp):
    filled(tmp / "source", "keep.o", "drop.o", "x.c", "sub/keep.o", "sub/drop.o")
    wanted = {"keep.o", "x.c", "sub/keep.o"}
    with Server(tmp, "--writable") as server:
        for way in COPIES:
            for number, rules in enumerate((("--include", "keep.o", "--exclude", "*.o"),
                                            ("--filter", "- nothing", "--filter=+ keep.o", "--exclude=*.o"))):
                run("sync", *rules, *ends(way, server, tmp, copy=f"{way}{number}"))
                assert names_in(tmp / f"{way}{number}") == wanted, (way, rules)
        late = client("sync", "--exclude", "*.o", "--include", "keep.o", server.url("source/"), tmp / "late")
        assert late.returncode == 0 and names_in(tmp / "late") == {"x.c"}, late
        wrong = client("sync", "--filter", "merge file", server.url("source/"), tmp / "wrong")
        assert wrong.returncode == 2 and "'merge file'" in wrong.stderr and "PATTERN" in wrong.stderr, wrong


def case_what_is_excluded_stays_unless_it_is_to_be_removed(tmp):
    filled(tmp / "source", "x.c", "here.o", "build/x")
    there = ("old.o", "build/deep/old", "kept", "gone.c")
    with Server(tmp, "--writable") as server:
        for way in COPIES:
            rules = ("--exclude", "*.o", "--exclude", "build/", "--filter", "P kept")
            filled(tmp / way, *there)
            run("sync", "--delete", *rules, *ends(way, server, tmp, copy=way))
            assert names_in(tmp / way) == {"x.c", "old.o", "build/deep/old", "kept"}, way
            run("sync", "--delete-excluded", *rules, *ends(way, server, tmp, copy=way))
            assert names_in(tmp / way) == {"x.c", "kept"} and not (tmp / way / "build").exists(), way


def steps_of(text):
    return [json.loads(line) for line in text.splitlines()]


def case_a_dry_run_says_what_the_copy_does(tmp):
    filled(tmp / "source", "new", "same", "changed", "deep/er/new", "sub/same")
    (tmp / "source/link").symlink_to("new")
    (tmp / "source/empty").mkdir()
    with Server(tmp, "--writable") as server:
        for way in COPIES:
            for first in (True, False):  # nothing is there; something is
                copy = tmp / f"{way}{first}"
                if not first:
                    shutil.copytree(tmp / "source", copy, symlinks=True)
                    (copy / "new").unlink()
                    (copy / "changed").write_text("older")
                    (copy / "link").unlink()
                    (copy / "link").symlink_to("elsewhere")
                    shutil.rmtree(copy / "deep")
                    filled(copy, "gone", "sub/gone")
                before = tree_of(copy) if copy.exists() else None
                command = ("sync", "--delete", *ends(way, server, tmp, copy=copy.name))
                told = run(*command, "-n").decode().splitlines()
                planned = steps_of(run(*command, "--dry-run", "--json").decode())
                assert (tree_of(copy) if copy.exists() else None) == before, f"{way}: a dry run changed something"
                done = steps_of(run(*command, "--json").decode())
                as_text = {f"{one['action']:<7} {one['path']}" for one in planned[:-1]}
                assert set(told) == as_text, (told, as_text)
                key = lambda one: sorted((s["action"], s["path"], s.get("bytes", 0)) for s in one[:-1])
                assert key(planned) == key(done), (way, first, key(planned), key(done))
                for total in ("files", "folders", "links", "skipped", "removed", "failures"):
                    assert planned[-1][total] == done[-1][total], (way, total, planned[-1], done[-1])
                assert not run(*command, "-n"), "all was done"
                assert tree_of(copy) == tree_of(tmp / "source"), way


def case_attributes_of_folders_and_links_are_told(tmp):
    source = filled(tmp / "source", "same", "sub/same", "other/same")
    (source / "link").symlink_to("same")
    (source / "closed").mkdir()
    (source / "closed").chmod(0o555)
    with Server(tmp, "--writable") as server:
        for way in COPIES:
            command = ("sync", "-a", *ends(way, server, tmp, copy=way))
            run(*command)
            assert not run(*command, "-n"), way
        (source / "sub").chmod(0o700)
        os.utime(source / "link", ns=(1, 1), follow_symlinks=False)
        filled(source, "other/new")
        (source / "made").mkdir()
        os.utime(source, ns=(5, 5))
        expected = {("change", ""), ("change", "sub"), ("change", "link"), ("change", "other"), ("copy", "other/new"),
                    ("folder", "made")}
        for way in COPIES:
            command = ("sync", "-a", *ends(way, server, tmp, copy=way))
            root = str(tmp / way) if way == "get" else way
            planned, done = (steps_of(run(*command, "--json", *more).decode()) for more in (("-n",), ()))
            for told in (planned, done):
                found = {(one["action"], one["path"][len(root) + 1:]) for one in told[:-1]}
                assert found == expected, (way, found)
            assert not run(*command, "-n"), way
            run("sync", "-a", "--manifest", tmp / "list", *ends(way, server, tmp, copy=way))
            lines = steps_of((tmp / "list").read_text())
            assert len(lines) == 10 and {one["action"] for one in lines} == {"same"}, lines
            assert sum(one.get("type") == "folder" for one in lines) == 5, lines
    for path in (source, tmp / "put", tmp / "get"):
        (path / "closed").chmod(0o755)


def case_a_dry_run_fails_where_the_copy_would(tmp):
    filled(tmp / "source", "name", "folder/x")
    with Server(tmp, "--writable") as server, Server(tmp) as read_only:
        for way in COPIES:
            for option in ((), ("-n",)):
                copy = tmp / f"{way}{len(option)}"
                filled(copy, "gone", "gone too")
                fails("--max-delete is 1", "sync", "--delete", "--max-delete", "1", *option,
                      *ends(way, server, tmp, copy=copy.name))
                (copy / "name").unlink(missing_ok=True)
                (copy / "name").mkdir()
                fails("name: Is a directory", "sync", *option, *ends(way, server, tmp, copy=copy.name))
                filled(copy, "full/of/files")
                (copy / "name").rmdir()
                fails("not empty", "sync", "--delete", *option, *ends(way, server, tmp, copy=copy.name))
                fails("No such file", "get", *option, server.url("missing"), copy)
        fails("Read-only", "put", "-n", tmp / "source/name", read_only.url("x"))
        fails("use -r", "get", "-n", server.url("source"), tmp / "x")


def case_single_files(tmp):
    filled(tmp, "one")
    with Server(tmp, "--writable") as server:
        for command in (("get", server.url("one"), tmp / "two"), ("put", tmp / "one", server.url("two"))):
            told = run(*command, "-n").decode()
            assert told.startswith("copy ") and told.endswith("two\n") and not (tmp / "two").exists(), told
            run(*command)
            assert (tmp / "two").read_text() == "one"
            (tmp / "two").unlink()


def case_the_manifest_has_every_name(tmp):
    filled(tmp / "source", "a", "sub/b")
    odd = os.fsencode(tmp / "source") + b"/no \xff utf-8"
    with open(odd, "wb") as out:
        out.write(b"123")
    with Server(tmp, "--writable") as server:
        for way in COPIES:
            for again in (False, True):
                run("sync", "--manifest", tmp / "list", *ends(way, server, tmp, copy=way))
                lines = steps_of((tmp / "list").read_text())
                action = "same" if again else "copy"
                folders = [one["path"] for one in lines if one.get("type", one["action"]) == "folder"]
                assert len(folders) == 2 and folders[1].endswith("sub"), lines
                files = [one for one in lines if one["action"] == action and "type" not in one]
                assert sorted(one["bytes"] for one in files) == [1, 3, 5], lines
                names = {bytes.fromhex(one["path_hex"]) for one in files if "path_hex" in one}
                assert [name for name in names if name.endswith(b"no \xff utf-8")] == list(names) and names, lines
        fails("/dev/full", "get", "--manifest", "/dev/full", server.url("source/a"), tmp / "x")
        fails("missing/list", "get", "--manifest", tmp / "missing/list", server.url("source/a"), tmp / "x")


def case_output_that_cannot_be_written(tmp):
    (tmp / "file").write_text("octets")
    with Server(tmp) as server:
        for command in (["ls"], ["ls", "-l"], ["cat"], ["get", "--json"]):
            to = [tmp / "copy"] if command[0] == "get" else []
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *command, server.url("file"), *to], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=LIMIT_S, check=False)
            assert done.returncode == 1 and "output: " in done.stderr, done


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-plan-")


if __name__ == "__main__":
    main()
