"""Programs with a deadline: every process here ends, whatever happens."""

import dataclasses
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time


class Failed(Exception):
    """A program could not be run, or did not do what it should. The text is for the report."""


@dataclasses.dataclass(frozen=True)
class Ended:
    out: str
    err: str
    code: int
    cpu_s: float

    def require(self, name):
        if self.code != 0:
            raise Failed(f"{name} ended with {describe_code(self.code)}: "
                         f"{last_line(self.err + self.out)}")
        return self


def describe_code(code):
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def last_line(text):
    """The last line that speaks of an error, or simply the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it printed nothing"])[-1][:200]


def shell_text(argv):
    return shlex.join(str(a) for a in argv)


class Running:
    """A process in a session of its own, so that stopping it stops its children too."""

    def __init__(self, argv, env=None):
        self.argv = [str(a) for a in argv]
        self._files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        self._result = None
        try:
            self._process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=self._files[0],
                stderr=self._files[1], env={**os.environ, **(env or {})},
                start_new_session=True)
        except OSError as error:
            for file in self._files:
                file.close()
            raise Failed(f"cannot start {self.argv[0]}: {error.strerror}") from None
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def poll(self):
        """Ended, or None while it runs."""
        if self._result is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return None
            self._finish(status, usage)
        return self._result

    def wait(self, deadline_s):
        end = time.monotonic() + deadline_s
        pause = 0.001
        while self.poll() is None:
            if time.monotonic() > end:
                self.stop()
                raise Failed(f"{self.argv[0]} did not end within {deadline_s:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)
        return self._result

    def stop(self, patience_s=1.0):
        """Asks, then forces. Gives how it ended."""
        for number, patience in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
            if self._result is not None:
                break
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass
            end = time.monotonic() + patience
            while self.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
        try:  # children that outlived it
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        return self._result

    def _finish(self, status, usage):
        self._process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        self._result = Ended(*texts, self._process.returncode, usage.ru_utime + usage.ru_stime)

    def wait_until_listening(self, port, deadline_s=10):
        """Waits until the process' network namespace has a TCP listener on `port`."""
        end = time.monotonic() + deadline_s
        while not _listens(self.pid, port):
            if self.poll() is not None:
                raise Failed(f"{self.argv[0]} ended before it listened: "
                             f"{last_line(self._result.err + self._result.out)}")
            if time.monotonic() > end:
                raise Failed(f"{self.argv[0]} did not listen within {deadline_s} s")
            time.sleep(0.005)
        return self


def _listens(pid, port):
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return True
        except (OSError, IndexError):
            continue
    return False


def run(argv, deadline_s, env=None):
    with Running(argv, env) as process:
        return process.wait(deadline_s)


def children_cpu_s():
    """CPU seconds of all programs run so far, and of this one."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def find_weft(given):
    here = os.path.dirname(os.path.abspath(__file__))
    candidates = [given] if given else [
        os.path.join(os.environ.get("WEFT_BIN_DIR", ""), "weft"),
        os.path.join(here, "../../build/release/bin/weft"),   # in the source tree
        os.path.join(here, "../../../../bin/weft"),           # installed: share/weft/compare/...
        shutil.which("weft") or "",
    ]
    for path in candidates:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failed(f"there is no program {given}" if given else
                 "no weft program found: build it (./run.sh --build-only), or name it with --weft")
