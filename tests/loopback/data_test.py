#!/usr/bin/env python3
"""The data server and its client, as users run them: weft-data serve, get, put, sync, ls, cat.

    data_test.py WEFT_DATA CASE...     without cases: all

Of the environment: WEFT_TEST_DATA_CLIENT (a program beside this file) and WEFT_TEST_VERBS_DIR (Weft's libibverbs).
The case that needs them is left out without them.
"""

import errno
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import (LIMIT_S, PROGRAM, Cutter, Server, big_file, digest, drafts_in, filled, make_tree,
                          plain_client, run, tree_of)
from serving import run_cases


def case_files_and_folders(tmp):
    source = tmp / "source"
    source.mkdir()
    make_tree(source)
    with Server(source) as server:
        run("get", "-r", server.url(), tmp / "copy")
        assert tree_of(source) == tree_of(tmp / "copy")
        run("get", "-r", "--verify", server.url("d1"), tmp)
        assert tree_of(source / "d1") == tree_of(tmp / "d1")
        run("get", server.url("d0"), tmp / "x", code=1, text="use -r")
        assert run("cat", server.url("d0/e0/file 0")) == (source / "d0/e0/file 0").read_bytes()
        names = run("ls", server.url()).decode().split()
        assert names == sorted(os.listdir(source)), names
        assert b"lrwxrwxrwx" in run("ls", "-l", server.url())
        run("get", server.url("nothing"), tmp, code=1, text="No such file")
    assert "0 refused" in server.log, server.log


def case_large_file_every_way(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 37)
    with open(source / "big", "ab") as out:
        out.write(b"odd end")
    for extra in ([], ["--direct"]):
        with Server(source, *extra) as server:
            run("get", "--verify", server.url("big"), tmp / "copy")
            assert digest(source / "big") == digest(tmp / "copy")
            assert not list(tmp.glob(".weft-part*"))
            run("get", server.url("big"), "/dev/null")


def case_sixteen_clients(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 8)
    want = digest(source / "big")
    with Server(source, "--staging", 4 << 20) as server:
        clients = [subprocess.Popen([PROGRAM, "get", server.url("big"), str(tmp / f"copy{i}")]) for i in range(16)]
        assert [c.wait(LIMIT_S) for c in clients] == [0] * 16
        assert all(digest(tmp / f"copy{i}") == want for i in range(16))


def case_sync_asks_for_folders_rather_than_files(tmp):
    source = tmp / "source"
    for name in map(str, range(500)):
        filled(source, f"a/{name}")
    with Server(tmp, "--writable") as server:
        run("put", "-r", f"{source}/", server.url("in"))
        (tmp / "in" / "a" / "7").write_text("an older one")
    with Server(tmp, "--writable") as server:
        run("sync", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(tmp / "in")
    requests = int(re.search(r"(\d+) requests", server.log)[1])
    assert requests < 50, server.log


def case_put_and_sync(tmp):
    source, served = tmp / "source", tmp / "served"
    source.mkdir()
    served.mkdir()
    make_tree(source, 60)
    big_file(source / "big", 5)
    with Server(served, "--writable") as server:
        run("put", "-r", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        (source / "big").write_bytes(b"smaller now")
        out = subprocess.run([PROGRAM, "sync", "--stats", f"{source}/", server.url("in")], check=True,
                             capture_output=True, text=True, timeout=LIMIT_S)
        assert "1 files," in out.stderr, out.stderr
        assert tree_of(source) == tree_of(served / "in")
        (served / "in" / "d0" / "extra").write_text("new here")
        (source / "big").unlink()
        run("sync", "--delete", server.url("in/"), source)
        assert tree_of(source) == tree_of(served / "in")
        # And the other way: a file, a link, an empty folder. A full one stays, and is named.
        (served / "in" / "d0" / "gone").write_text("gone")
        (served / "in" / "gone").symlink_to("d0")
        (served / "in" / "empty").mkdir()
        run("sync", "--delete", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        # A link that points elsewhere now, and one where a file was.
        for name in ("link", "d0/extra"):
            (source / name).unlink()
            (source / name).symlink_to("d1")
        run("sync", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        (served / "in" / "full").mkdir()
        (served / "in" / "full" / "file").write_text("stays")
        run("sync", "--delete", f"{source}/", server.url("in"), code=1, text="in/full: Directory not empty")
        assert (served / "in" / "full" / "file").read_text() == "stays"
    with Server(served) as server:
        run("put", source / "big", server.url("x"), code=1, text="--writable")


def case_connections_that_break(tmp):
    """In the middle of files, either way, more than once: in the end everything is there, and nothing else."""
    source, served = tmp / "source", tmp / "served"
    source.mkdir()
    served.mkdir()
    make_tree(source, 20)
    big_file(source / "big", 24)
    with Server(served, "--writable") as server:
        way = Cutter(server.port, [1 << 20, 10 << 20, 5000])
        run("put", "-r", "--retry", 60, f"{source}/", f"weft://127.0.0.1:{way.port}/in")
        assert way.cuts == 3, way.cuts
        assert tree_of(source) == tree_of(served / "in")
        way = Cutter(server.port, [1 << 20, 10 << 20])
        run("get", "-r", "--verify", f"weft://127.0.0.1:{way.port}/in", tmp / "back")
        assert way.cuts == 2, way.cuts
        assert tree_of(source) == tree_of(tmp / "back")
        way = Cutter(server.port, [1 << 20] * 100)
        run("put", source / "big", f"weft://127.0.0.1:{way.port}/never", code=1, text="gone")
        assert not (served / "never").exists()


def case_put_goes_on_where_it_was(tmp):
    """Within a run, in a later run, past a restart of the server; and only with what is right."""
    served, big = tmp / "served", tmp / "big"
    served.mkdir()
    big_file(big, 64)
    size = big.stat().st_size

    def through(way, name, *options, code=0):
        run("put", *options, big, f"weft://127.0.0.1:{way.port}/{name}", code=code)
        return way.octets

    with Server(served, "--writable") as server:
        moved = through(Cutter(server.port, [40 << 20]), "one")
        assert digest(served / "one") == digest(big)
        assert moved < size + (20 << 20), moved
        assert not drafts_in(served)
        through(Cutter(server.port, [40 << 20] * 9), "two", "--retry", 0, code=1)
        assert not (served / "two").exists()
        assert len(drafts_in(served)) == 1
        assert run("ls", server.url()).decode().split() == ["one"]
    with Server(served, "--writable") as server:
        moved = through(Cutter(server.port, []), "two", "--verify")
        assert digest(served / "two") == digest(big) and moved < 40 << 20, moved
        assert (served / "two").stat().st_mtime_ns == big.stat().st_mtime_ns
        assert not drafts_in(served)
        # What is not the file's is sent again.
        through(Cutter(server.port, [40 << 20] * 9), "three", "--retry", 0, code=1)
        draft, = drafts_in(served)
        with open(draft, "r+b") as file:
            file.seek(9 << 20)
            file.write(bytes([file.read(1)[0] ^ 1]))
        through(Cutter(server.port, []), "three")
        assert digest(served / "three") == digest(big)
        # Another version of the file begins anew; so does a run that wants to.
        through(Cutter(server.port, [40 << 20] * 9), "four", "--retry", 0, code=1)
        moved = through(Cutter(server.port, []), "four", "--no-resume")
        assert moved > size and digest(served / "four") == digest(big)
        for draft in drafts_in(served):
            draft.unlink()
        through(Cutter(server.port, [40 << 20] * 9), "five", "--retry", 0, code=1)
        with open(big, "r+b") as file:
            file.write(b"another version")
        assert through(Cutter(server.port, []), "five") > size
        assert digest(served / "five") == digest(big)
        # Two that send the same file to the same place.
        both = [subprocess.Popen([PROGRAM, "put", str(big), server.url("six")]) for _ in range(2)]
        assert [one.wait(LIMIT_S) for one in both] == [0, 0]
        assert digest(served / "six") == digest(big)


def case_names_cannot_leave_the_folder(tmp):
    served = tmp / "served"
    served.mkdir()
    (tmp / "secret").write_text("secret")
    (served / "out").symlink_to(tmp / "secret")
    (served / "outdir").symlink_to(tmp)
    (served / "inside").write_text("inside")
    (served / "in").symlink_to("inside")
    os.mkfifo(served / "pipe")
    with Server(served, "--writable") as server:
        for name in ("../secret", "outdir/secret", "out", "x/../../secret", "/../secret"):
            out = subprocess.run([PROGRAM, "cat", server.url(name)], capture_output=True, check=False, timeout=LIMIT_S)
            assert out.returncode == 1 and b"secret" not in out.stdout, name
        run("cat", server.url("out"), code=1, text="leads out of the folder")
        run("put", served / "inside", server.url("outdir/evil"), code=1)
        assert not (tmp / "evil").exists()
        assert run("cat", server.url("in")) == b"inside"
        run("cat", server.url("pipe"), code=1, text="Invalid argument")


def case_links_to_served_folders(tmp):
    """What the owner names may be a link; the name that was given is the name."""
    for name in ("a", "b"):
        (tmp / "real" / name).mkdir(parents=True)
        (tmp / "real" / name / "file").write_text(name)
        (tmp / f"link-{name}").symlink_to(tmp / "real" / name)
    (tmp / "real" / "a" / "absolute").symlink_to(tmp / "real" / "a" / "file")
    with Server(tmp / "link-a") as server:
        assert run("cat", server.url("file")) == b"a"
        run("cat", server.url("absolute"), code=1, text="as absolute symbolic links always do")
    with Server(tmp / "link-a", f"{tmp}/link-b/", tmp / "real" / "b" / ".." / "a" / ".") as server:
        assert run("ls", server.url()).split() == [b"a", b"link-a", b"link-b"]
        assert run("cat", server.url("link-b/file")) == b"b"
        assert run("cat", server.url("a/file")) == b"a"


def case_odd_names(tmp):
    served = tmp / "served"
    served.mkdir()
    names = [b"n" * 255, b"\xff\xfe\x01", "Ünïcode ☃".encode(), b" ", b"new\nline", b"-rf", b"a:b"]
    for name in names:
        (pathlib.Path(os.fsdecode(os.path.join(os.fsencode(str(served)), name)))).write_bytes(name)
    with Server(served, "--writable") as server:
        run("get", "-r", server.url(), tmp / "copy")
        assert tree_of(served) == tree_of(tmp / "copy")
        run("put", "-r", tmp / "copy", server.url())
        assert tree_of(served / "copy") == tree_of(tmp / "copy")
        run("cat", server.url("x" * 300), code=1, text="File name too long")
        run("cat", server.url("/".join(["x" * 200] * 25)), code=1, text="File name too long")


def case_tokens(tmp):
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_text("content")
    for name, token in (("right", "0123456789abcdef0123"), ("wrong", "0123456789abcdef0124"), ("short", "0123")):
        (tmp / name).write_text(token + "\n")
        (tmp / name).chmod(0o600)
    with Server(served, "--token-file", tmp / "right") as server:
        assert run("cat", "--token-file", tmp / "right", server.url("file")) == b"content"
        run("cat", server.url("file"), code=1, text="wants a token")
        run("cat", "--token-file", tmp / "wrong", server.url("file"), code=1, text="another token")
        run("cat", "--token-file", tmp / "short", server.url("file"), code=1, text="at least 16")
        (tmp / "right").chmod(0o644)
        run("cat", "--token-file", tmp / "right", server.url("file"), code=1, text="other users")
    assert "1 wrong tokens" in server.log, server.log


def case_a_plain_verbs_client(tmp):
    if "WEFT_TEST_DATA_CLIENT" not in os.environ:
        return print("a_plain_verbs_client: WEFT_TEST_DATA_CLIENT is not set; left out")
    served = tmp / "served"
    served.mkdir()
    big_file(served / "file", 5)
    with open(served / "file", "ab") as out:
        out.write(b"odd end")

    def ask(*arguments):
        command, environment = plain_client(server, *arguments)
        done = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    with Server(served) as server:
        assert ask("read", "file") == (served / "file").read_bytes()
        assert [int(n) for n in ask("uninvited").split()] == [errno.EACCES, errno.EACCES]
        want = [errno.EBADF, errno.EPROTO, errno.EPROTO, errno.EBADF, errno.EPROTO, errno.EBADF, errno.EPROTO]
        assert [int(n) for n in ask("odd").split()] == want
        assert ask("read", "file") == (served / "file").read_bytes()


def case_a_limit_of_octets_per_second(tmp):
    """What comes is what was there. How long it took is the unit test's affair."""
    source, served = filled(tmp / "source", "small", "folder/small"), tmp / "served"
    big_file(source / "big", 3)
    served.mkdir()
    with Server(served, "--writable") as server:
        run("put", "-r", "--bwlimit", 10 << 20, f"{source}/", server.url("there"))
        run("get", "-r", "--bwlimit", 10 << 20, server.url("there/"), tmp / "back")
        few = subprocess.run([PROGRAM, "get", "--bwlimit", "1000", server.url("there/small"), tmp / "small"],
                             stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        assert few.returncode == 2 and "at least 65536" in few.stderr, few
    assert tree_of(source) == tree_of(served / "there") == tree_of(tmp / "back")


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


if __name__ == "__main__":
    run_cases(CASES, sys.argv[2:] or CASES, "weft-data-")
