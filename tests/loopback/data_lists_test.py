#!/usr/bin/env python3
"""What lists of names prove, and what they do not: names that nobody can look at, other file systems, removals.

    data_lists_test.py WEFT_DATA CASE...     without cases: all
"""

import errno
import json
import os
import pathlib
import random
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import (  # noqa: E402
    Cutter, Server, as_an_owner, big_file, client, digest, fails, filled, make_tree, run, tree_of)
from raw_data import RawClient, RawServer, attributes, entry, memory, state  # noqa: E402
from serving import run_cases  # noqa: E402

FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
LIST_TELLS = 2  # flag of a request


def case_names_that_the_server_cannot_look_at(tmp):
    """Each is a failure with its name; all others are copied, and nothing is removed."""
    served = filled(tmp / "served", "a/one", "a/two", "b/three")
    with Server(served, "--writable", preexec_fn=as_an_owner) as server:
        run("sync", server.url(), tmp / "copy")
        filled(tmp / "copy", "extra")
        filled(served, "b/new")
        (served / "a").chmod(0o444)
        done = client("sync", "--delete", server.url(), tmp / "copy")
        assert done.returncode == 1 and "nothing was removed" in done.stderr, done
        for name in ("a/one", "a/two"):
            assert f"{name}: Permission denied" in done.stderr and (tmp / "copy" / name).exists(), done
        assert (tmp / "copy/b/new").read_text() == "b/new" and (tmp / "copy/extra").exists()
        listed = client("ls", server.url("a"))
        assert listed.returncode == 1 and listed.stdout == "one\ntwo\n", listed
        assert "one: Permission denied" in listed.stderr, listed
        (filled(tmp / "source", "b/three") / "a").mkdir()
        done = client("sync", "--delete", f"{tmp}/source/", server.url())
        assert done.returncode == 1 and "a/one: Permission denied" in done.stderr, done
        assert (served / "b/new").exists() and "nothing was removed" in done.stderr, done
        # A client that does not know of such names gets no list at all.
        with RawClient(server.port) as old:
            old.hello()
            assert old.ask(raw_data.LIST, struct.pack(">Q", 0) + memory(1 << 16) + b"a")[0] == errno.EACCES
        (served / "a").chmod(0o755)


def case_names_that_cannot_be_here(tmp):
    """Too long ones, and those with an error of any kind, do not hide others."""
    def failure(error):
        return struct.pack(">II", 0, error) + bytes(56)
    names = (entry(b"x" * 256, attributes(FILE, 1)) + entry(b"broken", failure(errno.EIO))
             + entry(b"odd", failure(0)) + entry(b"good", attributes(FILE, 1)))

    def answer(rdma, operation, tag, body):
        if operation == raw_data.LIST:
            rdma.write(*struct.unpack(">QI", body[8:20])[::-1], names)
            return 0, struct.pack(">QI", 0, len(names))
        if operation == raw_data.OPEN:
            rdma.write(*struct.unpack(">QI", body[:12])[::-1], b"g")
            return 0, struct.pack(">QI", 0, 1) + state(FILE, 1)
        return 0, attributes(FOLDER, 0)
    with RawServer(answer) as server:
        filled(tmp / "copy", "mine")
        done = client("sync", "--delete", server.url("x/"), tmp / "copy")
        assert done.returncode == 1 and "xxx: File name too long" in done.stderr, done
        assert "broken: Input/output error" in done.stderr and "odd: Input/output error" in done.stderr, done
        assert sorted(os.listdir(tmp / "copy")) == ["good", "mine"]


def folder_below(root, names):
    """A descriptor of it: the path may be longer than a call takes."""
    at = os.open(root, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=at)
        above, at = at, os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(above)
    return at


def case_paths_that_are_too_long(tmp):
    """Each is the failure of one file; all others are copied."""
    deep = "/".join(["x" * 250] * 16)
    source = filled(tmp / "source", "near")
    big_file(source / "big", 1)
    folder = folder_below(source, deep.split("/"))
    for name in ("y", "z" * 200):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)

    def check(copy):
        assert digest(copy / "big") == digest(source / "big") and (copy / "near").read_text() == "near"
        root = os.open(copy, os.O_RDONLY)
        inner = os.open(deep, os.O_RDONLY, dir_fd=root)
        assert os.listdir(inner) == ["y"]
        os.close(inner)
        os.close(root)
    (tmp / "served").mkdir()
    with Server(source) as server:
        fails("File name too long", "get", "-r", server.url(), tmp / "copy")
        check(tmp / "copy")
    with Server(tmp / "served", "--writable") as server:
        fails("File name too long", "put", "-r", f"{source}/", server.url("copy"))
        check(tmp / "served/copy")


def case_more_descriptors_than_the_shell_gives(tmp):
    """Each connection of a copy keeps folders open."""
    source = filled(tmp / "source", *(f"d{i}/file" for i in range(40)))
    with Server(source) as server:
        few = (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        done = client("get", "-r", server.url(), tmp / "copy",
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
        assert done.returncode == 0, done
    assert tree_of(tmp / "copy") == tree_of(source)


def case_a_walk_whose_connection_breaks(tmp):
    """It may stand still while other connections copy: it goes on over a new one, wherever that was."""
    source, copy = filled(tmp / "source", *(f"d{i}/file" for i in range(10))), tmp / "copy"
    for i in range(10):
        (source / f"link {i}").symlink_to("d0/file")
    with Server(source) as server:
        run("sync", "-a", server.url(), copy)
        for limit in range(2600, 6800, 300):
            (copy / "d3" / "file").unlink()
            way = Cutter(server.port, [limit])
            run("sync", "-a", f"weft://127.0.0.1:{way.port}/", copy)
            assert way.cuts == 1 and tree_of(copy) == tree_of(source), limit
    shutil.rmtree(copy)
    for i in range(10):
        (source / f"d{i}" / "file").unlink()
        os.mkfifo(source / f"d{i}" / "pipe")  # put does not carry them: its other failures end nothing
    copy.mkdir()
    with Server(copy, "--writable") as server:
        for limit in range(2600, 6800, 300):
            way = Cutter(server.port, [limit])
            done = client("sync", "-a", f"{source}/", f"weft://127.0.0.1:{way.port}/")
            assert done.returncode == 1, done
            missing = [i for i in range(10) if f"d{i}/pipe: " not in done.stderr]
            assert not missing, (limit, missing, done.stderr)


def case_another_file_system_than_the_last_time(tmp):
    """One that is not mounted shows what is below it: nothing is removed because of that."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="weft-lists-") as other:
        other = pathlib.Path(other)
        if other.stat().st_dev == tmp.stat().st_dev:
            print("another_file_system_than_the_last_time: only one file system; left out")
            return
        filled(tmp / "first", "kept", "gone")
        (tmp / "source").symlink_to(tmp / "first")
        (tmp / "served").mkdir()
        with Server(tmp / "served", "--writable") as server:
            command = ("sync", "--delete", f"{tmp}/source/", server.url("copy"))
            run(*command)
            filled(other, "kept")
            (tmp / "source").unlink()
            (tmp / "source").symlink_to(other)
            for more in ((), ("-n",)):
                fails("another file system than the last time", *command, *more)
            assert (tmp / "served/copy/gone").exists()
            run(*command, "--force-delete")
            assert not (tmp / "served/copy/gone").exists()
            filled(tmp / "served", "copy/new")
            run(*command)  # this one is the last now
            assert not (tmp / "served/copy/new").exists()


def case_a_file_system_of_the_server_that_is_not_mounted(tmp):
    served = filled(tmp / "served", "disk/stray")
    with Server(served) as server:
        mount = ["mount", "-t", "tmpfs", "none", str(served / "disk")]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            print("a_file_system_of_the_server_that_is_not_mounted: no right to mount; left out")
            return
        try:
            filled(served / "disk", "stray", "data")
            run("sync", "--delete", server.url("disk/"), tmp / "copy")
        finally:
            subprocess.run(["umount", "-l", str(served / "disk")], check=True)
        fails("another file system than the last time", "sync", "--delete", server.url("disk/"), tmp / "copy")
        assert (tmp / "copy/data").exists()


def case_removals_that_do_not_fit_into_memory(tmp):
    """Their folders are looked through once more; what goes is the same."""
    names = [f"{a}/{b}/{c}" for a in "abc" for b in "de" for c in range(5)]
    kept = [name for i, name in enumerate(names) if i % 3 == 0]
    excluded = ["x.d/one", "x.d/deep/two", "c/x.d/three"]
    with Server(tmp, "--writable") as server:
        for way in ("get", "put"):
            for room in (0, 300, 1 << 20):
                filled(tmp / "source", *kept)
                copy = filled(tmp / f"{way}{room}", *names, *excluded)
                ends = ((server.url("source/"), copy) if way == "get" else (f"{tmp}/source/", server.url(copy.name)))
                command = ("sync", "--delete-excluded", "--exclude", "x.d", "--names-memory", room, *ends)
                fails("that would be 26 names", *command, "--max-delete", 25)
                told = [json.loads(line) for line in run(*command, "-n", "--json").splitlines()]
                assert told[-1]["removed"] == 26 and len(tree_of(copy)) > 26, (way, room, told)
                run(*command, "--max-delete", 26)
                assert tree_of(copy).keys() == tree_of(tmp / "source").keys(), (way, room)
                shutil.rmtree(copy)


# ---- Many files at a time


def case_trees_over_several_connections(tmp):
    """Small files many at a time, and by several connections; connections that break cost no file."""
    source = tmp / "source"
    source.mkdir()
    make_tree(source, 100)
    big_file(source / "d1/big", 9)
    with Server(tmp, "--writable") as server:
        for streams in (1, 5):
            few = ("-j", streams, "--queued-files", 60)
            run("put", "-r", *few, f"{source}/", server.url(f"put{streams}"))
            run("get", "-r", *few, server.url("source/"), tmp / f"get{streams}")
            for way in ("put", "get"):
                assert tree_of(tmp / f"{way}{streams}") == tree_of(source), (way, streams)
        rng = random.Random(1)
        for way, streams in (("put", 1), ("put", 3), ("get", 3)):
            cut = Cutter(server.port, [rng.randrange(20_000, 4_000_000) for _ in range(4)])
            there, copy = f"weft://127.0.0.1:{cut.port}/", f"{way}-cut{streams}"
            ends = ((f"{source}/", there + copy) if way == "put" else (there + "source/", tmp / copy))
            run(way, "-r", "-j", streams, "--queued-files", 60, *ends)
            assert tree_of(tmp / copy) == tree_of(source) and cut.cuts > 0, (way, streams, cut.cuts)


def case_a_connection_that_is_lost_for_good(tmp):
    """What it had still to copy, others copy."""
    source = tmp / "source"
    source.mkdir()
    for i in range(24):
        (source / f"{i}").write_bytes(bytes([i]) * (300_000 + i))
    with Server(tmp, "--writable") as server:
        for way in ("put", "get"):
            cut = Cutter(server.port, [None, 1_000_000], refuses=True)
            there, copy = f"weft://127.0.0.1:{cut.port}/", f"{way}-copy"
            ends = ((f"{source}/", there + copy) if way == "put" else (there + "source/", tmp / copy))
            run(way, "-r", "-j", "2", "--queued-files", 12, "--retry", "1", *ends)
            assert tree_of(tmp / copy) == tree_of(source) and cut.cuts == 1, (way, cut.cuts)


def case_a_failure_counts_once(tmp):
    """Also where a tree is looked at again, as a connection broke."""
    source, copy = filled(tmp / "source", *(f"d{i}/file" for i in range(10))), tmp / "copy"
    os.mkfifo(source / "d3" / "pipe")  # put does not carry it
    copy.mkdir()
    with Server(copy, "--writable") as server:
        lines = []
        for limit in range(2600, 6800, 300):
            way = Cutter(server.port, [limit])
            done = client("sync", "-a", "--json", f"{source}/", f"weft://127.0.0.1:{way.port}/")
            assert done.returncode == 1 and way.cuts == 1, done
            assert json.loads(done.stdout.splitlines()[-1])["failures"] == 1, done
            lines.append(done.stderr.count("pipe: "))
        assert 2 in lines, lines


def case_small_files_that_fail_do_not_stop_others(tmp):
    source = filled(tmp / "source", *(f"{i}" for i in range(100)))
    served = tmp / "served"
    filled(served, "copy/7/in the way")
    with Server(served, "--writable", preexec_fn=as_an_owner) as server:
        (source / "8").chmod(0)
        done = client("put", "-r", f"{source}/", server.url("copy"), preexec_fn=as_an_owner)
        assert done.returncode == 1 and done.stderr.count("\n") == 2, done
        assert "copy/7: Is a directory" in done.stderr and "8: Permission denied" in done.stderr, done
        (source / "8").chmod(0o644)
        assert len(list((served / "copy").iterdir())) == 99
        for name in set(os.listdir(source)) - {"7", "8"}:
            assert (served / "copy" / name).read_text() == name


def case_past_the_page_cache(tmp):
    """Files of any length, with holes and begun before, are the same."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 9)
    with open(served / "big", "ab") as out:
        out.write(b"end")
    with open(served / "holes", "wb") as out:
        out.write(b"x" * 70_000)
        out.truncate(9 << 20)
        out.seek(8 << 20)
        out.write(b"x" * 5000)
    with Server(served) as server:
        for name in ("big", "holes"):
            run("get", "--direct", "--verify", server.url(name), tmp / name)
            assert digest(tmp / name) == digest(served / name)
        (tmp / "big").unlink()
        way = Cutter(server.port, [4 << 20] + [1000] * 9)
        client("get", "--retry", "0", f"weft://127.0.0.1:{way.port}/big", tmp / "big")
        assert list(tmp.glob(".weft-part-*"))
        run("get", "--direct", server.url("big"), tmp / "big")
        assert digest(tmp / "big") == digest(served / "big")
        wrong = client("sync", "--direct", f"{served}/", server.url("x"))
        assert wrong.returncode == 2 and "--direct" in wrong.stderr, wrong


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-lists-")


if __name__ == "__main__":
    main()
