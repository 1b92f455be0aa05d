"""What the tests of the data server and its client share: the server, the client, trees of files, and a way that
breaks. sys.argv[1] is weft-data."""

import ctypes
import errno
import hashlib
import os
import pathlib
import random
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from serving import Serving

PROGRAM = sys.argv[1]
LIMIT_S = 60


class Server(Serving):
    """A server on a free port of the loopback address; ends with the block."""

    def __init__(self, *arguments, port=0, **more):
        super().__init__(PROGRAM, *arguments, port=port, limit_s=LIMIT_S, **more)


def run(*arguments, code=0, text=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=LIMIT_S, check=False)
    error = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, {error}"
    if text is not None:
        assert text in error, f"{arguments}: {text!r} is not in {error!r}"
    return done.stdout


CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
LIBC = ctypes.CDLL(None, use_errno=True)


def as_an_owner():
    """For a child: permissions hold for it, although it may be root."""
    if os.geteuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            assert LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0


def install_filter(filtered):
    """Of system calls, for a child: rows of code, jumps where it is so and where not, and a number."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in filtered))
    program = struct.pack("=HxxxxxxQ", len(filtered), ctypes.addressof(code))
    assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert LIBC.prctl(PR_SET_SECCOMP, 2, program, 0, 0) == 0


def without_io_uring():
    """For a child: io_uring_setup() is EPERM, as under Docker's default profile."""
    load, jump, give = 0x20, 0x15, 0x06
    install_filter([(load, 0, 0, 0), (jump, 0, 1, 425), (give, 0, 0, 0x00050000 | errno.EPERM), (give, 0, 0, 0x7FFF0000)])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_of(root):
    """Relative name -> what is there."""
    out = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        name = os.fsencode(str(path.relative_to(root)))
        if path.is_symlink():
            out[name] = os.readlink(path)
        elif path.is_dir():
            out[name] = "folder"
        else:
            info = path.stat()
            out[name] = (digest(path), stat.S_IMODE(info.st_mode), info.st_mtime_ns)
    return out


def make_tree(root, files=300, sizes=(0, 1, 511, 4096, 65535, 65536, 65537, 300000)):
    rng = random.Random(7)
    for i in range(files):
        folder = root / f"d{i % 7}" / f"e{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        size = rng.choice(sizes)
        path = folder / f"file {i}"
        path.write_bytes(rng.randbytes(size))
        path.chmod(rng.choice([0o600, 0o644, 0o755]))
        os.utime(path, ns=(0, 1_600_000_000_000_000_000 + i * 1_000_000_007))
    (root / "link").symlink_to("d0/e0/file 0")


def big_file(path, megabytes):
    with open(path, "wb") as out:
        rng = random.Random(3)
        for _ in range(megabytes):
            out.write(rng.randbytes(1 << 20))


class Cutter:
    """In front of a server: forwards what comes, and cuts each connection behind so many octets, but the last; with
    None behind none. Where it `refuses`, it takes no connection behind the first cut."""

    def __init__(self, port, limits, refuses=False):
        self.target, self.limits, self.cuts, self.octets = port, list(limits), 0, 0
        self.refuses = refuses
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            if self.refuses and self.cuts:
                ours.close()
                continue
            its = socket.create_connection(("127.0.0.1", self.target))
            limit = self.limits.pop(0) if self.limits else None
            cut = threading.Lock()  # held once the connection is cut, by either direction
            for a, b in ((ours, its), (its, ours)):
                threading.Thread(target=self.forward, args=(a, b, limit, cut), daemon=True).start()

    def forward(self, a, b, limit, cut):
        done = 0
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
                done += len(data)
                self.octets += len(data)
                if limit is not None and done > limit:
                    self.cuts += cut.acquire(blocking=False)
                    break
        except OSError:
            pass
        for link in (a, b):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def drafts_in(folder):
    return [folder / name for name in os.listdir(folder) if name.startswith(".weft-")]


def plain_client(server, *arguments):
    """Runs data_client, which knows the protocol from docs/data-protocol.md only."""
    environment = {**os.environ, "LD_LIBRARY_PATH": os.environ["WEFT_TEST_VERBS_DIR"]}
    return [os.environ["WEFT_TEST_DATA_CLIENT"], "127.0.0.1", str(server.port), *arguments], environment


def client(*arguments, **more):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, **more)


def fails(text, *arguments, code=1, **more):
    done = client(*arguments, **more)
    assert done.returncode == code and text in done.stderr, done


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def filled(folder, *names):
    """A folder with files that hold their names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder
