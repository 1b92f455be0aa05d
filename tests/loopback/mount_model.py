"""Reads and writes through a mount beside random changes of the tree that is served, and of the server.

A read gives a state that the file had at some moment, or an error. Of a file that changes while it is read a mount
promises no more than a local file system: then it is not judged. A write is there once fsync and rename have said so;
before that the old file is.
"""

import errno
import hashlib
import os
import random
import subprocess
import threading
import time

LIMIT_S = 60
KNOWN_FOR_S = 1.2  # the kernel may go by what it has known for a second
ERRORS = (errno.EIO, errno.ESTALE, errno.ENOENT, errno.EACCES, errno.EROFS)


class Mounted:
    """What is at `url`, in a folder."""

    def __init__(self, program, url, at):
        self.at = at
        at.mkdir()
        self.process = subprocess.Popen([program, "--foreground", "--timeout", "5", url, str(at)])
        deadline = time.monotonic() + LIMIT_S
        while not os.path.ismount(at):
            assert self.process.poll() is None and time.monotonic() < deadline, "not mounted"
            time.sleep(0.005)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
        finally:
            subprocess.run(["umount", "-l", str(self.at)], check=False, stderr=subprocess.DEVNULL)


class MountUser(threading.Thread):
    """Reads files of the source, and writes files of its own to `mine`, until it is told to end."""

    def __init__(self, seed, mounted, root, history, names):
        super().__init__(daemon=True)
        self.rng, self.at, self.root, self.history, self.names = random.Random(seed), mounted.at, root, history, names
        self.ends, self.error, self.counts = threading.Event(), None, {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def read(self):
        name, start = self.rng.choice(self.names), time.monotonic()
        try:
            found = hashlib.md5((self.at / "source" / name).read_bytes()).digest()
        except OSError as error:
            assert error.errno in ERRORS, (name, error)
            self.count("reads that failed")
            if error.errno != errno.ENOENT:
                return
            found = None
        true = self.history.during(name, start - KNOWN_FOR_S, time.monotonic())
        if len(true) == 1:
            self.count("reads")
            assert found in true, f"{name}: the mount shows what it never was"

    def write(self):
        name, data = f"mine{self.rng.randrange(4)}", self.rng.randbytes(self.rng.choice([0, 10, 5000, 700000]))
        real, between = self.root / "mine" / name, self.at / "mine" / f".{name}"
        before = real.read_bytes() if real.exists() else None
        try:
            with open(between, "wb", buffering=0) as out:
                for at in range(0, len(data), 100000):
                    out.write(data[at:at + 100000])
                os.fsync(out.fileno())
            os.rename(between, self.at / "mine" / name)
        except OSError as error:
            assert error.errno in ERRORS, (name, error)
            self.count("writes that failed")
            now = real.read_bytes() if real.exists() else None
            assert now in (before, data), f"{name} is neither the old nor the new one"
            return
        self.count("writes")
        assert real.read_bytes() == data, f"{name}: what was written is not there"

    def run(self):
        try:
            while not self.ends.is_set():
                self.rng.choices((self.read, self.write), (3, 1))[0]()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def end(self):
        self.ends.set()
        self.join(LIMIT_S)
        assert self.error is None, self.error
        assert not self.is_alive(), "a call of the mount does not return"
