#!/usr/bin/env python3
"""A mounted folder beside a local one: each call of a program gives the same result, and leaves the same behind.

    mount_posix_test.py WEFT_DATA WEFT_MOUNT CASE...     without cases: all

The cases are those of posix_cases.py. Where a mount differs, EXCEPTIONS has its result and the reason.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from data_setting import as_an_owner  # noqa: E402
from mount_test import LIMIT_S, Served, can_mount  # noqa: E402
from posix_cases import all_cases  # noqa: E402

# (cases, the step that differs, its result through the mount, why). The rest of such a case is not
# compared.
EXCEPTIONS = [
    ("chmod: set-id bits .*", "chmod f .*", "EPERM", "a client gives nobody the rights of the server's user"),
    ("open: set-id bits at once .*", "it", "", "as chmod; a file has no sticky bit"),
    ("chown: (to somebody else|a group)", "chown .*", "EPERM", "files belong to who mounted them"),
    ("link: each type .*", "lstat n .*", "1", "what is known of the other name is up to a second old"),
    ("mkfifo: .*", "mkfifo .*", "EPERM", "pipes connect programs of one machine"),
    ("mknod: a (pipe|device).*", "mknod .*", "EPERM", "devices belong to a machine"),
    ("open: a device", "open .*", "EACCES", "mounted with nodev"),
    ("open: an unnamed file", "open .*", "ENOTSUP", "libfuse knows none; programs take a named one"),
    ("rename: exchanged", "rename .*", "EINVAL", "cannot be asked for"),
    ("unlink: one of two names", "changed .*", "", "what is known of the other name is up to a second old"),
    ("utimens: of the last access", "lstat .*", "1960000000", "its time is the server's matter"),
]


def results_in(folder, there, cases):
    """As posix_calls.py tells them, of a process for which permissions hold."""
    calls = pathlib.Path(__file__).resolve().with_name("posix_calls.py")
    done = subprocess.run([sys.executable, str(calls), str(folder), str(there)], timeout=5 * LIMIT_S, text=True,
                          input=json.dumps([[words for words, _ in steps] for _, steps in cases]),
                          stdout=subprocess.PIPE, check=True, preexec_fn=as_an_owner)
    return json.loads(done.stdout)


def as_expected(result, expected):
    if expected in (None, "?"):
        return expected == "?" or not re.fullmatch("E[A-Z0-9]+", str(result))
    return str(result) == ("" if expected == "EMPTY" else expected)


def exception_of(name, words, result):
    for one in EXCEPTIONS:
        if re.fullmatch(one[0], name) and re.fullmatch(one[1], " ".join(words)) and str(result) == one[2]:
            return one
    return None


def differences(case, local, mounted):
    """What the mount does otherwise, and the exception that covers it."""
    name, steps = case
    for (words, expected), here, there in zip(steps, local["results"], mounted["results"]):
        if not as_expected(here, expected):
            return f"{name}: {' '.join(words)} is {here} in a local folder, not {expected}", None
        if here != there:
            return f"{name}: {' '.join(words)} is {there}, not {here}", exception_of(name, words, there)
    for what, state in (("it", mounted["state"]), ("the server", mounted["there"])):
        if state != local["state"]:
            found = exception_of(name, [what], "")
            return f"{name}: behind it, {what} has {state}, not {local['state']}", found
    return None, None


def main():
    if not can_mount() or subprocess.run(["id", "-u"], stdout=subprocess.PIPE, check=True).stdout != b"0\n":
        print("left out: no right to use /dev/fuse, or not root, who can become another user")
        sys.exit(77)
    cases = [case for case in all_cases() if not sys.argv[3:] or any(word in case[0] for word in sys.argv[3:])]
    with tempfile.TemporaryDirectory(prefix="weft-posix-") as folder:
        tmp = pathlib.Path(folder)
        tmp.chmod(0o755)  # others have to reach what is in it
        (tmp / "local").mkdir()
        local = results_in(tmp / "local", tmp / "local", cases)
        with Served(tmp, "writable", "--allow-other") as served:
            mounted = results_in(served.at, served.source, cases)
    used, wrong = set(), 0
    for case, here, there in zip(cases, local, mounted):
        text, exception = differences(case, here, there)
        if exception is not None:
            used.add(exception)
        elif text is not None:
            wrong += 1
            print(text)
    unused = [] if sys.argv[3:] else [one for one in EXCEPTIONS if one not in used]
    for one in unused:
        print(f"no exception any more: {one}")
    print(f"{len(cases) - wrong} passed, {wrong} failed, {len(used)} exceptions")
    sys.exit(1 if wrong or unused else 0)


if __name__ == "__main__":
    main()
