#!/usr/bin/env python3
"""What --durable promises: exit 0 means that it is on the disk.

    data_durable_test.py WEFT_DATA CASE...     without cases: all

WEFT_TEST_FAILING_FSYNC is failing_fsync.c as a library, WEFT_TEST_RECORD_CALLS is record_calls.c.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import (  # noqa: E402
    Server, big_file, client, digest, drafts_in, fails, filled, run, tree_of, without_io_uring)
from power_cuts import Disk  # noqa: E402
from raw_data import RawClient  # noqa: E402
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
    acknowledged("sync", "--durable", "--delete", f"{source}/", there)
    change(source)
    acknowledged("sync", "--durable", "--delete", f"{source}/", there)
    acknowledged("put", "--durable", source / "a" / "big", url_of("single"))
    acknowledged("sync", "--durable", source / "a" / "big", url_of("single"))
    disk.follow(record.read_text().splitlines())
    assert disk.acknowledged == 5 and disk.files, disk.acknowledged
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


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    if FAILING_FSYNC is None or RECORD_CALLS is None:
        print("skipped: WEFT_TEST_FAILING_FSYNC and WEFT_TEST_RECORD_CALLS are not set")
        sys.exit(77)
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-durable-")


if __name__ == "__main__":
    main()
