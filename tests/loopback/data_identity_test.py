#!/usr/bin/env python3
"""Server and client prove to each other who they are, before anything is copied.

    data_identity_test.py WEFT_DATA CASE...     without cases: all
"""

import contextlib
import errno
import multiprocessing
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import LIMIT_S, Server, client, fails, filled, run  # noqa: E402
from raw_data import RawClient, RawServer  # noqa: E402
from serving import run_cases  # noqa: E402


def token_in(tmp):
    token = tmp / "token"
    token.write_text("0123456789abcdef0123")
    token.chmod(0o600)
    return token


def case_an_impostor_gets_nothing(tmp):
    """A client with a token takes no server that does not prove that it knows it too."""
    token, secret, served = token_in(tmp), filled(tmp / "secret", "file"), tmp / "served"
    served.mkdir()
    with Server(served, "--writable", "--open") as server:
        for command in (("put", secret / "file", server.url("file")), ("ls", server.url()),
                        ("sync", f"{secret}/", server.url())):
            fails("cannot prove that it is the one", command[0], "--token-file", token, *command[1:])
        assert not os.listdir(served)
    with RawServer(lambda *_: (0, b"")) as server:
        fails("cannot prove", "put", "--token-file", token, secret / "file", server.url("file"))
        assert server.seen == [raw_data.HELLO], server.seen


def served_by(uid, port, out):
    """In a child: what the server says to another user."""
    os.setuid(uid)
    try:
        with RawClient(port) as raw:
            out.send(raw.hello()[0])
    except AssertionError as refused:
        out.send(f"refused {refused}")


def case_other_users_of_this_machine(tmp):
    """Without a token nobody acts as the server's user but that user, and root."""
    if os.geteuid() != 0:
        return print("other_users_of_this_machine: needs root; left out")
    served = filled(tmp / "served", "file")
    for options, wanted in (([], str), (["--open"], int)):
        with Server(served, *options) as server:
            ours, its = multiprocessing.Pipe()
            child = multiprocessing.Process(target=served_by, args=(65534, server.port, its))
            child.start()
            said = ours.recv()
            child.join(LIMIT_S)
            assert isinstance(said, wanted), said
            assert run("cat", server.url("file")) == b"file"
        assert ("only the server's own user" in server.log) == (wanted is str), server.log


def case_connections_that_prove_nothing(tmp):
    """They have a limit of their own, and the oldest makes room: who has the token is served."""
    token, served = token_in(tmp), filled(tmp / "served", "file")
    with Server(served, "--token-file", token, "--max-clients", 8) as server:
        with contextlib.ExitStack() as idle:
            for i in range(24):
                raw = idle.enter_context(RawClient(server.port))
                if i % 2:
                    raw.hello()
            assert run("cat", "--token-file", token, server.url("file")) == b"file"


ACLS = ("system.posix_acl_access", "system.posix_acl_default")


def acl(user):
    """Read and write for the owner and for this user."""
    rows = ((1, 6, -1), (2, 6, user), (4, 4, -1), (0x10, 6, -1), (0x20, 0, -1))  # tag, permissions, number
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)


def acls_of(root):
    out = {}
    for path in (root, *sorted(root.rglob("*"))):
        names = [name for name in os.listxattr(path) if name in ACLS]
        out[str(path.relative_to(root))] = (path.stat().st_mode, {name: os.getxattr(path, name) for name in names})
    return out


def case_lists_of_who_may_do_what(tmp):
    """ACLs are copied, compared and removed with -A, and left alone without."""
    source = filled(tmp / "source", "shared", "sub/plain", "sub/deep/file")
    try:
        os.setxattr(source / "shared", ACLS[0], acl(1234))
        os.setxattr(source / "sub", ACLS[1], acl(55))
    except OSError as error:
        print(f"lists_of_who_may_do_what: {error}; left out")
        return
    with Server(tmp, "--writable") as server:
        for way in ("get", "put"):
            os.setxattr(source / "sub/plain", ACLS[0], acl(99))
            ends = ((server.url("source/"), tmp / way) if way == "get" else (f"{tmp}/source/", server.url(way)))
            run("sync", "-a", *ends)
            assert not any(names for _, names in acls_of(tmp / way).values()), way
            told = run("sync", "-A", "-n", *ends).decode().split()
            assert sorted(pathlib.Path(one).name for one in told[1::2]) == ["plain", "shared", "sub"], told
            run("sync", "-A", *ends)
            assert acls_of(tmp / way) == acls_of(source), way
            os.removexattr(source / "sub/plain", ACLS[0])
            (source / "sub/new").write_text("new")
            os.removexattr(source / "sub/new", ACLS[0])  # which its folder gave it, as it does in the copy
            run("sync", "-A", *ends)
            assert acls_of(tmp / way) == acls_of(source) and not run("sync", "-A", "-n", *ends), way
            (source / "sub/new").unlink()
    with RawServer(lambda *_: (errno.EIO, b""), flags=4) as old:
        fails("the server's release has no -A", "get", "-A", old.url("x/"), tmp / "old")


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}

if __name__ == "__main__":
    run_cases(CASES, sys.argv[2:] or CASES, "weft-data-")
