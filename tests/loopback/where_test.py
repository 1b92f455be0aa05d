#!/usr/bin/env python3
"""One way to say where: every command takes [ADDRESS:]PORT to listen and HOST[:PORT] to connect,
and the older forms still work.

    where_test.py PATH/TO/weft [unittest arguments]

The programs of weft's folder (weft-data, weft-mount, weft-video, exs-perf) are tried where they
were built.
"""

import contextlib
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = "weft"
DEADLINE_S = 120
QUICK = ["--mode", "sleep", "--rounds", "1", "--duration", "0.02", "--latency-duration", "0.01",
         "--op", "write", "--transport", "tcp"]
LOOPBACK = "0100007F"  # as /proc/net/tcp has 127.0.0.1
LOOPBACK6 = "0" * 24 + "01000000"


def built(name):
    return os.path.exists(os.path.join(os.path.dirname(WEFT), name))


def program(name):
    return os.path.join(os.path.dirname(WEFT), name)


def run(*argv):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True,
                          timeout=DEADLINE_S, stdin=subprocess.DEVNULL)


def has_ipv6():
    with contextlib.suppress(OSError):
        return "00000000000000000000000000000001" in pathlib.Path("/proc/net/if_inet6").read_text()
    return False


def addresses(pid, port):
    """Where `pid` listens on `port`, as the kernel writes addresses."""
    sockets = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(link))
    found = set()
    for table in ("tcp", "tcp6"):
        for row in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            address, _, number = fields[1].partition(":")
            mine = f"socket:[{fields[9]}]" in sockets
            if mine and fields[3] == "0A" and int(number, 16) == port:
                found.add(address)
    return found


def read_until(stream, pattern):
    """The first match of `pattern` in what a pipe brings; never waits for ever."""
    text = ""
    end = time.monotonic() + DEADLINE_S
    while not (match := re.search(pattern, text)):
        ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise TimeoutError(f"only {text!r}")
        more = os.read(stream.fileno(), 4096).decode()
        if not more:
            raise EOFError(f"closed after {text!r}")
        text += more
    return match


@contextlib.contextmanager
def listening(*argv, pattern=r"[: ](\d+)\n"):
    """A server whose output names its port: (process, port, path of its stderr)."""
    with tempfile.NamedTemporaryFile(mode="w+") as errors:
        process = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=errors,
                                   stdin=subprocess.DEVNULL)
        try:
            yield process, int(read_until(process.stdout, pattern).group(1)), errors.name
        finally:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def serving(*argv):
    """`weft serve` or `weft video serve`: (process, port, path of its stderr)."""
    read, write = os.pipe()
    with tempfile.NamedTemporaryFile(mode="w+") as errors, os.fdopen(read) as announced:
        process = subprocess.Popen([WEFT, *map(str, argv), "--announce-fd", str(write)],
                                   pass_fds=[write], stderr=errors, stdin=subprocess.DEVNULL)
        os.close(write)
        try:
            line = announced.readline()
            if not line:
                process.wait(DEADLINE_S)
                raise AssertionError("no server: " + pathlib.Path(errors.name).read_text())
            yield process, int(line), errors.name
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


class Test(unittest.TestCase):
    def assert_done(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def assert_silent(self, result):
        self.assert_done(result)
        self.assertEqual(result.stderr, "")

    def assert_refused(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_hint(self, text, *words):
        for word in words:
            self.assertIn(word, text)


class MeasuringTools(Test):
    def listen_forms(self):
        yield "127.0.0.1:0", {LOOPBACK}, "127.0.0.1"
        yield "0", None, "127.0.0.1"
        yield ":0", None, "localhost"
        if has_ipv6():
            yield "[::1]:0", {LOOPBACK6}, "[::1]"

    def try_each(self, argv, client):
        for where, expected, host in self.listen_forms():
            with self.subTest(where=where), listening(*argv, where) as (process, port, errors):
                found = addresses(process.pid, port)
                self.assertTrue(found)
                if expected:
                    self.assertEqual(found, expected)
                self.assert_done(run(*client(f"{host}:{port}")))
                self.assertEqual(pathlib.Path(errors).read_text(), "")

    def test_perf(self):
        self.try_each([WEFT, "perf", "--listen"], lambda at: [WEFT, "perf", at, *QUICK])

    def test_ping(self):
        self.try_each([WEFT, "ping", "--listen"], lambda at: [WEFT, "ping", at, "--count", "1"])

    def test_selftest(self):
        self.try_each([WEFT, "selftest", "--log", "off", "--listen"],
                      lambda at: [WEFT, "selftest", "--peer", at, "--only", "startup.rev1"])

    def test_older_forms_of_selftest(self):
        forms = {"0": [], "127.0.0.1:0": ["--port", "127.0.0.1:0", "--listen 127.0.0.1:0"]}
        for where, words in forms.items():
            argv = [WEFT, "selftest", "--log", "off", "--serve", "--port", where]
            with self.subTest(where=where), listening(*argv) as (_, port, errors):
                self.assert_done(run(WEFT, "selftest", "--peer", f"127.0.0.1:{port}", "--only",
                                     "startup.rev1"))
                hint = pathlib.Path(errors).read_text()
                self.assertEqual(len(hint.splitlines()), 1 if words else 0, hint)
                self.assert_hint(hint, *words)

    def test_exs_perf(self):
        if not built("exs-perf"):
            self.skipTest("exs-perf is not built")
        exs = program("exs-perf")
        short = ["--mode", "tcp", "--size", "64", "--seconds", "0.02", "--rounds", "1"]
        self.try_each([exs, "--listen"], lambda at: [exs, *short, at])

    def test_mistakes_are_named(self):
        for argv in ([WEFT, "perf"], [WEFT, "ping"], [WEFT, "selftest"], [program("exs-perf")]):
            if not os.path.exists(argv[0]):
                continue
            self.assert_refused(run(*argv, "--listen", "70000"), "--listen", "'70000'", "65535")
            self.assert_refused(run(*argv, "--listen", "127.0.0.1:x"), "'x' in '127.0.0.1:x'")
            self.assert_refused(run(*argv, "--listen", "::1:72000"), "[IPV6]:PORT")
            peer = ["--peer"] if argv[-1] == "selftest" else []
            self.assert_refused(run(*argv, *peer, "7200"), "'7200' is a port", "localhost:7200")
            self.assert_refused(run(*argv, *peer, "host:x"), "'x' in 'host:x'", "65535")
        self.assert_refused(run(WEFT, "selftest", "--listen", "0", "--port", "0"), "--port")
        self.assert_refused(run(WEFT, "selftest", "--self", "--listen", "0"), "say what to do")


class Servers(Test):
    def setUp(self):
        if not built("weft-data"):
            self.skipTest("weft-data is not built")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-where-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "file").write_text("here\n")
        (self.folder / "2024").mkdir()
        (self.folder / "2024" / "file").write_text("year\n")

    def test_every_form_of_listen(self):
        forms = [(["--listen", "127.0.0.1:0"], {LOOPBACK}, "127.0.0.1"),
                 (["--listen", "0"], None, "127.0.0.1"),
                 (["--listen", "127.0.0.1", "--port", "0"], {LOOPBACK}, "127.0.0.1"),
                 (["--listen", "127.0.0.1:0", "--port", "0"], {LOOPBACK}, "127.0.0.1"),
                 (["--port", "0"], None, "127.0.0.1")]
        if has_ipv6():
            forms.append((["--listen", "[::1]:0"], {LOOPBACK6}, "[::1]"))
            forms.append((["--listen", "::1", "--port", "0"], {LOOPBACK6}, "[::1]"))
        for options, expected, host in forms:
            with self.subTest(options=options), \
                    serving("serve", self.folder, *options) as (process, port, errors):
                found = addresses(process.pid, port)
                self.assertTrue(found)
                if expected:
                    self.assertEqual(found, expected)
                result = run(WEFT, "cat", f"{host}:{port}:file")
                self.assert_silent(result)
                self.assertEqual(result.stdout, "here\n")
                self.assertNotIn("weft: ", pathlib.Path(errors).read_text())

    def test_mistakes_of_servers_are_named(self):
        commands = [["serve", self.folder]]
        if built("weft-video"):
            commands.append(["video", "serve", self.folder / "file.y4m"])
        for command in commands:
            refused = lambda *more, command=command: run(WEFT, *command, *more)  # noqa: E731
            self.assert_refused(refused("--listen", "70000"), "--listen", "'70000'", "65535")
            self.assert_refused(refused("--listen", "127.0.0.1:x"), "'x' in '127.0.0.1:x'")
            self.assert_refused(refused("--listen", "127.0.0.1:1", "--port", "2"), "different ports",
                                "leave --port out")

    def test_video(self):
        if not built("weft-video"):
            self.skipTest("weft-video is not built")
        film = self.folder / "film.y4m"
        self.assert_done(run(WEFT, "video", "make", film, "--size", "64x48", "--frames", "3"))
        show = [WEFT, "video", "show", "--headless", "--fast", "--json"]
        for options in (["--listen", "127.0.0.1:0"], ["--listen", "127.0.0.1", "--port", "0"]):
            with self.subTest(options=options), \
                    serving("video", "serve", film, *options) as (process, port, _):
                self.assertEqual(addresses(process.pid, port), {LOOPBACK})
                for name in (f"127.0.0.1:{port}:film.y4m", f"weft://127.0.0.1:{port}/film.y4m"):
                    self.assert_silent(run(*show, name))
                self.assert_silent(run(*show, "127.0.0.1:film.y4m", "--port", port))
                hinted = run(*show, f"127.0.0.1:{port}/film.y4m")
                self.assert_done(hinted)
                self.assert_hint(hinted.stderr, f"127.0.0.1:{port}:film.y4m")

    def test_every_form_of_a_remote_path(self):
        with serving("serve", self.folder, "--listen", "127.0.0.1:0") as (_, port, _):
            silent = {f"127.0.0.1:{port}:file": "here\n",
                      f"127.0.0.1:{port}:/file": "here\n",
                      f"weft://127.0.0.1:{port}/file": "here\n",
                      f"127.0.0.1:{port}:2024/file": "year\n"}
            for path, text in silent.items():
                result = run(WEFT, "cat", path)
                self.assert_silent(result)
                self.assertEqual(result.stdout, text)
            # With --port a number is part of the path, as it always was.
            for path, text in {"127.0.0.1:file": "here\n", "127.0.0.1:2024/file": "year\n",
                               "127.0.0.1:./2024/file": "year\n",
                               f"127.0.0.1:{port}:file": "here\n"}.items():
                result = run(WEFT, "cat", path, "--port", port)
                self.assert_silent(result)
                self.assertEqual(result.stdout, text)
            names = run(WEFT, "ls", "127.0.0.1:2024", "--port", port)
            self.assert_silent(names)
            self.assertEqual(names.stdout, "file\n")

    def test_a_number_that_may_be_a_port_is_not_taken_silently(self):
        with serving("serve", self.folder, "--listen", "127.0.0.1:0") as (_, port, _):
            result = run(WEFT, "cat", f"127.0.0.1:{port}/2024/file")
            self.assert_done(result)
            self.assertEqual(result.stdout, "year\n")
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assert_hint(result.stderr, f"127.0.0.1:{port}:2024/file",
                             f"127.0.0.1:./{port}/2024/file")
            # A number alone stays a name. Whether a server is there does not matter.
            alone = run(WEFT, "ls", f"127.0.0.1:{port}")
            self.assert_hint(alone.stderr, f"127.0.0.1:{port}: if it is the port",
                             f"127.0.0.1:./{port}")

    def test_each_client_takes_the_port_in_its_path(self):
        options = ["--writable", "--listen", "127.0.0.1:0"]
        with serving("serve", self.folder, *options) as (_, port, _):
            at = f"127.0.0.1:{port}:"
            with tempfile.TemporaryDirectory(prefix="weft-where-") as to:
                self.assert_silent(run(WEFT, "get", at + "file", to))
                self.assertEqual(pathlib.Path(to, "file").read_text(), "here\n")
                self.assert_silent(run(WEFT, "get", "-r", at + "2024", to))
                self.assertEqual(pathlib.Path(to, "2024/file").read_text(), "year\n")
                self.assert_silent(run(WEFT, "put", pathlib.Path(to, "file"), at + "copy"))
                self.assertEqual((self.folder / "copy").read_text(), "here\n")
                self.assert_silent(run(WEFT, "sync", at + "2024/", pathlib.Path(to, "synced")))
                self.assertEqual(pathlib.Path(to, "synced/file").read_text(), "year\n")
                pathlib.Path(to, "synced", "new").write_text("new\n")
                self.assert_silent(run(WEFT, "sync", f"{to}/synced/", at + "2024/"))
                self.assertEqual((self.folder / "2024" / "new").read_text(), "new\n")
            self.assertIn("2024\n", run(WEFT, "ls", at).stdout)
        for command in (["get", "PATH", "."], ["put", __file__, "PATH"], ["ls", "PATH"],
                        ["cat", "PATH"], ["sync", "PATH", "."]):
            for path in ("host:70000:file", "weft://host:x/file"):
                argv = [path if word == "PATH" else word for word in command]
                self.assert_refused(run(WEFT, *argv), f"in '{path}' is not a port", "65535")

    def test_what_is_missing_or_on_the_wrong_side_is_named(self):
        self.assert_refused(run(WEFT, "ls", "http://host/file"), "'http://host/file'", "weft://HOST")
        self.assert_refused(run(WEFT, "ls", "host"), "host: ", "HOST:PATH", "HOST: for its root")
        self.assert_refused(run(WEFT, "get"), "PATH is missing", "weft get --help")
        self.assert_refused(run(WEFT, "get", "host:file"), "the destination is missing")
        self.assert_refused(run(WEFT, "put", "file"), "destination is missing", "HOST:PATH")
        self.assert_refused(run(WEFT, "sync", "one", "two"), "one and two: ", "HOST:PATH")
        self.assert_refused(run(WEFT, "sync", "one"), "one source and one destination")
        # From one server to another: not as a file here with that name.
        for command in ("get", "sync"):
            refused = subprocess.run([WEFT, command, "host:file", "other:file"], cwd=self.folder,
                                     capture_output=True, text=True, timeout=DEADLINE_S)
            self.assert_refused(refused, "other:file: ", "./other:file")
        self.assertFalse((self.folder / "other:file").exists())
        if built("weft-mount"):
            self.assert_refused(run(WEFT, "mount"), "HOST[:PORT]:PATH is missing")
        if built("weft-video"):
            self.assert_refused(run(WEFT, "video", "sow"), "sow: there is no such command", "'show'")
            self.assert_refused(run(WEFT, "video"), "a command is missing", "weft video --help")

    def test_failures_name_the_place(self):
        def assert_failed(result, *words):
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            for word in words:
                self.assertIn(word, result.stderr)
        with serving("serve", self.folder, "--listen", "127.0.0.1:0") as (_, port, _):
            at = f"127.0.0.1:{port}:"
            long = self.folder / ("n" * 300)
            assert_failed(run(WEFT, "get", at + "file", long), f"{long}: File name too long")
            assert_failed(run(WEFT, "get", at, self.folder), "the served folder: is a folder", "-r")
            assert_failed(run(WEFT, "cat", at), "the served folder: Is a directory")
        # 192.0.2.0/24 is nobody's.
        assert_failed(run(WEFT, "serve", self.folder, "--listen", "192.0.2.1:0"), "192.0.2.1",
                      "no device of this machine has that address", "--listen")

    def test_mount(self):
        if not built("weft-mount"):
            self.skipTest("weft-mount is not built")
        self.assert_refused(run(WEFT, "mount", "host:70000:", self.folder), "'host:70000:'")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse is not to be had")
        with serving("serve", self.folder, "--listen", "127.0.0.1:0") as (_, port, _):
            for source in (f"127.0.0.1:{port}:2024", f"weft://127.0.0.1:{port}/2024"):
                with self.subTest(source=source), tempfile.TemporaryDirectory() as at:
                    mounted = run(WEFT, "mount", source, at)
                    if mounted.returncode != 0 and "fuse" in mounted.stderr:
                        self.skipTest(mounted.stderr.strip())
                    self.assert_silent(mounted)
                    try:
                        self.assertEqual(pathlib.Path(at, "file").read_text(), "year\n")
                    finally:
                        done = run("umount", at)
                        if done.returncode != 0:
                            run("fusermount3", "-u", at)


if __name__ == "__main__":
    WEFT = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
