"""Carries out the steps of posix_cases.py in a folder, and tells what each gave.

    posix_calls.py FOLDER THERE < cases.json > results.json

FOLDER is a folder of a file system, THERE the same one as another way leads to it: what a file system cannot make is
made there. Cases are lists of steps, each with words; results are 0, a value, or the name of an errno.
"""

import ctypes
import errno
import json
import os
import pathlib
import socket
import stat
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
BAD = 1  # an address that nobody has
OTHER = 65534  # a user and a group, neither of them ours
COARSE = 5  # CLOCK_REALTIME_COARSE: by which file systems count
NAMES = {"mode": lambda s: f"{stat.S_IMODE(s.st_mode):04o}", "links": lambda s: s.st_nlink, "size": lambda s: s.st_size,
         "type": lambda s: stat.S_IFMT(s.st_mode) >> 12, "owner": lambda s: f"{s.st_uid}:{s.st_gid}",
         "atime": lambda s: s.st_atime_ns, "mtime": lambda s: s.st_mtime_ns}
TIMES = {"now": (1 << 30) - 1, "omit": (1 << 30) - 2}
KINDS = {"regular": stat.S_IFREG, "fifo": stat.S_IFIFO, "char": stat.S_IFCHR, "block": stat.S_IFBLK}


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("ns", ctypes.c_long)]


def text(word):
    """A word of a step as the argument of a call."""
    if word == "BAD":
        return ctypes.c_void_p(BAD)
    return b"" if word == "EMPTY" else os.fsencode(word)


def call(name, *arguments):
    result = getattr(LIBC, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def spec(word):
    """now, omit, or nanoseconds."""
    return Timespec(0, TIMES[word]) if word in TIMES else Timespec(int(word) // 10**9, int(word) % 10**9)


class Steps:
    """The steps of one case. Descriptors have names, which live as long as the case."""

    def __init__(self):
        self.files, self.marks = {}, {}

    def end(self):
        for fd in self.files.values():
            os.close(fd)

    def run(self, words):
        return getattr(self, "do_" + words[0])(*words[1:])

    # Calls that take names.

    def do_chmod(self, path, mode):
        call("chmod", text(path), int(mode, 8))

    def do_chown(self, path, user, group):
        call("chown", text(path), int(user), int(group))

    def do_lchown(self, path, user, group):
        call("lchown", text(path), int(user), int(group))

    def do_link(self, old, new):
        call("link", text(old), text(new))

    def do_mkdir(self, path, mode="755"):
        call("mkdir", text(path), int(mode, 8))

    def do_mkfifo(self, path, mode="644"):
        call("mkfifo", text(path), int(mode, 8))

    def do_mknod(self, path, kind="regular", mode="644"):
        call("mknod", text(path), KINDS[kind] | int(mode, 8), ctypes.c_ulong(os.makedev(1, 3)))

    def do_open(self, path, flags, mode="0", name=None):
        fd = call("open", text(path), sum(getattr(os, "O_" + flag) for flag in flags.split(",")), int(mode, 8))
        self.files[name or f"fd{len(self.files)}"] = fd

    def do_rename(self, old, new, flags="0"):
        call("renameat2", -100, text(old), -100, text(new), int(flags))

    def do_rmdir(self, path):
        call("rmdir", text(path))

    def do_symlink(self, target, path):
        call("symlink", text(target), text(path))

    def do_truncate(self, path, size):
        call("truncate", text(path), ctypes.c_long(int(size)))

    def do_unlink(self, path):
        call("unlink", text(path))

    def do_utimens(self, path, atime, mtime, how="follow"):
        times = (Timespec * 2)(spec(atime), spec(mtime))
        call("utimensat", -100, text(path), times, 0x100 if how == "nofollow" else 0)

    def do_access(self, path, mode):
        call("access", text(path), int(mode))

    def do_readlink(self, path):
        room = ctypes.create_string_buffer(5000)
        size = call("readlink", text(path), room, 5000)
        return room.raw[:size].decode()

    def do_readdir(self, path):
        fd = call("open", text(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            return ",".join(sorted(os.listdir(fd)))
        finally:
            os.close(fd)

    # ... descriptors.

    def do_close(self, name):
        os.close(self.files.pop(name))

    def do_fchmod(self, name, mode):
        os.fchmod(self.files[name], int(mode, 8))

    def do_fchown(self, name, user, group):
        os.fchown(self.files[name], int(user), int(group))

    def do_ftruncate(self, name, size):
        call("ftruncate", self.files[name], ctypes.c_long(int(size)))

    def do_futimens(self, name, atime, mtime):
        call("futimens", self.files[name], (Timespec * 2)(spec(atime), spec(mtime)))

    def do_write(self, name, octets):
        return os.write(self.files[name], octets.encode())

    def do_pwrite(self, name, octets, offset):
        return os.pwrite(self.files[name], octets.encode(), int(offset))

    def do_write_bad(self, name):
        call("write", self.files[name], ctypes.c_void_p(BAD), ctypes.c_size_t(8))

    def do_pread(self, name, octets, offset):
        return os.pread(self.files[name], int(octets), int(offset)).decode()

    def do_fsync(self, name):
        os.fsync(self.files[name])

    def do_fallocate(self, name, offset, octets):
        error = LIBC.posix_fallocate64(self.files[name], ctypes.c_long(int(offset)), ctypes.c_long(int(octets)))
        if error:
            raise OSError(error, name)

    # ... and what is there.

    def look(self, found, what):
        return " ".join(str(NAMES[one](found)) for one in what.split(","))

    def do_stat(self, path, what="type"):
        # By the C library: Python would refuse some names itself.
        fd = call("open", text(path), os.O_PATH)
        try:
            return self.look(os.fstat(fd), what)
        finally:
            os.close(fd)

    def do_lstat(self, path, what="type"):
        return self.look(os.lstat(path), what)

    def do_fstat(self, name, what):
        return self.look(os.fstat(self.files[name]), what)

    def do_same(self, one, other):
        return os.lstat(one).st_ino == os.lstat(other).st_ino

    def do_read(self, path):
        return pathlib.Path(path).read_text()

    def do_mark(self, path):
        """Remembers its times; returns when the next change has another one."""
        found = os.lstat(path)
        self.marks[path] = (found.st_mtime_ns, found.st_ctime_ns)
        while time.clock_gettime_ns(COARSE) <= max(self.marks[path]):
            pass

    def do_changed(self, path, since=None):
        """Which of the times of change are others since the mark (of another name)."""
        found, before = os.lstat(path), self.marks[since or path]
        return "".join(letter for letter, a, b in zip("mc", before, (found.st_mtime_ns, found.st_ctime_ns)) if a != b)

    def do_umask(self, mask):
        os.umask(int(mask, 8))

    # What tests need beforehand.

    def do_make(self, kind, path, mode="644"):
        """Something of a kind."""
        if kind == "folder":
            os.mkdir(path)
        elif kind == "symlink":
            os.symlink("nowhere", path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(path)
        else:
            os.mknod(path, KINDS[kind] | 0o600, os.makedev(1, 3))
        if kind != "symlink":
            os.chmod(path, int(mode, 8))

    def do_put(self, path, octets):
        pathlib.Path(path).write_text(octets)


def result_of(steps, words, there):
    """`there` in front: in the other folder. `other`: as somebody else."""
    prefix = words[0] if words[0] in ("there", "other") else ""
    here = os.open(".", os.O_PATH)
    try:
        if prefix == "there":
            os.chdir(there)
        if prefix == "other":
            os.setegid(OTHER)
            os.seteuid(OTHER)
        value = steps.run(words[1:] if prefix else words)
        return 0 if value is None else value
    except OSError as error:
        return errno.errorcode[error.errno]
    except KeyError as name:
        return f"{name} is not there"  # a step before this one failed
    finally:
        if prefix == "other":
            os.seteuid(os.getuid())
            os.setegid(os.getgid())
        os.fchdir(here)
        os.close(here)


def state_of(folder):
    """What is there: for each name what stat says, and what is in it. Without what libfuse keeps for a moment of files
    that were removed while they were open."""
    out = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.name.startswith(".fuse_hidden"):
            continue
        found = os.lstat(path)
        mode, content = stat.S_IFMT(found.st_mode), None
        try:
            if mode == stat.S_IFREG and found.st_size < 1 << 20:
                content = path.read_bytes().decode()
            elif mode == stat.S_IFLNK:
                content = os.readlink(path)
        except OSError as error:
            content = errno.errorcode[error.errno]
        size = None if mode == stat.S_IFDIR else found.st_size
        out[str(path.relative_to(folder))] = (oct(found.st_mode), found.st_nlink, size, found.st_uid, found.st_gid, content)
    return out


def main():
    folder, there = map(pathlib.Path, sys.argv[1:])
    results = []
    if os.geteuid() == 0:
        os.setgroups([])
    for number, case in enumerate(json.load(sys.stdin)):
        os.umask(0o022)
        (folder / str(number)).mkdir()
        os.chdir(folder / str(number))
        steps = Steps()
        found = [result_of(steps, words, there / str(number)) for words in case]
        steps.end()
        results.append({"results": found, "state": state_of(folder / str(number)),
                        "there": state_of(there / str(number))})
        os.chdir(folder)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
