#!/usr/bin/env python3
"""The data server on a disk that takes its time: nobody waits for what another client asked for.

    data_slow_disk_test.py WEFT_DATA CASE...     without cases: all

Of the environment: WEFT_TEST_SLOW_DISK, slow_disk.c as a library.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import LIMIT_S, Server, digest, filled, run, tree_of, wait_for  # noqa: E402
from raw_data import RawClient, memory  # noqa: E402
from serving import run_cases  # noqa: E402

MUCH = 8 << 20


@contextlib.contextmanager
def slow_server(tmp):
    """The server, and a file: while that is not there, the disk does nothing that takes long."""
    go, served = tmp / "go", tmp / "served"
    served.mkdir()
    (served / "other").write_bytes(b"octets")
    slow = {"LD_PRELOAD": os.environ["WEFT_TEST_SLOW_DISK"], "WEFT_TEST_GO": str(go), "WEFT_TEST_SLOW": str(served)}
    go.touch()
    with Server("--writable", served, env={**os.environ, **slow}) as server:
        try:
            yield server, go, served
        finally:
            go.touch()  # or it never ends


def full(path):
    path.write_bytes(bytes(MUCH))
    return path.name.encode()


def waits(server, client, go, operation, body, error=0):
    """A request that is not answered while others are; then it is, and this is what its answer holds."""
    go.unlink()
    tag = client.request(operation, body)
    # Behind it on the same connection, so that the server has begun with it.
    assert client.ask(raw_data.STAT, b"other")[0] == 0
    assert run("cat", server.url("other")) == b"octets"
    go.touch()
    answer = client.recv_message()
    assert answer[:3] == (operation, error, tag), answer
    return answer[3]


def case_requests_that_wait_for_the_disk(tmp):
    sizes = struct.pack(">Q", MUCH)
    with slow_server(tmp) as (server, go, served), RawClient(server.port) as client:
        client.hello()
        new = waits(server, client, go, raw_data.CREATE, struct.pack(">I", 0) + sizes + b"new")
        full(served / "new")
        waits(server, client, go, raw_data.COMMIT, new[:8] + struct.pack(">IIq", 0o600, 0, 0))
        assert (served / "new").stat().st_size == 0
        draft = waits(server, client, go, raw_data.DRAFT, struct.pack(">Q", 7) + sizes + b"draft")
        waits(server, client, go, raw_data.COMMIT, draft[:8] + struct.pack(">IIq", 0o600, 1, 0))
        assert (served / "draft").exists()
        name = full(served / "big")
        big = struct.pack(">Q", client.open("big"))
        waits(server, client, go, raw_data.SUM, big + struct.pack(">QI", 0, MUCH))
        waits(server, client, go, raw_data.SET, struct.pack(">QIIQq", 0, 2, 0, 0, 0) + name)
        full(served / "big")
        edited = waits(server, client, go, raw_data.EDIT, struct.pack(">II", 0o600, 4) + name)
        assert (served / "big").stat().st_size == 0
        full(served / "big")
        waits(server, client, go, raw_data.SET, edited[:8] + struct.pack(">IIQq", 2, 0, 0, 0))
        full(served / "big")
        waits(server, client, go, raw_data.RENAME, struct.pack(">IH", 0, 3) + b"new" + name)
        full(served / "big")
        waits(server, client, go, raw_data.REMOVE, struct.pack(">I", 0) + name)
        (served / "folder").mkdir()
        full(served / "folder" / ".weft-draft-of-somebody")
        waits(server, client, go, raw_data.REMOVE, struct.pack(">I", 1) + b"folder")
        assert sorted(os.listdir(served)) == ["draft", "other"]


def case_the_last_descriptor_of_a_removed_file(tmp):
    """Closing it frees the room, also where its client just went."""
    with slow_server(tmp) as (server, go, served), RawClient(server.port) as client:
        client.hello()
        full(served / "big")
        handles = [client.open("big") for _ in range(2)]
        with RawClient(server.port) as leaves:
            leaves.hello()
            leaves.open("big")
            (served / "big").unlink()
            go.unlink()
        for handle in handles:
            assert client.ask(raw_data.CLOSE, struct.pack(">Q", handle))[0] == 0
        assert run("cat", server.url("other")) == b"octets"

        def held():
            names = []
            for fd in os.scandir(f"/proc/{server.process.pid}/fd"):
                with contextlib.suppress(OSError):
                    names.append(os.readlink(fd.path))
            return any(name.startswith(str(served / "big")) for name in names)
        assert held()
        go.touch()
        wait_for(lambda: not held(), "the file still has its room")


def case_a_server_that_ends_meanwhile(tmp):
    """What was begun is done; nothing of it is left."""
    with slow_server(tmp) as (server, go, served):
        with RawClient(server.port) as client:
            client.hello()
            go.unlink()
            for i in range(8):
                client.request(raw_data.CREATE, struct.pack(">IQ", 0, MUCH) + b"new%d" % i)
            assert client.ask(raw_data.STAT, b"other")[0] == 0
        server.process.send_signal(signal.SIGTERM)
        go.touch()
        server.stop()
        assert server.process.returncode == 0, server.process.returncode
        assert os.listdir(served) == ["other"]


def case_a_server_that_ends_without_its_disk(tmp):
    """Nobody who stops it is kept waiting. The next server goes on."""
    with slow_server(tmp) as (server, go, served):
        (tmp / "file").write_bytes(bytes(MUCH))
        go.unlink()
        put = [sys.argv[1], "put", "--durable", str(tmp / "file"), server.url("file")]
        with subprocess.Popen(put, stderr=subprocess.PIPE, text=True) as writer:
            wait_for((tmp / "go.waits").exists, "nothing is sent")
            with RawClient(server.port) as client:
                client.hello()
                client.request(raw_data.CREATE, struct.pack(">IQ", 0, MUCH) + b"new")
                assert client.ask(raw_data.STAT, b"other")[0] == 0
            assert "without waiting for the disk" in server.stop(), server.log
            assert server.process.returncode == 0, server.process.returncode
            with Server("--writable", served, port=server.port):
                assert writer.wait(LIMIT_S) == 0, writer.stderr.read()
        assert digest(tmp / "file") == digest(served / "file")


def case_files_that_go_while_their_server_is_away(tmp):
    """What it said before, in a list of the folder, is not true for ever."""
    source = filled(tmp / "source", *map(str, range(20)))
    first, *others = os.listdir(source)
    with slow_server(tmp) as (server, go, served):
        run("put", "-r", f"{source}/", server.url("copy"))
        full(source / first)
        go.unlink()
        sync = [sys.argv[1], "sync", f"{source}/", server.url("copy")]
        with subprocess.Popen(sync, stderr=subprocess.PIPE, text=True) as writer:
            wait_for((tmp / "go.waits").exists, "nothing is sent")
            server.process.kill()
            server.process.wait()
            for name in others:
                (served / "copy" / name).unlink()
            with Server("--writable", served, port=server.port):
                assert writer.wait(LIMIT_S) == 0, writer.stderr.read()
        assert tree_of(source) == tree_of(served / "copy")


def case_a_server_that_is_stopped_in_the_middle_of_a_call(tmp):
    """Also where the disk holds up the thread that serves everybody."""
    with slow_server(tmp) as (server, go, served):
        with RawClient(server.port) as client:
            client.hello()
            link = struct.pack(">H", 6) + b"target"
            assert client.ask(raw_data.SYMLINK, link + b"link")[0] == 0
            go.unlink()
            client.request(raw_data.SYMLINK, link + b"another")
            wait_for((tmp / "go.waits").exists, "nobody waits")
            assert "without waiting for the disk" in server.stop(), server.log
            assert server.process.returncode == 0, server.process.returncode
        assert sorted(os.listdir(served)) == ["link", "other"]


def case_many_requests_of_one_client(tmp):
    """They wait for one another, another client's do not wait for them."""
    with slow_server(tmp) as (server, go, served), RawClient(server.port) as many, RawClient(server.port) as one:
        many.hello()
        one.hello()
        go.unlink()
        tags = {many.request(raw_data.CREATE, struct.pack(">IQ", 0, MUCH) + b"new%d" % i)
                for i in range(raw_data.CREDITS - 1)}
        assert many.ask(raw_data.STAT, b"other")[0] == 0
        assert one.ask(raw_data.STAT, b"other")[0] == 0
        go.touch()
        answers = [many.recv_message() for _ in tags]
        assert {answer[2] for answer in answers} == tags and not any(answer[1] for answer in answers), answers
        assert len({answer[3] for answer in answers}) == len(tags), "a handle was given twice"


def case_a_file_of_which_somebody_has_a_lease(tmp):
    """Its reader waits until it is given up; nobody else does."""
    with slow_server(tmp) as (server, _, served):
        (served / "leased").write_bytes(b"leased")
        asked = threading.Event()
        before = signal.signal(signal.SIGIO, lambda *_: asked.set())
        holder = os.open(served / "leased", os.O_RDWR)
        try:
            fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            with subprocess.Popen([sys.argv[1], "get", server.url("leased"), str(tmp / "copy")]) as reader:
                wait_for(asked.is_set, "nobody asks for it")
                assert run("cat", server.url("other")) == b"octets"
                fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                assert reader.wait(LIMIT_S) == 0
        finally:
            os.close(holder)
            signal.signal(signal.SIGIO, before)
        assert digest(tmp / "copy") == digest(served / "leased")


def case_a_file_of_which_somebody_has_a_lease_is_made_shorter(tmp):
    """Who asks for that waits until the lease is given up; nobody else does."""
    with slow_server(tmp) as (server, _, served), RawClient(server.port) as client:
        client.hello()
        (served / "leased").write_bytes(bytes(1024))
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        holder = os.open(served / "leased", os.O_RDONLY)
        try:
            fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            tag = client.request(raw_data.SET, struct.pack(">QIIQq", 0, 2, 0, 0, 0) + b"leased")
            assert client.ask(raw_data.STAT, b"other")[0] == 0
            assert run("cat", server.url("other")) == b"octets"
            # The kernel takes the lease away at some time.
            assert os.fstat(holder).st_size == 1024, "the others had to wait"
        finally:
            os.close(holder)
            signal.signal(signal.SIGIO, before)
        assert client.recv_message()[:3] == (raw_data.SET, 0, tag)
        assert (served / "leased").stat().st_size == 0


def case_a_lease_that_a_further_connection_took(tmp):
    """It is given back to who wants to write, and the copy goes on."""
    with slow_server(tmp) as (server, go, served):
        source = tmp / "source"
        source.mkdir()
        full(source / "file")
        go.unlink()
        put = ("put", "-r", "--strict", "-j", "1", "--queued-files", "2", f"{source}/", server.url("copy"))
        with subprocess.Popen([sys.argv[1], *put]) as copier:
            wait_for((tmp / "go.waits").exists, "nothing is sent")
            with open(source / "file", "r+b"):
                pass
            go.touch()
            assert copier.wait(LIMIT_S) == 0
        assert digest(served / "copy" / "file") == digest(source / "file")


def leased(*paths):
    """Who opens them waits until the descriptors are closed."""
    out = []
    for path in paths:
        out.append(os.open(path, os.O_RDWR))
        fcntl.fcntl(out[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return out


def case_a_tree_is_walked_while_its_files_are_copied(tmp):
    """The walk goes on although no file that it found has been copied: folders that it makes later are there."""
    deep, few = "deep/a/b/c", ("-r", "-j", "1", "--queued-files", "10")
    with slow_server(tmp) as (server, go, served):
        source = tmp / "source"
        (source / deep).mkdir(parents=True)
        for i in range(6):
            (source / f"{i}").write_bytes(bytes([i]) * (5 << 20))
        shutil.copytree(source, served / "source")
        go.unlink()
        with subprocess.Popen([sys.argv[1], "put", *few, f"{source}/", server.url("copy")]) as writer:
            wait_for((served / "copy" / deep).is_dir, "the walk waits for the files")
            assert writer.poll() is None and not list((served / "copy").glob("[0-5]"))
            go.touch()
            assert writer.wait(LIMIT_S) == 0
        assert tree_of(served / "copy") == tree_of(source)
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        held = leased(*(served / "source").glob("[0-5]"))
        with subprocess.Popen([sys.argv[1], "get", *few, server.url("source/"), str(tmp / "copy")]) as reader:
            wait_for((tmp / "copy" / deep).is_dir, "the walk waits for the files")
            assert reader.poll() is None and not list((tmp / "copy").glob("[0-5]"))
            for one in held:
                os.close(one)
            assert reader.wait(LIMIT_S) == 0
        signal.signal(signal.SIGIO, before)
        assert tree_of(tmp / "copy") == tree_of(source)


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}

if __name__ == "__main__":
    if "WEFT_TEST_SLOW_DISK" not in os.environ:
        print("WEFT_TEST_SLOW_DISK is not set")
        sys.exit(77)
    run_cases(CASES, sys.argv[2:] or CASES, "weft-slow-")
