#!/usr/bin/env python3
"""The data server's clients beside servers that want too much, and both beside other versions of the protocol. What
a copy leaves alone.

    data_refusal_test.py WEFT_DATA CASE...     without cases: all
"""

import contextlib
import errno
import os
import pathlib
import resource
import socket
import stat
import struct
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import Server, fails, filled, run  # noqa: E402
from raw_data import RawClient, RawServer, attributes, entry, state  # noqa: E402
from serving import run_cases  # noqa: E402

FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
MIB = 1 << 20


def peak_of_clients():
    """Bytes that the largest client so far had in memory."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def case_lists_that_fill_memory(tmp):
    """Pages of entries without an end, and folders in folders without an end: the client gives up in time."""
    files = b"".join(entry(b"%0250d" % i, attributes(FILE, 0)) for i in range(400))
    folders = files.replace(attributes(FILE, 0), attributes(FOLDER, 0))
    pages = {}  # by folder: what was written there lies in the client's memory, and is listed again and again

    def answer(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, attributes(FOLDER, 0)
        cursor, address, stag, _ = struct.unpack(">QQII", body[:24])
        one = files if b"files" in body[24:] else folders
        if pages.setdefault(stag, None) is not one:
            rdma.write(stag, address, one)
            pages[stag] = one
        ends = one is folders and cursor == 500
        return 0, struct.pack(">QI", 0 if ends else cursor + 1, len(one))
    with RawServer(answer) as server:
        run("ls", server.url("files"), code=1, text="more than 512 MiB")
        run("get", "-r", server.url("tree"), tmp / "copy", code=1, text="more folders than")
    assert peak_of_clients() < 1600 * MIB, peak_of_clients()


def case_a_server_of_another_version(tmp):
    """Says no to HELLO, as version 1 does or with its number, or says yes and names its version."""
    class Other(RawServer):
        def __init__(self, error, rest):
            self.hello = error, rest
            super().__init__(None)

        def reply(self, rdma, operation, tag, error, rest=b""):
            assert operation == raw_data.HELLO, operation
            RawServer.reply(rdma, operation, tag, *self.hello)
    no, later = errno.EPROTONOSUPPORT, struct.pack(">I", raw_data.VERSION + 1)
    for error, rest, theirs, where in (
            (no, b"", 1, "127.0.0.1"), (no, later, raw_data.VERSION + 1, "this machine"),
            (0, later, raw_data.VERSION + 1, "this machine"),
            (0, struct.pack(">IIII", 1, 0, raw_data.CREDITS, MIB) + bytes(32), 1, "127.0.0.1")):
        with Other(error, rest) as server:
            run("cat", server.url("file"), code=1,
                text=f"the server speaks version {theirs} of the data protocol, and this program version "
                     f"{raw_data.VERSION}; upgrade Weft on {where}")


def case_a_server_that_is_replaced_by_another_version(tmp):
    """Where the connection broke, the client asks no more than once again."""
    class Replaced(RawServer):
        def reply(self, rdma, operation, tag, error, rest=b""):
            if operation == raw_data.HELLO and self.seen.count(raw_data.HELLO) > 1:
                error, rest = errno.EPROTONOSUPPORT, struct.pack(">I", raw_data.VERSION + 1)
            RawServer.reply(rdma, operation, tag, error, rest)

    def breaks(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, attributes(FILE, 5)
        RawServer.hang_up(rdma.link)
        return None
    with Replaced(breaks) as server:
        run("get", server.url("file"), tmp / "copy", code=1, text="upgrade Weft on this machine")
        assert server.seen.count(raw_data.HELLO) == 2, server.seen


def case_a_client_of_another_version(tmp):
    """Whatever its HELLO has behind the version; it is told which one the server speaks."""
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    with Server(served) as server:
        for version in (1, raw_data.VERSION + 1):
            for body in (bytes(32), b"", bytes(100)):
                with RawClient(server.port) as client:
                    answer = client.ask(raw_data.HELLO, struct.pack(">I", version) + body)
                    assert answer == (errno.EPROTONOSUPPORT, struct.pack(">I", raw_data.VERSION)), answer
        assert run("cat", server.url("file")) == b"content"
    assert " 6 of other versions" in server.log, server.log


def case_a_silent_server(tmp):
    """It takes connections and requests, and answers nothing: each command gives up."""
    source = filled(tmp / "source", "file")
    listener = socket.create_server(("127.0.0.1", 0))
    with RawServer(lambda *_: None) as silent:
        url, mute = silent.url("file"), f"weft://127.0.0.1:{listener.getsockname()[1]}/file"
        for command in (("ls", url), ("cat", mute), ("get", "--retry", 0, url, tmp / "copy"),
                        ("put", "--retry", 0, source / "file", mute), ("sync", "--retry", 0, mute, tmp / "tree")):
            fails("the server does not answer", command[0], "--timeout", 1, *command[1:])


def case_a_connection_that_is_ended_before_its_reply(tmp):
    """As a crowded server does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def end_all():
            with contextlib.suppress(OSError):
                while True:
                    link = listener.accept()[0]
                    link.recv(20)
                    link.close()
        threading.Thread(target=end_all, daemon=True).start()
        port = listener.getsockname()[1]
        run("cat", f"weft://127.0.0.1:{port}/file", code=1, text="is full")
        listener.shutdown(socket.SHUT_RDWR)
    run("cat", f"weft://127.0.0.1:{port}/file", code=1, text="no server listens there")


def case_a_crowd_of_one_host_beside_a_slow_client_of_another(tmp):
    """Those that have not said hello make room host by host."""
    served = tmp / "served"
    served.mkdir()
    with Server(served, "--max-clients", 32) as server, contextlib.ExitStack() as stack:
        slow = stack.enter_context(RawClient(server.port, source="127.0.0.2"))
        for _ in range(20):
            stack.enter_context(RawClient(server.port))
        assert slow.hello()[0] == 0


def case_a_link_that_cannot_be_replaced(tmp):
    """The old one stays until the new one is there."""
    copy = tmp / "copy"
    copy.mkdir()
    (copy / "link").symlink_to("old")

    def names(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, attributes(FOLDER, 0)
        if operation == raw_data.LIST:
            _, address, stag, _ = struct.unpack(">QQII", body[:24])
            one = entry(b"link", attributes(stat.S_IFLNK | 0o777, 0))
            rdma.write(stag, address, one)
            return 0, struct.pack(">QI", 0, len(one))
        return 0, b""  # READLINK: no link can lead to nothing
    with RawServer(names) as server:
        run("sync", server.url(), copy, code=1, text="No such file")
    assert os.readlink(copy / "link") == "old" and os.listdir(copy) == ["link"]

    def full(rdma, operation, tag, body):
        if operation == raw_data.SYMLINK:
            return (errno.EEXIST if body.endswith(b"/link") else errno.ENOSPC), b""
        if operation == raw_data.READLINK:
            return 0, b"old"
        return 0, attributes(FOLDER, 0)
    (copy / "link").unlink()
    (copy / "link").symlink_to("new")
    with RawServer(full, raw_data.WRITABLE) as server:
        run("put", "-r", f"{copy}/", server.url("in"), code=1, text="No space left")
        assert raw_data.REMOVE not in server.seen, server.seen


def case_names_that_a_copy_leaves_alone(tmp):
    """Neither copied nor removed, from a server and to one."""
    for name in ("source/a.o", "source/a.c", "source/build/x", "source/sub/build/y", "source/sub/top",
                 "source/top", "source/sub/kept"):
        (tmp / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp / name).write_bytes(name.encode())
    exclude = ("--exclude", "*.o", "--exclude", "build/", "--exclude", "/top")
    with Server(tmp, "--writable") as server:
        for where, source, copy in (("get", server.url("source/"), tmp / "got"),
                                    ("put", f"{tmp}/source/", server.url("put"))):
            there = tmp / ("got" if where == "get" else "put")
            for name in ("old.o", "build/old", "gone"):
                (there / name).parent.mkdir(parents=True, exist_ok=True)
                (there / name).write_bytes(b"here")
            run("sync", "--delete", *exclude, source, copy)
            now = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
            assert now == {"a.c", "sub/top", "sub/kept", "old.o", "build/old"}, (where, now)


def case_a_connection_that_ends_behind_the_last_file(tmp):
    """It still had to say that a file was closed again, which had grown."""
    content = bytes(range(250)) * 400

    def answer(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, attributes(FOLDER, 0)
        if operation == raw_data.LIST:
            _, address, stag, _ = struct.unpack(">QQII", body[:24])
            one = entry(b"file", attributes(FILE, 10, 5))
            rdma.write(stag, address, one)
            return 0, struct.pack(">QI", 0, len(one))
        if operation == raw_data.OPEN:
            return 0, struct.pack(">QI", 5, 0) + state(FILE, len(content), 5)
        if operation == raw_data.READ:
            _, offset, address, stag, length = struct.unpack(">QQQII", body)
            piece = content[offset:offset + length]
            rdma.write(stag, address, piece)
            return 0, struct.pack(">I", len(piece))
        if operation == raw_data.EXTENTS:
            return errno.EOPNOTSUPP, b""
        assert operation == raw_data.CLOSE, operation
        if server.seen.count(raw_data.CLOSE) == 1:
            server.hang_up(rdma.link)
            return None
        return 0, state(FILE, len(content), 5)
    with RawServer(answer) as server:
        run("get", "-r", server.url(), tmp / "copy")
        assert (tmp / "copy" / "file").read_bytes() == content
        assert server.seen.count(raw_data.CLOSE) == 2 and server.seen.count(raw_data.HELLO) == 2, server.seen


def case_a_server_that_hangs_up_each_time(tmp):
    """It takes connections again and again, and has something for none of them."""
    def answer(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, attributes(FILE, 100_000)
        assert operation == raw_data.OPEN, operation
        server.hang_up(rdma.link)
        return None
    with RawServer(answer) as server:
        run("get", server.url("file"), tmp / "file", code=1, text="the connection to the server is gone")
        assert server.seen.count(raw_data.HELLO) == 10, server.seen


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-refusal-")


if __name__ == "__main__":
    main()
