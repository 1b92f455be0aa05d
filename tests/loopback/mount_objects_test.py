#!/usr/bin/env python3
"""What a mounted folder carries besides names and contents, and open files whose connection is lost.

    mount_objects_test.py WEFT_DATA WEFT_MOUNT CASE...     without cases: all
"""

import errno
import fcntl
import os
import stat
import sys
import threading

from data_setting import Cutter
from mount_test import Served, can_mount, error_of
from serving import run_cases


def case_extended_attributes(tmp):
    (tmp / "source").mkdir()
    (tmp / "source/file").touch()
    if error_of(os.setxattr, tmp / "source/file", "user.there", b"\0value"):
        return print("no extended attributes here")
    with Served(tmp, "writable") as served:
        file = served.at / "file"
        assert os.listxattr(file) == ["user.there"] and os.getxattr(file, "user.there") == b"\0value"
        os.setxattr(file, "user.new", b"x" * 1000, os.XATTR_CREATE)
        assert os.getxattr(served.source / "file", "user.new") == b"x" * 1000
        assert error_of(os.setxattr, file, "user.new", b"y", os.XATTR_CREATE) == errno.EEXIST
        assert error_of(os.setxattr, file, "user.none", b"y", os.XATTR_REPLACE) == errno.ENODATA
        os.removexattr(file, "user.there")
        assert os.listxattr(served.source / "file") == ["user.new"]
        assert error_of(os.removexattr, file, "user.there") == errno.ENODATA
        assert error_of(os.getxattr, file, "user.there") == errno.ENODATA
        assert error_of(os.setxattr, file, "trusted.no", b"y") == errno.EOPNOTSUPP


def case_locks_are_refused(tmp):
    with Served(tmp, "writable") as served, open(served.at / "file", "w+b", buffering=0) as file:
        for call in (fcntl.flock, fcntl.lockf):
            assert error_of(call, file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB) == errno.ENOLCK, call


def case_a_program_with_the_rights_of_its_owner(tmp):
    """Who writes to it is whoever has the folder mounted, although the server may be root."""
    with Served(tmp, "writable") as served:
        program = served.source / "program"
        for before, then in ((0o4755, 0o755), (0o2755, 0o755), (0o2745, 0o2745)):
            program.write_text("old")
            program.chmod(before)
            with open(served.at / "program", "r+") as out:
                out.write("new")
            assert stat.S_IMODE(program.stat().st_mode) == then and program.read_text() == "new", oct(before)


class CutServed(Served):
    """Mounted by way of connections of which the first one of the file system breaks behind some octets."""

    def serve(self):
        super().serve()
        self.cutter = Cutter(self.port, [None, 40000])
        self.port = self.cutter.port


def case_an_open_file_outlives_its_connection_and_its_name(tmp):
    with CutServed(tmp, "writable") as served:
        with open(served.at / "file", "w+b", buffering=0) as file:
            os.link(served.source / "file", served.source / "kept")
            (served.source / "file").unlink()
            (served.source / "file").write_bytes(b"another")
            for at in range(0, 1 << 20, 1 << 16):
                assert os.pwrite(file.fileno(), bytes([65 + (at >> 16)]) * (1 << 16), at) == 1 << 16
            os.fsync(file.fileno())
            assert served.cutter.cuts != 0, "no connection was lost"
        assert (served.source / "kept").read_bytes() == b"".join(bytes([65 + i]) * (1 << 16) for i in range(16))
        assert (served.source / "file").read_bytes() == b"another"


def case_sixteen_calls_at_once(tmp):
    """Each waits for the server by itself."""
    with Served(tmp, "writable") as served:
        for number in range(16):
            (served.source / f"file{number}").write_bytes(bytes([number]) * 100000)
        together, wrong = threading.Barrier(16), []

        def work(number):
            with open(served.at / f"file{number}", "rb", buffering=0) as file:
                together.wait(60)
                if os.pread(file.fileno(), 100000, 0) != bytes([number]) * 100000:
                    wrong.append(number)
        threads = [threading.Thread(target=work, args=[number]) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        links = os.popen(f"ss -Htn state established 'dport = :{served.port}'").read().splitlines()
        assert len(links) == 16, links


def case_fsync_after_the_server_was_killed(tmp):
    """What the server was sent in its life before may be lost: fsync says so once to each that has the file open, and to
    who changed a name."""
    with Served(tmp, "writable") as served:
        def restart():
            served.server.kill()
            served.server.wait()
            served.serve()
        with open(served.at / "file", "w+b", buffering=0) as file, open(served.at / "file", "r+b", buffering=0) as other:
            file.write(b"before")
            restart()
            file.write(b"behind")  # opens it again
            assert error_of(os.fsync, file.fileno()) == errno.EIO
            assert error_of(os.fsync, file.fileno()) == 0
            file.write(b"before")
            restart()
            assert error_of(os.fsync, other.fileno()) == errno.EIO
            restart()  # nothing has been written since
            assert error_of(os.fsync, file.fileno()) == errno.EIO
            assert error_of(os.fsync, file.fileno()) == 0
            file.write(b"end")
            assert error_of(os.fsync, other.fileno()) == 0
            # One that could not be asked settles nothing.
            file.write(b"and")
            served.server.kill()
            served.server.wait()
            assert error_of(os.fsync, file.fileno()) == errno.EIO
            served.serve()
            assert error_of(os.fsync, file.fileno()) == errno.EIO
            assert error_of(os.fsync, file.fileno()) == 0
        folder = os.open(served.at, os.O_RDONLY | os.O_DIRECTORY)
        assert error_of(os.fsync, folder) == errno.EIO  # the file was made before all that
        os.rename(served.at / "file", served.at / "renamed")
        assert error_of(os.fsync, folder) == 0
        os.rename(served.at / "renamed", served.at / "again")
        restart()
        assert error_of(os.fsync, folder) == errno.EIO
        assert error_of(os.fsync, folder) == 0
        os.close(folder)
        # Behind its release, which nobody waits for: libfuse forgets it if the mount goes first.
        assert (served.at / "again").read_bytes() != b""


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    if not can_mount():
        print("left out: no right to use /dev/fuse, or no fusermount3")
        sys.exit(77)
    run_cases(CASES, sys.argv[3:] or list(CASES), "weft-mount-objects-")


if __name__ == "__main__":
    main()
