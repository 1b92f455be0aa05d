#!/usr/bin/env python3
"""A served folder as a file system: weft-mount, as users run it.

    mount_test.py WEFT_DATA WEFT_MOUNT CASE...     without cases: all
"""

import errno
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from serving import run_cases

DATA, MOUNT = sys.argv[1:3]
LIMIT_S = 60


class Served:
    """A folder, its server, and the folder where it is mounted."""

    def __init__(self, tmp, *options):
        self.source, self.at = tmp / "source", tmp / "at"
        self.source.mkdir(exist_ok=True)
        self.at.mkdir()
        self.options = options
        self.server = self.mounted = None
        self.port = 0

    def serve(self):
        read, write = os.pipe()
        self.server = subprocess.Popen(
            [DATA, "serve", str(self.source), "--listen", "127.0.0.1", "--port", str(self.port), "--announce-fd", str(write)],
            pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as announced:
            self.port = int(announced.readline())

    def __enter__(self):
        self.serve()
        self.mounted = subprocess.Popen([MOUNT, "--foreground", *self.options, f"weft://127.0.0.1:{self.port}/", str(self.at)])
        deadline = time.monotonic() + LIMIT_S
        while not os.path.ismount(self.at):
            assert self.mounted.poll() is None and time.monotonic() < deadline, "not mounted"
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        for process in (self.mounted, self.server):
            process.send_signal(signal.SIGTERM)
        if self.mounted.wait(LIMIT_S) != 0 or os.path.ismount(self.at):
            subprocess.run(["umount", "-l", str(self.at)], check=False)
            raise AssertionError("the file system did not go in good order")
        self.server.wait(LIMIT_S)


def tree_of(root):
    out = {}
    for folder, folders, files in os.walk(os.fsencode(str(root))):
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif name in files:
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            out[os.path.relpath(path, os.fsencode(str(root)))] = (
                info.st_mode, content, content and (info.st_size, info.st_mtime_ns))
    return out


def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def case_a_tree_like_the_original(tmp):
    rng = random.Random(5)
    with Served(tmp) as served:
        for i in range(300):
            folder = served.source / f"d{i % 11}" / f"e{i % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file {i}").write_bytes(rng.randbytes(rng.choice([0, 1, 4095, 4096, 4097, 70000])))
        (served.source / "link").symlink_to("d0/e0/file 0")
        (served.source / ("n" * 255)).write_text("long")
        (pathlib.Path(os.fsdecode(os.fsencode(str(served.source)) + b"/\xff\xfe\n"))).write_text("odd")
        want = tree_of(served.source)
        for entry in want.values():
            assert entry is not None
        assert tree_of(served.at) == want
        assert (served.at / "link").read_bytes() == (served.source / "d0/e0/file 0").read_bytes()
        # What is new or gone at the server is seen within a moment.
        (served.source / "new").write_text("new")
        (served.source / "d0/e0/file 0").unlink()
        assert (served.at / "new").read_text() == "new"
        deadline = time.monotonic() + LIMIT_S
        while (served.at / "d0/e0/file 0").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def case_a_large_file_in_any_order(tmp):
    rng = random.Random(6)
    size = (37 << 20) + 12345
    with Served(tmp, "--read-ahead", "4") as served:
        content = rng.randbytes(size)
        (served.source / "big").write_bytes(content)
        with open(served.at / "big", "rb", buffering=0) as one, open(served.at / "big", "rb", buffering=0) as two:
            # Straight on with one, here and there with the other.
            at = 0
            while at < size:
                step = rng.randrange(1, 3 << 20)
                assert one.read(step) == content[at:at + step], at
                at = one.tell()
                where, much = rng.randrange(size), rng.randrange(1, 200000)
                assert os.pread(two.fileno(), much, where) == content[where:where + much], where
            assert one.read(1) == b""
            assert os.pread(two.fileno(), 10, size + 5) == b""


def case_errors_are_those_of_the_server(tmp):
    with Served(tmp) as served:
        (served.source / "file").write_text("content")
        (tmp / "secret").write_text("secret")
        (served.source / "out").symlink_to("../secret")
        assert error_of(os.stat, served.at / "nothing") == errno.ENOENT
        assert error_of(os.stat, served.at / "file" / "below") == errno.ENOTDIR
        assert error_of(os.listdir, served.at / "file") == errno.ENOTDIR
        assert error_of(os.stat, served.at / ("x" * 256)) == errno.ENAMETOOLONG
        assert error_of(os.unlink, served.at / "file") == errno.EROFS
        assert error_of(os.mkdir, served.at / "new") == errno.EROFS
        assert error_of(os.open, served.at / "file", os.O_WRONLY) == errno.EROFS
        # A link is the client's matter, as in every network file system.
        assert os.readlink(served.at / "out") == "../secret"


def expect_octets(fd, content, at):
    part = os.pread(fd, 4096, at)
    assert part == content[at:at + len(part)], at


def case_the_server_restarts(tmp):
    """An open file goes on on a new connection; without a server reads fail with EIO and do not hang."""
    with Served(tmp) as served:
        content = random.Random(8).randbytes(24 << 20)
        (served.source / "big").write_bytes(content)
        with open(served.at / "big", "rb", buffering=0) as file:
            assert file.read(100000) == content[:100000]
            served.server.kill()
            served.server.wait()
            assert error_of(os.pread, file.fileno(), 4096, 20 << 20) == errno.EIO
            assert error_of(os.stat, served.at / "unknown") == errno.EIO
            served.serve()
            at = 100000
            file.seek(at)
            while at < len(content):
                part = file.read(1 << 20)
                assert part and part == content[at:at + len(part)], at
                at += len(part)
            # Another file in its place is not mixed with what was read before.
            served.server.kill()
            served.server.wait()
            (served.source / "other").write_bytes(b"x" * (24 << 20))
            os.replace(served.source / "other", served.source / "big")
            served.serve()
            got = 0
            deadline = time.monotonic() + 30
            while got == 0 and time.monotonic() < deadline:
                # The kernel may keep a page that is being read ahead: that is the former file's.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                got = error_of(expect_octets, file.fileno(), content, 22 << 20)
            assert got == errno.ESTALE, got


def case_a_file_that_shrinks(tmp):
    with Served(tmp) as served:
        (served.source / "big").write_bytes(b"y" * (16 << 20))
        with open(served.at / "big", "rb", buffering=0) as file:
            assert file.read(10) == b"y" * 10
            os.truncate(served.source / "big", 1 << 20)
            assert set(os.pread(file.fileno(), 4096, 15 << 20)) <= {0}
            (served.source / "small").write_text("still served")
        assert (served.at / "small").read_text() == "still served"


def case_in_the_background(tmp):
    """Without --foreground the command returns once the folder is there."""
    with Served(tmp) as served:
        (served.source / "file").write_text("content")
        (tmp / "second").mkdir()
        subprocess.run([MOUNT, f"weft://127.0.0.1:{served.port}/", str(tmp / "second")], check=True, timeout=LIMIT_S)
        try:
            assert (tmp / "second" / "file").read_text() == "content"
        finally:
            tool = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
            subprocess.run([*tool, str(tmp / "second")], check=True, timeout=LIMIT_S)


def case_wrong_use(tmp):
    (tmp / "at").mkdir()
    for arguments, code in ((["nonsense", tmp / "at"], 2), (["127.0.0.1:", tmp / "at", "--port", "1"], 1)):
        done = subprocess.run([MOUNT, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == code and done.stderr, done
        assert not os.path.ismount(tmp / "at")


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def can_mount():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    return os.geteuid() == 0 or shutil.which("fusermount3") is not None


def main():
    if not can_mount():
        print("left out: no right to use /dev/fuse, or no fusermount3")
        sys.exit(77)
    chosen = sys.argv[3:] or list(CASES)
    run_cases(CASES, chosen, "weft-mount-")


if __name__ == "__main__":
    main()
