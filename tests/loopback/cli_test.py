#!/usr/bin/env python3
"""The `weft` program from outside: options, statistics, reports, pings. See cli_support.py."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from cli_support import DEADLINE_S, Test, WEFT, read_line, run, server


class Basics(Test):
    def test_version_is_printed(self):
        result = run("--version")
        self.assert_done(result)
        self.assertRegex(result.stdout, r"^weft \d+\.\d+\.\d+\n$")

    def test_every_command_describes_itself(self):
        for command in ([], ["info"], ["perf"], ["ping"], ["stat"]):
            result = run(*command, "--help")
            self.assert_done(result)
            self.assertIn("Usage", result.stdout)

    def test_output_that_cannot_be_written_is_a_failure(self):
        # Short ones are written at the end, long ones before.
        commands = (["--version"], ["--help"], ["info"], ["info", "--json"], ["info", "--all"], ["doctor"],
                    ["probe", "--known", "siw"], ["probe", "--known", "siw", "--json"])
        for command in commands:
            with open("/dev/full", "w", encoding="utf-8") as full:
                self.assert_failed(run(*command, stdout=full), "weft: the standard output: ")
            read, write = os.pipe()
            os.close(read)
            self.assert_failed(run(*command, stdout=write), "weft: the standard output: ")
            os.close(write)

    def test_nobody_reads_the_statistics_any_more(self):
        with server("ping") as (process, _):
            read, write = os.pipe()
            os.close(read)
            self.assert_failed(run("stat", str(process.pid), "-i", "0.01", stdout=write), "the standard output: ")
            os.close(write)

    def test_no_command_and_an_unknown_one_are_wrong_usage(self):
        self.assert_usage(run())
        self.assert_usage(run("frobnicate"), "frobnicate")

    def test_info_names_values_and_where_they_come_from(self):
        result = run("info", "--json", "--config", "markers=on", env={"WEFT_CRC": "off"})
        self.assert_done(result)
        info = json.loads(result.stdout)
        entries = {entry["key"]: entry for entry in info["config"]}
        self.assertEqual((entries["crc"]["value"], entries["crc"]["source"]), ("off", "WEFT_CRC"))
        self.assertEqual(entries["markers"]["source"], "--config")
        self.assertEqual(entries["fpdu"]["source"], "default")
        self.assertEqual(info["device"], "weft0")
        self.assertGreater(info["limits"]["queue_pairs"], 0)
        self.assertIn(info["crc"], ("isa-l", "sse4.2", "armv8", "table"))
        self.assertIn("queue_pairs", run("info", "--all").stdout)
        self.assertNotIn("queue_pairs", run("info").stdout)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to make a set-user-id program")
    def test_a_set_user_id_program_does_not_believe_its_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            if os.statvfs(folder).f_flag & os.ST_NOSUID:
                self.skipTest(f"{folder} is mounted nosuid")
            os.chmod(folder, 0o755)
            program = shutil.copy(WEFT, folder)
            config = pathlib.Path(folder, "weft.conf")
            config.write_text("markers = on\n")
            environment = {"WEFT_CRC": "off", "WEFT_CONFIG": str(config)}
            for mode, crc, markers in ((0o755, "off", "on"), (0o4755, "on", "off")):
                os.chmod(program, mode)
                shown = subprocess.run(
                    [program, "info", "--json"], capture_output=True, text=True,
                    timeout=DEADLINE_S, stdin=subprocess.DEVNULL, env=environment, user=65534,
                    group=65534, extra_groups=[], cwd="/", check=True).stdout
                values = {entry["key"]: entry["value"] for entry in json.loads(shown)["config"]}
                self.assertEqual((values["crc"], values["markers"]), (crc, markers))

    def test_bad_configuration_names_key_and_legal_values(self):
        self.assert_usage(run("info", env={"WEFT_CRC": "maybe"}), "WEFT_CRC", "maybe", "off")
        self.assert_usage(run("info", "--config", "crc=maybe"), "crc", "maybe", "off")
        self.assert_usage(run("info", "--config", "nonsense=1"), "nonsense")
        self.assert_usage(run("info", "--config", "nonsense"), "KEY=VALUE")
        self.assert_usage(run("perf", "--self", "--log", "loud"), "loud", "debug")


class Stat(Test):
    def test_a_live_process_shows_its_rates(self):
        with server() as (process, port):
            client = subprocess.Popen(
                [WEFT, "perf", f"127.0.0.1:{port}", "--op", "send", "--size", "64", "--mode",
                 "sleep", "--rounds", "1", "--duration", "3", "--bandwidth", "-q"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            try:
                received = 0
                end = time.monotonic() + DEADLINE_S
                while received == 0 and time.monotonic() < end:
                    result = run("stat", str(process.pid), "--json", "-i", "100ms", "--once")
                    if "does not use Weft" in result.stderr or "has no page" in result.stderr:
                        continue  # a server of perf opens its device for each client
                    self.assert_done(result)
                    sample = json.loads(result.stdout)
                    received = sample["in"]["operations_per_s"]["send"]
                self.assertGreater(received, 0)
                self.assertGreater(sample["in"]["bytes_per_call"], 64)
                self.assertEqual(sample["program"], "weft")
            finally:
                client.kill()
                client.wait()

    def test_counts_intervals_and_totals(self):
        with server("ping") as (process, _):
            result = run("stat", str(process.pid), "-i", "0.02", "-n", "3")
            self.assert_done(result)
            self.assertEqual(result.stdout.count("per second"), 3)
            result = run("stat", str(process.pid), "--total", "--json")
            self.assert_done(result)
            self.assertEqual(len(json.loads(result.stdout)["totals"]["tx_messages"]), 16)

    def test_ends_with_the_process(self):
        with server("ping") as (process, _):
            watcher = subprocess.Popen([WEFT, "stat", str(process.pid), "-i", "0.05"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            read_line(watcher.stdout)
            process.kill()
            process.wait()
            _, err = watcher.communicate(timeout=DEADLINE_S)
            self.assertEqual(watcher.returncode, 0, err)
            self.assertIn(b"has ended", err)

    def test_says_why_there_is_nothing_to_see(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.assert_failed(run("stat", str(gone.pid)), "no process", str(gone.pid))
        self.assert_failed(run("stat", str(os.getpid())), "does not use Weft")
        self.assert_usage(run("stat", "abc"), "abc", "whole number")
        self.assert_usage(run("stat"), "PID is missing")
        self.assert_usage(run("stat", "1", "-i", "0"), "--interval")
        self.assert_usage(run("stat", "1", "--once", "--total"), "exclude")

    def test_a_process_that_finds_no_room_for_its_page_runs_on(self):
        # A mount namespace with a /dev/shm that is full.
        script = ("mount --make-rprivate / && mount -t tmpfs -o size=64k none /dev/shm || exit 77; "
                  "! cat /dev/zero 2>/dev/null >/dev/shm/filler; unset XDG_RUNTIME_DIR; "
                  'exec "$@"')
        inside = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        inside += ["sh", "-c", script, "sh", WEFT]
        if shutil.which("unshare") is None or subprocess.run(
                [*inside[:-1], "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no right to make a mount namespace")
        listening = subprocess.Popen([*inside, "ping", "--listen", "127.0.0.1:0"],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
        try:
            port = re.search(r":(\d+)$", read_line(listening.stdout).strip()).group(1)
            self.assert_done(run("ping", f"127.0.0.1:{port}", "-c", "3"))
            self.assert_failed(run("stat", str(listening.pid)), "has no page of counters",
                               "no room", "/dev/shm")
        finally:
            listening.kill()
            _, err = listening.communicate()
        self.assertIn(b"no room in XDG_RUNTIME_DIR or /dev/shm", err)

    def test_a_stopped_process_does_not_answer(self):
        with server("ping") as (process, _):
            process.send_signal(signal.SIGSTOP)
            try:
                self.assert_failed(run("stat", str(process.pid)), "does not answer")
            finally:
                process.send_signal(signal.SIGCONT)


class Report(Test):
    def run_report(self, *args):
        result = run("report", *args)
        if " needs " in result.stderr and "apt-get" in result.stderr:
            self.skipTest("python3-jinja2 and python3-matplotlib are not installed")
        return result

    def test_runs_the_comparison_of_the_source_tree(self):
        result = self.run_report("--list")
        self.assert_done(result)
        for word in ("bandwidth", "segments", "ucx_perftest"):
            self.assertIn(word, result.stdout)
        shown = self.run_report("--help").stdout
        self.assertIn("usage: weft report", shown)
        self.assertIn("--patience", shown)

    def test_wrong_usage_is_the_same_as_everywhere(self):
        self.assert_usage(self.run_report("--only", "nonsense"), "nonsense", "bandwidth")
        for wrong in (("--rounds", "0"), ("--rounds", "x"), ("--patience", "nan"), ("--patience", "-1"),
                      ("--congestion", "nonsense"), ("--nonsense",)):
            with self.subTest(wrong=wrong):
                result = self.run_report(*wrong)
                self.assert_usage(result, *wrong, "see `weft report --help`")
                self.assertRegex(result.stderr, r"\Aweft: .*\n\Z")
        self.assert_failed(self.run_report("--weft", "/no/such/weft"), "weft: ", "/no/such/weft")
        self.assert_failed(self.run_report("--out", "/proc/nothing"), "weft: /proc/nothing: No such")


class Ping(Test):
    def test_rounds_of_several_sizes_are_verified(self):
        result = run("ping", "--self", "--size", "1,64,100000", "--count", "3", "--interval", "0",
                     "--json")
        self.assert_done(result)
        rows = json.loads(result.stdout)["results"]
        self.assertEqual([(row["size"], row["rounds"]) for row in rows],
                         [(1, 3), (64, 3), (100000, 3)])
        for row in rows:
            self.assertEqual(row["verified_bytes"], 4 * 3 * row["size"])

    def test_each_round_gets_a_line(self):
        result = run("ping", "--self", "--count", "2", "--interval", "0.01")
        self.assert_done(result)
        self.assertEqual(len(re.findall(r"round \d: .* us, verified", result.stdout)), 2)
        self.assertIn("2 rounds", result.stdout)

    def test_ipv6(self):
        self.assert_done(run("ping", "--self", "-6", "--count", "2", "--interval", "0"))

    def test_several_clients_at_once(self):
        with server("ping") as (process, port):
            clients = [subprocess.Popen([WEFT, "ping", f"127.0.0.1:{port}", "-c", "5", "-i", "0.02"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                       for _ in range(4)]
            for client in clients:
                _, errors = client.communicate(timeout=DEADLINE_S)
                self.assertEqual(client.returncode, 0, errors)
            self.assertIsNone(process.poll())

    def test_strangers_cost_their_own_connection_only(self):
        with server("ping") as (process, port):
            for text in (b"GET / HTTP/1.1\r\n\r\n", b"MPA ID Req Frame\x00\x01\xff\xff", b""):
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(text)
            self.assert_done(run("ping", f"127.0.0.1:{port}", "-c", "1"))
            self.assertIsNone(process.poll())

    def test_a_server_killed_in_the_middle_fails_the_client(self):
        with server("ping") as (process, port):
            client = subprocess.Popen([WEFT, "ping", f"127.0.0.1:{port}", "-c", "10000"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            read_line(client.stdout)
            process.kill()
            _, errors = client.communicate(timeout=30)
            self.assertEqual(client.returncode, 1)
            self.assertIn(b"weft: ", errors)

    def test_an_interrupt_still_prints_the_statistics(self):
        with server("ping") as (_, port):
            client = subprocess.Popen([WEFT, "ping", f"127.0.0.1:{port}", "-c", "10000"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            read_line(client.stdout)
            client.send_signal(signal.SIGINT)
            output, _ = client.communicate(timeout=30)
            self.assertEqual(client.returncode, 0)
            self.assertIn(b"median", output)

    def test_it_says_which_path_carried_it(self):
        for path, name in (("tcp", "tcp"), ("auto", "ring"), ("ring", "ring")):
            result = run("ping", "--self", "--count", "5", "--interval", "0.01", "--json",
                         "--config", f"path={path}")
            self.assert_done(result)
            self.assertEqual(json.loads(result.stdout)["results"][0]["path"], name)

    def test_bad_options_name_the_option(self):
        self.assert_usage(run("ping", "--self", "--size", "0"), "--size")
        self.assert_usage(run("ping", "--self", "--count", "x"), "--count")
        self.assert_usage(run("ping", "--self", "--interval", "-1"), "--interval")
        self.assert_usage(run("ping"), "--self")


if __name__ == "__main__":
    unittest.main(verbosity=2)
