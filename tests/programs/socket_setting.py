"""Socket programs under `weft run --sockets`: on which sides Weft is, and what most tests need."""

import os
import shutil
import subprocess
import tempfile
import time

from harness import WEFT, check

LIMIT_S = 60
# A ring from the first octet on, where there can be one.
os.environ["WEFT_SOCKETS_BUSY_CALLS"] = "1"


# (server under Weft, client under Weft)
SIDES = ((True, True), (True, False), (False, True))


class Setting:
    """One combination of sides, in a folder of its own."""

    def __init__(self, network, folder, server_weft, client_weft):
        self.network = network
        self.folder = folder
        self.server_weft = server_weft
        self.client_weft = client_weft
        self.processes = []
        os.chmod(folder, 0o755)

    @property
    def host(self):
        return self.network.server.v4

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        mode = "wb" if isinstance(text, bytes) else "w"
        with open(self.path(name), mode) as file:
            file.write(text)
        return self.path(name)

    def weft_for_everybody(self):
        """A copy of Weft that every user may read: the tree may lie in a home folder, and the
        loader says nothing to a program that has changed its user. What starts a program with it."""
        built, copy = os.path.dirname(os.path.dirname(os.path.abspath(WEFT))), self.path("weft")
        shutil.copytree(f"{built}/lib/weft", f"{copy}/lib/weft", symlinks=True)
        os.mkdir(f"{copy}/bin")
        return {"command": shutil.copy(WEFT, f"{copy}/bin"), "env": {"WEFT_LIB_DIR": f"{copy}/lib"}}

    def _run(self, place, weft, argv, **more):
        if weft:
            process = place(argv, options=("--sockets", "--why"), **more)
        else:
            process = place(argv, raw=True, **more)
        self.processes.append(process)
        return process

    def serve(self, argv, **more):
        return self._run(self.network.start, self.server_weft, argv, **more)

    def call(self, argv, **more):
        return self._run(self.network.connect, self.client_weft, argv, **more)

    def must(self, argv, status=0, seconds=LIMIT_S, **more):
        """Runs a client to its end; its output."""
        return self.call(argv, **more).expect(status, seconds)

    def check_path(self, output, ring=False):
        """What a client under Weft said of its connections. `ring`: one of them is to have a ring if
        both sides are under Weft, on this machine; else it may."""
        may = self.server_weft and self.client_weft and self.network.name == "loopback"
        has = ": ring: " in output
        check(may or not has, f"a ring without Weft at both ends:\n{output[-2000:]}")
        check(has or not (ring and may), f"no ring:\n{output[-2000:]}")

    def end(self):
        for process in self.processes:
            process.end()


def everywhere(case, sides=SIDES):
    """A case of the harness: `case(setting)` for each combination of sides."""

    def run(network):
        for server_weft, client_weft in sides:
            with tempfile.TemporaryDirectory(prefix="weft-sockets-") as folder:
                setting = Setting(network, folder, server_weft, client_weft)
                try:
                    case(setting)
                except Exception as why:
                    names = {True: "Weft", False: "plain"}
                    why.args = (f"server {names[server_weft]}, client {names[client_weft]}: "
                                f"{why.args[0] if why.args else why}\n"
                                + "\n".join(f"{p.argv[0]}:\n{p.tail(12)}" for p in setting.processes),)
                    raise
                finally:
                    setting.end()
    return run


def quiet(argv):
    subprocess.run([str(a) for a in argv], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S)


def until(condition, text, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, text)
        time.sleep(0.05)


def int_of(text):
    """The number in what redis-cli prints: behind what Weft says of the connection."""
    numbers = [line for line in text.split() if line.isdigit()]
    return int(numbers[-1]) if numbers else 0


MODE = "setsockopt(0x10000, 0x57, 1)  # WEFT_MODE of <weft/sockets.h>"

# An echo server, and a client of many connections that compares what comes back.
ASYNC_SERVER = """
import asyncio, sys
async def serve(r, w):
    while data := await r.read(65536):
        w.write(data); await w.drain()
    w.close()
async def main():
    async with await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2])) as s:
        await s.serve_forever()
asyncio.run(main())
"""
# The same with a listener in IWARP mode.
MODE_BACKLOG = 4096
MODE_SERVER = ASYNC_SERVER.replace("asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))",
                                   f"asyncio.start_server(serve, sock=listener, backlog={MODE_BACKLOG})").replace(
    "import asyncio, sys", f"""import asyncio, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
listener.{MODE}
""")
ASYNC_CLIENT = """
import asyncio, os, sys
async def one(i):
    r, w = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    data = os.urandom(1000 + i * 4999)
    async def send():
        for at in range(0, len(data), 10000):
            w.write(data[at:at + 10000]); await w.drain()
        w.write_eof()
    task = asyncio.create_task(send())
    got = await r.read(-1) ; await task
    assert got == data, (i, len(got), len(data))
    w.close()
async def main():
    await asyncio.gather(*(one(i) for i in range(int(sys.argv[3]))))
    print('all equal')
asyncio.run(main())
"""
