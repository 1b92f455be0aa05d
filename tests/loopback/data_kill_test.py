#!/usr/bin/env python3
"""A copy whose client or server is killed before each of its calls that change files or use the network, one after
another.

    data_kill_test.py WEFT_DATA CASE...     without cases: all

Each name has what it had before or what the source has, whole, and the next copy ends what was begun. WEFT_TEST_KILL
is kill_before_call.c as a library.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import PROGRAM, Server, digest  # noqa: E402
from serving import run_cases  # noqa: E402

KILL = os.environ.get("WEFT_TEST_KILL")
LIMIT_S = 60
MOST_CALLS = 1000


def make_tree(root, letter, length):
    (root / "folder").mkdir(parents=True)
    (root / "link").symlink_to(f"target {letter}")
    for name, bytes_ in (("small", 100), ("folder/large", 5 << 20), ("folder/empty", 0)):
        (root / name).write_bytes(letter.encode() * (bytes_ + length))


def state_of(root):
    """What each name leads to; what is not whole has a name of its own, and is left out."""
    out = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.name.startswith((".weft-part-", ".weft-draft-")):
            continue
        if path.is_symlink():
            out[name] = os.readlink(path)
        elif path.is_file():
            out[name] = path.read_bytes()
    return out


def check(copy, old, new, where):
    now = state_of(copy)
    assert now.keys() == new.keys(), (where, now.keys())
    for name, contents in now.items():
        assert contents in (old[name], new[name]), f"{where}: {name} is neither the old nor the new one"


def killed_at(call, network=False):
    """The environment of a process that is killed before this call; 0: never."""
    network = {"WEFT_TEST_KILL_NETWORK": "1"} if network else {}
    return {**os.environ, **network, "LD_PRELOAD": KILL, "WEFT_TEST_KILL_AT": str(call)}


def sweep(tmp, one_copy):
    """`one_copy(copy, call)` copies `new` and returns whether its process was killed before that call."""
    make_tree(tmp / "old", "o", 0)
    make_tree(tmp / "new", "n", 1)
    old, new = state_of(tmp / "old"), state_of(tmp / "new")
    for call in range(1, MOST_CALLS):
        copy = tmp / "copy"
        shutil.copytree(tmp / "old", copy, symlinks=True)
        killed = one_copy(copy, call)
        check(copy, old, new, f"call {call}")
        if killed:
            one_copy(copy, 0)
        assert state_of(copy) == new, f"the copy after call {call}"
        shutil.rmtree(copy)
        if not killed:
            print(f"  killed before each of {call - 1} calls", flush=True)
            assert call > 10, "nothing was killed"
            return
    raise AssertionError(f"more than {MOST_CALLS} calls")


def case_sync_from_a_server(tmp):
    with Server(tmp) as server:
        def one_copy(copy, call):
            done = subprocess.run([PROGRAM, "sync", "--durable", server.url("new/"), str(copy)], capture_output=True,
                                  timeout=LIMIT_S, check=False, env=killed_at(call))
            assert done.returncode in (0, -signal.SIGKILL), done
            return done.returncode != 0
        sweep(tmp, one_copy)


def case_sync_to_a_server(tmp):
    def one_copy(copy, call):
        try:
            serving = Server(copy, "--writable", env=killed_at(call))
        except AssertionError:
            assert call != 0
            return True  # killed while it started
        with serving as server:
            sync = ("sync", "--durable", "--retry", "0", f"{tmp}/new/", server.url())
            done = subprocess.run([PROGRAM, *sync], capture_output=True, timeout=LIMIT_S, check=False)
            server.stop()
            assert server.process.returncode in (0, -signal.SIGKILL), server.process.returncode
            killed = server.process.returncode != 0
            assert done.returncode == 0 or killed, done
            assert done.returncode != 0 or state_of(copy) == state_of(tmp / "new")
            return killed
    sweep(tmp, one_copy)


# Larger than what is sent again rather than gone on with.
LARGE = (4 << 20) + 1


def run_killed(arguments, call, network=False):
    """Whether it was killed before that call."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False,
                          env=killed_at(call, network))
    assert done.returncode in (0, -signal.SIGKILL), done
    return done.returncode != 0


def sweep_file(tmp, copy, attempt, alone=True):
    """`attempt(call)` copies the file `new` onto `copy` and returns whether something was killed before that call. A
    second attempt goes on with what the first has left, and is killed at the same call of its own."""
    old, new = b"o" * LARGE, os.urandom(LARGE)
    (tmp / "new").write_bytes(new)
    for call in range(1, MOST_CALLS):
        copy.write_bytes(old)
        before = [attempt(call)]
        assert copy.read_bytes() in ((old, new) if before[0] else (new,)), f"call {call}"
        if before[0]:
            before.append(attempt(call))
            assert copy.read_bytes() in ((old, new) if before[1] else (new,)), f"call {call}, the second time"
            assert not attempt(0)
            assert copy.read_bytes() == new, f"the copy after call {call}"
        left = [name for name in os.listdir(copy.parent) if name.startswith((".weft-part-", ".weft-draft-"))]
        # One that died beside another leaves a part that nobody else takes: it goes when it is old.
        assert not (alone and left), (call, left)
        if not before[0]:
            print(f"  killed before each of {call - 1} calls", flush=True)
            assert call > 1, "nothing was killed"
            return
    raise AssertionError(f"more than {MOST_CALLS} calls")


def case_get_of_a_file(tmp):
    (tmp / "to").mkdir()
    with Server(tmp) as server:
        get = ("get", server.url("new"), tmp / "to" / "file")
        sweep_file(tmp, tmp / "to" / "file", lambda call: run_killed(get, call))


def case_put_of_a_file(tmp):
    """Its client changes nothing here, so it is killed while it reads and sends."""
    (tmp / "to").mkdir()
    with Server("--writable", tmp / "to") as server:
        put = ("put", tmp / "new", server.url("file"))
        sweep_file(tmp, tmp / "to" / "file", lambda call: run_killed(put, call, network=True))


def with_killed_server(served, copying, call, network):
    """Whether the server was killed before that call, while `copying(server)` was copied."""
    try:
        serving = Server(served, "--writable", env=killed_at(call, network))
    except AssertionError:
        assert call != 0
        return True  # killed while it started
    with serving as server:
        done = subprocess.run([PROGRAM, *map(str, copying(server))], capture_output=True, timeout=LIMIT_S, check=False)
        server.stop()
        assert server.process.returncode in (0, -signal.SIGKILL), server.process.returncode
        killed = server.process.returncode != 0
        assert done.returncode == 0 or killed, done
        return done.returncode != 0


def case_put_of_a_file_to_a_server(tmp):
    (tmp / "to").mkdir()

    def copying(server):
        return "put", "--retry", "0", tmp / "new", server.url("file")
    sweep_file(tmp, tmp / "to" / "file", lambda call: with_killed_server(tmp / "to", copying, call, False))


def case_get_of_a_file_from_a_server(tmp):
    (tmp / "to").mkdir()

    def copying(server):
        return "get", "--retry", "0", server.url("new"), tmp / "to" / "file"
    sweep_file(tmp, tmp / "to" / "file", lambda call: with_killed_server(tmp, copying, call, True))


def beside_another(arguments, call, network):
    """Two of the same copy at once, one of them killed before that call. Whether it was."""
    with subprocess.Popen([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE) as other:
        killed = run_killed(arguments, call, network)
        _, said = other.communicate(timeout=LIMIT_S)
        assert other.returncode == 0, said
    return killed


def case_two_gets_onto_one_file(tmp):
    (tmp / "to").mkdir()
    copy = tmp / "to" / "file"
    with Server(tmp) as server:
        def attempt(call):
            killed = beside_another(("get", server.url("new"), copy), call, False)
            assert digest(copy) == digest(tmp / "new")
            return killed
        sweep_file(tmp, copy, attempt, alone=False)


def case_two_puts_onto_one_file(tmp):
    (tmp / "to").mkdir()
    copy = tmp / "to" / "file"
    with Server("--writable", tmp / "to") as server:
        def attempt(call):
            killed = beside_another(("put", tmp / "new", server.url("file")), call, True)
            assert digest(copy) == digest(tmp / "new")
            return killed
        sweep_file(tmp, copy, attempt, alone=False)


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def main():
    if KILL is None:
        print("skipped: WEFT_TEST_KILL is not set")
        sys.exit(77)
    run_cases(CASES, sys.argv[2:] or list(CASES), "weft-kill-")


if __name__ == "__main__":
    main()
