#!/usr/bin/env python3
"""The modules of bench/compare, without running a rival: parsing, samples, ratios, plots."""

import os
import pathlib
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))

try:
    import matplotlib  # noqa: F401  (Debian's python3-matplotlib; another Python may lack it)
except ImportError:
    SYSTEM = "/usr/bin/python3"
    if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM) and os.path.exists(SYSTEM):
        os.execv(SYSTEM, [SYSTEM, *sys.argv])
    print("skipped: python3-matplotlib is not installed")
    sys.exit(77)

from weft_compare import (  # noqa: E402
    figure, machine, plan, plot, process, store, targets, workloads)
from weft_compare.process import Failed  # noqa: E402
from weft_compare.rivals import (  # noqa: E402
    exs_perf,
    iperf3, libfabric, perftest, qperf, sockperf, ucx, weft)
from weft_compare.workloads import costs, embedded, exs  # noqa: E402

PARSERS = (exs_perf.parse, iperf3.parse, libfabric.parse, perftest.parse_bandwidth, perftest.parse_latency,
           qperf.parse, sockperf.parse, ucx.parse, weft.parse, costs.parse)

UCX = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
2000,1155.829,1922.682,1999.977,32.51,31.25,520,500
"""
IPERF3 = """{"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8e9},
 "cpu_utilization_percent": {"host_total": 60.0, "remote_total": 40.0},
 "sender_tcp_congestion": "reno"}}"""
SOCKPERF = """sockperf: Summary: Latency is 9.276 usec
sockperf: ---> <MAX> observation = 5887.546
sockperf: ---> percentile 99.900 = 1159.390
sockperf: ---> percentile 99.000 =   54.822
sockperf: ---> percentile 50.000 =    3.450
"""
LIBFABRIC = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      2k      =2k      250k        0.23s      1.11      57.77       0.02
"""
BANDWIDTH = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             2664.96            405.27             0.006484
---------------------------------------------------------------------------------------
"""
LATENCY = """ #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec] ...
 64      5000          6.22           5184.89      8.19     61.84   405.55     2590.74    4078.64
"""


class Parsers(unittest.TestCase):
    def test_ucx_counts_in_mib(self):
        found = ucx.parse(UCX)
        self.assertEqual(found["messages"], 2000)
        self.assertEqual(found["messages_per_s"], 500)
        self.assertEqual(found["percentile_us"], 1155.829)
        self.assertAlmostEqual(found["bytes_per_s"], 31.25 * 2**20)

    def test_iperf3_counts_what_arrived(self):
        found = iperf3.parse(IPERF3)
        self.assertEqual(found["bytes_per_s"], 1e9)
        self.assertAlmostEqual(found["cpu_s_per_gb"], 1.0)
        with self.assertRaises(Failed):
            iperf3.parse(IPERF3.replace("8e9", "0"))

    def test_sockperf_percentiles(self):
        self.assertEqual(sockperf.parse(SOCKPERF), {"p50": 3.45, "p99": 54.822, "p999": 1159.39})

    def test_libfabric(self):
        self.assertEqual(libfabric.parse(LIBFABRIC), {"p50": 57.77, "bytes_per_s": 1.11e6})

    def test_qperf_units(self):
        text = "tcp_lat:\n    latency   =  {} {}\n"
        self.assertEqual(qperf.parse(text.format("4.29", "us")), {"p50": 4.29})
        self.assertAlmostEqual(qperf.parse(text.format("900", "ns"))["p50"], 0.9)
        self.assertEqual(qperf.parse(text.format("2", "ms")), {"p50": 2000})

    def test_perftest_bandwidth_and_latency(self):
        found = perftest.parse_bandwidth(BANDWIDTH)
        self.assertEqual(found["messages"], 5000)
        self.assertAlmostEqual(found["bytes_per_s"], 6484 * 65536)
        self.assertEqual(perftest.parse_latency(LATENCY),
                         {"p50": 8.19, "p99": 2590.74, "p999": 4078.64})

    def test_none_takes_nonsense_for_a_result(self):
        for parse in PARSERS:
            for text in ("", "error: connection refused\n", "1 2 3\n", "{}", "[]", "\n,,,,,,,\n"):
                with self.assertRaises(Failed, msg=f"{parse.__module__} {text!r}"):
                    parse(text)


class Processes(unittest.TestCase):
    def test_output_and_exit_code(self):
        ended = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
        self.assertEqual((ended.out, ended.err, ended.code), ("out\n", "err\n", 3))
        with self.assertRaisesRegex(Failed, "exit code 3: out"):
            ended.require("sh")

    def test_a_deadline_ends_children_too(self):
        with tempfile.TemporaryDirectory() as folder:
            note = os.path.join(folder, "pid")
            with self.assertRaisesRegex(Failed, "did not end within"):
                process.run(["sh", "-c", f"sleep 600 & echo $! >{note}; wait"], 0.5)
            with open(note, encoding="ascii") as file:
                child = int(file.read())
        end = time.monotonic() + 10
        while _alive(child) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(_alive(child))

    def test_missing_program(self):
        with self.assertRaisesRegex(Failed, "cannot start /no/such/program"):
            process.run(["/no/such/program"], 1)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Samples(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "samples.jsonl")

    def open(self, resume=False, jobs=("a",)):
        opened = store.Store(self.path, {"plan": {"jobs": list(jobs)}}, resume)
        self.addCleanup(opened.close)
        return opened

    def fill(self, opened, rates, contender="tcp", column=plan.SAME):
        cell = plan.Cell("bandwidth", contender, column, "size=64")
        job = plan.Job(cell.text(), (cell,), 1, None)
        for number, rate in enumerate(rates):
            sample = {"error": "broke"} if rate is None else {"bytes_per_s": rate}
            opened.add(number, job, {cell: sample}, f"run {contender}", 0.0)
        return cell

    def test_median_and_range(self):
        opened = self.open()
        cell = self.fill(opened, [5, 1, 3])
        summary = opened.summary(cell, "bytes_per_s")
        self.assertEqual((summary.median, summary.low, summary.high, summary.count), (3, 1, 5, 3))
        self.assertIsNone(opened.summary(cell, "p50"))

    def test_ratio_is_taken_round_by_round(self):
        opened = self.open()
        tcp = self.fill(opened, [1, 10, 100])
        mine = self.fill(opened, [2, 30, 100], "weft-write")
        self.assertEqual(opened.ratio(mine, tcp, "bytes_per_s"), (2, 1, 3))

    def test_a_figure_of_both_columns_stands_in_each(self):
        opened = self.open()
        self.fill(opened, [4], "weft-write", plan.BOTH)
        for column in (plan.SHIPPED, plan.SAME):
            cell = plan.Cell("bandwidth", "weft-write", column, "size=64")
            self.assertEqual(opened.summary(cell, "bytes_per_s").median, 4)

    def test_a_failure_keeps_its_reason_and_other_rounds_count(self):
        opened = self.open()
        cell = self.fill(opened, [None, 7])
        self.assertEqual(opened.error(cell), "broke")
        self.assertEqual(opened.summary(cell, "bytes_per_s").median, 7)

    def test_resumes_the_same_plan_only_and_survives_a_cut_line(self):
        first = self.open()
        cell = self.fill(first, [5, 6])
        first.close()
        with open(self.path, "a", encoding="utf-8") as file:
            file.write('{"round": 2, "job": "x", "cel')
        again = self.open(resume=True)
        self.assertEqual(again.resumed, 2)
        self.assertEqual(again.summary(cell, "bytes_per_s").median, 5.5)
        again.close()
        self.assertEqual(self.open(resume=True, jobs=("b",)).resumed, 0)

    def test_targets_are_judged_on_the_right_side_of_their_limit(self):
        for rate, met in ((0.85, True), (0.84, False)):
            opened = self.open()
            for name, value in (("tcp", 1.0), ("weft-write", rate)):
                cell = plan.Cell("bandwidth", name, plan.SAME, "size=1048576")
                job = plan.Job(name, (cell,), 1, None)
                opened.add(0, job, {cell: {"bytes_per_s": value}}, "", 0)
            first = targets.judge(opened)[0]
            self.assertEqual((first.met, first.ratio[0]), (met, rate))
        self.assertIsNone(targets.judge(opened)[-1].met)

    def test_figure_says_why_a_cell_is_empty(self):
        opened = self.open()
        self.fill(opened, [None], "iperf3")
        self.fill(opened, [7])
        made = figure.build(opened, "bandwidth", "bytes_per_s", "t", "B/s", "size")
        shown = {one.contender: one for one in made.columns[plan.SAME]}
        self.assertEqual(shown["iperf3"].errors, {"64": "broke"})
        self.assertEqual(shown["tcp"].points["64"].median, 7)
        self.assertEqual(made.command, "run tcp")


class Plots(unittest.TestCase):
    def test_numbers_have_three_digits(self):
        for value, text in ((0, "0"), (0.0001234, "0.000123"), (0.5, "0.500"), (9.999, "10.0"),
                            (1.234, "1.23"), (99.96, "100"), (12345, "12\u202f345")):
            self.assertEqual(plot.number(value), text)

    def test_ticks_cover_the_values(self):
        for low, high in ((0.003, 7.7), (1, 1), (64, 64), (0.5, 12000)):
            ticks = plot.log_ticks(low, high)
            self.assertTrue(ticks[0] <= low * 1.001 and ticks[-1] >= high * 0.999, ticks)
        for low, high in ((0, 7.7), (-3, 40), (0, 0)):
            ticks = plot.linear_ticks(high, low)
            self.assertTrue(ticks[0] <= low and ticks[-1] >= high, (low, high, ticks))

    def drawn_figure(self):
        summary = store.Summary(5, 4, 6, 3)
        series = [figure.Series("tcp", {"64": summary, "1024": store.Summary(50, 1, 90, 3)}, {}),
                  figure.Series("a<b&$c$", {"64": summary}, {})]
        made = figure.Figure("t", "GB/s", [("64", "64 B"), ("1024", "<1 KiB>")], {}, log=True)
        return made, series

    def test_svg_has_a_titled_mark_for_each_value_and_follows_the_page(self):
        made, series = self.drawn_figure()
        text = plot.svg(made, series, series, 'a "title" <')
        root = xml.etree.ElementTree.fromstring(text)
        self.assertEqual(root.get("aria-label"), 'a "title" <')
        titles = [e.text for e in root.iter() if e.tag.endswith("title")]
        self.assertEqual(titles, ["raw TCP, 64 B: 5.00 GB/s", "raw TCP, <1 KiB>: 50.0 GB/s",
                                  "a<b&$c$, 64 B: 5.00 GB/s"])
        self.assertIn("var(--tcp)", text)
        for stand_in in plot.STAND_INS.values():
            self.assertNotIn(stand_in, text)
        # The page may have nothing from elsewhere.
        self.assertNotRegex(text, r'(href|src)="(?!#)')

    def test_a_picture_brings_its_colors_along(self):
        made, series = self.drawn_figure()
        text = plot.picture(made, series, "A $title$ <")
        xml.etree.ElementTree.fromstring(text)
        for name, (light, dark) in plot.COLORS.items():
            self.assertIn(f"--{name}:{light};", text)
            self.assertIn(f"--{name}:{dark};", text)
        self.assertIn("raw TCP", text)

    def test_the_legend_knows_every_contender(self):
        for name in ("tcp", "weft-write", "ucx-tag", "unheard-of"):
            xml.etree.ElementTree.fromstring(plot.key(name))

    def test_the_page_has_the_same_colors(self):
        with open(ROOT / "bench" / "weft_compare" / "page.css", encoding="utf-8") as file:
            style = file.read()
        for name, (light, dark) in plot.COLORS.items():
            for color in (light, dark):
                short = "#" + color[1::2] if color[1::2] == color[2::2] else color
                self.assertTrue(f"--{name}:{color}" in style or f"--{name}:{short}" in style, name)


class Workloads(unittest.TestCase):
    def test_share_of_the_wire(self):
        # Plain TCP with timestamps in 1500: 1448 of 1538.
        self.assertAlmostEqual(exs.payload_share(1500), 1448 / 1538)
        one_segment = exs.payload_share(1500, 1442, per_segment=True, message=1428 * 100)
        self.assertAlmostEqual(one_segment, 1428 / 1538)
        marked = exs.payload_share(1500, 1430, per_segment=True, markers=True, message=1416 * 100)
        self.assertLess(marked, one_segment)
        self.assertLess(one_segment, exs.payload_share(1500, 16384))
        self.assertLess(exs.payload_share(1500, 64768), exs.payload_share(1500))

    def test_are_found_by_name_and_number(self):
        for workload in workloads.ALL:
            self.assertIs(workloads.by_name(workload.NAME), workload)
            self.assertIs(workloads.by_name(str(workload.NUMBER)), workload)
        self.assertEqual(workloads.by_name("10").NAME, "extended")
        self.assertEqual(workloads.by_name("12").NAME, "video")
        self.assertEqual(workloads.by_name("13").NAME, "embedded")
        self.assertIsNone(workloads.by_name("14"))

    def test_instructions_of_many_messages_are_those_of_the_line(self):
        line = {str(size): [size * 8.0, 1000.0, 0.1] for size in embedded.SIZES}
        result = {"lines": {"rdma": line}, "samples": [
            {"way": "rdma", "size": 50000, "count": 28, "reordered": 0, "ahead": 0, "placed": 0,
             "instructions": 11_200_000},
            {"way": "rdma", "size": 1_400_000, "count": 2, "reordered": 10, "ahead": 20,
             "placed": 15, "instructions": 28_000_000}]}
        samples = embedded.samples_of("host", result)
        many = embedded.cell("rdma", place="host", size=50000, n=5000)
        self.assertEqual(samples[many]["instructions"], 1000 + 5000 * 50000 * 8)
        self.assertEqual(samples[embedded.cell("rdma", place="host", size=50000)]["per_octet"], 8)
        reordered = samples[embedded.cell("rdma", place="host", reordered=10)]
        self.assertEqual(reordered, {"per_octet": 10, "placed": 0.75})
        self.assertLessEqual(set(samples), set(embedded.cells_of("host")))

    def test_each_round_has_each_job_once_but_slow_ones_have_fewer(self):
        jobs = [plan.Job("a", (), 1, None), plan.Job("b", (), 1, None, max_rounds=1)]
        names = [(number, job.name) for number, job in plan.schedule(jobs, 2)]
        self.assertEqual(names, [(0, "a"), (0, "b"), (1, "a")])

    def test_patience_ends(self):
        patience = machine.Patience(1.0)
        self.assertFalse(patience.repeat(0.0, 0.4))
        self.assertTrue(patience.repeat(0.9, 0.4))
        self.assertTrue(patience.repeat(0.9, 0.4))
        self.assertFalse(patience.repeat(0.9, 0.4))
        self.assertEqual(patience.repeated, 2)
        machine.Patience(0).wait()  # at once

    def test_noise_is_noticed(self):
        self.assertTrue(machine.verdict([0.0, 0.02, 0.01, 0.3, 0.0])[0])
        self.assertFalse(machine.verdict([0.3, 0.2, 0.4])[0])
        self.assertFalse(machine.verdict([0.0, 0.0, 0.0, 0.5, 0.5])[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
