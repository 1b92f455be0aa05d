#!/usr/bin/env python3
"""What --durable promises: exit 0 means that it is on the disk.

    data_durable_test.py WEFT_DATA CASE...     without cases: all

WEFT_TEST_FAILING_FSYNC is failing_fsync.c as a library.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import Server, big_file, client, digest, drafts_in, fails, filled, run, tree_of  # noqa: E402
from raw_data import RawClient  # noqa: E402
from serving import run_cases  # noqa: E402

FAILING_FSYNC = os.environ.get("WEFT_TEST_FAILING_FSYNC")


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


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    if FAILING_FSYNC is None:
        print("skipped: WEFT_TEST_FAILING_FSYNC is not set")
        sys.exit(77)
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-durable-")


if __name__ == "__main__":
    main()
