#!/usr/bin/env python3
"""Copies that take minutes, and gigabytes of the disk.

    data_long_test.py WEFT_DATA CASE...     without cases: all
"""

import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import data_setting
from data_setting import PROGRAM, Server, digest, make_tree, run, tree_of
from serving import run_cases

MANY_FILES = 1_000_000


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


# A program begins with the peak of the process that has started it, which is a small one here.
PEAK = """import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(usage.ru_maxrss >> 10)
sys.exit(os.waitstatus_to_exitcode(status))"""


def peak_mib(*arguments):
    """Runs weft-data to its end; the memory that it had at most."""
    done = subprocess.run([sys.executable, "-c", PEAK, PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE,
                          text=True, check=True)
    return int(done.stdout.split()[-1])


def case_a_million_files_in_little_memory(tmp):
    """Empty ones in tmpfs, listed and compared both ways; source and destination are the same folder."""
    served = tmp / "served"
    served.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=2000000", "none", str(served)], capture_output=True,
                             check=False)
    if mounted.returncode != 0:
        return print("a_million_files_in_little_memory: no right to mount; left out")
    try:
        for folder in range(MANY_FILES // 1000):
            (served / str(folder)).mkdir()
            for file in range(1000):
                os.close(os.open(served / str(folder) / str(file), os.O_CREAT | os.O_WRONLY, 0o644))
        with Server(served, "--writable") as server:
            for ways in ((server.url(), f"{served}/"), (f"{served}/", server.url())):
                start = time.monotonic()
                peak = peak_mib("sync", "-q", "--delete", *ways)
                report(f"sync of {MANY_FILES} files that are there, {peak} MiB", start, server)
                assert peak < 256, peak
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            assert int(status.split("VmHWM:")[1].split()[0]) >> 10 < 256, status
    finally:
        subprocess.run(["umount", "-l", str(served)], check=True)
    return None


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}

if __name__ == "__main__":
    data_setting.LIMIT_S = 600
    run_cases(CASES, sys.argv[2:] or CASES, "weft-data-")
