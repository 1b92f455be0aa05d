#!/usr/bin/env python3
"""Files with holes on their way from a data server.

    data_holes_test.py WEFT_DATA CASE...     without cases: all
"""

import errno
import os
import pathlib
import re
import stat
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import Cutter, Server, digest, drafts_in, run  # noqa: E402
from raw_data import RawServer, attributes, state  # noqa: E402
from serving import run_cases  # noqa: E402

KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40
FILE = stat.S_IFREG | 0o644


def data_of(path):
    """(offset, octets) of each extent."""
    out = []
    with open(path, "rb") as file:
        at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                assert error.errno == errno.ENXIO, error
                return out
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            out.append((at, os.pread(file.fileno(), end - at, at)))
            at = end


def sparse(path, size, *places):
    with open(path, "wb") as out:
        for place, text in places:
            out.seek(place)
            out.write(text)
        out.truncate(size)


def case_a_tebibyte_of_holes(tmp):
    """Only what is in it goes over the network."""
    served = tmp / "served"
    served.mkdir()
    sparse(served / "file", TIB, (0, b"first" * KIB), (TIB // 3, b"middle" * MIB), (TIB - 5, b"last."))
    with Server(served) as server:
        run("get", server.url("file"), tmp / "copy")
        run("get", "-r", server.url(), tmp / "tree")
    for copy in (tmp / "copy", tmp / "tree/file"):
        assert copy.stat().st_size == TIB and copy.stat().st_mtime_ns == (served / "file").stat().st_mtime_ns
        assert data_of(copy) == data_of(served / "file")
    assert "0.013 GB out" in server.log, server.log


def case_connections_that_break(tmp):
    """The holes stay, and nothing is taken for one: within data, between it, and while the server tells where it is."""
    served = tmp / "served"
    served.mkdir()
    sparse(served / "file", 200 * MIB, *((i * 25 * MIB, os.urandom(2 * MIB)) for i in range(7)),
           (200 * MIB - 5, b"last."))
    with Server(served, "--writable") as server:
        for limits in ([9000], [1 * MIB, 3 * MIB], [5 * MIB + 12345, 10 * MIB, 100], [2 * MIB] * 3):
            for command, source, to in (("get", lambda port: f"weft://127.0.0.1:{port}/file", lambda _: tmp / "copy"),
                                        ("put", lambda _: served / "file", lambda port: f"weft://127.0.0.1:{port}/back")):
                cutter = Cutter(server.port, limits)
                run(command, source(cutter.port), to(cutter.port))
                assert cutter.cuts == len(limits), (command, limits, cutter.cuts)
                copy = tmp / "copy" if command == "get" else served / "back"
                assert data_of(copy) == data_of(served / "file") and copy.stat().st_size == 200 * MIB
                copy.unlink()
    assert not drafts_in(tmp) and not drafts_in(served)


def case_many_extents(tmp):
    """More than one answer tells, with small holes and large ones."""
    served = tmp / "served"
    served.mkdir()
    sparse(served / "file", 101 * MIB, *((i * 64 * KIB, b"%d" % i * KIB) for i in range(600)),
           *((40 * MIB + i * 2 * MIB, b"%d" % i * KIB) for i in range(30)))
    sparse(served / "hole", 3 * MIB)
    with Server(served) as server:
        for name in ("file", "hole"):
            run("get", "--verify", server.url(name), tmp / name)
            assert digest(tmp / name) == digest(served / name)
    assert (tmp / "file").stat().st_blocks * 512 < 16 * MIB
    out = float(re.search(r"([0-9.]+) GB out", server.log)[1])
    assert out < 0.05, server.log


class Tells(RawServer):
    """Has a file of 8 MiB without a block, and says of it what the test wants."""

    def __init__(self, error, rest):
        self.extents = error, rest
        self.reads = []
        super().__init__(self.tell)

    def tell(self, rdma, operation, tag, body):
        whole = state(FILE, 8 * MIB)
        if operation == raw_data.STAT:
            return 0, attributes(FILE, 8 * MIB)
        if operation == raw_data.OPEN:
            return 0, struct.pack(">QI", 7, 0) + whole
        if operation == raw_data.EXTENTS:
            return self.extents
        if operation == raw_data.READ:
            _, offset, address, stag, length = struct.unpack(">QQQII", body)
            self.reads.append((offset, length))
            rdma.write(stag, address, b"x" * length)
            return 0, struct.pack(">I", length)
        return 0, whole


def case_a_server_whose_extents_are_none(tmp):
    def told(after, *extents):
        return struct.pack(">QI", after, len(extents)) + b"".join(struct.pack(">QQ", *one) for one in extents)
    for rest, text in ((told(1, (0, 1)), "out of order"), (told(0, (0, 2), (1, 2)), "no reply"),
                       (told(0, (5, 0)), "no reply"), (struct.pack(">QI", 0, 1 << 31), "no reply"), (b"", "no reply"),
                       (told(5), "do not end")):
        with Tells(0, rest) as server:
            run("get", "--retry", 0, server.url("file"), tmp / "copy", code=1, text=text)
            assert not (tmp / "copy").exists()
    # Beyond the end; nothing at all; and a file system that does not tell.
    for error, rest, reads in ((0, told(0, (MIB, 3), (8 * MIB, 5), (9 * MIB, MIB)), [(MIB, 3)]), (0, told(0), []),
                               (errno.EINVAL, b"", [(i * MIB, MIB) for i in range(8)])):
        with Tells(error, rest) as server:
            run("get", server.url("file"), tmp / "copy")
            assert sorted(server.reads) == reads, server.reads
        (tmp / "copy").unlink()


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}

if __name__ == "__main__":
    run_cases(CASES, sys.argv[2:] or CASES, "weft-holes-")
