#!/usr/bin/env python3
"""The data server and its client, as users run them: weft-data serve, get, put, sync, ls, cat.

    data_test.py WEFT_DATA CASE...     without cases: all but the long ones

Of the environment: WEFT_TEST_DATA_CLIENT, WEFT_TEST_FAULTY_FS (programs beside this file) and WEFT_TEST_VERBS_DIR
(Weft's libibverbs). Cases that need one of them are left out without it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import random
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

from raw_data import EDIT, STAT, SYNC, RawClient
from serving import Serving, run_cases

PROGRAM = sys.argv[1]
LIMIT_S = 60


class Server(Serving):
    """A server on a free port of the loopback address; ends with the block."""

    def __init__(self, *arguments, port=0, **more):
        super().__init__(PROGRAM, *arguments, port=port, limit_s=LIMIT_S, **more)


def run(*arguments, code=0, text=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False)
    error = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, {error}"
    if text is not None:
        assert text in error, f"{arguments}: {text!r} is not in {error!r}"
    return done.stdout


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_of(root):
    """Relative name -> what is there."""
    out = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        name = os.fsencode(str(path.relative_to(root)))
        if path.is_symlink():
            out[name] = os.readlink(path)
        elif path.is_dir():
            out[name] = "folder"
        else:
            info = path.stat()
            out[name] = (digest(path), stat.S_IMODE(info.st_mode), info.st_mtime_ns)
    return out


def make_tree(root, files=300, sizes=(0, 1, 511, 4096, 65535, 65536, 65537, 300000)):
    rng = random.Random(7)
    for i in range(files):
        folder = root / f"d{i % 7}" / f"e{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        size = rng.choice(sizes)
        path = folder / f"file {i}"
        path.write_bytes(rng.randbytes(size))
        path.chmod(rng.choice([0o600, 0o644, 0o755]))
        os.utime(path, ns=(0, 1_600_000_000_000_000_000 + i * 1_000_000_007))
    (root / "link").symlink_to("d0/e0/file 0")


def big_file(path, megabytes):
    with open(path, "wb") as out:
        rng = random.Random(3)
        for _ in range(megabytes):
            out.write(rng.randbytes(1 << 20))


def case_files_and_folders(tmp):
    source = tmp / "source"
    source.mkdir()
    make_tree(source)
    with Server(source) as server:
        run("get", "-r", server.url(), tmp / "copy")
        assert tree_of(source) == tree_of(tmp / "copy")
        run("get", "-r", "--verify", server.url("d1"), tmp)
        assert tree_of(source / "d1") == tree_of(tmp / "d1")
        run("get", server.url("d0"), tmp / "x", code=1, text="use -r")
        assert run("cat", server.url("d0/e0/file 0")) == (source / "d0/e0/file 0").read_bytes()
        names = run("ls", server.url()).decode().split()
        assert names == sorted(os.listdir(source)), names
        assert b"lrwxrwxrwx" in run("ls", "-l", server.url())
        run("get", server.url("nothing"), tmp, code=1, text="No such file")
    assert "0 refused" in server.log, server.log


def case_large_file_every_way(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 37)
    with open(source / "big", "ab") as out:
        out.write(b"odd end")
    for extra in ([], ["--direct"]):
        with Server(source, *extra) as server:
            run("get", "--verify", server.url("big"), tmp / "copy")
            assert digest(source / "big") == digest(tmp / "copy")
            assert not list(tmp.glob(".weft-part*"))
            run("get", server.url("big"), "/dev/null")


def case_sixteen_clients(tmp):
    source = tmp / "source"
    source.mkdir()
    big_file(source / "big", 8)
    want = digest(source / "big")
    with Server(source, "--staging", 4 << 20) as server:
        clients = [subprocess.Popen([PROGRAM, "get", server.url("big"), str(tmp / f"copy{i}")]) for i in range(16)]
        assert [c.wait(LIMIT_S) for c in clients] == [0] * 16
        assert all(digest(tmp / f"copy{i}") == want for i in range(16))


def case_put_and_sync(tmp):
    source, served = tmp / "source", tmp / "served"
    source.mkdir()
    served.mkdir()
    make_tree(source, 60)
    big_file(source / "big", 5)
    with Server(served, "--writable") as server:
        run("put", "-r", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        (source / "big").write_bytes(b"smaller now")
        out = subprocess.run([PROGRAM, "sync", "--stats", f"{source}/", server.url("in")], check=True,
                             capture_output=True, text=True, timeout=LIMIT_S)
        assert "1 files," in out.stderr, out.stderr
        assert tree_of(source) == tree_of(served / "in")
        (served / "in" / "d0" / "extra").write_text("new here")
        (source / "big").unlink()
        run("sync", "--delete", server.url("in/"), source)
        assert tree_of(source) == tree_of(served / "in")
        # And the other way: a file, a link, an empty folder. A full one stays, and is named.
        (served / "in" / "d0" / "gone").write_text("gone")
        (served / "in" / "gone").symlink_to("d0")
        (served / "in" / "empty").mkdir()
        run("sync", "--delete", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        # A link that points elsewhere now, and one where a file was.
        for name in ("link", "d0/extra"):
            (source / name).unlink()
            (source / name).symlink_to("d1")
        run("sync", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")
        (served / "in" / "full").mkdir()
        (served / "in" / "full" / "file").write_text("stays")
        run("sync", "--delete", f"{source}/", server.url("in"), code=1, text="in/full: Directory not empty")
        assert (served / "in" / "full" / "file").read_text() == "stays"
    with Server(served) as server:
        run("put", source / "big", server.url("x"), code=1, text="--writable")


class Cutter:
    """In front of a server: forwards what comes, and cuts each connection behind so many octets, but the last."""

    def __init__(self, port, limits):
        self.target, self.limits, self.cuts, self.octets = port, list(limits), 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            its = socket.create_connection(("127.0.0.1", self.target))
            limit = self.limits.pop(0) if self.limits else None
            for a, b in ((ours, its), (its, ours)):
                threading.Thread(target=self.forward, args=(a, b, limit), daemon=True).start()

    def forward(self, a, b, limit):
        done = 0
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
                done += len(data)
                self.octets += len(data)
                if limit is not None and done > limit:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for link in (a, b):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def case_connections_that_break(tmp):
    """In the middle of files, either way, more than once: in the end everything is there, and nothing else."""
    source, served = tmp / "source", tmp / "served"
    source.mkdir()
    served.mkdir()
    make_tree(source, 20)
    big_file(source / "big", 24)
    with Server(served, "--writable") as server:
        way = Cutter(server.port, [1 << 20, 10 << 20, 5000])
        run("put", "-r", "--retry", 60, f"{source}/", f"weft://127.0.0.1:{way.port}/in")
        assert way.cuts == 3, way.cuts
        assert tree_of(source) == tree_of(served / "in")
        way = Cutter(server.port, [1 << 20, 10 << 20])
        run("get", "-r", "--verify", f"weft://127.0.0.1:{way.port}/in", tmp / "back")
        assert way.cuts == 2, way.cuts
        assert tree_of(source) == tree_of(tmp / "back")
        way = Cutter(server.port, [1 << 20] * 100)
        run("put", source / "big", f"weft://127.0.0.1:{way.port}/never", code=1, text="gone")
        assert not (served / "never").exists()


def drafts_in(folder):
    return [folder / name for name in os.listdir(folder) if name.startswith(".weft-")]


def case_put_goes_on_where_it_was(tmp):
    """Within a run, in a later run, past a restart of the server; and only with what is right."""
    served, big = tmp / "served", tmp / "big"
    served.mkdir()
    big_file(big, 64)
    size = big.stat().st_size

    def through(way, name, *options, code=0):
        run("put", *options, big, f"weft://127.0.0.1:{way.port}/{name}", code=code)
        return way.octets

    with Server(served, "--writable") as server:
        moved = through(Cutter(server.port, [40 << 20]), "one")
        assert digest(served / "one") == digest(big)
        assert moved < size + (20 << 20), moved
        assert not drafts_in(served)
        through(Cutter(server.port, [40 << 20] * 9), "two", "--retry", 0, code=1)
        assert not (served / "two").exists()
        assert len(drafts_in(served)) == 1
        assert run("ls", server.url()).decode().split() == ["one"]
    with Server(served, "--writable") as server:
        moved = through(Cutter(server.port, []), "two", "--verify")
        assert digest(served / "two") == digest(big) and moved < 40 << 20, moved
        assert (served / "two").stat().st_mtime_ns == big.stat().st_mtime_ns
        assert not drafts_in(served)
        # What is not the file's is sent again.
        through(Cutter(server.port, [40 << 20] * 9), "three", "--retry", 0, code=1)
        draft, = drafts_in(served)
        with open(draft, "r+b") as file:
            file.seek(9 << 20)
            file.write(bytes([file.read(1)[0] ^ 1]))
        through(Cutter(server.port, []), "three")
        assert digest(served / "three") == digest(big)
        # Another version of the file begins anew; so does a run that wants to.
        through(Cutter(server.port, [40 << 20] * 9), "four", "--retry", 0, code=1)
        moved = through(Cutter(server.port, []), "four", "--no-resume")
        assert moved > size and digest(served / "four") == digest(big)
        for draft in drafts_in(served):
            draft.unlink()
        through(Cutter(server.port, [40 << 20] * 9), "five", "--retry", 0, code=1)
        with open(big, "r+b") as file:
            file.write(b"another version")
        assert through(Cutter(server.port, []), "five") > size
        assert digest(served / "five") == digest(big)
        # Two that send the same file to the same place.
        both = [subprocess.Popen([PROGRAM, "put", str(big), server.url("six")]) for _ in range(2)]
        assert [one.wait(LIMIT_S) for one in both] == [0, 0]
        assert digest(served / "six") == digest(big)


def case_names_cannot_leave_the_folder(tmp):
    served = tmp / "served"
    served.mkdir()
    (tmp / "secret").write_text("secret")
    (served / "out").symlink_to(tmp / "secret")
    (served / "outdir").symlink_to(tmp)
    (served / "inside").write_text("inside")
    (served / "in").symlink_to("inside")
    os.mkfifo(served / "pipe")
    with Server(served, "--writable") as server:
        for name in ("../secret", "outdir/secret", "out", "x/../../secret", "/../secret"):
            out = subprocess.run([PROGRAM, "cat", server.url(name)], capture_output=True, check=False, timeout=LIMIT_S)
            assert out.returncode == 1 and b"secret" not in out.stdout, name
        run("cat", server.url("out"), code=1, text="leads out of the folder")
        run("put", served / "inside", server.url("outdir/evil"), code=1)
        assert not (tmp / "evil").exists()
        assert run("cat", server.url("in")) == b"inside"
        run("cat", server.url("pipe"), code=1, text="Invalid argument")


def case_links_to_served_folders(tmp):
    """What the owner names may be a link; the name that was given is the name."""
    for name in ("a", "b"):
        (tmp / "real" / name).mkdir(parents=True)
        (tmp / "real" / name / "file").write_text(name)
        (tmp / f"link-{name}").symlink_to(tmp / "real" / name)
    (tmp / "real" / "a" / "absolute").symlink_to(tmp / "real" / "a" / "file")
    with Server(tmp / "link-a") as server:
        assert run("cat", server.url("file")) == b"a"
        run("cat", server.url("absolute"), code=1, text="as absolute symbolic links always do")
    with Server(tmp / "link-a", f"{tmp}/link-b/", tmp / "real" / "b" / ".." / "a" / ".") as server:
        assert run("ls", server.url()).split() == [b"a", b"link-a", b"link-b"]
        assert run("cat", server.url("link-b/file")) == b"b"
        assert run("cat", server.url("a/file")) == b"a"


def case_odd_names(tmp):
    served = tmp / "served"
    served.mkdir()
    names = [b"n" * 255, b"\xff\xfe\x01", "Ünïcode ☃".encode(), b" ", b"new\nline", b"-rf", b"a:b"]
    for name in names:
        (pathlib.Path(os.fsdecode(os.path.join(os.fsencode(str(served)), name)))).write_bytes(name)
    with Server(served, "--writable") as server:
        run("get", "-r", server.url(), tmp / "copy")
        assert tree_of(served) == tree_of(tmp / "copy")
        run("put", "-r", tmp / "copy", server.url())
        assert tree_of(served / "copy") == tree_of(tmp / "copy")
        run("cat", server.url("x" * 300), code=1, text="File name too long")
        run("cat", server.url("/".join(["x" * 200] * 25)), code=1, text="File name too long")


def case_tokens(tmp):
    served = tmp / "served"
    served.mkdir()
    (served / "file").write_text("content")
    for name, token in (("right", "0123456789abcdef0123"), ("wrong", "0123456789abcdef0124"), ("short", "0123")):
        (tmp / name).write_text(token + "\n")
        (tmp / name).chmod(0o600)
    with Server(served, "--token-file", tmp / "right") as server:
        assert run("cat", "--token-file", tmp / "right", server.url("file")) == b"content"
        run("cat", server.url("file"), code=1, text="wants a token")
        run("cat", "--token-file", tmp / "wrong", server.url("file"), code=1, text="another token")
        run("cat", "--token-file", tmp / "short", server.url("file"), code=1, text="at least 16")
        (tmp / "right").chmod(0o644)
        run("cat", "--token-file", tmp / "right", server.url("file"), code=1, text="other users")
    assert "1 wrong tokens" in server.log, server.log


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


def plain_client(server, *arguments):
    """Runs data_client, which knows the protocol from docs/data-protocol.md only."""
    environment = {**os.environ, "LD_LIBRARY_PATH": os.environ["WEFT_TEST_VERBS_DIR"]}
    return [os.environ["WEFT_TEST_DATA_CLIENT"], "127.0.0.1", str(server.port), *arguments], environment


def case_a_plain_verbs_client(tmp):
    if "WEFT_TEST_DATA_CLIENT" not in os.environ:
        return print("a_plain_verbs_client: WEFT_TEST_DATA_CLIENT is not set; left out")
    served = tmp / "served"
    served.mkdir()
    big_file(served / "file", 5)
    with open(served / "file", "ab") as out:
        out.write(b"odd end")

    def ask(*arguments):
        command, environment = plain_client(server, *arguments)
        done = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    with Server(served) as server:
        assert ask("read", "file") == (served / "file").read_bytes()
        assert [int(n) for n in ask("uninvited").split()] == [errno.EACCES, errno.EACCES]
        want = [errno.EBADF, errno.EPROTO, errno.EPROTO, errno.EBADF, errno.EPROTO, errno.EBADF, errno.EPROTO]
        assert [int(n) for n in ask("odd").split()] == want
        assert ask("read", "file") == (served / "file").read_bytes()


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
                client.hello()
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


def digests_of_clients(server, count):
    """What so many clients at once get of the file "big"."""
    clients = [subprocess.Popen([PROGRAM, "cat", server.url("big")], stdout=subprocess.PIPE) for _ in range(count)]
    found = [None] * count

    def take(i):
        state = hashlib.sha256()
        while part := clients[i].stdout.read(1 << 20):
            state.update(part)
        if clients[i].wait() == 0:
            found[i] = state.hexdigest()
    threads = [threading.Thread(target=take, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def make_cold(path):
    subprocess.run(["sync", str(path)], check=True)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def report(what, start, server):
    print(f"  {what}: {time.monotonic() - start:.1f} s, server {server.cpu_seconds():.1f} CPU s", flush=True)


def case_two_gigabytes(tmp):
    """Cold and warm, through the page cache and past it, one client and 16; every octet is compared."""
    source = tmp / "source"
    source.mkdir()
    block = random.Random(9).randbytes(1 << 20)
    with open(source / "big", "wb") as out:
        for i in range(2048):
            out.write(i.to_bytes(8, "big") + block[8:])
    want = digest(source / "big")
    for extra in ([], ["--direct"]):
        with Server(source, *extra) as server:
            for state in ("cold", "warm"):
                if state == "cold":
                    make_cold(source / "big")
                start = time.monotonic()
                run("get", server.url("big"), tmp / "copy")
                report(f"one client, {state} {extra}", start, server)
                assert digest(tmp / "copy") == want, (extra, state)
                (tmp / "copy").unlink()
    with Server(source) as server:
        for state in ("cold", "warm"):
            if state == "cold":
                make_cold(source / "big")
            start = time.monotonic()
            assert digests_of_clients(server, 16) == [want] * 16
            report(f"16 clients, {state}", start, server)


def case_ten_thousand_files(tmp):
    source = tmp / "source"
    source.mkdir()
    make_tree(source, 10000, [0, 1, 511, 4096, 4097, 20000])
    want = tree_of(source)
    with Server(source) as server:
        for state in ("cold", "warm"):
            if state == "cold":
                subprocess.run(["sync", "--file-system", str(source)], check=True)
                for path in source.rglob("file *"):
                    with open(path, "rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.monotonic()
            run("get", "-r", server.url(), tmp / state)
            report(f"one client, {state}", start, server)
            assert tree_of(tmp / state) == want
            shutil.rmtree(tmp / state)
        start = time.monotonic()
        clients = [subprocess.Popen([PROGRAM, "get", "-r", server.url(), str(tmp / f"copy{i}")]) for i in range(16)]
        assert [c.wait(600) for c in clients] == [0] * 16
        report("16 clients", start, server)
        for i in range(16):
            assert tree_of(tmp / f"copy{i}") == want
            shutil.rmtree(tmp / f"copy{i}")


# A suite of their own, loopback_data_long: minutes, and gigabytes of the disk.
LONG = {"two_gigabytes", "ten_thousand_files"}
CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    global LIMIT_S
    chosen = sys.argv[2:] or [name for name in CASES if name not in LONG]
    if LONG.intersection(chosen):
        LIMIT_S = 600
    run_cases(CASES, chosen, "weft-data-")


if __name__ == "__main__":
    main()
