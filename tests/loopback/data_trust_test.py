#!/usr/bin/env python3
"""What a copying program owes: exit 0 means that what is there is exactly what was there.

    data_trust_test.py WEFT_DATA CASE...     without cases: all

Servers that cannot look at their files, files that change while they are copied, copies beside each other,
silent servers.
"""

import contextlib
import errno
import os
import pathlib
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import (  # noqa: E402
    LIMIT_S, PROGRAM, Cutter, Server, as_an_owner, big_file, client, digest, fails, filled, run, tree_of,
    without_io_uring)
from raw_data import RawClient, RawServer, attributes, entry, memory  # noqa: E402
from serving import Restless, run_cases  # noqa: E402

FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644


# ---- sync --delete


def case_a_folder_that_cannot_be_searched(tmp):
    """Names that the server cannot look at are not gone: the copy stays."""
    served = filled(tmp / "served", "a/one", "a/two", "b/three")
    with Server(served, preexec_fn=as_an_owner) as server:
        run("sync", server.url(), tmp / "copy")
        (served / "a").chmod(0o444)
        want = tree_of(tmp / "copy")
        fails("a/one: Permission denied", "sync", "--delete", server.url(), tmp / "copy")
        assert tree_of(tmp / "copy") == want
        (served / "a").chmod(0o755)
        run("sync", "--delete", server.url(), tmp / "copy")


def case_nothing_is_removed_after_an_error(tmp):
    """Either way: a file that cannot be read keeps everything else from being removed."""
    served, source = filled(tmp / "served", "a", "b"), filled(tmp / "source", "a", "b")
    filled(tmp / "copy", "extra", "folder/extra")
    filled(served, "in/extra")
    with Server(served, "--writable", preexec_fn=as_an_owner) as server:
        (served / "b").chmod(0)
        fails("nothing was removed, because something failed", "sync", "--delete", server.url(), tmp / "copy")
        assert (tmp / "copy" / "extra").exists() and (tmp / "copy" / "folder" / "extra").exists()
        (source / "b").chmod(0)
        fails("nothing was removed, because something failed", "sync", "--delete", f"{source}/", server.url("in"),
              preexec_fn=as_an_owner)
        assert (served / "in" / "extra").exists()
        (source / "b").chmod(0o644)
        run("sync", "--delete", f"{source}/", server.url("in"))
        assert tree_of(source) == tree_of(served / "in")


def case_an_empty_source_removes_nothing(tmp):
    served, source = tmp / "served", tmp / "source"
    (served / "empty").mkdir(parents=True)
    source.mkdir()
    copy = filled(tmp / "copy", "one", "two")
    filled(served / "in", "one", "two")
    with Server(served, "--writable") as server:
        fails("--force-delete", "sync", "--delete", server.url("empty/"), copy)
        fails("--force-delete", "sync", "--delete", f"{source}/", server.url("in"))
        assert os.listdir(copy) and os.listdir(served / "in")
        run("sync", "--delete", "--force-delete", server.url("empty/"), copy)
        run("sync", "--delete", "--force-delete", f"{source}/", server.url("in"))
        assert not os.listdir(copy) and not os.listdir(served / "in")


def case_more_removals_than_allowed(tmp):
    served = filled(tmp / "served", "kept")
    copy = filled(tmp / "copy", "one", "two")
    with Server(served) as server:
        fails("that would be 2 names", "sync", "--delete", "--max-delete", 1, server.url(), copy)
        assert {"one", "two", "kept"} == set(os.listdir(copy))
        run("sync", "--delete", "--max-delete", 2, server.url(), copy)
        assert ["kept"] == os.listdir(copy)


def case_what_is_left_where_nothing_may_be_removed(tmp):
    """Folders get their permissions: later copies would leave them alone."""
    source = filled(tmp / "source", "closed/kept")
    os.umask(0o022)
    (source / "closed").chmod(0o555)
    copy, served = filled(tmp / "copy", "gone"), filled(tmp / "served", "gone")
    for option in (), ("-a",):
        with Server(source) as server:
            fails("that would be 1 names", "sync", "--delete", "--max-delete", 0, *option, server.url(), copy)
        with Server(served, "--writable") as server:
            fails("that would be 1 names", "sync", "--delete", "--max-delete", 0, *option, f"{source}/", server.url())
        for end in copy, served:
            mode = 0o755 if end == copy and not option else 0o555  # get leaves them to the umask
            assert (end / "closed").stat().st_mode & 0o777 == mode and (end / "gone").exists(), (end, option)
            (end / "closed").chmod(0o755)
            shutil.rmtree(end / "closed")
    (source / "closed").chmod(0o755)


def case_a_list_that_hides_names(tmp):
    """A name goes only if the server, asked for it, says that there is no such file."""
    answers = {b"hidden": (0, attributes(FILE, 1)), b"broken": (errno.EIO, b""), b"gone": (errno.ENOENT, b"")}

    def answer(rdma, operation, tag, body):
        if operation == raw_data.LIST:
            _, address, stag, _ = struct.unpack(">QQII", body[:24])
            one = entry(b"folder", attributes(FOLDER, 0)) if not body[24:].strip(b"/") else b""
            rdma.write(stag, address, one)
            return 0, struct.pack(">QI", 0, len(one))
        name = body.rsplit(b"/", 1)[-1]
        return answers.get(name, (0, attributes(FOLDER, 0)))
    with RawServer(answer) as server:
        for name, text in (("hidden", "appeared at the source"), ("broken", "Input/output error")):
            copy = filled(tmp / name, name)
            (copy / "folder").mkdir()
            fails(text, "sync", "--delete", server.url(), copy)
            assert (copy / name).exists()
        copy = filled(tmp / "gone", "gone", "folder/gone")
        run("sync", "--delete", server.url(), copy)
        assert os.listdir(copy) == ["folder"] and not os.listdir(copy / "folder")


# ---- Parts


def part_in(folder):
    """The lengths of the parts there."""
    found = []
    for name in os.listdir(folder):
        if name.startswith(".weft-part-"):
            try:
                found.append((folder / name).stat().st_size)
            except FileNotFoundError:
                pass
    return found


def case_a_part_with_wrong_octets(tmp):
    """A power cut leaves holes in a part: what is there is compared before a copy goes on with it."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 24)
    with Server(served) as server:
        for spoil in (0, 9 << 20, None):
            way = Cutter(server.port, [20 << 20] + [1000] * 9)
            client("get", "--retry", "0", f"weft://127.0.0.1:{way.port}/big", tmp / "copy")
            part, = tmp.glob(".weft-part-*")
            if spoil is None:
                os.truncate(part, 24 << 20)  # as long as the file, and a hole
            else:
                with open(part, "r+b") as out:
                    out.seek(spoil)
                    out.write(bytes(4096))
            run("get", server.url("big"), tmp / "copy")
            assert digest(served / "big") == digest(tmp / "copy"), spoil
            (tmp / "copy").unlink()
        assert not list(tmp.glob(".weft-part-*"))


class Stopped:
    """A client that was stopped in the middle of `big`; go_on() lets it end."""

    def __init__(self, *arguments, begun):
        self.process = subprocess.Popen([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"})
        while not begun():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.0002)
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        error = self.process.communicate(timeout=LIMIT_S)[1]
        return self.process.returncode, error

    def kill(self):
        self.process.kill()
        self.process.communicate()


def case_copies_beside_each_other_onto_one_destination(tmp):
    """One that begins while another is under way, and dies, leaves no hole in the other's file."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 96)
    with Server(served, env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"}) as server:
        get = ("get", "--no-resume", server.url("big"), tmp / "copy")
        first = Stopped(*get, begun=lambda: max(part_in(tmp), default=0) > 8 << 20)
        before = part_in(tmp)
        second = Stopped(*get, begun=lambda: part_in(tmp) != before and part_in(tmp) != [])
        second.kill()
        assert first.go_on() == (0, "")
        assert digest(served / "big") == digest(tmp / "copy")
        both = [subprocess.Popen([PROGRAM, *map(str, get)]) for _ in range(2)]
        assert [one.wait(LIMIT_S) for one in both] == [0, 0]
        assert digest(served / "big") == digest(tmp / "copy")


def case_unfinished_files_are_not_copied(tmp):
    source, served = filled(tmp / "source", "file", ".weft-part-0123", ".weft-draft-0123"), tmp / "served"
    served.mkdir()
    with Server(served, "--writable") as server:
        run("put", "-r", f"{source}/", server.url("in"))
        assert os.listdir(served / "in") == ["file"]
        filled(served, ".weft-part-0123", "other")
        run("get", "-r", server.url(), tmp / "copy")
        assert {"in", "other"} == set(os.listdir(tmp / "copy"))


# ---- Versions


def rewrite(path, letter):
    """All of it in place, and the time set back."""
    info = path.stat()
    with open(path, "r+b") as out:
        for _ in range(0, info.st_size, 1 << 20):
            out.write(letter * (1 << 20))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def case_a_file_that_is_rewritten_during_get(tmp):
    """The copy is the new version, as a whole."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 64)
    with Server(served, env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"}) as server:
        one = Stopped("get", server.url("big"), tmp / "copy", begun=lambda: max(part_in(tmp), default=0) > 4 << 20)
        rewrite(served / "big", b"n")
        assert one.go_on() == (0, "")
        assert digest(served / "big") == digest(tmp / "copy")
        # The output of cat cannot be taken back.
        cat = subprocess.Popen([PROGRAM, "cat", server.url("big")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        cat.stdout.read(1 << 20)
        rewrite(served / "big", b"m")
        assert b"changed while it was read" in cat.communicate(timeout=LIMIT_S)[1] and cat.returncode == 1


def case_a_file_that_is_rewritten_during_put(tmp):
    served, big = tmp / "served", tmp / "big"
    served.mkdir()
    big_file(big, 64)
    with Server(served, "--writable", env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"}) as server:
        def begun():
            return any((served / name).stat().st_size > 4 << 20 for name in os.listdir(served) if "draft" in name)
        one = Stopped("put", big, server.url("big"), begun=begun)
        rewrite(big, b"n")
        assert one.go_on() == (0, "")
        assert digest(served / "big") == digest(big)


def case_a_file_that_always_changes(tmp):
    """It is begun anew once, and then that is an error; nothing gets the name."""
    served, source = tmp / "served", tmp / "source"
    for folder in (served, source):
        folder.mkdir()
        # To read it takes longer than a process waits for its turn on the CPU.
        (folder / "big").write_bytes(b"x" * (64 << 20))
        (folder / "small").write_bytes(bytes(100))
    with Server(served, "--writable") as server:
        with Restless(served / "big"):
            fails("changed while it was read", "get", server.url("big"), tmp / "copy")
        assert not (tmp / "copy").exists()
        with Restless(source / "big"):
            fails("changed while it was sent", "put", source / "big", server.url("new"))
        assert not (served / "new").exists()
        # It is read at once, and perhaps while the writer waits for the CPU.
        with Restless(served / "small"):
            for _ in range(200):
                shutil.rmtree(tmp / "copy", ignore_errors=True)
                done = client("get", "-r", server.url(), tmp / "copy")
                if done.returncode != 0:
                    break
        assert "changed while it was read" in done.stderr, done
        assert os.listdir(tmp / "copy") == ["big"]


def append_until(ends, path):
    """A log that grows."""
    with open(path, "ab", buffering=0) as out:
        for i in range(1 << 30):
            out.write(b"line %d\n" % i)
            if ends.is_set():
                return


def case_a_log_that_grows(tmp):
    """With --allow-changing the copy is what the log had at the beginning, and a later sync takes the rest."""
    served, source = filled(tmp / "served", "other"), filled(tmp / "source", "other")
    (served / "in").mkdir()
    logs = served / "log", source / "log"
    for log in logs:
        log.write_bytes(b"begin\n" * (4 << 20))
    with Server(served, "--writable") as server:
        ends = threading.Event()
        writers = [threading.Thread(target=append_until, args=(ends, log)) for log in logs]
        for writer in writers:
            writer.start()
        try:
            for allows, code, text in ((["--allow-changing"], 24, "as --allow-changing permits"), ([], 1, "run this again")):
                for way in (("get", server.url("log"), tmp / "copy"), ("put", logs[1], server.url("in/log"))):
                    for _ in range(50):
                        done = client(way[0], *allows, *way[1:])
                        if done.returncode != 0:  # else the writer waited for the CPU all the time
                            break
                    assert done.returncode == code and text in done.stderr, (way, done)
        finally:
            ends.set()
            for writer in writers:
                writer.join()
        for log, copy in ((logs[0], tmp / "copy"), (logs[1], served / "in" / "log")):
            octets = copy.read_bytes()
            assert len(octets) >= 24 << 20 and log.read_bytes().startswith(octets)
        run("sync", server.url("log"), tmp / "copy")
        run("sync", f"{source}/", server.url("in"))
        assert digest(logs[0]) == digest(tmp / "copy") and digest(logs[1]) == digest(served / "in" / "log")


def case_a_kept_copy_is_not_taken_for_a_version(tmp):
    """Rewritten with its size and its time set back: the next sync copies the file again all the same."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 64)
    with Server(served, env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"}) as server:
        one = Stopped("get", "--allow-changing", server.url("big"), tmp / "big",
                      begun=lambda: max(part_in(tmp), default=0) > 4 << 20)
        rewrite(served / "big", b"n")
        code, text = one.go_on()
        assert code == 24 and "as --allow-changing permits" in text, (code, text)
        assert digest(served / "big") != digest(tmp / "big")
        run("sync", server.url("big"), tmp / "big")
        assert digest(served / "big") == digest(tmp / "big")


# ---- Slow clients, many folders


def case_twenty_slow_clients_beside_a_fast_one(tmp):
    """Those who take nothing hold a segment each; who takes its data goes on, and sees folders."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 64)
    with Server(served, "--writable", "--stall", 3600, env={**os.environ, "WEFT_SOCKET_BUFFER": "65536"}) as server:
        with contextlib.ExitStack() as slow:
            clients = [slow.enter_context(RawClient(server.port, 16384)) for _ in range(20)]
            for raw in clients:
                raw.hello()
                handle = struct.pack(">Q", raw.open("big"))
                for i in range(8):
                    raw.request(raw_data.READ, handle + struct.pack(">Q", i << 23) + memory(8 << 20))
            run("get", server.url("big"), tmp / "copy")
            assert digest(tmp / "copy") == digest(served / "big")
            run("put", tmp / "copy", server.url("back"))
            assert run("ls", server.url()).split() == [b"back", b"big"]
    assert " 0 stalled" in server.log, server.log


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))


def case_many_and_deep_folders(tmp):
    """Few descriptors are enough for them, either way."""
    source, served = tmp / "source", tmp / "served"
    for i in range(300):
        filled(source, f"wide/{i}/file")
    deep = source.joinpath(*["d"] * 250)
    deep.mkdir(parents=True)
    (deep / "file").write_text("deep")
    served.mkdir()
    with Server(served, "--writable") as server:
        for command in (("put", "-r", f"{source}/", server.url("in")), ("get", "-r", server.url("in"), tmp / "copy")):
            done = client(*command, preexec_fn=few_descriptors)
            assert done.returncode == 0, done
        assert tree_of(source) == tree_of(served / "in") == tree_of(tmp / "copy")


def case_folders_without_write_permission(tmp):
    source, served = filled(tmp / "source", "shut/file", "shut/in/file"), tmp / "served"
    served.mkdir()
    (source / "shut" / "in").chmod(0o555)
    (source / "shut").chmod(0o555)
    with Server(served, "--writable", preexec_fn=as_an_owner) as server:
        run("put", "-r", f"{source}/", server.url("in"))
    assert tree_of(source) == tree_of(served / "in")
    for path in ("shut", "shut/in"):
        assert stat.S_IMODE((served / "in" / path).stat().st_mode) == 0o555
        for root in (source, served / "in"):
            (root / path).chmod(0o755)


def case_holes_stay_holes(tmp):
    """A sparse file takes as little room where it is copied to, either way."""
    served = tmp / "served"
    served.mkdir()
    with open(served / "sparse", "wb") as out:
        out.seek(20 << 20)
        out.write(b"x" * 5000)
        out.truncate(50 << 20)
    (served / "hole").touch()
    os.truncate(served / "hole", 3 << 20)
    with Server(served, "--writable") as server:
        for name in ("sparse", "hole"):
            run("get", server.url(name), tmp / name)
            run("put", "--verify", tmp / name, server.url("back"))
            for copy in (tmp / name, served / "back"):
                assert digest(served / name) == digest(copy)
                assert copy.stat().st_blocks * 512 < 1 << 20


def case_a_read_only_disk_of_a_writable_server(tmp):
    served, source = tmp / "served", filled(tmp / "source", "file")
    served.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(served)], capture_output=True, check=False)
    if mounted.returncode != 0:
        return print("a_read_only_disk_of_a_writable_server: no right to mount; left out")
    try:
        with Server(served, "--writable") as server:
            fails("this file system of the server is read-only", "put", source / "file", server.url("file"))
    finally:
        subprocess.run(["umount", "-l", str(served)], check=True)
    return None


# ---- Where the server runs


def case_a_server_that_may_not_use_io_uring(tmp):
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 24)
    for direct in ([], ["--direct"]):
        with Server(served, "--writable", *direct, preexec_fn=without_io_uring) as server:
            run("get", server.url("big"), tmp / "copy")
            run("put", "--durable", tmp / "copy", server.url("back"))
            assert digest(tmp / "copy") == digest(served / "big") == digest(served / "back")
        assert "threads read and write" in server.log, server.log


def case_a_client_that_invalidates_staging_memory(tmp):
    """The server's Read Requests name its memory: a Send with Invalidate of that ends one connection and no other."""
    served = tmp / "served"
    served.mkdir()
    big_file(served / "big", 2)
    with Server(served, "--writable") as server:
        with RawClient(server.port) as raw:
            raw.hello()
            error, rest = raw.ask(raw_data.CREATE, struct.pack(">IQ", 0o644, 4096) + b"new")
            assert error == 0
            raw.request(raw_data.WRITE_FILE, rest[:8] + struct.pack(">Q", 0) + memory(4096))
            stag = struct.unpack(">I", raw.recv_read_request()[18:22])[0]
            assert stag != 0
            raw.send(struct.pack(">B7xQ", raw_data.STAT, 99) + b"big", raw_data.SEND_INVALIDATE, stag)
            assert raw.ended()
        run("get", server.url("big"), tmp / "copy")
        run("put", served / "big", server.url("again"))
        assert digest(tmp / "copy") == digest(served / "big") == digest(served / "again")


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-trust-")


if __name__ == "__main__":
    main()
