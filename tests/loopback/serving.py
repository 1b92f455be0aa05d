"""What the tests of the data server and of its clients share: a server, and running the cases."""
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


class Serving:
    """`program serve ARGUMENTS` on a port of the loopback address (0: a free one); ends with the
    block."""

    def __init__(self, program, *arguments, port=0, limit_s=60, **more):
        read, write = os.pipe()
        self.limit_s = limit_s
        self.process = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1", "--port", str(port), "--announce-fd",
             str(write), *map(str, arguments)],
            pass_fds=[write], stderr=subprocess.PIPE, text=True, **more)
        os.close(write)
        with os.fdopen(read) as announced:
            line = announced.readline()
        if not line:
            raise AssertionError("no server: " + self.process.communicate()[1])
        self.port = int(line)
        self.log = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.log = self.process.communicate(timeout=self.limit_s)[1]
        return self.log

    def cpu_seconds(self):
        """That the server has used so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def url(self, path=""):
        return f"weft://127.0.0.1:{self.port}/{path}"


class Restless:
    """Writes to a file all the time, until the block ends: a process, which others of this program
    do not hold up."""

    def __init__(self, path):
        self.path = path
        self.process = multiprocessing.get_context("fork").Process(target=self.write, daemon=True)

    def write(self):
        with open(self.path, "r+b", buffering=0) as out:
            while True:
                out.seek(0)
                out.write(b"x")

    def __enter__(self):
        self.process.start()

    def __exit__(self, *_):
        self.process.kill()
        self.process.join(60)


def run_cases(cases, chosen, prefix):
    """Each in a folder of its own, and with one for what programs keep of their runs."""
    for name in chosen:
        tmp, kept = (pathlib.Path(tempfile.mkdtemp(prefix=prefix)) for _ in range(2))
        os.environ["XDG_STATE_HOME"] = str(kept)
        start = time.monotonic()
        try:
            cases[name](tmp)
        finally:
            for folder in (tmp, kept):
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{name}: passed in {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(chosen)} passed, 0 failed")
