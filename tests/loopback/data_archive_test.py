#!/usr/bin/env python3
"""Copies that carry more than contents (--archive), copies of files that nobody may write meanwhile (--strict), and
files that outlive the connection on which they were opened.

    data_archive_test.py WEFT_DATA CASE...     without cases: all
"""

import contextlib
import errno
import json
import mmap
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import PROGRAM, Cutter, Server, big_file, client, digest, fails, filled, run, wait_for  # noqa: E402
from raw_data import RawClient  # noqa: E402
from serving import run_cases  # noqa: E402

WAYS = ("get", "put")
ROOT = os.geteuid() == 0
OWNER = 1234


def has_xattrs(folder):
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.weft", b"x")
    except OSError:
        print("no extended attributes here")
        return False
    finally:
        probe.unlink()
    return True


def everything(root):
    """Relative name -> all that --archive carries."""
    out, numbers = {}, {}
    for path in [pathlib.Path(root), *sorted(pathlib.Path(root).rglob("*"))]:
        name = str(path.relative_to(root))
        s = path.lstat()
        first = numbers.setdefault(s.st_ino, name)
        link = os.readlink(path) if path.is_symlink() else None
        content = digest(path) if stat.S_ISREG(s.st_mode) else None
        xattrs = {} if link else {key: os.getxattr(path, key) for key in os.listxattr(path) if key.startswith("user.")}
        owner = (s.st_uid, s.st_gid) if ROOT else None
        out[name] = (s.st_mode, s.st_mtime_ns, first, link, content, xattrs, owner, s.st_rdev)
    return out


def odd_tree(root, way):
    filled(root, "a", "sub/b", "closed/c", "open/d")
    big_file(root / "large", 5)
    (root / "a").chmod(0o4711)
    (root / "sub").chmod(0o1777)
    os.link(root / "a", root / "sub/also a")
    os.link(root / "a", root / "open/a too")
    (root / "link").symlink_to("sub/b")
    os.utime(root / "link", ns=(0, 1_500_000_000_123_456_789), follow_symlinks=False)
    if has_xattrs(root):
        os.setxattr(root / "sub/b", "user.weft", b"\0binary\xff")
        os.setxattr(root / "sub/b", "user.empty", b"")
        os.setxattr(root / "sub", "user.folder", b"of a folder")
        os.setxattr(root / "large", "user.long", b"x" * 3000)
    if way == "get":
        os.mkfifo(root / "fifo", 0o640)
        if ROOT:
            os.mknod(root / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    if ROOT:
        os.chown(root / "open/d", OWNER, OWNER + 1)
        os.chown(root / "open", OWNER, OWNER)
        os.chown(root / "link", OWNER, OWNER, follow_symlinks=False)
    (root / "closed").chmod(0o555)
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            os.utime(path, ns=(0, 1_600_000_000_987_654_321 + len(str(path))))
    os.utime(root, ns=(0, 1_400_000_000_000_000_001))


def ends(way, server, tmp, copy):
    if way == "get":
        return server.url("source-get/"), tmp / copy
    return f"{tmp}/source-put/", server.url(copy)


@contextlib.contextmanager
def served(tmp):
    with Server(tmp, "--writable", "--owners") as server:
        yield server
    for path in tmp.rglob("*"):  # so that they can be removed
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def steps(text):
    return [json.loads(line) for line in text.splitlines()][:-1]


def case_an_archive_is_all_of_it(tmp):
    for way in WAYS:
        odd_tree(tmp / f"source-{way}", way)
    with served(tmp) as server:
        for way in WAYS:
            source, copy = tmp / f"source-{way}", tmp / f"copy-{way}"
            run(way, "-a", *ends(way, server, tmp, copy.name))
            assert everything(copy) == everything(source), (way, everything(copy), everything(source))
            assert not steps(run("sync", "-a", "--delete", "--json", *ends(way, server, tmp, copy.name))), way
            assert everything(copy) == everything(source), way


def case_a_sync_brings_attributes_up_to_date(tmp):
    for way in WAYS:
        odd_tree(tmp / f"source-{way}", way)
    with served(tmp) as server:
        for way in WAYS:
            source, copy = tmp / f"source-{way}", tmp / f"copy-{way}"
            run(way, "-a", *ends(way, server, tmp, copy.name))
            before = {path: path.lstat().st_mtime_ns for path in source.rglob("*")}
            (source / "sub/b").chmod(0o604)
            if os.listxattr(source / "sub/b"):
                os.setxattr(source / "sub/b", "user.new", b"new")
                os.removexattr(source / "sub/b", "user.weft")
            if ROOT:
                os.chown(source / "large", OWNER, OWNER)
            (source / "open/a too").unlink()
            (source / "open/a too").write_text("by itself now")
            os.link(source / "large", source / "sub/large, too")
            for path, at in before.items():
                if path.exists() and not path.is_symlink() and path.name != "a too":
                    os.utime(path, ns=(0, at))
            told = steps(run("sync", "-a", "-n", "--json", *ends(way, server, tmp, copy.name)))
            assert everything(copy) != everything(source)
            done = steps(run("sync", "-a", "--json", *ends(way, server, tmp, copy.name)))
            assert everything(copy) == everything(source), (way, everything(copy), everything(source))
            found = {(one["action"], one["path"].rsplit("/", 1)[1]) for one in done}
            wanted = {("change", "b"), ("copy", "a too"), ("name", "large, too")} | (
                {("change", "large")} if ROOT else set())
            assert found == wanted, (way, found)
            assert sorted(map(str, told)) == sorted(map(str, done)), (way, told, done)


def case_a_server_keeps_owners_to_itself(tmp):
    """Without --owners no client makes a program that acts as somebody else."""
    filled(tmp / "source-put", "a")
    (tmp / "source-put/a").chmod(0o4755)
    if ROOT:
        os.chown(tmp / "source-put/a", OWNER, OWNER)
        (tmp / "source-put/a").chmod(0o4755)
    with Server(tmp, "--writable") as server:
        run("put", "-a", *ends("put", server, tmp, "copy"))
        info = (tmp / "copy/a").stat()
        assert stat.S_IMODE(info.st_mode) == 0o755 and info.st_uid == os.geteuid(), info
        with RawClient(server.port) as raw:
            assert raw.hello()[0] == 0
            error, _ = raw.ask(raw_data.OWN, struct.pack(">QII", 0, OWNER, OWNER) + b"copy/a")
            assert error == errno.EPERM, error
            name = b"security.capability"
            body = struct.pack(">QIH", 0, 0, len(name)) + name + struct.pack(">H", 1) + b"x" + b"copy/a"
            assert raw.ask(raw_data.SETXATTR, body)[0] == errno.EPERM
            assert raw.ask(raw_data.LINK, struct.pack(">H", 6) + b"copy/a" + b"../out")[0] == errno.EXDEV
    with Server(tmp) as server, RawClient(server.port) as raw:
        assert raw.hello()[0] == 0
        assert raw.ask(raw_data.LINK, struct.pack(">H", 6) + b"copy/a" + b"b")[0] == errno.EROFS
        body = struct.pack(">QIH", 0, 0, 6) + b"user.a" + struct.pack(">H", 1) + b"x" + b"copy/a"
        assert raw.ask(raw_data.SETXATTR, body)[0] == errno.EROFS


def case_a_special_file_is_refused_by_put(tmp):
    os.makedirs(tmp / "source-put")
    os.mkfifo(tmp / "source-put/fifo")
    with Server(tmp, "--writable") as server:
        fails("put and sync do not carry", "put", "-a", *ends("put", server, tmp, "copy"))


def case_a_name_of_a_file_that_was_not_copied(tmp):
    """It is not linked to what an earlier copy has left there."""
    filled(tmp / "source-get", "a")
    os.link(tmp / "source-get/a", tmp / "source-get/b")
    for name in "ab":  # whichever is met first
        (tmp / "copy" / name).mkdir(parents=True)
    with Server(tmp, "--writable") as server:
        fails("not linked to", "get", "-a", *ends("get", server, tmp, "copy"))
        shutil.copytree(tmp / "source-get", tmp / "source-put")
        (tmp / "source-put/b").unlink()
        os.link(tmp / "source-put/a", tmp / "source-put/b")
        fails("not linked to", "put", "-a", *ends("put", server, tmp, "copy"))
        assert (tmp / "copy/a").is_dir() and (tmp / "copy/b").is_dir()


def strict_command(way, server, tmp):
    return (way, "--strict", *((server.url("file"), tmp / "copy") if way == "get" else
                               (tmp / "file", server.url("copy"))))


def case_strict_takes_no_file_that_somebody_writes(tmp):
    (tmp / "file").write_bytes(b"x" * 8192)
    with Server(tmp, "--writable") as server:
        for way in WAYS:
            run(*strict_command(way, server, tmp))
            assert (tmp / "copy").read_bytes() == b"x" * 8192
            (tmp / "copy").unlink()
            with open(tmp / "file", "r+b") as writer:
                fails("open for writing", *strict_command(way, server, tmp))
                mapped = mmap.mmap(writer.fileno(), 4096)
            fails("open for writing", *strict_command(way, server, tmp))
            mapped.close()
            run(*strict_command(way, server, tmp))
            (tmp / "copy").unlink()


def case_a_writer_is_not_held_up_by_a_strict_copy(tmp):
    """It gets the file at once, and the copy is begun anew, or fails."""
    big_file(tmp / "file", 8)
    with Server(tmp, "--writable") as server:
        for way in WAYS:
            command = [PROGRAM, *map(str, strict_command(way, server, tmp)), "--bwlimit", str(4 << 20)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as copy:
                wait_for(lambda: any(name.startswith(".weft-") for name in os.listdir(tmp)), "no copy began")
                start = time.monotonic()
                with open(tmp / "file", "r+b") as writer:
                    assert time.monotonic() - start < 30, "the lease was not given back"
                    writer.write(way.encode())
                error = copy.communicate()[1]
            if copy.returncode == 0:
                assert digest(tmp / "copy") == digest(tmp / "file"), way
                (tmp / "copy").unlink()
            else:
                assert "changed" in error or "opened for writing" in error, error
                assert not (tmp / "copy").exists(), way


def case_a_server_writes_a_file_that_it_has_a_lease_of(tmp):
    filled(tmp, "file")
    with Server(tmp, "--writable") as server, RawClient(server.port) as reader, RawClient(server.port) as writer:
        assert reader.hello()[0] == 0 and writer.hello()[0] == 0
        handle = reader.open("file")
        error, state = reader.ask(raw_data.LEASE, struct.pack(">Q", handle))
        assert error == 0 and len(state) == 84, error
        error, state = reader.ask(raw_data.CLOSE, struct.pack(">Q", handle))
        assert error == 0 and struct.unpack(">I", state[80:84])[0] == 2, state
        handle = reader.open("file")
        assert reader.ask(raw_data.LEASE, struct.pack(">Q", handle))[0] == 0
        body = struct.pack(">QIIQQ", 0, 2, 0, 2, 0) + b"file"  # made shorter
        assert writer.ask(raw_data.SET, body)[0] == 0
        error, state = reader.ask(raw_data.CLOSE, struct.pack(">Q", handle))
        assert error == 0 and struct.unpack(">I", state[80:84])[0] != 2, state
        handle = reader.open("file")
        assert reader.ask(raw_data.LEASE, struct.pack(">Q", handle))[0] == 0
        error, reply = writer.ask(raw_data.EDIT, struct.pack(">II", 0, 0) + b"file")
        assert error == 0, error
        assert reader.ask(raw_data.LEASE, struct.pack(">Q", reader.open("file")))[0] == errno.EAGAIN


def sum_of(raw, handle):
    return raw.ask(raw_data.SUM, struct.pack(">QQI", handle, 0, 100))


def case_a_file_outlives_its_connection(tmp):
    filled(tmp, "file", "other")
    with Server(tmp, "--writable") as server:
        with RawClient(server.port) as lost, RawClient(server.port) as another:
            assert lost.hello()[0] == 0 and another.hello()[0] == 0
            error, key = lost.ask(raw_data.KEEP, b"")
            assert error == 0 and len(key) == 16 and key != bytes(16), error
            assert lost.ask(raw_data.KEEP, b"")[1] == key
            handle = lost.open("file")
            wanted = sum_of(lost, handle)
            # One that seems to be there still.
            error, reply = another.ask(raw_data.REOPEN, key + struct.pack(">Q", handle))
            assert error == 0 and sum_of(another, struct.unpack(">Q", reply[:8])[0]) == wanted
            (tmp / "file").unlink()
        with RawClient(server.port) as now:
            assert now.hello()[0] == 0
            # The server may not have seen yet that the others are gone: their files are there.
            error, reply = now.ask(raw_data.REOPEN, key + struct.pack(">Q", handle))
            assert error == 0 and len(reply) == 92, error
            assert sum_of(now, struct.unpack(">Q", reply[:8])[0]) == wanted
            for wrong in (key[:15] + bytes([key[15] ^ 1]) + struct.pack(">Q", handle),
                          key + struct.pack(">Q", handle + 1)):
                assert now.ask(raw_data.REOPEN, wrong)[0] == errno.ESTALE


def case_a_file_is_opened_again_where_there_is_room(tmp):
    """Files that are still being made count, too."""
    filled(tmp, "file")
    with Server(tmp, "--writable") as server, RawClient(server.port) as raw:
        assert raw.hello()[0] == 0
        error, key = raw.ask(raw_data.KEEP, b"")
        assert error == 0
        handles = [raw.open("file") for _ in range(1023)]
        # Room that takes long to find is found in the background, and not before REOPEN is read.
        link, both = raw.link, []
        raw.link = types.SimpleNamespace(sendall=both.append)
        raw.request(raw_data.CREATE, struct.pack(">IQ", 0o600, 64 << 20) + b"large")
        raw.request(raw_data.REOPEN, key + struct.pack(">Q", handles[0]))
        raw.link = link
        link.sendall(b"".join(both))
        answers = {operation: error for operation, error, _, _ in (raw.recv_message(), raw.recv_message())}
        assert answers == {raw_data.CREATE: 0, raw_data.REOPEN: errno.EMFILE}, answers
        assert raw.ask(raw_data.STAT, b"file")[0] == 0


def case_a_lease_that_was_lost_stays_so(tmp):
    filled(tmp, "file")
    with Server(tmp, "--writable") as server, RawClient(server.port) as raw:
        assert raw.hello()[0] == 0
        handle = struct.pack(">Q", raw.open("file"))
        for _ in range(3):
            assert raw.ask(raw_data.LEASE, handle)[0] == 0
        with open(tmp / "file", "r+b"):
            pass
        assert raw.ask(raw_data.LEASE, handle)[0] == errno.ESTALE
        error, state = raw.ask(raw_data.CLOSE, handle)
        assert error == 0 and struct.unpack(">I", state[80:84])[0] != 2, state


def case_strict_holds_an_empty_file_too(tmp):
    (tmp / "file").touch()
    with Server(tmp, "--writable") as server:
        for way in WAYS:
            with open(tmp / "file", "r+b"):
                fails("open for writing", *strict_command(way, server, tmp))
            run(*strict_command(way, server, tmp))
            assert (tmp / "copy").read_bytes() == b"", way
            (tmp / "copy").unlink()


def case_names_part_where_the_source_has_two_files(tmp):
    for way in WAYS:
        filled(tmp / f"source-{way}", "a", "b/c")
        os.link(tmp / f"source-{way}/a", tmp / f"source-{way}/also a")
    with served(tmp) as server:
        for way in WAYS:
            source, copy = tmp / f"source-{way}", tmp / f"copy-{way}"
            run(way, "-a", *ends(way, server, tmp, copy.name))
            was = (source / "a").stat()
            (source / "also a").unlink()
            shutil.copy2(source / "a", source / "also a")  # the same contents and times
            os.utime(source / "also a", ns=(0, was.st_mtime_ns))
            run("sync", "-a", *ends(way, server, tmp, copy.name))
            assert (copy / "a").stat().st_ino != (copy / "also a").stat().st_ino, way
            assert everything(copy) == everything(source), (way, everything(copy), everything(source))
            # A name outside of the copy is no reason to copy anything anew.
            os.link(copy / "b/c", tmp / f"outside-{way}")
            run("sync", "-a", *ends(way, server, tmp, copy.name))
            assert (copy / "b/c").stat().st_nlink == 2, way


def case_a_single_file_is_brought_up_to_date(tmp):
    filled(tmp, "file", "file2")
    (tmp / "link").symlink_to("file")
    with served(tmp) as server:
        for name in ("file", "link"):
            run("get", "-a", server.url(name), tmp / "copy")
            (tmp / "file").chmod(0o604 if name == "file" else 0o640)
            run("sync", "-a", server.url(name), tmp / "copy")
            assert (tmp / "copy").stat().st_mode == (tmp / "file").stat().st_mode, name


def case_capabilities_stay_where_the_owner_changes(tmp):
    name, value = "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    filled(tmp / "source-put", "a")
    try:
        os.setxattr(tmp / "source-put/a", name, value)
    except OSError:
        print("no file capabilities here")
        return
    shutil.copytree(tmp / "source-put", tmp / "source-get")
    with served(tmp) as server:
        for way in WAYS:
            os.setxattr(tmp / f"source-{way}/a", name, value)
            run(way, "-a", *ends(way, server, tmp, f"copy-{way}"))
            os.chown(tmp / f"source-{way}/a", OWNER, OWNER)
            os.setxattr(tmp / f"source-{way}/a", name, value)
            run("sync", "-a", *ends(way, server, tmp, f"copy-{way}"))
            copy = tmp / f"copy-{way}/a"
            assert copy.stat().st_uid == OWNER and os.getxattr(copy, name) == value, way


def case_trusted_attributes_are_for_those_who_see_them(tmp):
    """Of an end that does not see them nothing follows for the other."""
    name = "trusted.weft"
    for way in WAYS:
        filled(tmp / f"source-{way}", "a")
    try:
        os.setxattr(tmp / "source-get/a", name, b"secret")
    except OSError:
        print("no attributes of trusted. here")
        return
    os.setxattr(tmp / "source-put/a", name, b"secret")
    body = struct.pack(">Q", 0) + raw_data.memory(1 << 16) + b"source-get/a"
    with Server(tmp, "--writable") as server:
        with RawClient(server.port) as raw:
            assert raw.hello()[0] == 0
            error, reply = raw.ask(raw_data.XATTRS, body)
            assert error == 0 and reply[:4] == bytes(4), reply
        for way in WAYS:
            filled(tmp / f"copy-{way}", "a")
            os.setxattr(tmp / f"copy-{way}/a", name, b"the copy's")
            os.utime(tmp / f"copy-{way}/a", ns=(0, (tmp / f"source-{way}/a").stat().st_mtime_ns))
            run("sync", "-a", *ends(way, server, tmp, f"copy-{way}"))
        assert os.getxattr(tmp / "copy-get/a", name) == b"the copy's"
    with served(tmp) as server:
        for way in WAYS:
            run("sync", "-a", *ends(way, server, tmp, f"copy-{way}"))
            assert os.getxattr(tmp / f"copy-{way}/a", name) == b"secret", way
            os.removexattr(tmp / f"source-{way}/a", name)
            run("sync", "-a", *ends(way, server, tmp, f"copy-{way}"))
            assert name not in os.listxattr(tmp / f"copy-{way}/a"), way


def case_a_pipe_is_not_opened_to_flush_it(tmp):
    (tmp / "source-get").mkdir()
    os.mkfifo(tmp / "source-get/fifo", 0o600)
    with served(tmp) as server:
        run("get", "-a", *ends("get", server, tmp, "copy"))
        (tmp / "source-get/fifo").chmod(0o640)
        run("sync", "-a", "--durable", *ends("get", server, tmp, "copy"))
        assert stat.S_IMODE((tmp / "copy/fifo").stat().st_mode) == 0o640


def case_folders_are_closed_until_they_are_whole(tmp):
    filled(tmp / "source-get", "private/secret")
    big_file(tmp / "source-get/private/large", 8)
    (tmp / "source-get/private").chmod(0o700)
    (tmp / "source-get").chmod(0o755)
    with served(tmp) as server:
        command = [PROGRAM, "get", "-a", "--bwlimit", str(1 << 20), *map(str, ends("get", server, tmp, "copy"))]
        with subprocess.Popen(command) as copy:
            folders = (tmp / "copy", tmp / "copy/private")
            wait_for(lambda: all(folder.exists() for folder in folders), "no copy began")
            modes = [stat.S_IMODE(folder.stat().st_mode) for folder in folders]
            copy.kill()
        assert modes == [0o700, 0o700], modes


def case_several_folders_are_copied_as_one(tmp):
    for name in ("one", "two"):
        filled(tmp / name, "a")
        (tmp / name).chmod(0o750)
    with Server(tmp / "one", tmp / "two") as server:
        run("get", "-a", server.url(), tmp / "copy")
    for name in ("one", "two"):
        assert everything(tmp / "copy" / name) == everything(tmp / name), name


def case_an_archive_survives_a_lost_connection(tmp):
    """Wherever it breaks, in questions for attributes too."""
    odd_tree(tmp / "source-put", "put")
    with served(tmp) as server:
        run("put", "-a", *ends("put", server, tmp, "copy"))
        whole = Cutter(server.port, [])
        run("sync", "-a", f"{tmp}/source-put/", f"weft://127.0.0.1:{whole.port}/copy")
        step = whole.octets // 6
        for at in range(step, whole.octets, step):
            (tmp / "source-put/sub").chmod(0o1777 if at % 2 else 0o1770)
            broken = Cutter(server.port, [at])
            run("sync", "-a", f"{tmp}/source-put/", f"weft://127.0.0.1:{broken.port}/copy")
            assert everything(tmp / "copy") == everything(tmp / "source-put"), at


def case_an_older_server_is_told_from_a_newer_one(tmp):
    def names(rdma, operation, tag, body):
        if operation == raw_data.STAT:
            return 0, raw_data.attributes(stat.S_IFDIR | 0o755, 0)
        return errno.EPROTO, b""
    (tmp / "folder").mkdir()
    filled(tmp, "file")
    with raw_data.RawServer(names, raw_data.WRITABLE) as server:
        fails("upgrade Weft there", "get", "-a", server.url(), tmp / "copy")
        fails("upgrade Weft there", "put", "-a", tmp / "file", server.url("x"))
        fails("upgrade Weft there", "put", "-a", tmp / "folder", server.url("x"))
        assert not {raw_data.XATTRS, raw_data.LEASE, raw_data.OWN} & set(server.seen), server.seen


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-archive-")


if __name__ == "__main__":
    main()
