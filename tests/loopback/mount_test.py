#!/usr/bin/env python3
"""A served folder as a file system: weft-mount, as users run it.

    mount_test.py WEFT_DATA WEFT_MOUNT CASE...     without cases: all
"""

import errno
import fcntl
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
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
        self.writable = "writable" in options
        self.options = [option for option in options if option != "writable"]
        self.server = self.mounted = None
        self.port = 0

    def serve(self):
        read, write = os.pipe()
        self.server = subprocess.Popen(
            [DATA, "serve", str(self.source), "--listen", "127.0.0.1", "--port", str(self.port), "--announce-fd", str(write),
             *(["--writable"] if self.writable else [])],
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


def case_a_file_that_is_replaced_while_it_is_open(tmp):
    """The kernel has one page for each place of a name: what the first one reads is not the second
    one's, and each gets its own file to the end."""
    size = 16 << 20
    with Served(tmp) as served:
        (served.source / "big").write_bytes(b"A" * size)
        first = os.open(served.at / "big", os.O_RDONLY)
        assert os.pread(first, 1, 0) == b"A"
        (served.source / "next").write_bytes(b"B" * (size // 2))
        os.replace(served.source / "next", served.source / "big")
        time.sleep(1.1)  # what the kernel knows of a name is good for a second
        second = os.open(served.at / "big", os.O_RDONLY)
        assert os.fstat(second).st_size == size // 2
        assert set(os.pread(first, 4096, 4 << 20)) == {ord("A")}
        assert set(os.pread(second, 4096, 4 << 20)) == {ord("B")}
        time.sleep(1.1)
        for fd, octet, bytes_of_it in (first, "A", size), (second, "B", size // 2):
            at = 0
            while part := os.pread(fd, 1 << 20, at):
                assert set(part) == {ord(octet)}, (octet, at)
                at += len(part)
            assert at == bytes_of_it, (octet, at)
            os.close(fd)


def case_a_file_that_shrinks(tmp):
    with Served(tmp) as served:
        (served.source / "big").write_bytes(b"y" * (16 << 20))
        with open(served.at / "big", "rb", buffering=0) as file:
            assert file.read(10) == b"y" * 10
            os.truncate(served.source / "big", 1 << 20)
            assert set(os.pread(file.fileno(), 4096, 15 << 20)) <= {0}
            (served.source / "small").write_text("still served")
        assert (served.at / "small").read_text() == "still served"


def case_a_file_that_changes_and_keeps_its_size_and_time(tmp):
    """Whoever opens it behind the change reads what is there."""
    with Served(tmp) as served:
        path = served.source / "file"
        for letter in b"abcd":
            path.write_bytes(bytes([letter]) * 100000)
            os.utime(path, ns=(0, 1_600_000_000_000_000_000))
            for _ in range(2):
                time.sleep(0.03)  # the file is no new one: its pages may stay
                assert (served.at / "file").read_bytes() == bytes([letter]) * 100000, chr(letter)


def case_ordinary_programs_write(tmp):
    """cp, rsync, dd, tar, a compiler: what they leave at the server is what they leave on a disk."""
    with Served(tmp, "writable") as served:
        local = tmp / "local"
        rng = random.Random(9)
        for i in range(60):
            folder = local / f"d{i % 5}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file {i}").write_bytes(rng.randbytes(rng.choice([0, 1, 4097, 300000])))
            (folder / f"file {i}").chmod(rng.choice([0o600, 0o644, 0o755]))
        (local / "link").symlink_to("d0/file 0")
        (local / "big").write_bytes(rng.randbytes(9 << 20))
        subprocess.run(["cp", "-a", str(local), str(served.at / "copied")], check=True, timeout=LIMIT_S)
        assert tree_of(served.source / "copied") == tree_of(local)
        assert tree_of(served.at / "copied") == tree_of(local)
        if shutil.which("rsync"):
            (local / "d1" / "more").write_text("more")
            shutil.rmtree(local / "d2")
            subprocess.run(["rsync", "-a", "--delete", f"{local}/", str(served.at / "copied")], check=True, timeout=LIMIT_S)
            assert tree_of(served.source / "copied") == tree_of(local)
        # In the middle of a file that is there, and behind its end.
        for options in (["seek=3"], ["seek=12"], ["seek=1", "oflag=append"]):
            for where in (local, served.at / "copied"):
                subprocess.run(["dd", f"if={local / 'd1' / 'more'}", f"of={where / 'big'}", "bs=1M", "conv=notrunc",
                                "status=none", *options], check=True, timeout=LIMIT_S)
            assert (served.source / "copied" / "big").read_bytes() == (local / "big").read_bytes(), options
        subprocess.run(["tar", "-C", str(served.at / "copied"), "-cf", str(served.at / "all.tar"), "."], check=True, timeout=LIMIT_S)
        (served.at / "unpacked").mkdir()
        subprocess.run(["tar", "-C", str(served.at / "unpacked"), "-xf", str(served.source / "all.tar")], check=True, timeout=LIMIT_S)
        assert {name: entry[1] for name, entry in tree_of(served.source / "unpacked").items()} == {
            name: entry[1] for name, entry in tree_of(served.source / "copied").items()}
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler:
            (served.at / "hello.c").write_text("#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n")
            subprocess.run([compiler, "-o", "hello", "hello.c"], cwd=served.at, check=True, timeout=LIMIT_S)
            assert subprocess.run([served.source / "hello"], capture_output=True, check=True).stdout == b"hello\n"
        shutil.rmtree(served.at / "copied")
        assert not (served.source / "copied").exists()


def case_calls_that_write(tmp):
    with Served(tmp, "writable") as served:
        (served.source / "old").write_bytes(b"0123456789")
        with open(served.at / "old", "r+b", buffering=0) as file:
            # What another open file has read, or read ahead, is not old.
            with open(served.at / "old", "rb", buffering=0) as reader:
                assert reader.read(4) == b"0123"
                file.write(b"ABC")
                file.seek(20)
                file.write(b"end")
                assert os.pread(reader.fileno(), 100, 0) == b"ABC3456789" + bytes(10) + b"end"
            os.fsync(file.fileno())
            assert (served.source / "old").read_bytes() == b"ABC3456789" + bytes(10) + b"end"
            os.ftruncate(file.fileno(), 2)
            assert (served.source / "old").read_bytes() == b"AB"
        os.truncate(served.at / "old", 4)
        assert (served.source / "old").read_bytes() == b"AB\0\0"
        with open(served.at / "old", "ab") as file:
            file.write(b"behind")
        assert (served.at / "old").read_bytes() == b"AB\0\0behind"
        (served.at / "old").write_text("anew")
        assert (served.source / "old").read_text() == "anew"
        os.chmod(served.at / "old", 0o600)
        os.utime(served.at / "old", ns=(0, 1_500_000_000_123_456_789))
        info = (served.source / "old").stat()
        assert info.st_mode & 0o777 == 0o600 and info.st_mtime_ns == 1_500_000_000_123_456_789
        (served.at / "folder").mkdir()
        os.rename(served.at / "old", served.at / "folder" / "new")
        assert os.listdir(served.source / "folder") == ["new"]
        (served.at / "other").write_text("other")
        os.rename(served.at / "other", served.at / "folder" / "new")
        assert (served.source / "folder" / "new").read_text() == "other"
        assert error_of(os.rmdir, served.at / "folder") == errno.ENOTEMPTY
        assert error_of(os.mkdir, served.at / "folder") == errno.EEXIST
        assert error_of(os.open, served.at / "folder" / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY) == errno.EEXIST
        assert error_of(os.rename, served.at / "nothing", served.at / "x") == errno.ENOENT
        os.symlink("folder/new", served.at / "link")
        assert (served.at / "link").read_text() == "other" and os.readlink(served.source / "link") == "folder/new"
        # An open file that is removed is still there for who has it open.
        with open(served.at / "folder" / "new", "r+b", buffering=0) as file:
            os.unlink(served.at / "folder" / "new")
            file.write(b"still")
            assert os.pread(file.fileno(), 10, 0) == b"still"
            # Also when its folder cannot be removed for another reason.
            (served.at / "folder" / "more").write_text("more")
            assert error_of(os.rmdir, served.at / "folder") == errno.ENOTEMPTY
            time.sleep(1.2)  # what the kernel knows of files it asks anew
            assert os.fstat(file.fileno()).st_size == 5
            assert os.pread(file.fileno(), 10, 0) == b"still"
            os.unlink(served.at / "folder" / "more")
            # And keeps nobody from removing its folder.
            os.rmdir(served.at / "folder")
            assert not (served.source / "folder").exists()
            os.pwrite(file.fileno(), b"S", 0)
            assert os.pread(file.fileno(), 10, 0) == b"Still"
        os.unlink(served.at / "link")
        assert os.listdir(served.source) == []


def case_how_full_the_disk_is(tmp):
    with Served(tmp) as served:
        here, there = os.statvfs(served.at), os.statvfs(served.source)
        assert here.f_blocks * here.f_frsize == there.f_blocks * there.f_frsize != 0
        assert here.f_files == there.f_files and here.f_bavail != 0


def case_read_only_on_demand(tmp):
    with Served(tmp, "writable", "--read-only") as served:
        (served.source / "file").write_text("content")
        assert (served.at / "file").read_text() == "content"
        assert error_of(os.unlink, served.at / "file") == errno.EROFS
        assert error_of(os.open, served.at / "file", os.O_WRONLY) == errno.EROFS


def case_a_full_disk_under_writes(tmp):
    (tmp / "source").mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(tmp / "source")], capture_output=True, check=False)
    if mount.returncode != 0:
        print("a_full_disk_under_writes: no right to mount a file system; left out")
        return
    try:
        with Served(tmp, "writable") as served:
            with open(served.at / "big", "wb", buffering=0) as file:
                assert error_of(lambda: [file.write(b"x" * (1 << 20)) for _ in range(8)]) == errno.ENOSPC
            os.unlink(served.at / "big")
            (served.at / "small").write_text("small")
            assert (served.source / "small").read_text() == "small"
    finally:
        subprocess.run(["umount", "-l", str(tmp / "source")], check=True)


def case_the_server_dies_while_it_is_written_to(tmp):
    """EIO and no hang; with the server back, an open file is written on."""
    with Served(tmp, "writable") as served:
        content = random.Random(11).randbytes(8 << 20)
        with open(served.at / "file", "w+b", buffering=0) as file:
            file.write(content)
            folder = os.open(served.at, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(folder)
            killer = threading.Timer(0.05, served.server.kill)
            killer.start()
            deadline = time.monotonic() + LIMIT_S
            got = 0
            while got == 0 and time.monotonic() < deadline:
                got = error_of(os.pwrite, file.fileno(), content, 0)
            killer.join()
            served.server.wait()
            assert got == errno.EIO, got
            assert error_of(os.pwrite, file.fileno(), b"x", 0) == errno.EIO
            assert error_of(os.mkdir, served.at / "folder") == errno.EIO
            assert error_of(os.fsync, folder) == errno.EIO
            assert error_of(os.unlink, served.at / "file") == errno.EIO
            served.serve()
            os.pwrite(file.fileno(), content[::-1], 0)
            os.fsync(folder)
            os.close(folder)
            (served.at / "folder").mkdir()
        assert (served.source / "file").read_bytes() == content[::-1]
        assert (served.source / "folder").is_dir()


def case_another_file_behind_the_same_name_and_number(tmp):
    """A mount goes on with the file that it has open, or not at all."""
    with Served(tmp, "writable") as served:
        with open(served.at / "file", "w+b", buffering=0) as file:
            file.write(b"ours")
            served.server.kill()
            served.server.wait()
            (served.source / "file").unlink()
            # File systems that give a number again give it to one of the next.
            (served.source / "file").write_bytes(b"somebody else's")
            served.serve()
            assert error_of(os.pwrite, file.fileno(), b"ours", 0) == errno.ESTALE
        assert (served.source / "file").read_bytes() == b"somebody else's"


def case_an_open_file_that_was_renamed(tmp):
    """Here, before the server is started anew: it is found under its new name. Elsewhere: it is stale."""
    with Served(tmp, "writable") as served:
        (served.source / "folder").mkdir()
        with open(served.at / "folder" / "file", "w+b", buffering=0) as file:
            file.write(b"before")
            os.rename(served.at / "folder" / "file", served.at / "folder" / "other")
            os.rename(served.at / "folder", served.at / "moved")
            served.server.kill()
            served.server.wait()
            served.serve()
            os.pwrite(file.fileno(), b"behind", 6)
            assert (served.source / "moved" / "other").read_bytes() == b"beforebehind"
            served.server.kill()
            served.server.wait()
            os.rename(served.source / "moved" / "other", served.source / "gone")
            served.serve()
            assert error_of(os.pwrite, file.fileno(), b"x", 0) == errno.ESTALE


def case_folders_with_hidden_drafts(tmp):
    """rm -rf removes a folder with a draft that nobody writes any more."""
    with Served(tmp, "writable") as served:
        (served.source / "folder").mkdir()
        draft = served.source / "folder" / ".weft-draft-0123"
        draft.write_text("half")
        with open(draft, "rb") as used:
            fcntl.flock(used, fcntl.LOCK_EX)
            assert error_of(os.rmdir, served.at / "folder") == errno.ENOTEMPTY and draft.exists()
        (served.source / "folder" / "file").write_text("file")
        assert error_of(os.rmdir, served.at / "folder") == errno.ENOTEMPTY and draft.exists()
        subprocess.run(["rm", "-rf", str(served.at / "folder")], check=True, timeout=LIMIT_S)
        assert not (served.source / "folder").exists()


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
