#!/usr/bin/env python3
"""The data server beside clients that die or stop, and on disks that are full, fail or are slow.

    data_faults_test.py WEFT_DATA CASE...     without cases: all

Of the environment: as data_test.py, WEFT_TEST_FAULTY_FS (a program beside this file), and WEFT_TEST_LOST_RACE
(lost_race.c as a library). Cases that need what is not set are left out.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import (
    LIMIT_S, PROGRAM, Server, big_file, client, digest, filled, plain_client, run, tree_of, wait_for)
from raw_data import CLOSE, EDIT, OPEN, STAT, SYNC, RawClient, memory
from serving import run_cases


def case_server_killed_in_the_middle(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 160)
    server = Server(source)
    client = subprocess.Popen([PROGRAM, "get", "--verify", "--stats", server.url("big"), str(tmp / "copy")],
                              stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        parts = list(tmp.glob(".weft-part-*"))
        if parts and parts[0].stat().st_size > 2 << 20:
            break
        time.sleep(0.001)
    finished_first = (tmp / "copy").exists()
    server.stop(signal.SIGKILL)
    assert finished_first or not (tmp / "copy").exists(), "half a file under its final name"
    with Server(source, port=server.port):
        error = client.communicate(timeout=LIMIT_S)[1]
        assert client.returncode == 0, error
    assert digest(source / "big") == digest(tmp / "copy")
    # A later run goes on too: a part that is all but whole costs only its rest.
    with Server(source) as server:
        client = subprocess.Popen([PROGRAM, "get", server.url("big"), str(tmp / "second")])
        while not list(tmp.glob(".weft-part-*")) and client.poll() is None:
            time.sleep(0.001)
        client.kill()
        client.wait()
        run("get", "--verify", server.url("big"), tmp / "second")
        assert digest(source / "big") == digest(tmp / "second")


def case_file_shrinks_while_read(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 64)
    with Server(source) as server:
        client = subprocess.Popen([PROGRAM, "cat", server.url("big")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        client.stdout.read(1 << 20)  # the pipe is full: the server still has most of it to read
        os.truncate(source / "big", 2 << 20)
        _, error = client.communicate(timeout=LIMIT_S)
        assert client.returncode == 1 and b"became shorter" in error, error
        (source / "small").write_text("still served")
        assert run("cat", server.url("small")) == b"still served"


def case_full_disk_under_put(tmp):
    served = tmp / "served"
    served.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(served)], capture_output=True,
                           check=False)
    if mount.returncode != 0:
        print("full_disk_under_put: no right to mount a file system; left out")
        return
    try:
        big_file(tmp / "big", 8)
        (tmp / "small").write_text("small")
        with Server(served, "--writable") as server:
            run("put", tmp / "big", server.url("big"), code=1, text="No space left")
            assert os.listdir(served) == [], "half of a file"
            run("put", tmp / "small", server.url("small"))
            assert (served / "small").read_text() == "small"
    finally:
        subprocess.run(["umount", "-l", str(served)], check=True)


def case_clients_that_die(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 16)
    with Server(source, "--staging", 2 << 20) as server:
        for _ in range(12):
            client = subprocess.Popen([PROGRAM, "cat", server.url("big")], stdout=subprocess.PIPE)
            client.stdout.read(100000)
            client.kill()
            client.wait()
            client.stdout.close()
        run("get", server.url("big"), tmp / "copy")
        assert digest(source / "big") == digest(tmp / "copy")
        fds = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        deadline = time.monotonic() + LIMIT_S
        while fds > 40 and time.monotonic() < deadline:
            fds = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        assert fds <= 40, f"{fds} descriptors are still open"


def case_many_that_connect_and_stop(tmp):
    """TCP connections that say nothing, or nonsense, are no clients and stop nobody."""
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_text("content")
    with Server(served) as server:
        sockets = []
        for i in range(1000):
            one = socket.create_connection(("127.0.0.1", server.port))
            if i % 2:
                one.sendall(os.urandom(64))
            sockets.append(one)
        done = threading.Event()

        def ask():
            run("cat", server.url("file"))
            done.set()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(LIMIT_S)
        assert done.is_set()
        for one in sockets:
            one.close()
        assert run("cat", server.url("file")) == b"content"


def case_too_many_clients(tmp):
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 16)
    with Server(served, "--max-clients", 1) as server:
        first = subprocess.Popen([PROGRAM, "cat", server.url("big")], stdout=subprocess.PIPE)
        first.stdout.read(1000)
        run("cat", server.url("big"), code=1, text="too many clients")
        first.stdout.read()
        assert first.wait(LIMIT_S) == 0


def case_clients_that_connect_and_stop(tmp):
    """RDMA connections that stand still, and then die all at once, cost the others nothing."""
    if "WEFT_TEST_DATA_CLIENT" not in os.environ:
        return print("clients_that_connect_and_stop: WEFT_TEST_DATA_CLIENT is not set; left out")
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_text("content")
    count = int(os.environ.get("WEFT_TEST_IDLE_CLIENTS", "200"))
    with Server(served, "--max-clients", count + 1) as server:
        before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        command, environment = plain_client(server, "idle", str(count))
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as idle:
            assert idle.stdout.readline() == b"connected\n"
            assert run("cat", server.url("file")) == b"content"
            idle.kill()
        deadline = time.monotonic() + LIMIT_S
        while len(os.listdir(f"/proc/{server.process.pid}/fd")) > before + 4:
            assert time.monotonic() < deadline, "descriptors of clients that are gone"
            time.sleep(0.02)
        assert run("cat", server.url("file")) == b"content"


@contextlib.contextmanager
def faulty_disk(folder, *arguments):
    """faulty_fs on `folder`; gives False where that can't be."""
    if "WEFT_TEST_FAULTY_FS" not in os.environ or not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0:
        print("needs WEFT_TEST_FAULTY_FS and the right to mount; left out")
        yield False
        return
    folder.mkdir()
    with subprocess.Popen([os.environ["WEFT_TEST_FAULTY_FS"], str(folder), *map(str, arguments)]) as disk:
        try:
            deadline = time.monotonic() + LIMIT_S
            while not os.path.ismount(folder):
                assert disk.poll() is None and time.monotonic() < deadline
                time.sleep(0.005)
            yield True
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def case_a_disk_that_fails(tmp):
    """The errno of the failing read reaches the client; what came before it is no file."""
    served = tmp / "served"
    with faulty_disk(served) as there:
        if not there:
            return
        with Server(served) as server:
            run("get", server.url("file"), tmp / "copy", code=1, text="Input/output error")
            assert not (tmp / "copy").exists()
            run("cat", server.url("file"), code=1, text="Input/output error")
            assert run("ls", server.url()) == b"file\n"
            # A lease there knows nothing of other machines.
            run("get", "--strict", server.url("file"), tmp / "copy", code=1, text="has no leases")
        assert "errors" in server.log, server.log


def case_a_slow_fsync_delays_nobody_else(tmp):
    """SYNC waits for the disk, the server does not; its error comes with the reply."""
    go = tmp / "go"
    other = tmp / "other"
    other.mkdir()
    (other / "file").write_bytes(b"octets")
    with faulty_disk(tmp / "slow", go) as there:
        if not there:
            return
        with Server("--writable", tmp / "slow", other) as server, RawClient(server.port) as client:
            try:
                verifier = client.hello()[1][16:24]
                error, quick = client.ask(EDIT, struct.pack(">II", 0o644, 0) + b"other/file")
                assert error == 0 and client.ask(SYNC, quick[:8]) == (0, verifier)
                error, rest = client.ask(EDIT, struct.pack(">II", 0o644, 0) + b"slow/file")
                assert error == 0, error
                tag = client.request(SYNC, rest[:8])
                # A reply behind the request shows that the server has begun with it.
                assert client.ask(STAT, b"other/file")[0] == 0
                assert run("cat", server.url("other/file")) == b"octets"
            finally:
                go.touch()
            operation, error, answered, _ = client.recv_message()
            assert (operation, error, answered) == (SYNC, errno.EDQUOT, tag)
            # What anybody had written before may be lost, and later flushes would not say so.
            error, now = client.ask(SYNC, quick[:8])
            assert error == 0 and now not in (verifier, bytes(8)), now


def case_a_failed_fsync_of_a_client_that_is_gone(tmp):
    """Nobody takes its error: the others hear of it by the verifier."""
    go = tmp / "go"
    with faulty_disk(tmp / "slow", go) as there:
        if not there:
            return
        filled(tmp / "other", "file")
        with Server("--writable", tmp / "slow", tmp / "other") as server, RawClient(server.port) as stays:
            verifier = stays.hello()[1][16:24]
            _, quick = stays.ask(EDIT, struct.pack(">II", 0o644, 0) + b"other/file")
            with RawClient(server.port) as leaves:
                leaves.hello()
                error, rest = leaves.ask(EDIT, struct.pack(">II", 0o644, 0) + b"slow/file")
                assert error == 0, error
                leaves.request(SYNC, rest[:8])
                assert leaves.ask(STAT, b"other/file")[0] == 0
            try:
                wait_for(lambda: b"clients now: 1 of" in run("serve", "--status", "--port", server.port), "not gone")
            finally:
                go.touch()
            wait_for(lambda: stays.ask(SYNC, quick[:8]) != (0, verifier), "the verifier stays")


def case_a_disk_whose_times_count_seconds(tmp):
    """What has a level has another token after each change."""
    served = tmp / "served"
    served.mkdir()
    with open(tmp / "disk", "wb") as disk:
        disk.truncate(8 << 20)
    made = subprocess.run(["mke2fs", "-q", "-t", "ext4", "-I", "128", str(tmp / "disk")], capture_output=True,
                          check=False) if shutil.which("mke2fs") else None
    if made is None or made.returncode != 0 or subprocess.run(
            ["mount", "-o", "loop", str(tmp / "disk"), str(served)], capture_output=True, check=False).returncode != 0:
        return print("a_disk_whose_times_count_seconds: needs mke2fs and the right to mount; left out")
    try:
        with Server(served) as server, RawClient(server.port) as client:
            client.hello()

            def state():
                error, rest = client.ask(OPEN, memory(0) + b"file")
                assert error == 0, error
                assert client.ask(CLOSE, rest[:8])[0] == 0
                return rest[12:92], struct.unpack(">I", rest[92:96])[0]
            for i in range(20):
                (served / "file").write_bytes(b"%08d" % i)
                time.sleep(0.03)  # longer than a tick of the clock
                before, level = state()
                (served / "file").write_bytes(b"%08d" % -i)
                assert level == 0 or state()[0] != before, i
    finally:
        subprocess.run(["umount", "-l", str(served)], check=True)


def case_old_drafts_go(tmp):
    """What ended servers left goes after a week, unless somebody has it in use."""
    old = time.time() - 8 * 24 * 3600

    def draft(name, when):
        path = tmp / "served" / f".weft-draft-{name}"
        path.write_bytes(b"octets")
        os.utime(path, (when, when))
        return path

    (tmp / "served").mkdir()
    kept = [draft("young", time.time() - 6 * 24 * 3600), draft("used", old)]
    gone = draft("old", old)
    (tmp / "served" / ".weft-draft-folder").mkdir()
    os.utime(tmp / "served" / ".weft-draft-folder", (old, old))
    with Server(tmp / "served") as server:
        run("ls", server.url())
    assert gone.exists()  # read-only
    with open(kept[1], "rb") as used, Server("--writable", tmp / "served") as server:
        fcntl.flock(used, fcntl.LOCK_EX)
        assert run("ls", server.url()) == b""
        assert not gone.exists()
        assert all(path.exists() for path in kept)
        fcntl.flock(used, fcntl.LOCK_UN)
        run("ls", server.url())
    assert [path.exists() for path in kept] == [True, False]
    assert (tmp / "served" / ".weft-draft-folder").is_dir()


def case_a_client_that_stands_still(tmp):
    """One client that takes nothing does not keep others from the staging memory, and is dropped."""
    source = tmp / "source"
    source.mkdir()
    big_file(source / "small", 2)
    with open(source / "big", "wb") as out:
        out.truncate(1 << 30)  # long enough to be stopped in the middle
        for i in range(1024):
            out.seek(i << 20)
            out.write(b"x")
    # What the kernel takes on the way must be less than what the client asks for at once.
    os.environ["WEFT_SOCKET_BUFFER"] = "65536"
    with Server(source, "--staging", 1 << 20, "--stall", 1) as server:
        first = subprocess.Popen([PROGRAM, "get", "--retry", "0", server.url("big"), str(tmp / "first")],
                                 stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT_S
        while not any(part.stat().st_size for part in tmp.glob(".weft-part-*")):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.0005)
        first.send_signal(signal.SIGSTOP)

        def descriptors():
            return len(os.listdir(f"/proc/{server.process.pid}/fd"))
        with_it = descriptors()  # and without the second, whose descriptors go a little after it
        run("get", server.url("small"), tmp / "second")
        assert digest(tmp / "second") == digest(source / "small")
        while descriptors() >= with_it:
            assert time.monotonic() < deadline, "not dropped"
            time.sleep(0.02)
        first.kill()
        first.wait()
    del os.environ["WEFT_SOCKET_BUFFER"]
    assert " 1 stalled" in server.log, server.log


def case_files_that_hold_more_than_their_size_says(tmp):
    """Those of /proc have the size 0. A copy would be an empty file."""
    text, proc = "holds more octets than its size says", pathlib.Path("/proc/sys/kernel/random")
    if not proc.is_dir():
        print("needs /proc/sys/kernel/random; left out")
        return
    for extra in ([], ["--direct"]):
        with Server(proc, *extra) as server:
            run("get", server.url("uuid"), tmp / "copy", code=1, text=text)
            run("get", "--strict", server.url("uuid"), tmp / "copy", code=1)
            assert run("cat", server.url("uuid"), code=1, text=text) == b""
            run("get", "-r", server.url(), tmp / "tree", code=1, text=f"uuid: {text}")
            assert not (tmp / "copy").exists() and not os.listdir(tmp / "tree")
    (tmp / "served").mkdir()
    with Server("--writable", tmp / "served") as server:
        run("put", "/proc/version", server.url("version"), code=1, text=text)
        run("put", "-r", proc, server.url(), code=1, text=f"uuid: {text}")
        assert os.listdir(tmp / "served") == ["random"] and not os.listdir(tmp / "served" / "random")
        (tmp / "empty").touch()
        run("put", tmp / "empty", server.url("empty"))
        run("get", server.url("empty"), tmp / "again")
        assert (tmp / "again").read_bytes() == b""


def case_a_server_that_dies_when_it_has_made_a_folder(tmp):
    """The client asks for it again, and it gets its permissions; a folder of somebody else's keeps them."""
    if "WEFT_TEST_LOST_RACE" not in os.environ:
        print("needs WEFT_TEST_LOST_RACE; left out")
        return
    source, served = filled(tmp / "source", "file"), tmp / "served"
    source.chmod(0o500)
    served.mkdir()
    env = {**os.environ, "LD_PRELOAD": os.environ["WEFT_TEST_LOST_RACE"], "WEFT_TEST_DIES": "1"}
    for name in ("made", "taken"):
        with Server("--writable", served, env=env) as server:
            with subprocess.Popen([PROGRAM, "put", "-r", f"{source}/", server.url(name)]) as copy:
                server.process.wait(LIMIT_S)
                if name == "taken":
                    filled(served, "taken/other")
                    (served / name).chmod(0o711)
                with Server("--writable", served, port=server.port):
                    assert copy.wait(LIMIT_S) == 0
    assert stat.S_IMODE((served / "made").stat().st_mode) == 0o500
    assert stat.S_IMODE((served / "taken").stat().st_mode) == 0o711


def case_copies_that_make_the_same_names(tmp):
    """A folder or link that another copy made a moment earlier is no failure."""
    if "WEFT_TEST_LOST_RACE" not in os.environ:
        print("needs WEFT_TEST_LOST_RACE; left out")
        return
    source = filled(tmp / "source", "a/b/file", "c/file")
    (source / "a" / "link").symlink_to("b/file")
    race = {**os.environ, "LD_PRELOAD": os.environ["WEFT_TEST_LOST_RACE"]}
    other = {**race, "WEFT_TEST_LEADS_TO": "elsewhere"}
    with Server(source) as server:
        for number, env in enumerate((race, other)):
            for command in (["get", "-r"], ["get", "-a"], ["sync"]):
                copy = tmp / f"copy{command[-1]}{number}"
                done = client(*command, server.url(), copy, env=env)
                assert done.returncode == 0, done
                assert tree_of(copy) == tree_of(source), command
        # What is no link is not replaced.
        filled(tmp / "kept", "a/link")
        run("get", "-r", server.url(), tmp / "kept", code=1, text="a/link: File exists")
        assert (tmp / "kept" / "a" / "link").read_text() == "a/link"


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}

if __name__ == "__main__":
    run_cases(CASES, sys.argv[2:] or CASES, "weft-data-")
