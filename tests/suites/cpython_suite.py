"""CPython's tests of sockets, and of what waits for them, under `weft run --sockets` with a ring at
the first octet of each connection. A case that fails runs once more without Weft: one that fails
there, too, says nothing of Weft."""

import json
import os
import pathlib
import subprocess

import child
import harness
import outcome

PACKAGE = "libpython3.11-testsuite"
PYTHON = "/usr/bin/python3"  # whose tests they are
RUNNER = str(pathlib.Path(__file__).with_name("cpython_runner.py"))
MARK = "@case "
MODULES = ("test_socket", "test_select", "test_epoll", "test_poll", "test_selectors", "test_httpservers",
           "test_ssl", "test_asyncio.test_sock_lowlevel", "test_asyncio.test_server",
           "test_asyncio.test_streams", "test_asyncio.test_sendfile", "test_asyncio.test_events",
           "test_asyncio.test_selector_events", "test_asyncio.test_buffered_proto",
           "test_asyncio.test_sslproto", "test_asyncio.test_ssl", "test_asyncio.test_subprocess",
           "test_asyncio.test_unix_events")
CASE_LIMIT_S = 60
QUICK = ("test_socket.BasicTCPTest", "test_socket.BufferIOTest", "test_socket.NonBlockingTCPTests",
         "test_socket.SendfileUsingSendTest", "test_socket.SendmsgTCPTest", "test_socket.RecvmsgTCPTest",
         "test_socket.FileObject", "test_select.", "test_epoll.", "test_asyncio.test_sock_lowlevel.")


def version():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise harness.Skip(f"{PACKAGE} is not installed (scripts/install-deps.sh suites)")
    return f"CPython {done.stdout}"


def command(*words, weft=True):
    before = [harness.WEFT, "run", "--sockets", "--log", "off", "--"] if weft else []
    return [*before, PYTHON, "-u", RUNNER, *words]


def cases():
    done = subprocess.run(command("--names", *MODULES, weft=False), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)
    names = [line[len(MARK):] for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not names:
        raise harness.Failure(f"CPython lists no tests:\n{done.stdout}{done.stderr}")
    return list(dict.fromkeys(names))


def quick(name):
    return name.startswith(QUICK)


def read(line):
    if not line.startswith(MARK):
        return None
    said = json.loads(line[len(MARK):])
    return child.Told(said["name"], said["verdict"], said["detail"])


def natively(name):
    """What becomes of one case that runs by itself, without Weft."""
    return child.run_cases([name], lambda left: (command(*left, weft=False), None), read, CASE_LIMIT_S,
                           CASE_LIMIT_S, lambda case: None)[0].verdict


def run(names, seconds, report):
    env = {**os.environ, "WEFT_SOCKETS_BUSY_CALLS": "1"}

    def judge(case):
        """Reports a case; one that failed, with what it does alone."""
        case = outcome.beside_native(case, lambda: natively(case.name))
        judged.append(case)
        report(case)

    judged = []
    child.run_cases(names, lambda left: (command(*left), env), read, CASE_LIMIT_S, seconds, judge)
    return judged
