"""Programs that run in the guest, or on the host beside it."""

import ctypes
import os
import signal
import subprocess
import time


class VmError(Exception):
    """The guest did not do what it must be able to do."""


class Result:
    def __init__(self, rc, out, err):
        self.rc = rc  # exit status; None when it had to be killed
        self.out = out
        self.err = err

    def __repr__(self):
        return f"rc={self.rc}\n{self.out}{self.err}"


class Job:
    """A command that runs somewhere; output in files of this host. See GuestJob and HostJob."""

    def __init__(self, out, err):
        self._out, self._err = out, err

    def output(self):
        return "".join(
            p.read_text(errors="replace") for p in (self._out, self._err) if p.exists()
        )

    def wait(self, timeout):
        """Waits for the end. After `timeout` seconds the job is killed and rc is None."""
        deadline = time.monotonic() + timeout
        while self.rc() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        rc = self.rc()
        if rc is None:
            self.kill(signal.SIGKILL)
        read = lambda p: p.read_text(errors="replace") if p.exists() else ""
        return Result(rc, read(self._out), read(self._err))

    def wait_for(self, text, timeout):
        """True as soon as the output has `text`; False at the job's end or after `timeout`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            ended = self.rc() is not None
            if text in self.output():
                return True
            if ended:
                return False
            time.sleep(0.02)
        return False


class GuestJob(Job):
    def __init__(self, vm, ident, folder):
        super().__init__(folder / "out", folder / "err")
        self._vm, self._id, self._rc = vm, ident, folder / "rc"

    def rc(self):
        """Exit status, or None while it runs. 128 + n: ended by signal n."""
        try:
            return int(self._rc.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def kill(self, sig=signal.SIGKILL):
        """Sends a signal to the job and its children; no wait."""
        self._vm.tell(f"kill {self._id} {int(sig)}")


class HostJob(Job):
    def __init__(self, argv, folder, env=None):
        folder.mkdir(parents=True)
        super().__init__(folder / "out", folder / "err")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {})},
                preexec_fn=die_with_parent,
                start_new_session=True,
            )

    def rc(self):
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def kill(self, sig=signal.SIGKILL):
        try:
            os.killpg(self._process.pid, sig)
        except ProcessLookupError:
            pass
        if sig == signal.SIGKILL:
            self._process.wait()


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
