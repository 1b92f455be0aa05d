#!/usr/bin/env python3
"""What --durable promises: exit 0 means that it is on the disk.

    data_durable_test.py WEFT_DATA CASE...     without cases: all

WEFT_TEST_FAILING_FSYNC is failing_fsync.c as a library, WEFT_TEST_RECORD_CALLS is record_calls.c.
"""

import errno
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import (  # noqa: E402
    LIMIT_S, PROGRAM, Server, big_file, client, digest, drafts_in, fails, filled, run, tree_of, without_io_uring)
from power_cuts import Disk  # noqa: E402
from raw_data import SYNC, RawClient  # noqa: E402
from serving import run_cases  # noqa: E402

FAILING_FSYNC = os.environ.get("WEFT_TEST_FAILING_FSYNC")
RECORD_CALLS = os.environ.get("WEFT_TEST_RECORD_CALLS")


def case_a_disk_that_fails_to_flush(tmp):
    """With --durable no file has its name before its contents are on the disk."""
    served = filled(tmp / "served", "small")
    big_file(served / "big", 1)
    env = {**os.environ, "LD_PRELOAD": FAILING_FSYNC}
    with Server(served) as server:
        for name in ("small", "big"):
            fails("Input/output error", "get", "--durable", server.url(name), tmp / name, env=env)
            assert not (tmp / name).exists()
        fails("Input/output error", "sync", "--durable", server.url(), tmp / "copy", env=env)
        assert not [name for name in os.listdir(tmp / "copy") if not name.startswith(".weft-")]
        # Nobody goes on with what was not flushed: it reads as if it were on the disk.
        assert not drafts_in(tmp) and not drafts_in(tmp / "copy")
        assert client("get", server.url("big"), tmp / "big", env=env).returncode == 0
        run("sync", "--durable", server.url(), tmp / "copy")
        assert tree_of(served) == tree_of(tmp / "copy")


def case_a_disk_of_the_server_that_fails_to_flush(tmp):
    """COMMIT with --durable fails for good, and the verifier changes."""
    source = filled(tmp / "source", "small")
    big_file(source / "big", 5)
    served = filled(tmp / "served", "old")
    with Server(served, "--writable", env={**os.environ, "LD_PRELOAD": FAILING_FSYNC}) as server:
        def verifier():
            with RawClient(server.port) as raw:
                return raw.hello()[1][16:24]
        verifiers = [verifier()]
        for name in ("small", "big"):
            fails("Input/output error", "put", "--durable", source / name, server.url(name))
            assert os.listdir(served) == ["old"], "what was not flushed can be gone on with"
            verifiers.append(verifier())
        assert len(set(verifiers)) == 3, verifiers
        run("put", source / "big", server.url("big"))
    assert digest(served / "big") == digest(source / "big")


def case_a_disk_that_tells_at_the_close(tmp):
    """Also without --durable: a full disk behind NFS, SMB or FUSE refuses what it was sent only then."""
    served, there = filled(tmp / "served", "small"), filled(tmp / "there", "old")
    big_file(served / "big", 5)
    env = {**os.environ, "LD_PRELOAD": FAILING_FSYNC, "WEFT_TEST_CLOSE_FAILS": "1"}
    full = "No space left on device"
    with Server(served) as source, Server(there, "--writable", env=env) as full_server:
        for name in ("small", "big"):
            filled(tmp / "here", "old")
            fails(full, "get", source.url(name), tmp / "here" / "old", env=env)
            fails(full, "put", served / name, full_server.url("old"))
            with open(tmp / "output", "w", encoding="utf-8") as output:
                done = subprocess.run([PROGRAM, "cat", source.url(name)], stdout=output, stderr=subprocess.PIPE,
                                      text=True, timeout=LIMIT_S, check=False, env=env)
            assert done.returncode == 1 and full in done.stderr, done
            for folder in (tmp / "here", there):
                assert os.listdir(folder) == ["old"] and (folder / "old").read_text() == "old"
        fails(full, "put", "-r", served, full_server.url())
        fails(full, "get", "-r", source.url(), tmp / "copy", env=env)
        assert not os.listdir(there / "served") and not os.listdir(tmp / "copy")


def case_sync_of_a_file_that_is_open_for_reading(tmp):
    served = filled(tmp / "served", "file")
    env = {**os.environ, "LD_PRELOAD": FAILING_FSYNC, "WEFT_TEST_FSYNC_FAILS": "1"}
    for options, want in (["--writable"], [errno.EIO, 0]), ([], [errno.EROFS, errno.EROFS]):
        # Threads write the files: the library sees no io_uring.
        with Server(served, *options, env=env, preexec_fn=without_io_uring) as server, RawClient(server.port) as raw:
            raw.hello()
            handle = struct.pack(">Q", raw.open("file"))
            assert [raw.ask(SYNC, handle)[0] for _ in want] == want


def failing(times):
    """The first flushes of files fail, as a kernel tells of what it could not write: once."""
    return {**os.environ, "LD_PRELOAD": FAILING_FSYNC, "WEFT_TEST_FSYNC_FAILS": str(times)}


def age(path):
    os.utime(path, ns=(0, 1_600_000_000_000_000_000))


def case_a_file_of_an_earlier_copy_that_fails_to_flush(tmp):
    """To flush it again succeeds, and says nothing: it is copied anew, by this run or by the next one."""
    served = filled(tmp / "served", "file")
    age(served / "file")
    for times, code in ((1, 0), (2, 1)):
        for source in ("", "file"):
            copy = tmp / f"copy{times}{source}"
            there = copy / "file"
            with Server(served) as server:
                what = (server.url(source), copy if source == "" else there)
                copy.mkdir()
                run("sync", *what)
                before = there.stat().st_ino
                done = client("sync", "--durable", *what, env=failing(times))
                assert done.returncode == code, done
                assert (there.stat().st_ino == before) == (code == 1)
                run("sync", "--durable", *what)
                assert there.stat().st_ino != before and tree_of(copy) == tree_of(served)


def case_a_file_at_the_server_that_fails_to_flush(tmp):
    source = filled(tmp / "source", "file")
    age(source / "file")
    for times, code in ((1, 0), (2, 1)):
        served = tmp / f"served{times}"
        there = served / "file"
        served.mkdir()
        with Server(served, "--writable", env=failing(times)) as server:
            run("sync", "--no-durable", f"{source}/", server.url())
            before = there.stat().st_ino
            done = client("sync", "--durable", f"{source}/", server.url())
            assert done.returncode == code, done
            assert (there.stat().st_ino == before) == (code == 1)
            run("sync", "--durable", f"{source}/", server.url())
            assert there.stat().st_ino != before and tree_of(source) == tree_of(served)


def case_a_server_that_is_killed_while_folders_are_flushed(tmp):
    """What it had not flushed before may be lost."""
    source, served = tmp / "source", tmp / "served"
    for folder in ("a/b", "c"):
        (source / folder).mkdir(parents=True)
    served.mkdir()
    with Server(served, "--writable", env={**failing(0), "WEFT_TEST_FSYNC_KILLS": "1"}) as server:
        put = [PROGRAM, "put", "--durable", "-r", f"{source}/", server.url("there")]
        with subprocess.Popen(put, stderr=subprocess.PIPE, text=True) as copy:
            server.process.wait(LIMIT_S)
            with Server(served, "--writable", port=server.port):
                error = copy.communicate(timeout=LIMIT_S)[1]
                assert copy.returncode == 1 and "started anew" in error, error
                run(*put[1:])
    assert tree_of(source) == tree_of(served / "there")


def case_a_file_system_that_flushes_no_folder(tmp):
    """EINVAL, as vboxsf says: all of the file system is flushed in its place."""
    source = make_source(tmp)
    env = {**failing(0), "WEFT_TEST_FSYNC_FOLDERS": str(errno.EINVAL)}
    with Server(tmp, "--writable", env=env) as server:
        for options in ([], ["-a"]):
            copies = [f"{way}{len(options)}" for way in ("put", "get")]
            for arguments in ([f"{source}/", server.url(copies[0])], [server.url("source/"), tmp / copies[1]]):
                done = client("sync", *options, *arguments, env=env)
                assert done.returncode == 0, done
            assert tree_of(tmp / copies[0]) == tree_of(source) == tree_of(tmp / copies[1])
        done = client("get", "--durable", server.url("source/a/file"), tmp / "file", env=env)
        assert done.returncode == 0, done


def case_folders_that_fail_to_flush(tmp):
    """They get their permissions all the same: the next copy leaves those alone."""
    source = filled(tmp / "source", "closed/file")
    (source / "closed").chmod(0o500)
    served = tmp / "served"
    served.mkdir()
    with Server(served, "--writable", env={**failing(0), "WEFT_TEST_FSYNC_FOLDERS": str(errno.EIO)}) as server:
        fails("Input/output error", "sync", f"{source}/", server.url("there"))
    assert stat.S_IMODE((served / "there" / "closed").stat().st_mode) == 0o500


def case_a_link_to_the_folder(tmp):
    source = filled(tmp / "source", "file", "folder/file")
    filled(tmp / "served", "folder/old")
    (tmp / "served" / "link").symlink_to("folder")
    with Server(tmp / "served", "--writable") as server:
        run("put", "--durable", "-r", source, server.url("link"))
        assert tree_of(source) == tree_of(tmp / "served" / "folder" / "source")
        shutil.rmtree(tmp / "served" / "folder" / "source")
        for command in (["put", "-r"], ["sync", "--delete"]):
            run(*command, "--durable", f"{source}/", server.url("link"))
        assert tree_of(source) == tree_of(tmp / "served" / "folder")
        (tmp / "served" / "folder" / "file").unlink()
        run("put", "--durable", source / "file", server.url("link"))
        run("sync", "--durable", source / "file", server.url("link"))
        assert tree_of(source) == tree_of(tmp / "served" / "folder")


def case_a_block_device(tmp):
    served = tmp / "served"
    served.mkdir()
    for name in ("file", "disk"):
        big_file((served if name == "file" else tmp) / name, 1)
    made = subprocess.run(["losetup", "--show", "-f", str(tmp / "disk")], capture_output=True, text=True,
                          check=False) if shutil.which("losetup") else None
    if made is None or made.returncode != 0:
        print("a_block_device: needs losetup and the right to use it; left out")
        return
    device = made.stdout.strip()
    try:
        with Server(served) as server:
            run("get", "--durable", server.url("file"), device)
            fails("Input/output error", "get", "--durable", server.url("file"), device, env=failing(1))
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


# ---- Power cuts


def refused(lines, text, root):
    disk = Disk(root)
    try:
        disk.follow(lines)
    except AssertionError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{lines} passes")


def case_the_check_of_records_itself(tmp):
    root = Disk(tmp).root
    made, named = [f"name {root} .weft-part-1 7 file", "write 7"], f"rename {root} .weft-part-1 {root} a"
    flushed, above = ["flush 7", "flushed 7"], [f"flush {root}", f"flushed {root}"]
    Disk(tmp).follow([*made, *flushed, named, *above, "acknowledged"])
    refused([*made, named], "was not flushed", tmp)
    refused([*made, "flush 7", "write 7", "flushed 7", named], "was not flushed", tmp)
    refused([*made, *flushed, named, "write 7"], "is written to", tmp)
    refused([*made, *flushed, named, "acknowledged"], "names that are not flushed", tmp)
    refused([*made, *flushed, f"flush {root}", named, f"flushed {root}", "acknowledged"], "not flushed", tmp)
    refused([f"name {root} a 7 file"], "before its octets", tmp)
    refused([f"name {root} folder 9 other", "name 9 link 8 other", "flush 9", "flushed 9", "acknowledged"],
            "names that are not flushed", tmp)


def change(source):
    """What the second copy finds: new, changed and removed files, folders and links."""
    filled(source, "new/deep/file", "a/file")
    (source / "a" / "file").write_bytes(b"another")
    (source / "gone").rmdir()
    (source / "link").unlink()
    (source / "link").symlink_to("another")
    (source / "a" / "link").symlink_to("file")
    (source / "closed").chmod(0o500)


def make_source(tmp):
    source = filled(tmp / "source", "a/file", "a/b/c/file", "gone/file", "closed/file")
    (source / "empty").mkdir()
    big_file(source / "a" / "big", 5)
    (source / "link").symlink_to("target")
    return source


def copies_are_on_the_disk(tmp, copy, url_of, root, **recorded):
    """`copy` runs weft-data with what it is given, and a record is kept of the end where `root` is."""
    source, record = make_source(tmp), tmp / "record"
    record.touch()
    disk = Disk(root)

    def acknowledged(*arguments):
        copy(*arguments, **recorded)
        with record.open("a") as out:
            out.write("acknowledged\n")
    there = url_of("there")
    acknowledged("put", "--durable", "-r", f"{source}/", there)
    (source / "gone" / "file").unlink()
    acknowledged("sync", "--delete", f"{source}/", there)
    change(source)
    acknowledged("sync", "--durable", "--delete", f"{source}/", there)
    acknowledged("put", "--durable", source / "a" / "big", url_of("single"))
    acknowledged("sync", "--durable", source / "a" / "big", url_of("single"))
    (source / "a" / "file").write_bytes(b"yet another")
    acknowledged("sync", source / "a" / "file", url_of("single"))
    acknowledged("sync", f"{source}/", there)
    disk.follow(record.read_text().splitlines())
    assert disk.acknowledged == 7 and disk.files, disk.acknowledged
    assert tree_of(source) == tree_of(root / "there")


def recording(tmp):
    return {**os.environ, "LD_PRELOAD": RECORD_CALLS, "WEFT_TEST_RECORD": str(tmp / "record")}


def case_power_cuts_at_the_server(tmp):
    served = tmp / "served"
    served.mkdir()
    # Threads write the files: the library sees no io_uring.
    with Server(served, "--writable", env=recording(tmp), preexec_fn=without_io_uring) as server:
        copies_are_on_the_disk(tmp, run, server.url, served)


def case_power_cuts_at_the_client(tmp):
    here = tmp / "here"
    here.mkdir()
    with Server(tmp) as server:
        def get(command, *words):
            *options, source, to = words
            url = server.url(f"{str(source)[len(str(tmp)) + 1:]}")
            done = client("get" if command == "put" else command, *options, url, to, env=recording(tmp))
            assert done.returncode == 0, done
        copies_are_on_the_disk(tmp, get, lambda name: here / name, here)


def case_a_folder_is_flushed_once(tmp):
    """Not for each file that is put into it."""
    source, record = filled(tmp / "source", *map(str, range(20))), tmp / "record"

    def flushes():
        found = sum(line.startswith("flush ") for line in record.read_text().splitlines())
        record.write_text("")
        return found
    record.touch()
    with Server(tmp, "--writable", env=recording(tmp), preexec_fn=without_io_uring) as server:
        run("put", "-r", "--durable", f"{source}/", server.url("there"))
        assert 20 <= flushes() < 24
        done = client("get", "-r", "--durable", server.url("there/"), tmp / "again", env=recording(tmp))
        assert done.returncode == 0 and 20 <= flushes() < 24, done


def case_a_folder_that_fails_to_flush_keeps_no_other_from_it(tmp):
    source, record = filled(tmp / "source", "a/file", "b/file", "c/file"), tmp / "record"
    env = {**recording(tmp), "LD_PRELOAD": f"{RECORD_CALLS} {FAILING_FSYNC}", "WEFT_TEST_FSYNC_FAILS": "0",
           "WEFT_TEST_FSYNC_FOLDERS": str(errno.EIO)}
    for way in ("put", "get"):
        at_server = way == "put"
        record.write_text("")
        with Server(tmp, "--writable", preexec_fn=without_io_uring, env=env if at_server else os.environ) as server:
            ends = (f"{source}/", server.url("put")) if at_server else (server.url("source/"), tmp / "get")
            fails("Input/output error", way, "-r", "--durable", *ends, env=os.environ if at_server else env)
        folders = {(tmp / way / name).stat() for name in ("", "a", "b", "c")}
        wanted = {f"flush {(one.st_dev << 40 ^ one.st_ino) % (1 << 64)}" for one in folders}
        assert wanted <= set(record.read_text().splitlines()), record.read_text()
        assert tree_of(tmp / way) == tree_of(source)


def case_what_sync_flushes(tmp):
    """What it copies, and the names; with --durable also what is there, with --no-durable nothing."""
    source, record = filled(tmp / "source", *map(str, range(20))), tmp / "record"
    record.touch()

    def flushes(*arguments, **more):
        record.write_text("")
        done = client("sync", *arguments, **more)
        assert done.returncode == 0, done
        return sum(line.startswith("flush ") for line in record.read_text().splitlines())
    for way in ("put", "get"):
        with Server(tmp, "--writable", preexec_fn=without_io_uring,
                    env=recording(tmp) if way == "put" else os.environ) as server:
            copy = tmp / f"{way}-copy"
            ends = (f"{source}/", server.url(copy.name)) if way == "put" else (server.url("source/"), copy)
            env = {} if way == "put" else {"env": recording(tmp)}
            assert flushes("--no-durable", *ends, **env) == 0
            assert 0 < flushes(*ends, **env) < 5
            assert 20 <= flushes("--durable", *ends, **env) < 25
            shutil.rmtree(copy)
            assert 20 <= flushes(*ends, **env) < 25
            assert tree_of(copy) == tree_of(source)
    fails("only one of them", "sync", "--durable", "--no-durable", tmp, "localhost:", code=2)


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    if FAILING_FSYNC is None or RECORD_CALLS is None:
        print("skipped: WEFT_TEST_FAILING_FSYNC and WEFT_TEST_RECORD_CALLS are not set")
        sys.exit(77)
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-durable-")


if __name__ == "__main__":
    main()
