"""The tests of libuv, libevent and Redis under `weft run --sockets`, with a ring at the first octet
of each connection. Each case is a process. One that fails runs once more without Weft: if it fails
there, too, it says nothing of Weft."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import harness
from outcome import FAILED, PASSED, SKIPPED, Case, beside_native

BUILD = str(pathlib.Path(__file__).with_name("build-sockets.sh"))
# Tests of programs that refuse root run as this user, who is nobody else's and not `nobody`.
OTHER_USER = "12345"
KEPT_LINES = 12


class SocketsSuite:
    """`programs(folder)`: the names of all cases; `argv(name)`: a case's command, in `folder`."""

    def __init__(self, name, limit_s, quick_names, needs=()):
        self.name, self.limit_s, self.quick_names, self.needs = name, limit_s, quick_names, needs
        self.folder = None
        self.weft = [harness.WEFT]

    def version(self):
        for program in self.needs:
            harness.need(program)
        where = subprocess.run([BUILD, self.name, "--where"], capture_output=True, text=True, check=True)
        self.folder = where.stdout.strip()
        return f"{self.name}, of Debian's source"

    def ready(self):
        return os.access(os.path.join(self.folder, self.made), os.X_OK)

    def build(self):
        if self.ready():
            return
        done = subprocess.run([BUILD, self.name], capture_output=True, text=True, check=False)
        if done.returncode == 77:
            raise harness.Skip(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            raise harness.Failure(f"{self.name} cannot be built:\n{done.stderr[-2000:]}")

    def as_user(self, home):
        return []

    def quick(self, name):
        return name in self.quick_names

    def cases(self):
        self.build()
        with tempfile.TemporaryDirectory(prefix="weft-suite-") as home:
            os.chmod(home, 0o777)
            done = subprocess.run([*self.as_user(home), *self.listing()], cwd=self.folder, text=True, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        names = self.names(done.stdout)
        if not names:
            raise harness.Failure(f"{self.name} lists no tests:\n{done.stdout[-500:]}")
        return names

    def once(self, name, weft):
        """What becomes of a case; of one that failed, with what it has said last."""
        under = [*self.weft, "run", "--sockets", "--log", "off", "--"] if weft else []
        env = {**os.environ, "WEFT_SOCKETS_BUSY_CALLS": "1"}
        with tempfile.TemporaryDirectory(prefix="weft-suite-") as home:
            os.chmod(home, 0o777)
            try:
                done = subprocess.run([*self.as_user(home), *under, *self.argv(name)], cwd=self.folder, env=env,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.STDOUT, errors="replace", timeout=self.limit_s, check=False)
            except subprocess.TimeoutExpired:
                return Case(name, FAILED, f"no end within {self.limit_s} s")
        if done.returncode == 0:
            return Case(name, PASSED, "")
        last = "\n".join(done.stdout.splitlines()[-KEPT_LINES:])
        return Case(name, FAILED, f"ended with {done.returncode}\n{last}")

    def run(self, names, seconds, report):
        done, stop = [], time.monotonic() + seconds
        for name in names:
            if time.monotonic() > stop:
                case = Case(name, SKIPPED, "no time left")
            else:
                case = beside_native(self.once(name, weft=True), lambda: self.once(name, weft=False).verdict)
            done.append(case)
            report(case)
        return done


class Libuv(SocketsSuite):
    made = "build/uv_run_tests"
    public = None

    def build(self):
        """Built, and if this is root: a copy of it and of Weft that every user may read."""
        super().build()
        if os.geteuid() != 0 or self.public is not None:
            return
        self.public = tempfile.TemporaryDirectory(prefix="weft-libuv-")
        os.chmod(self.public.name, 0o755)
        built = pathlib.Path(harness.WEFT).resolve().parents[1]
        shutil.copytree(self.folder, f"{self.public.name}/tests", symlinks=True)
        shutil.copytree(built / "lib/weft", f"{self.public.name}/lib/weft", symlinks=True)
        shutil.copy(harness.WEFT, f"{self.public.name}/weft")
        self.folder = f"{self.public.name}/tests"
        os.chmod(f"{self.folder}/build", 0o777)
        self.weft = ["env", f"WEFT_LIB_DIR={self.public.name}/lib", f"{self.public.name}/weft"]

    def as_user(self, home):
        if os.geteuid() != 0:
            return ["env", f"TMPDIR={home}"]
        return ["setpriv", "--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups", "env", f"HOME={home}",
                f"TMPDIR={home}"]

    def listing(self):
        return [os.path.join(self.folder, self.made), "--list"]

    def names(self, text):
        return [line.split()[0] for line in text.splitlines() if re.match(r"\w", line) and "root" not in line]

    def argv(self, name):
        return [os.path.join(self.folder, self.made), name]


class Libevent(SocketsSuite):
    made = "build/bin/regress"

    def listing(self):
        return [os.path.join(self.folder, self.made), "--list-tests"]

    def names(self, text):
        return re.findall(r"^\s+(\w+/\w+)", text, re.MULTILINE)

    def argv(self, name):
        return [os.path.join(self.folder, self.made), "--quiet", name]


class Redis(SocketsSuite):
    made = "src/redis-server"
    # Units that test commands alone, or that need a fork of the server for each of their steps.
    LEFT_OUT = re.compile(r"unit/(type|functions|geo|hyperloglog|sort|bitops|bitfield|dump|fuzz|aof|violations)")

    def listing(self):
        return ["cat", "tests/test_helper.tcl"]

    def names(self, text):
        every = re.findall(r"^\s+((?:unit|integration)/[\w/-]+)\s*$", text, re.MULTILINE)
        return [name for name in every if not self.LEFT_OUT.match(name)]

    def argv(self, name):
        shutil.rmtree(os.path.join(self.folder, "tests", "tmp"), ignore_errors=True)
        os.makedirs(os.path.join(self.folder, "tests", "tmp"))
        return ["./runtest", "--clients", "1", "--single", name]


LIBUV = Libuv("libuv", 60, ("tcp_write_ready", "tcp_ping_pong", "tcp_bind6_error_inval", "pipe_connect_multiple",
                            "tcp_shutdown_after_write"), ("setpriv",))
LIBEVENT = Libevent("libevent", 60, ("main/simpleread", "main/simplewrite", "bufferevent/bufferevent",
                                     "http/basic"))
REDIS = Redis("redis", 400, ("unit/protocol", "unit/pubsub"), ("tclsh",))
