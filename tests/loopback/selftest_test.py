#!/usr/bin/env python3
"""`weft selftest` from outside: against Weft, and against peers that break rules on purpose.

    selftest_test.py PATH/TO/weft [unittest arguments]
"""

import contextlib
import json
import pathlib
import select
import socket
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from fake_peer import FakePeer  # noqa: E402

WEFT = "weft"
DEADLINE_S = 240
# A machine under load may leave a right peer without a processor for seconds.
PATIENT = ("--timeout", "30")
# Two checks wait until Weft gives up a peer that says nothing.
SHORT = ("--config", "request_timeout=2s")


def run(*args):
    return subprocess.run([WEFT, "selftest", *args], capture_output=True, text=True,
                          timeout=DEADLINE_S, stdin=subprocess.DEVNULL)


def outcomes(*args):
    """The exit status, and {id: check} of a run with --json."""
    done = run("--json", *args)
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["id"]: check for check in checks}


def judged(manner, check="stag.write-unknown"):
    """What a run of one check says about a peer of that manner: (exit status, result, detail)."""
    with FakePeer(manner) as peer:
        status, checks = outcomes("--peer", f"127.0.0.1:{peer.port}", "--timeout", "0.5", "--only",
                                  check)
    return status, checks[check]["result"], checks[check]["detail"]


class Plain(unittest.TestCase):
    maxDiff = None

    def test_is_right_in_every_check(self):
        status, checks = outcomes("--self", *PATIENT, *SHORT)
        self.assertGreater(len(checks), 150)
        # That Weft asks for markers is for the next test.
        skipped = [name for name, check in checks.items() if check["result"] == "skip"]
        self.assertEqual(skipped, ["fpdu.peer-markers"])
        other = {n: c for n, c in checks.items() if c["result"] != "right" and n not in skipped}
        self.assertEqual(other, {})
        self.assertEqual(status, 0)


class Settings(unittest.TestCase):
    def test_is_right_with_markers_and_other_settings(self):
        for setting in ("markers=on", "crc=off", "progress=thread", "path=auto"):
            with self.subTest(setting):
                status, checks = outcomes("--self", *PATIENT, "--config", setting, "--only",
                                          "fpdu,send,write,read,response,peer,immediate,atomic")
                wrong = {n: c for n, c in checks.items() if c["result"] == "wrong"}
                self.assertEqual((status, wrong), (0, {}))
                if setting == "markers=on":
                    self.assertEqual(checks["fpdu.peer-markers"]["result"], "right")

class Ring(unittest.TestCase):
    maxDiff = None

    def test_is_right_by_the_ring_too(self):
        status, checks = outcomes("--self", "--path", "ring", *PATIENT, *SHORT)
        skipped = {name for name, check in checks.items() if check["result"] == "skip"}
        # There are neither CRCs nor markers on a ring.
        self.assertEqual(skipped, {"fpdu.peer-markers", "fpdu.crc", "fpdu.crc-payload"})
        other = {n: c for n, c in checks.items() if c["result"] != "right" and n not in skipped}
        self.assertEqual((status, other), (0, {}))

    def test_peer_without_a_ring_is_named(self):
        done = run("--self", "--path", "ring", "--config", "path=tcp", *PATIENT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the peer refuses a ring", done.stderr)


class Verbs(unittest.TestCase):
    """weft-selftest-verbs, which serves over libibverbs and librdmacm: here those of Weft."""

    @contextlib.contextmanager
    def served(self):
        program = pathlib.Path(WEFT).with_name("weft-selftest-verbs")
        if not program.exists():
            self.skipTest(f"{program} is not built")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        process = subprocess.Popen(
            [WEFT, "run", "--log", "off", *SHORT, "--", str(program), "127.0.0.1", str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            ready, _, _ = select.select([process.stdout], [], [], 20)
            self.assertTrue(ready, "the server says nothing")
            self.assertIn("serving on port", process.stdout.readline(), process.stderr)
            yield port
            self.assertIsNone(process.poll(), "the server has ended")
        finally:
            process.kill()
            process.communicate(timeout=20)

    def test_serves_every_check(self):
        with self.served() as port:
            status, checks = outcomes("--peer", f"127.0.0.1:{port}", *PATIENT)
        wrong = {n: c for n, c in checks.items() if c["result"] == "wrong"}
        self.assertEqual((status, wrong), (0, {}))
        noted = {n for n, c in checks.items() if c["result"] == "noted"}
        # rdma_cm has one octet for the length of private data; the server wants 16 Reads at most;
        # ibv_reg_mr makes no region that a peer may invalidate.
        self.assertEqual(noted, {"startup.private-508", "depth.1-64", "send.invalidate",
                                 "send.solicited-invalidate"})

    def test_names_its_usage(self):
        program = pathlib.Path(WEFT).with_name("weft-selftest-verbs")
        if not program.exists():
            self.skipTest(f"{program} is not built")
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=20)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: weft-selftest-verbs [ADDRESS] PORT", done.stderr)


class BrokenPeers(unittest.TestCase):
    def test_right_answer_is_right(self):
        status, result, detail = judged("right")
        self.assertEqual((status, result, detail), (0, "right", "Terminate 1/1/00"))

    def test_octets_in_the_order_of_siw_are_noted(self):
        status, result, detail = judged("siw")
        self.assertEqual((status, result), (0, "noted"))
        self.assertIn("Linux siw", detail)

    def test_wrong_header_is_noted(self):
        status, result, detail = judged("wrong-header")
        self.assertEqual((status, result), (0, "noted"))
        self.assertIn("not the one that was sent", detail)

    def test_wrong_answers_are_wrong(self):
        for manner, reason in (
            ("wrong-code", "Terminate 1/1/01; 1/1/00 is due"),
            ("silent", "neither a Terminate nor the end"),
            ("hang-up", "without a Terminate; 1/1/00 is due"),
            ("stays", "the connection stays open"),
            ("takes-all", "another connection suffers"),
            ("garbles", "wrong CRC"),
        ):
            with self.subTest(manner):
                status, result, detail = judged(manner)
                self.assertEqual((status, result), (1, "wrong"))
                self.assertIn(reason, detail)

    def test_people_get_a_line_for_each_check_and_a_summary(self):
        with FakePeer("wrong-code") as peer:
            done = run("--peer", f"127.0.0.1:{peer.port}", "--only", "stag.write", "--timeout", "0.5")
        lines = done.stdout.splitlines()
        self.assertIn("enhanced, peer-to-peer; another application; several connections", lines[0])
        self.assertIn("WRONG  stag.write-unknown ", done.stdout)
        self.assertIn("       -> Terminate 1/1/01; 1/1/00 is due", lines)
        self.assertIn("right  stag.write-of-nothing ", done.stdout)
        self.assertEqual(lines[-1], "3 checks: 1 right, 0 noted, 2 wrong, 0 skipped")

    def test_peer_that_checks_nothing_is_found_out(self):
        with FakePeer("silent") as peer:
            status, checks = outcomes("--peer", f"127.0.0.1:{peer.port}", "--timeout", "0.2",
                                      "--only", "startup.bad-key,startup.markers,startup.private-513,"
                                      "fpdu.crc,fpdu.length-0,header,stag,end.terminate,send.sizes")
        self.assertEqual(status, 1)
        by_result = {}
        for name, check in checks.items():
            by_result.setdefault(check["result"], set()).add(name)
        self.assertEqual(by_result.pop("right"), {"header.reserved", "stag.write-of-nothing"})
        # These need the cooperation of the peer's application.
        self.assertEqual(by_result.pop("skip"), {"send.sizes", "fpdu.crc-payload"})
        self.assertEqual(set(by_result), {"wrong"})
        self.assertGreater(len(by_result["wrong"]), 25)

    def test_peer_that_goes_away_is_not_asked_for_ever(self):
        with FakePeer("right") as peer:
            process = subprocess.Popen(
                [WEFT, "selftest", "--json", "--peer", f"127.0.0.1:{peer.port}", "--timeout", "0.3",
                 "--only", "read.of-nothing,fpdu.crc,header"],
                stdout=subprocess.PIPE, text=True)
            peer.listener.shutdown(socket.SHUT_RDWR)
            out, _ = process.communicate(timeout=DEADLINE_S)
        # Before the first connection there is nothing to tell; later the checks say so.
        self.assertEqual(process.returncode, 1)
        self.assertTrue(out == "" or "no connection any more" in out or "connect" in out)


class Usage(unittest.TestCase):
    def fails(self, status, text, *args):
        done = run(*args)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(text, done.stderr, done.stdout)

    def test_mistakes_are_named(self):
        self.fails(2, "say what to do")
        self.fails(2, "say what to do", "--self", "--serve")
        self.fails(2, "no check begins with 'nonsense'", "--self", "--only", "startup,nonsense")
        self.fails(2, "--timeout", "--self", "--timeout", "soon")
        self.fails(2, "outside 0.1 to 600", "--self", "--timeout", "0")
        self.fails(2, "--port goes with --serve", "--self", "--port", "7")
        self.fails(2, "--peer", "--peer", "127.0.0.1:99999")
        self.fails(2, "--path: 'air' is not one of tcp,ring", "--self", "--path", "air")

    def test_nobody_there_is_a_failure(self):
        with socket.socket() as bound:  # held, so that nobody else listens there meanwhile
            bound.bind(("127.0.0.1", 0))
            for text in ("no iWARP connection comes about", "start `weft selftest --serve` there"):
                self.fails(1, text, "--peer", f"127.0.0.1:{bound.getsockname()[1]}")

    def test_peer_that_is_no_iwarp_is_a_failure(self):
        with socket.create_server(("127.0.0.1", 0)) as mute:
            self.fails(1, "no iWARP connection comes about", "--peer",
                       f"127.0.0.1:{mute.getsockname()[1]}", "--timeout", "0.3")

    def test_list_names_every_check_once(self):
        names = [line.split()[0] for line in run("--list").stdout.splitlines()]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("startup.rev2", names)
        gentle = [line.split()[0] for line in run("--list", "--gentle").stdout.splitlines()]
        self.assertEqual(set(names) - set(gentle), {"startup.reset-early", "startup.reset-amid",
                                                   "startup.reset-after-reply", "end.fin-first"})
        few = [line.split()[0] for line in run("--list", "--only", "depth").stdout.splitlines()]
        self.assertEqual(few, [n for n in names if n.startswith("depth")])


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    unittest.main()
