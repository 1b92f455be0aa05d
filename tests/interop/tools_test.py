#!/usr/bin/env python3
"""Tests of what the interop tests lean on and that needs no guest: the capture reader, the data."""

import pathlib
import re
import struct
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "vm"), str(HERE.parent / "support")]

import matrix  # noqa: E402
import run  # noqa: E402
import vm_job  # noqa: E402
import wire  # noqa: E402

CLIENT, SERVER = (b"\x0a\x00\x00\x01", 4000), (b"\x0a\x00\x00\x02", 7000)
SYN, ACK = 0x02, 0x10
REQUEST = b"MPA ID Req Frame" + bytes.fromhex("50020008 80088008") + b"data"
REPLY = b"MPA ID Rep Frame" + bytes.fromhex("50020004 80088008")
# A Send of "hello", and the Terminate that siw sends for a bad CRC.
SEND = bytes.fromhex("0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c")
TERMINATE = bytes.fromhex("0016 4147 00000000 00000002 00000001 00000000 02020000 75d367ed")


def segment(source, destination, flags, seq, payload=b""):
    tcp = struct.pack(">HHIIBBHHH", source[1], destination[1], seq, 0, 0x50, flags, 0, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source[0] + destination[0]
    frame = bytes(12) + b"\x08\x00" + ip + tcp
    return struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame


def render(*segments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.pcap"
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        path.write_bytes(head + b"".join(segments))
        return wire.render(path)


def opened(client_stream, server_stream, cut=10**9):
    """A whole connection; the client's stream in pieces of `cut` octets, each second one early."""
    pieces = [(i, client_stream[i : i + cut]) for i in range(0, len(client_stream), cut)]
    for i in range(0, len(pieces) - 1, 2):
        pieces[i], pieces[i + 1] = pieces[i + 1], pieces[i]
    yield segment(CLIENT, SERVER, SYN, 0xFFFFFFF0)
    yield segment(SERVER, CLIENT, SYN | ACK, 77)
    for at, piece in pieces:
        yield segment(CLIENT, SERVER, ACK, (0xFFFFFFF1 + at) & 0xFFFFFFFF, piece)
    yield segment(SERVER, CLIENT, ACK, 78, server_stream)


class WireTest(unittest.TestCase):
    EXPECTED = [
        "client request rev=2 M=0 C=1 S=1 R=0 pd=4 ird=8 ord=8 p2p=1 rtr=write",
        "client Send len=5 crc=ok",
        "server reply rev=2 M=0 C=1 S=1 R=0 pd=0 ird=8 ord=8 p2p=1 rtr=write",
        "server Terminate len=4 crc=ok control=02020000",
    ]

    def test_shows_start_up_and_fpdus_of_both_sides(self):
        self.assertEqual(render(*opened(REQUEST + SEND, REPLY + TERMINATE)), self.EXPECTED)

    def test_puts_late_segments_and_a_wrapping_sequence_number_in_order(self):
        self.assertEqual(render(*opened(REQUEST + SEND, REPLY + TERMINATE, 7)), self.EXPECTED)

    def test_takes_a_segment_that_was_sent_twice_once(self):
        segments = list(opened(REQUEST + SEND, REPLY + TERMINATE))
        self.assertEqual(render(*segments, segments[2], segments[3]), self.EXPECTED)

    def test_marks_a_wrong_crc(self):
        lines = render(*opened(REQUEST + SEND[:-1] + b"\x00", REPLY))
        self.assertIn("client Send len=5 crc=BAD", lines)

    def test_says_when_an_fpdu_is_cut(self):
        self.assertTrue(render(*opened(REQUEST + SEND[:-4], REPLY))[1].startswith("client cut"))


class MatrixTest(unittest.TestCase):
    def test_each_row_is_named_once_per_role(self):
        seen = set()
        for row in matrix.rows():
            for role in row.roles:
                self.assertNotIn((row.group, row.name, role), seen)
                seen.add((row.group, row.name, role))

    def test_each_pattern_and_command_is_well_formed(self):
        for row in matrix.rows():
            for pattern in row.server_has + row.client_has + row.wire:
                re.compile(pattern)
            clients = [row.client] if isinstance(row.client, str) else row.client
            for pattern in row.again_if.values():
                re.compile(pattern)
            for command in [row.server, *clients]:
                command.format(
                    probe="probe", rddp="rddp_rping", verbs="verbs", exs_perf="exs-perf",
                    echo="exs_echo", target="target.sh", initiator="initiator.sh",
                    addr="10.0.0.1", own="10.0.0.2", port=7,
                )

    def test_only_perftests_own_crash_has_another_try(self):
        row = next(matrix.rows("perftest"))
        refused = "Failed to connect through RDMA CM.\nERRNO: Connection refused.\n"
        result = lambda rc, err: vm_job.Result(rc, "", err)
        fault = lambda side, *ended: bool(run.Runner.is_own_fault(row, side, result(*ended)))
        self.assertTrue(fault("siw", 139, refused + "Segmentation fault\n"))
        self.assertFalse(fault("weft", 139, refused))  # a crash over Weft is never excused
        self.assertFalse(fault("siw", 139, "Segmentation fault\n"))
        self.assertFalse(fault("siw", 1, refused))
        self.assertFalse(fault("siw", None, ""))
        row = next(matrix.rows("rping"))
        self.assertFalse(fault("siw", 139, refused))


if __name__ == "__main__":
    unittest.main()
