#!/usr/bin/env python3
"""Copies from and to file systems of several kinds, with and without io_uring: as in containers.

    data_disks_test.py WEFT_DATA CASE...     without cases: all
"""

import contextlib
import errno
import pathlib
import platform
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import raw_data  # noqa: E402
from data_setting import (  # noqa: E402
    Server, big_file, drafts_in, filled, install_filter, make_tree, run, tree_of, wait_for, without_io_uring)
from raw_data import RawClient  # noqa: E402
from serving import run_cases  # noqa: E402

MANY = 2000  # more than one message of a list has


@contextlib.contextmanager
def mounted(at, *arguments):
    """False where that cannot be mounted here."""
    at.mkdir()
    done = subprocess.run([*map(str, arguments), str(at)], capture_output=True, check=False)
    if done.returncode != 0:
        print(f"left out, cannot be mounted here: {' '.join(map(str, arguments))}")
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(at)], check=True)


def copies_both_ways(tmp, disk):
    """From the disk and to it, by a server on it and by a client."""
    served = disk / "served"
    make_tree(served, 60)
    for number in range(MANY):
        (served / "many").mkdir(exist_ok=True)
        (served / "many" / str(number)).touch()
    big_file(served / "big", 6)
    with Server(disk, "--writable", preexec_fn=without_io_uring) as server:
        run("get", "-r", server.url("served/"), tmp / "copy")
        assert tree_of(tmp / "copy") == tree_of(served)
        run("put", "-r", "--durable", f"{tmp / 'copy'}/", server.url("back"))
        assert tree_of(disk / "back") == tree_of(served)
        # Names go while the folder is listed and compared.
        for number in range(0, MANY, 3):
            (served / "many" / str(number)).unlink()
        (served / "many" / "1").rename(served / "moved")
        run("sync", "--delete", server.url("served/"), tmp / "copy")
        run("sync", "--delete", "--durable", f"{tmp / 'copy'}/", server.url("back"))
        assert tree_of(served) == tree_of(tmp / "copy") == tree_of(disk / "back")
        assert not drafts_in(disk / "back") and not drafts_in(disk)
    with Server(tmp / "copy") as server:  # the client's side
        run("get", "-r", "--durable", server.url(), disk / "here")
        assert tree_of(disk / "here") == tree_of(tmp / "copy")
        run("sync", "--delete", server.url(), disk / "here")


def case_tmpfs(tmp):
    with mounted(tmp / "disk", "mount", "-t", "tmpfs", "none") as good:
        if good:
            copies_both_ways(tmp, tmp / "disk")


def case_overlayfs(tmp):
    """Layers in tmpfs: what is removed or renamed is in the lower one."""
    with mounted(tmp / "layers", "mount", "-t", "tmpfs", "none") as good:
        if not good:
            return
        for name in ("lower", "upper", "work"):
            (tmp / "layers" / name).mkdir()
        filled(tmp / "layers" / "lower", "served/below/file", "served/many/old", "back/stays")
        (tmp / "layers" / "lower" / "back" / "stays").unlink()
        layers = ",".join(f"{name}dir={tmp / 'layers' / name}" for name in ("lower", "upper", "work"))
        with mounted(tmp / "disk", "mount", "-t", "overlay", "-o", layers, "none") as good:
            if good:
                copies_both_ways(tmp, tmp / "disk")


def without_unnamed_files():
    """For a child: O_TMPFILE is EOPNOTSUPP, as on NFS, FUSE, and overlayfs of older kernels."""
    openat, unnamed = {"x86_64": 257}.get(platform.machine(), 56), 0x400000
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    install_filter([(load, 0, 0, 0), (equal, 0, 3, openat), (load, 0, 0, 32), (any_bit, 0, 1, unnamed),
                    (give, 0, 0, 0x00050000 | errno.EOPNOTSUPP), (give, 0, 0, 0x7FFF0000)])


def case_a_disk_without_unnamed_files(tmp):
    """Drafts have hidden names, and go with their connection."""
    served = tmp / "served"
    served.mkdir()
    make_tree(tmp / "source", 60)
    big_file(tmp / "source" / "big", 6)
    with Server(served, "--writable", preexec_fn=without_unnamed_files) as server:
        for option in ([], ["--durable"]):
            run("put", "-r", *option, f"{tmp / 'source'}/", server.url("in"))
            assert tree_of(served / "in") == tree_of(tmp / "source")
            assert not drafts_in(served / "in") and not drafts_in(served / "in" / "d0" / "e0")
        with RawClient(server.port) as raw:
            raw.hello()
            assert raw.ask(raw_data.CREATE, struct.pack(">IQ", 0o644, 4096) + b"new")[0] == 0
            assert len(drafts_in(served)) == 1
        wait_for(lambda: not drafts_in(served), "the draft of a client that is gone stays")
        assert not (served / "new").exists()


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


if __name__ == "__main__":
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-disks-")
