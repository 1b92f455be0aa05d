#!/usr/bin/env python3
"""`weft perf` from outside: every operation, two processes, strangers. See cli_support.py."""

import contextlib
import csv
import io
import json
import os
import signal
import socket
import struct
import subprocess
import time
import unittest

from cli_support import DEADLINE_S, QUICK, Test, WEFT, read_line, run, server


class Perf(Test):
    def test_every_operation_moves_verified_bytes(self):
        ops = ["write", "read", "send", "write-imm", "fetch-add", "cmp-swap"]
        results = self.perf_json("--op", ",".join(ops), "--size", "1,64,4097,300000", "--depth",
                                 "16", "--verify")
        for op in ops:
            rows = [r for r in results if r["op"] == op]
            self.assertEqual(len(rows), 1 if "-" in op and op != "write-imm" else 4, op)
            for row in rows:
                self.assertGreater(row["verified_bytes"], 0, row)
                self.assertGreater(row["messages_per_s"], 0, row)
                self.assertGreater(row["latency_us"]["samples"], 0, row)

    def test_verified_with_every_framing(self):
        for row in self.perf_json("--op", "write,read,send", "--size", "5000", "--crc", "on,off",
                                  "--markers", "on,off", "--fpdu", "mss,16k,64k", "--verify-only"):
            self.assertGreater(row["verified_bytes"], 0, row)

    def test_verified_over_several_connections(self):
        rows = self.perf_json("--op", "write,send,read,fetch-add", "--transport", "rdma,tcp",
                              "--tcp-mode", "raw,copy", "--connections", "5", "--batch", "4",
                              "--depth", "8", "--size", "3000", "--verify")
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertEqual(row["connections"], 5)
            self.assertGreater(row["verified_bytes"], 0, row)

    def test_polling_sides_agree_too(self):
        result = run("perf", "--self", "--json", "--rounds", "1", "--duration", "0.05", "--op",
                     "write,send", "--transport", "rdma,tcp", "--size", "64", "--verify")
        self.assert_done(result)
        for row in json.loads(result.stdout)["results"]:
            self.assertEqual(row["mode"], "poll")

    def test_json_follows_its_schema(self):
        for row in self.perf_json("--op", "write,read", "--transport", "rdma,tcp", "--size", "4k",
                                  "--crc", "on,off"):
            self.assertIn(row["transport"], ("rdma", "tcp"))
            self.assertIsInstance(row["op"], str)
            self.assertEqual(row["size"], 4096)
            self.assertIsInstance(row["depth"], int)
            self.assertIsInstance(row["crc"], bool)
            for key in ("bandwidth_bytes_per_s", "messages_per_s"):
                self.assertGreater(row[key], 0)
            for key in ("p50", "p90", "p99", "p99.9", "max"):
                self.assertGreater(row["latency_us"][key], 0)
            for side in ("client", "server"):
                self.assertGreater(row["cpu_s_per_gb"][side], 0)
            self.assertGreater(row["ratio_to_tcp"], 0)
            self.assertTrue(row["congestion"]["client"])

    def test_crc_reported_is_the_one_negotiated(self):
        rows = self.perf_json("--op", "write", "--size", "64", "--crc", "on,off")
        self.assertEqual([row["crc"] for row in rows], [True, False])

    def test_each_row_says_which_path_carried_it(self):
        rows = self.perf_json("--op", "write", "--size", "64,100000", "--path", "tcp,ring",
                              "--verify")
        for row in rows:
            asked = row["path"]["asked"]
            self.assertEqual((row["path"]["client"], row["path"]["server"]), (asked, asked))
            self.assertEqual(row["crc"], asked == "tcp", "a ring has no CRC")
            self.assertGreater(row["verified_bytes"], 0)
        self.assertEqual({row["path"]["asked"] for row in rows}, {"tcp", "ring"})

    def test_a_path_is_one_of_three(self):
        self.assert_usage(run("perf", "--self", "--path", "shm"), "--path", "auto", "tcp", "ring")
        self.assert_usage(run("run", "--path", "shm", "--", "true"), "path", "auto", "tcp", "ring")

    def test_csv_has_one_line_per_contender(self):
        result = run("perf", "--self", "--csv", *QUICK, "--transport", "rdma,tcp", "--size",
                     "64,4k")
        self.assert_done(result)
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertEqual(len(rows), 4)
        self.assertEqual({row["transport"] for row in rows}, {"rdma", "tcp"})
        self.assertGreater(float(rows[0]["bandwidth_bytes_per_s"]), 0)

    def test_table_shows_conditions_and_contenders(self):
        result = run("perf", "--self", *QUICK, "--transport", "rdma,tcp", "--size", "50KB")
        self.assert_done(result)
        for text in ("congestion control", "CRC", "sleep", "50 KB", "rdma write", "tcp", "GB/s"):
            self.assertIn(text, result.stdout)

    def test_sweep_and_counts(self):
        rows = self.perf_json("--sweep", "32..200", "--op", "write", "--bandwidth")
        self.assertEqual([row["size"] for row in rows], [32, 64, 128, 200])
        self.assertIsNone(rows[0]["latency_us"]["p50"])
        result = run("perf", "--self", "--json", "--mode", "sleep", "--rounds", "2",
                     "--iterations", "333", "--op", "send", "--size", "64", "--batch", "7")
        self.assert_done(result)
        row = json.loads(result.stdout)["results"][0]
        self.assertEqual([r["messages"] for r in row["rounds"]], [333, 333])

    def test_connection_set_up_is_counted(self):
        for row in self.perf_json("--op", "connect", "--transport", "rdma,tcp"):
            self.assertGreater(row["messages_per_s"], 0)
            self.assertIsNone(row["cpu_s_per_gb"]["client"])

    def test_connection_set_up_with_a_ring_counts_those_that_have_moved(self):
        row = self.perf_json("--op", "connect", "--path", "ring")[0]
        self.assertEqual(row["path"]["client"], "ring")
        self.assertGreater(row["messages_per_s"], 0)

    def test_idle_connections_stay_open_beside_the_measured_one(self):
        row = self.perf_json("--op", "write", "--size", "64", "--idle", "50")[0]
        self.assertEqual(row["idle_connections"], 50)
        self.assertIn("client", row["idle_bytes_per_connection"])

    def test_ipv6(self):
        self.assert_done(run("perf", "--self", "-6", *QUICK, "--transport", "rdma,tcp", "--verify"))

    def test_the_main_preset_runs(self):
        result = run("perf", "--self", "--preset", "main", "--json", *QUICK)
        self.assert_done(result)
        rows = json.loads(result.stdout)["results"]
        self.assertEqual({row["size"] for row in rows}, {64, 4096, 50000, 500000, 1400000})
        self.assertEqual({row["op"] for row in rows if row["transport"] == "rdma"},
                         {"write", "read", "send"})
        for size in (64, 1400000):
            self.assertEqual({(row["path"]["asked"], row["depth"]) for row in rows
                              if row["size"] == size and row["transport"] == "rdma"},
                             {("tcp", 128), ("tcp", 1), ("ring", 128)})
        for row in rows:
            self.assertGreater(row["verified_bytes"], 0, row)

    def test_without_privilege(self):
        if os.getuid() != 0:
            self.skipTest("the whole test runs without privilege already")
        try:
            result = run("perf", "--self", *QUICK, "--verify", user=65534, group=65534,
                         extra_groups=[])
        except PermissionError:
            self.skipTest("nobody may not enter the build folder")
        self.assert_done(result)

    def test_bad_options_name_the_option_and_the_legal_values(self):
        def refused(*args):
            return run("perf", "--self", *args)
        self.assert_usage(refused("--op", "wirte"), "--op", "wirte", "write, read", "cmp-swap")
        self.assert_usage(refused("--op", "write,,read"), "--op")
        self.assert_usage(refused("--transport", "udp"), "--transport", "udp", "rdma or tcp")
        self.assert_usage(refused("--size", "12q"), "--size", "12q", "KiB")
        self.assert_usage(refused("--size", "0"), "size 0")
        self.assert_usage(refused("--size", "2G"), "1073741824")
        self.assert_usage(refused("--depth", "0"), "--depth", "from 1 to")
        self.assert_usage(refused("--batch", "9", "--depth", "8"), "batch 9")
        self.assert_usage(refused("--crc", "maybe"), "--crc", "on", "off")
        self.assert_usage(refused("--fpdu", "9k"), "--fpdu", "mss, 16k or 64k")
        self.assert_usage(refused("--mode", "nap"), "--mode", "poll or sleep")
        self.assert_usage(refused("--tcp-mode", "x"), "--tcp-mode", "raw or copy")
        self.assert_usage(refused("--duration", "fast"), "--duration", "ms")
        self.assert_usage(refused("--rounds", "0"), "--rounds")
        self.assert_usage(refused("--sweep", "9..1"), "--sweep", "9..1")
        self.assert_usage(refused("--preset", "x"), "--preset", "main")
        self.assert_usage(refused("--congestion", "no-such-thing"), "--congestion", "keep")
        self.assert_usage(refused("--tcp-congestion", "no-such-thing"), "--tcp-congestion")
        self.assert_usage(refused("--iterations", "5", "--duration", "1"), "--iterations")
        self.assert_usage(refused("--no-such-option"), "--no-such-option")
        self.assert_usage(refused("127.0.0.1"), "exclude")
        self.assert_usage(run("perf"), "--self")
        self.assert_usage(run("perf", "--listen", "70000"), "--listen", "65535")


class TwoProcesses(Test):
    def client(self, port, *args):
        return run("perf", f"127.0.0.1:{port}", *QUICK, *args)

    def test_clients_are_served_one_after_another(self):
        with server() as (process, port):
            for _ in range(2):
                self.assert_done(self.client(port, "--op", "write,read", "--verify"))
            self.assertIsNone(process.poll())

    def test_clients_at_the_same_time_wait_for_each_other(self):
        with server() as (_, port):
            args = [WEFT, "perf", f"127.0.0.1:{port}", *QUICK]
            clients = [subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                       for _ in range(3)]
            for client in clients:
                _, errors = client.communicate(timeout=DEADLINE_S)
                self.assertEqual(client.returncode, 0, errors)

    def test_once_ends_the_server(self):
        with server("perf", "127.0.0.1:0", "--once") as (process, port):
            self.assert_done(self.client(port))
            self.assertEqual(process.wait(timeout=DEADLINE_S), 0)

    def test_a_closed_port_says_what_to_start(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            self.assert_failed(self.client(port), f"127.0.0.1:{port}", "refused",
                               f"weft perf --listen {port}")
            self.assert_failed(run("ping", f"127.0.0.1:{port}"), "connection refused",
                               f"weft ping --listen {port}")

    def test_a_server_of_another_kind_is_recognized(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            client = subprocess.Popen(
                [WEFT, "perf", f"127.0.0.1:{other.getsockname()[1]}", *QUICK],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            peer, _ = other.accept()
            peer.sendall(b"220 mail.example.org ESMTP\r\n")
            _, errors = client.communicate(timeout=DEADLINE_S)
            peer.close()
            self.assertEqual(client.returncode, 1)
            self.assertIn("no `weft perf` server", errors)

    def test_a_port_in_use_is_an_error(self):
        with server() as (_, port):
            result = run("perf", "--listen", f"127.0.0.1:{port}")
            self.assert_failed(result, f"127.0.0.1:{port}", "in use")

    def start_long_client(self, port, *args):
        return subprocess.Popen(
            [WEFT, "perf", f"127.0.0.1:{port}", "--duration", "50", "--mode", "sleep", *args],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def test_a_server_killed_in_the_middle_fails_the_client(self):
        for args in (["--op", "write"], ["--op", "send"], ["--op", "read"], ["--transport", "tcp"]):
            with server() as (process, port):
                client = self.start_long_client(port, *args)
                read_line(process.stdout)  # "connected"
                time.sleep(0.5)
                process.kill()
                _, errors = client.communicate(timeout=20)
                self.assertEqual(client.returncode, 1, (args, errors))
                self.assertRegex(errors, r"weft: .*(ended|closed|gone|lost)", args)

    def test_a_client_killed_in_the_middle_leaves_the_server_serving(self):
        with server() as (process, port):
            for args in (["--op", "write"], ["--op", "send"], ["--transport", "tcp"]):
                client = self.start_long_client(port, *args)
                read_line(process.stdout)  # "connected"
                time.sleep(0.3)
                client.kill()
                client.communicate(timeout=20)
                self.assertIn("given up", read_line(process.stdout), args)
            self.assert_done(self.client(port, "--verify"))

    def test_a_client_that_stops_is_not_waited_for_by_ctrl_c(self):
        with server() as (process, port):
            client = self.start_long_client(port)
            read_line(process.stdout)
            client.send_signal(signal.SIGINT)
            client.communicate(timeout=20)
            self.assertEqual(client.returncode, -signal.SIGINT)
            self.assertIn("given up", read_line(process.stdout))


class Strangers(Test):
    """Whoever connects to the control port: the server goes on, and the next client is served."""

    def hello(self, version=1):
        return json.dumps({"type": "hello", "weft_perf": version, "sleep": True}).encode() + b"\n"

    def spec(self, **changes):
        spec = {"transport": "tcp", "op": "send", "size": 64, "depth": 1, "batch": 1,
                "connections": 1, "idle": 0, "inline": 0, "crc": False, "markers": False, "path": "tcp",
                "fpdu": "auto", "tcp_mode": "raw", "sleep": True, "verify": True,
                "tcp_congestion": "keep"}
        return dict(spec, **changes)

    def prepare(self, **changes):
        message = {"type": "prepare", "spec": self.spec(**changes), "offer": {}}
        return json.dumps(message).encode() + b"\n"

    def assert_serves(self, port):
        self.assert_done(run("perf", f"127.0.0.1:{port}", *QUICK, "--verify"))

    def test_garbage_is_turned_away(self):
        garbage = [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 500, b"x" * 200_000,
                   b"[" * 60_000 + b"\n", b'{"type":"bye"}\n', b'{"type":"hello"}\n',
                   self.hello(version=999), b'{"type":"hello","weft_perf":"1"}\n']
        with server() as (process, port):
            for text in garbage:
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    with contextlib.suppress(ConnectionError):
                        stranger.sendall(text)
            self.assert_serves(port)
            self.assertIsNone(process.poll())

    def test_silent_ones_hold_nobody_up(self):
        with server() as (_, port):
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
            self.assert_serves(port)
            for stranger in silent:
                stranger.close()

    def test_nonsense_after_the_hello_ends_that_session_only(self):
        nonsense = [b"garbage\n", b'{"type":"run"}\n', b'{"type":"prepare"}\n',
                    b'{"type":"prepare","spec":7,"offer":[]}\n', b'{"type":"nothing"}\n',
                    self.prepare(size=0), self.prepare(size=1 << 40), self.prepare(size="64"),
                    self.prepare(connections=1 << 31), self.prepare(depth=-1),
                    self.prepare(transport="carrier pigeon"),
                    self.prepare(size=1 << 30, connections=4000)]
        with server() as (process, port):
            for text in nonsense:
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.settimeout(20)
                    stranger.sendall(self.hello() + text)
                    with stranger.makefile() as lines:
                        answers = lines.read()
                    self.assertIn('"failed"', answers, text)
            self.assert_serves(port)
            self.assertIsNone(process.poll())

    def test_one_that_goes_in_the_middle_of_a_set_up_is_forgotten(self):
        with server() as (process, port):
            for transport in ("tcp", "rdma"):
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(self.hello() + self.prepare(transport=transport))
                    with stranger.makefile() as lines:
                        self.assertEqual(json.loads(lines.readline())["type"], "welcome")
                        self.assertEqual(json.loads(lines.readline())["type"], "ready")
            self.assert_serves(port)
            self.assertIsNone(process.poll())

    def data_connection(self, port, token):
        data = socket.create_connection(("127.0.0.1", port))
        data.settimeout(20)
        data.sendall(b"weftperf" + struct.pack(">QI", token, 0))
        return data

    def test_wrong_bytes_fail_the_verified_pass(self):
        with server() as (_, port):
            with socket.create_connection(("127.0.0.1", port)) as control, \
                    control.makefile() as lines:
                control.settimeout(20)
                control.sendall(self.hello() + self.prepare())
                lines.readline()
                ready = json.loads(lines.readline())
                # Someone who does not know the token is not let in.
                with self.data_connection(ready["port"], ready["token"] ^ 1) as stranger:
                    self.assertEqual(stranger.recv(1), b"")
                with self.data_connection(ready["port"], ready["token"]) as data:
                    control.sendall(b'{"type":"connected?"}\n')
                    self.assertEqual(json.loads(lines.readline())["type"], "connected")
                    control.sendall(b'{"type":"run","phase":"verify","limit_s":10}\n')
                    self.assertEqual(json.loads(lines.readline())["type"], "running")
                    data.sendall(bytes(64))
                    answer = json.loads(lines.readline())
                    self.assertEqual(answer["type"], "failed")
                    self.assertRegex(answer["message"], "verification failed: message 0 .* byte 1 ")
            self.assert_serves(port)


if __name__ == "__main__":
    unittest.main(verbosity=2)
