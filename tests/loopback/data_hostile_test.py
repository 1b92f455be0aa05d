#!/usr/bin/env python3
"""The data server beside clients that break its rules, and its clients beside servers that do.

    data_hostile_test.py WEFT_DATA CASE...     without cases: all

Of the environment: WEFT_TEST_MOUNT, a program, and WEFT_TEST_SWAP, swap_after_stat.c as a library. Cases that need
one of them are left out without it.
"""

import ctypes
import errno
import os
import pathlib
import pty
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from raw_data import RawClient, RawServer, attributes, entry, memory, state  # noqa: E402
from serving import Serving, run_cases  # noqa: E402

PROGRAM = sys.argv[1]
MOUNT = os.environ.get("WEFT_TEST_MOUNT")
SWAP = os.environ.get("WEFT_TEST_SWAP")
LIMIT_S = 60
MIB = 1 << 20
SMALL_BUFFER = 16384


class Server(Serving):
    """What the kernel takes on the way out is little, so a client that takes nothing is felt at once."""

    def __init__(self, *arguments):
        super().__init__(PROGRAM, *arguments, limit_s=LIMIT_S, env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"})

    def client(self, hello=True):
        client = RawClient(self.port, SMALL_BUFFER)
        if hello:
            assert client.hello()[0] == 0
        return client


def run(*arguments, code=0, text=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False)
    error = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, {error}"
    if text is not None:
        assert text in error, f"{arguments}: {text!r} is not in {error!r}"
    return done


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def served_folder(tmp, size=64 * MIB):
    served = tmp / "served"
    served.mkdir()
    with open(served / "big", "wb") as out:
        out.truncate(size)
    (served / "small").write_text("content")
    return served


def read_request(handle, length, offset=0):
    return struct.pack(">QQ", handle, offset) + memory(length)


def serves_others(server):
    return run("cat", server.url("small")).stdout == b"content"


def send_until_dropped(client, requests):
    """True if the server ended the connection while these were sent."""
    try:
        for operation, body in requests:
            client.request(operation, body)
    except ConnectionError:
        return True
    return False


def flood(operation, body):
    """Requests without a pause. Their number says nothing: a server that has a Terminate to send, and
    a client that does not take it, reads and drops what comes for as long as close_timeout."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        yield operation, body


def case_requests_are_no_sign_that_a_client_takes_data(tmp):
    """It asks and asks, but takes none of the data that it holds staging memory for."""
    with Server(served_folder(tmp), "--staging", MIB, "--stall", 1) as server, server.client() as client:
        handle = client.open("big")
        client.request(raw_data.READ, read_request(handle, 16 * MIB))

        def requests():
            for _ in range(60):  # fewer than there are buffers for replies
                yield raw_data.STAT, b"small"
                time.sleep(0.2)  # the client's manner, not a wait for something
        assert send_until_dropped(client, requests()), "never dropped"
        assert serves_others(server)
    assert " 1 stalled" in server.log, server.log


def case_more_requests_than_credits(tmp):
    with Server(served_folder(tmp)) as server, server.client() as client:
        handle = client.open("big")
        assert send_until_dropped(client, flood(raw_data.READ, read_request(handle, 16 * MIB))), "never dropped"
        assert serves_others(server)


def case_lists_beside_reads(tmp):
    """As many requests as there are credits, of all kinds that hold memory; the client takes nothing
    until all are sent. Each is answered."""
    served = served_folder(tmp)
    for i in range(100):
        (served / f"a name that takes some room {i}").touch()
    with Server(served) as server, server.client() as client:
        handle = client.open("big")
        wanted = {}
        for i in range(raw_data.CREDITS):
            if i % 2:
                wanted[client.request(raw_data.LIST, struct.pack(">Q", 0) + memory(128 << 10))] = raw_data.LIST
            else:
                wanted[client.request(raw_data.READ, read_request(handle, MIB, i * MIB))] = raw_data.READ
        while wanted:
            operation, error, tag, _ = client.recv_message()
            assert wanted.pop(tag) == operation
            assert error == 0 or (operation == raw_data.LIST and error == errno.EAGAIN), (operation, error)
        # And more lists than that, from a client that takes none: it goes, if anybody does.
        one = struct.pack(">Q", 0) + memory(128 << 10)
        send_until_dropped(client, ((raw_data.LIST, one) for _ in range(3000)))
        assert serves_others(server)


def case_guessing_a_token(tmp):
    """A wrong proof is answered late, once, and ends the connection."""
    served = served_folder(tmp)
    (tmp / "token").write_text("0123456789abcdef0123")
    (tmp / "token").chmod(0o600)
    with Server(served, "--token-file", tmp / "token") as server:
        with server.client() as client:
            before = time.monotonic()
            for i in range(3):
                client.request(raw_data.PROVE, bytes([i]) * 32)
            operation, error, tag, _ = client.recv_message()
            assert (operation, error, tag) == (raw_data.PROVE, errno.EACCES, 2)
            assert time.monotonic() - before > 0.9, "guessing is fast"
            assert client.ended()
        with server.client() as client:
            assert client.ask(raw_data.STAT, b"small")[0] == errno.EACCES
    assert "1 wrong tokens" in server.log, server.log


def case_names_that_steer_a_terminal(tmp):
    served = served_folder(tmp)
    (served / "\x1b[31mred\nline\u009b2J").write_text("x")
    with Server(served) as server:
        error = run("cat", server.url("\x1b]0;title\x07"), code=1, text="No such file").stderr
        assert b"\x1b" not in error and b"\x07" not in error, error
        assert "\x1b[31mred\nline\u009b2J".encode() in run("ls", server.url()).stdout
        ours, its = pty.openpty()
        subprocess.run([PROGRAM, "ls", "-l", server.url()], stdout=its, check=True, timeout=LIMIT_S)
        os.close(its)
        shown = b""
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # all is read, and the other end is closed
            pass
        os.close(ours)
        assert b"?[31mred?line??2J" in shown and b"\x1b" not in shown, shown


class Swapping:
    """Exchanges each pair of names all the time, until the block ends."""

    EXCHANGE, HERE = 2, -100

    def __init__(self, pairs):
        self.pairs = [(os.fsencode(a), os.fsencode(b)) for a, b in pairs]
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.swap, daemon=True)

    def swap(self):
        while not self.ends.is_set():
            for one, other in self.pairs:
                if self.libc.renameat2(self.HERE, one, self.HERE, other, self.EXCHANGE) != 0:
                    return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        still = self.thread.is_alive()
        self.ends.set()
        self.thread.join(LIMIT_S)
        assert still, "this file system does not exchange names"


def case_links_bounded_by_the_client(tmp):
    """Behind the octets that a request names for it no link is followed, whatever the request."""
    served = tmp / "served"
    (served / "real" / "folder").mkdir(parents=True)
    (served / "real" / "folder" / "file").write_text("content")
    (served / "real" / "link").symlink_to("folder")
    (served / "current").symlink_to("real")
    with Server(served, "--writable") as server, server.client() as client:
        def ask(operation, fields, path, links):
            client.tag += 1
            client.send(struct.pack(">BBHIQ", operation, 1, links, 0, client.tag) + fields + path)
            return client.recv_message()[1]

        requests = ((raw_data.STAT, b"", b"/file"), (raw_data.OPEN, memory(0), b"/file"),
                    (raw_data.LIST, bytes(8) + memory(4096), b""), (raw_data.CREATE, bytes(12), b"/new"),
                    (raw_data.MKDIR, bytes(4), b"/new"), (raw_data.SYMLINK, b"\0\1x", b"/new"),
                    (raw_data.REMOVE, bytes(4), b"/file"))
        for operation, fields, last in requests:
            for links in (0, 7, 8):
                error = ask(operation, fields, b"current/link" + last, links)
                assert error == errno.ELOOP, (operation, links, error)
            assert ask(operation, fields, b"current/link" + last, 3) in (errno.EINVAL, errno.ENOTDIR), operation
            assert ask(operation, fields, b"real/link/../.." + last, 0) == errno.ELOOP, operation
        assert ask(raw_data.STAT, b"", b"current/link", 7) == 0  # a link as it is
        assert ask(raw_data.STAT, b"", b"current/link/", 7) == errno.ELOOP
        assert ask(raw_data.STAT, b"", b"real/folder/file", 0) == 0
        assert ask(raw_data.STAT, b"", b"current", 8) == errno.EPROTO  # longer than the path
        assert (served / "real" / "folder" / "file").read_text() == "content"
        assert os.listdir(served / "real" / "folder") == ["file"]
        for operation, fields, last in requests:
            assert ask(operation, fields, b"current/link" + last, 12) in (0, errno.EEXIST), operation


def case_a_folder_that_becomes_a_link_during_sync(tmp):
    """--delete removes nothing of the folder that the link leads to."""
    source, served = tmp / "source", tmp / "served"
    for name in (source / "a", served / "in" / "a", served / "precious"):
        name.mkdir(parents=True)
    (source / "a" / "kept").write_text("kept")
    (served / "link").symlink_to("../precious")
    (served / "precious" / "file").write_text("precious")
    with Server(served, "--writable") as server, Swapping([(served / "in" / "a", served / "link")]):
        for _ in range(25):
            subprocess.run([PROGRAM, "sync", "--delete", f"{source}/", server.url("in")], capture_output=True,
                           timeout=LIMIT_S, check=False)
            assert os.listdir(served / "precious") == ["file"]


def case_a_file_that_becomes_a_pipe_during_put_swap(tmp):
    """Nobody waits for a pipe to be written to."""
    source, served = tmp / "source", tmp / "served"
    for folder in (source, served):
        folder.mkdir()
    (source / "file").write_text("content")
    (source / "other").write_text("other")
    os.mkfifo(tmp / "pipe")
    swap = {"LD_PRELOAD": SWAP, "WEFT_TEST_SWAP_NAME": "file", "WEFT_TEST_SWAP_FROM": str(tmp / "pipe")}
    with Server(served, "--writable") as server:
        done = subprocess.run([PROGRAM, "put", "-r", f"{source}/", server.url()], capture_output=True,
                              timeout=LIMIT_S, check=False, env={**os.environ, **swap})
        assert done.returncode == 0 and not done.stderr, done
    assert not (tmp / "pipe").exists(), "nothing was swapped"
    assert os.listdir(served) == ["other"]


FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644


def endless(rdma, operation, tag, body):
    """A folder whose list never ends, one way or the other; the name says which."""
    if operation == raw_data.STAT:
        return 0, attributes(FOLDER, 0)
    cursor, address, stag, _ = struct.unpack(">QQII", body[:24])
    name = body[24:].strip(b"/")
    if name == b"busy":
        return errno.EAGAIN, b""
    if name == b"empty":
        return 0, struct.pack(">QI", cursor + 1, 0)
    one = entry(b"file", attributes(FILE, 0))
    rdma.write(stag, address, one)
    return 0, struct.pack(">QI", 7, len(one))


def case_a_folder_without_end(tmp):
    with RawServer(endless) as server:
        for name, text in (("same", "does not end"), ("empty", "does not end"), ("busy", "temporarily unavailable")):
            run("ls", server.url(name), code=1, text=text)
        run("get", "-r", server.url("same"), tmp / "copy", code=1, text="does not end")


class Mounted:
    """A RawServer as a file system."""

    def __init__(self, tmp, server, **env):
        self.at = tmp / "at"
        self.at.mkdir()
        self.process = subprocess.Popen([MOUNT, "--foreground", server.url(), str(self.at)], env={**os.environ, **env})
        deadline = time.monotonic() + LIMIT_S
        while not os.path.ismount(self.at):
            assert self.process.poll() is None and time.monotonic() < deadline, "not mounted"
            time.sleep(0.005)

    def __enter__(self):
        return self.at

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        subprocess.run(["umount", "-l", str(self.at)], check=False, stderr=subprocess.DEVNULL)


def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def case_a_mounted_server_that_lies(tmp):
    """Errors that no kernel takes, and folders without end, are EIO for programs; the mount goes on."""
    def answer(rdma, operation, tag, body):
        name = body.strip(b"/")
        if operation == raw_data.STAT and name in (b"odd", b"odder"):
            return {b"odd": 100000, b"odder": 0xFFFFFFFF}[name], b""
        if operation == raw_data.STAT and name == b"fine":
            return 0, attributes(FILE, 77)
        return endless(rdma, operation, tag, body)
    with RawServer(answer) as server, Mounted(tmp, server) as at:
        for name in ("odd", "odder"):
            assert error_of(os.stat, at / name) == errno.EIO
        for name in ("same", "empty", "busy"):
            assert error_of(os.listdir, at / name) in (errno.EIO, errno.EAGAIN), name
        assert os.stat(at / "fine").st_size == 77


def case_a_mounted_server_that_speaks_nonsense(tmp):
    """Each time the connection is made anew, and nothing of the old one stays: here are three protection domains."""
    def answer(rdma, operation, tag, body):
        if operation == raw_data.STAT and body.strip(b"/") == b"nonsense":
            RawServer.reply(rdma, raw_data.READ, 1, 0)
            return None
        return 0, attributes(FOLDER if operation == raw_data.STAT and not body.strip(b"/") else FILE, 77)
    with RawServer(answer) as server, Mounted(tmp, server, WEFT_LIKE="max_pd = 3") as at:
        for i in range(5):
            assert error_of(os.stat, at / "nonsense") == errno.EIO
            assert os.stat(at / f"fine{i}").st_size == 77, i


def case_a_mount_that_was_stopped(tmp):
    """Replies that come late, and out of their order, go to the call that they are for."""
    late = []
    free = threading.Event()

    def answer(rdma, operation, tag, body):
        name = body.strip(b"/")
        if operation != raw_data.STAT or name == b"":
            return endless(rdma, operation, tag, body)
        reply = 0, attributes(FILE, int(name))
        if free.is_set():
            return reply
        late.append((rdma, tag, reply))
        return None
    with RawServer(answer) as server:
        mounted = Mounted(tmp, server)
        with mounted as at:
            found = {}

            def ask(size):
                found[size] = error_of(lambda: found.setdefault(size, os.stat(at / str(size)).st_size))
            first = threading.Thread(target=ask, args=(111,))
            first.start()
            wait_for(lambda: late or found, "not asked")
            assert late, found
            # A wait of the kernel may end early here, without a handler for any signal.
            mounted.process.send_signal(signal.SIGSTOP)
            mounted.process.send_signal(signal.SIGCONT)
            free.set()
            for rdma, tag, reply in late:
                server.reply(rdma, raw_data.STAT, tag, *reply)
            first.join(LIMIT_S)
            assert not first.is_alive()
            for size in (222, 333, 444):
                assert os.stat(at / str(size)).st_size == size


def case_a_mount_with_a_slow_reply(tmp):
    """A call that waits for the server does not keep others waiting; a signal ends it, and so do many."""
    def answer(rdma, operation, tag, body):
        name = body.strip(b"/")
        if operation != raw_data.STAT or name == b"" or name.startswith(b"folder") and b"/" not in name:
            return endless(rdma, operation, tag, body)
        if not name.endswith(b"slow"):
            return 0, attributes(FILE, 77)
        nonlocal asked
        asked += 1
        return None
    asked = 0
    with RawServer(answer) as server:
        mounted = Mounted(tmp, server)
        with mounted as at:
            errors = []
            # libfuse 3.14 has the kernel look up one name of a folder at a time.
            for i in range(3):
                os.stat(at / f"folder{i}")
            slow = [threading.Thread(target=lambda i=i: errors.append(error_of(os.stat, at / f"folder{i}/slow")), daemon=True)
                    for i in range(3)]
            for thread in slow:
                thread.start()
            wait_for(lambda: asked == 3, "not asked")
            fast = threading.Thread(target=lambda: errors.append(os.stat(at / "fast").st_size), daemon=True)
            fast.start()
            fast.join(LIMIT_S)
            assert errors == [77], errors
            mounted.process.send_signal(signal.SIGTERM)
            for thread in slow:
                thread.join(LIMIT_S)
            assert len(errors) == 4 and 0 not in errors, errors
            # Somebody asks again and again while it takes itself apart.
            deadline = time.monotonic() + LIMIT_S
            while mounted.process.poll() is None and time.monotonic() < deadline:
                mounted.process.send_signal(signal.SIGTERM)
        assert mounted.process.wait(LIMIT_S) == 0


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def can_run(name):
    if "mount" in name:
        return MOUNT and os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)
    return SWAP or not name.endswith("_swap")


def main():
    chosen = sys.argv[2:] or list(CASES)
    for name in [name for name in chosen if not can_run(name)]:
        print(f"{name}: left out, it needs a program or library, or /dev/fuse and root")
        chosen.remove(name)
    run_cases(CASES, chosen, "weft-hostile-")


if __name__ == "__main__":
    main()
