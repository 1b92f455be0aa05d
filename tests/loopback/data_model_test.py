#!/usr/bin/env python3
"""Random changes of a tree beside copies of it: what a copy leaves was true at some moment, or it gave an error.

    data_model_test.py WEFT_DATA

One thread writes, replaces, renames, truncates and removes files of a source, makes its folders unreadable, and kills
and restarts the server, or makes its disk read-only (as root, in a mount namespace of its own). It notes each state of each file, and when that held. Meanwhile get, put and sync copy the
source, some of them until they are killed, and somebody reads and writes through a mount (mount_model.py), if
WEFT_TEST_MOUNT is weft-mount. WEFT_SEED repeats a run's choices, WEFT_TEST_MODEL_S sets its length.
"""

import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import LIBC, Server, as_an_owner  # noqa: E402
from mount_model import Mounted, MountUser  # noqa: E402

PROGRAM = sys.argv[1]
LIMIT_S = 60
SEED = int(os.environ.get("WEFT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
RUN_S = float(os.environ.get("WEFT_TEST_MODEL_S", "12"))
COPIES_MIN = 3  # that must end well, or the test shows nothing
FOLDERS = ("", "a/", "a/b/", "c/")
NAMES = [f"{folder}{name}" for folder in FOLDERS for name in "wxyz"]


def state_of(path):
    """What stands for the contents; None: there is no such file."""
    try:
        return hashlib.md5(path.read_bytes()).digest()
    except FileNotFoundError:
        return None


class History:
    """Which state each file had when."""

    def __init__(self, root):
        self.root, self.lock = root, threading.Lock()
        self.states = {name: [(0.0, None)] for name in NAMES}  # since when

    def change(self, action, *names):
        """Carries it out: before it the old states hold, behind it the new ones, meanwhile both."""
        with self.lock:
            before = time.monotonic()
            action()
            for name in names:
                self.states[name].append((before, state_of(self.root / name)))
                self.states[name].append((time.monotonic(), self.states[name][-1][1]))

    def during(self, name, start, end):
        """The states of a file between two moments."""
        with self.lock:
            found = set()
            states = self.states[name]
            for i, (since, state) in enumerate(states):
                # A state holds until the change behind it is done, which is the row after the next.
                until = states[i + 2][0] if i + 2 < len(states) else float("inf")
                if since <= end and until >= start:
                    found.add(state)
            return found


class Mutator(threading.Thread):
    """Changes the source until it is told to end."""

    def __init__(self, rng, history, serving, disk):
        super().__init__(daemon=True)
        self.rng, self.history, self.serving, self.disk = rng, history, serving, disk
        self.ends, self.versions, self.done, self.error = threading.Event(), 0, {}, None

    def content(self):
        self.versions += 1
        size = self.rng.choice([0, 100, 5000, 60000, 70000, 300000, 3000000]) + self.versions
        return (b"%08d" % self.versions * (size // 8 + 1))[:size]

    def new(self, name):
        path, data = self.history.root / name, self.content()

        def action():
            other = path.with_name(".new")
            other.write_bytes(data)
            os.rename(other, path)
        self.history.change(action, name)

    def rewrite(self, name):
        """In place, in two steps; what lies between them is a state as well."""
        path = self.history.root / name
        if not path.exists():
            return self.new(name)
        size = path.stat().st_size
        data = (b"%08d" % self.versions * (size // 8 + 1))[:size]
        self.versions += 1
        half = size // 2
        with open(path, "r+b", buffering=0) as out:
            self.history.change(lambda: out.write(data[:half]), name)
            time.sleep(self.rng.choice([0, 0.001, 0.03]))
            self.history.change(lambda: out.write(data[half:]), name)
        return None

    def truncate(self, name):
        path = self.history.root / name
        if path.exists():
            self.history.change(lambda: os.truncate(path, path.stat().st_size // 2), name)

    def rename(self, name):
        other = self.rng.choice(NAMES)
        if (self.history.root / name).exists() and other != name:
            self.history.change(lambda: os.rename(self.history.root / name, self.history.root / other), name, other)

    def remove(self, name):
        self.history.change(lambda: (self.history.root / name).unlink(missing_ok=True), name)

    def shut(self, name):
        """A folder that cannot be searched, or not be read, for a moment."""
        folder = (self.history.root / name).parent
        folder.chmod(self.rng.choice([0o444, 0o111, 0]))
        time.sleep(self.rng.choice([0.02, 0.1]))
        folder.chmod(0o755)

    def kill(self, _):
        self.serving.restart()

    def freeze(self, _):
        """A disk that is read-only for a moment, as after an error; not while somebody writes to it."""
        if self.disk.remount("ro"):
            self.count("read-only")
            time.sleep(self.rng.choice([0.02, 0.1, 0.4]))
            assert self.disk.remount("rw")

    def count(self, what):
        self.done[what] = self.done.get(what, 0) + 1

    def run(self):
        try:
            while not self.ends.is_set():
                kind = self.rng.choices(
                    (self.new, self.rewrite, self.truncate, self.rename, self.remove, self.shut, self.kill, self.freeze),
                    (6, 6, 2, 3, 3, 6, 1, 3 if self.disk.can_freeze else 0))[0]
                kind(self.rng.choice(NAMES))
                self.count(kind.__name__)
                # Sometimes it stays quiet for as long as a copy takes.
                time.sleep(self.rng.choice([0, 0.01, 0.05, 0.3]))
        except Exception as error:  # pylint: disable=broad-except
            self.error = error


class Disk:
    """A folder that can be made read-only: a mount of its own, which nobody else sees."""

    def __init__(self, root):
        self.root = root
        new_mounts = 0x20000
        self.can_freeze = os.geteuid() == 0 and LIBC.unshare(new_mounts) == 0 and \
            self.mount("--make-rprivate", "/") and self.mount("--bind", root, root)

    @staticmethod
    def mount(*arguments):
        return subprocess.run(["mount", *map(str, arguments)], stderr=subprocess.DEVNULL, check=False).returncode == 0

    def remount(self, how):
        return self.mount("-o", f"remount,bind,{how}", self.root)

    def end(self):
        if self.can_freeze:
            subprocess.run(["umount", "-l", str(self.root)], check=False)


class Restarting:
    """A server that keeps its port."""

    def __init__(self, root):
        self.root = root
        self.server = Server(root, "--writable", "--quiet", preexec_fn=as_an_owner)

    def restart(self):
        self.server.process.kill()
        self.server.process.communicate()
        self.server = Server(self.root, "--writable", "--quiet", port=self.server.port, preexec_fn=as_an_owner)


def copies_of(root):
    return {name: state_of(root / name) for name in NAMES}


class Copies:
    """Runs copies, and compares what they leave with the history."""

    def __init__(self, rng, tmp, history, serving):
        self.rng, self.tmp, self.history, self.serving = rng, tmp, history, serving
        self.good = self.bad = self.killed = 0

    def command(self):
        """Arguments, where the copy is, whether it removes, and the names that it is about."""
        url, local, remote = self.serving.server.url, self.tmp / "copy", self.tmp / "root" / "dest"
        source = self.tmp / "root" / "source"
        one = self.rng.choice(NAMES)
        return self.rng.choice([
            (("get", url(f"source/{one}"), local / one), local, False, [one]),
            (("get", "-r", url("source/"), local), local, False, NAMES),
            (("sync", "--delete", url("source/"), local), local, True, NAMES),
            (("put", source / one, url(f"dest/{one}")), remote, False, [one]),
            (("put", "-r", f"{source}/", url("dest")), remote, False, NAMES),
            (("sync", "--delete", f"{source}/", url("dest")), remote, True, NAMES),
        ])

    def run_one(self):
        arguments, root, removes, names = self.command()
        before, start = copies_of(root), time.monotonic()
        words = [PROGRAM, arguments[0], "--timeout", "10", "--retry", "5", *map(str, arguments[1:])]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              preexec_fn=as_an_owner) as process:
            kills = self.rng.random() < 0.15
            if kills:
                try:
                    process.wait(self.rng.choice([0.01, 0.03, 0.1]))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
            error = process.communicate(timeout=LIMIT_S)[1]
        code, end = process.returncode, time.monotonic()
        self.good += code == 0
        self.bad += code > 0
        self.killed += code < 0
        assert code in (0, 1, -signal.SIGKILL), (code, error)
        assert code != 1 or error, "a failure without a word"
        after = copies_of(root)
        for name in NAMES:
            self.check(name, before[name], after[name], self.history.during(name, start, end),
                       code == 0 and name in names, removes, (arguments, code, error))

    @staticmethod
    def check(name, before, after, true, complete, removes, what):
        if complete:
            # A name that the source did not have at some moment may have been left alone.
            fine = after in true or (after == before and None in true and not removes)
        else:
            fine = after == before or (after is not None and after in true) or \
                (after is None and removes and None in true)
        assert fine, f"{name}: no state of the file, {what}"


def play(tmp, rng, serving, disk):
    source = tmp / "root" / "source"
    for root in (source, tmp / "copy", tmp / "root" / "dest"):
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
    history = History(source)
    mutator = Mutator(random.Random(rng.random()), history, serving, disk)
    for name in NAMES:
        mutator.new(name)
    copies = Copies(rng, tmp, history, serving)
    user = None
    if "WEFT_TEST_MOUNT" in os.environ and os.access("/dev/fuse", os.R_OK | os.W_OK):
        mounted = Mounted(os.environ["WEFT_TEST_MOUNT"], serving.server.url(), tmp / "mounted")
        (tmp / "root" / "mine").mkdir()
        user = MountUser(rng.random(), mounted, tmp / "root", history, NAMES)
        user.start()
    mutator.start()
    end = time.monotonic() + RUN_S
    late = end + LIMIT_S  # on a busy machine few copies end between two changes

    def goes_on():
        now = time.monotonic()
        return now < end or (copies.good < COPIES_MIN and now < late)
    try:
        while goes_on() and (user is None or user.error is None):
            copies.run_one()
            assert mutator.error is None, mutator.error
    finally:
        mutator.ends.set()
        mutator.join(LIMIT_S)
        if user is not None:
            try:
                user.end()
            finally:
                mounted.end()
    if user is not None:
        print(f"through the mount: {user.counts}")
        assert user.counts.get("reads", 0) >= 3, "hardly anything was read"
    # And when all is quiet, everything is as it is at the source.
    for root, arguments in ((tmp / "copy", (serving.server.url("source/"), tmp / "copy")),
                            (tmp / "root" / "dest", (f"{source}/", serving.server.url("dest")))):
        done = subprocess.run([PROGRAM, "sync", "--delete", *map(str, arguments)], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done
        assert copies_of(root) == copies_of(source)
    print(f"{copies.good} copies, {copies.bad} with an error, {copies.killed} killed; changes: {mutator.done}")
    assert copies.good >= COPIES_MIN, "hardly anything was copied"


def main():
    print(f"WEFT_SEED={SEED}", flush=True)
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="weft-model-"))
    (tmp / "root").mkdir()
    disk = Disk(tmp / "root")
    serving = Restarting(tmp / "root")
    try:
        play(tmp, random.Random(SEED), serving, disk)
    finally:
        serving.server.stop()
        disk.end()
        shutil.rmtree(tmp, ignore_errors=True)
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
