"""UCX's own gtest: its transports over verbs, and what UCP makes of them."""

import os
import pathlib
import re
import subprocess

import child
import harness
import outcome

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "1.13.1-1"  # as in build-ucx.sh
# Groups of cases, named by the transport under them, that use the device. Left out are those of
# shared memory, TCP and of adapters with transports of their own (mlx5: rc_x, ud_x, dc), and
# mixtures with these.
GROUPS = ("rc_verbs", "ud_verbs", "ib", "rdmacm", "rcv", "rc_ud", "rc_no_ud", "rc", "ud")
CASE_LIMIT_S = 120
AT_ONCE = 200  # cases for one process: its filter is one word of the command line
QUICK = re.compile(
    r"roce/(rc_verbs|ud_verbs)/(uct_flush_test|uct_fence_test|test_uct_ib_addr)\.|"
    r"roce/(rc|ud)/(test_ucp_tag_match|test_ucp_stream_onesided|test_ucp_wakeup)\..*/0$")

_program = None


def build():
    global _program
    if _program is None:
        done = subprocess.run([HERE / "build-ucx.sh"], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, check=False)
        if done.returncode == harness.SKIPPED:
            raise harness.Skip("UCX's source cannot be had here")
        if done.returncode != 0:
            raise harness.Failure("UCX's gtest could not be built")
        _program = done.stdout.strip()
    return _program


def ready():
    """Whether it is built already: the small part is not worth the wait."""
    folder = os.environ.get("WEFT_SUITES_DIR")
    if not folder:
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(cache, "weft/suites")
    return pathlib.Path(folder, f"ucx-{VERSION}", ".weft-built").exists()


def version():
    return f"UCX {VERSION}"


def command(*words):
    return [harness.WEFT, "run", "--personality", "roce", "--log", "off", "--", build(), *words]


def environment():
    # "freeze", UCX's default for tests, waits for a debugger after a crash.
    return {**os.environ, "UCX_HANDLE_ERRORS": "none", "UCX_LOG_LEVEL": "warn"}


def cases():
    done = subprocess.run(command("--gtest_list_tests"), stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=120, check=False, env=environment())
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = (line.split() or [""])[0]
        if not line.startswith(" "):
            suite = word
        elif suite.split("/")[0] in GROUPS:
            names.append(f"roce/{suite}{word}")
    if not names:
        raise harness.Failure(f"UCX's gtest lists no cases:\n{done.stdout[-2000:]}{done.stderr}")
    return names


def quick(name):
    return QUICK.match(name) is not None


ENDED = re.compile(r"\[ *(RUN|OK|FAILED|SKIP) *\] *([^ ,(]*)")


class Reader:
    """Reads what gtest prints. UCX says SKIP and why, and later OK. The summary at the end names
    what failed once more."""

    def __init__(self):
        self.running, self.skipped = "", False

    def __call__(self, line):
        found = ENDED.match(line)
        if found is None:
            return None
        what, name = found.groups()
        if what == "RUN":
            self.running, self.skipped = name, False
            return child.Told(f"roce/{name}")
        if what == "SKIP":
            self.skipped = True
        if what == "SKIP" or name != self.running:
            return None
        self.running = ""
        if what == "FAILED":
            return child.Told(f"roce/{name}", outcome.FAILED)
        return child.Told(f"roce/{name}", outcome.SKIPPED if self.skipped else outcome.PASSED)


def run(names, seconds, report):
    def start(left):
        some = ":".join(name.partition("/")[2] for name in left[:AT_ONCE])
        return command(f"--gtest_filter={some}"), environment()

    return child.run_cases(names, start, Reader(), CASE_LIMIT_S, seconds, report)
