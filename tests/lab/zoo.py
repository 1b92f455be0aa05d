#!/usr/bin/env python3
"""Each program of the zoo under `weft run --check`: the wrong one is reported with its rule, object
and lines, the same in every run, and its mended twin prints nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, Skip, check, main  # noqa: E402

ZOO = pathlib.Path(__file__).resolve().parent / "zoo"
LIMIT_S = 60
# On a busy machine, too, the Send of n60 waits until its receive is posted.
SETTINGS = {"n60": {"WEFT_RECV_WAIT": "60s"}, "n70": {"WEFT_RECV_WAIT": "60s"}}
# Rules that are off otherwise.
OPTIONS = {"n14": ["--also", "N14"], "n52": ["--also", "N52"],
           "n24": ["--also", "N24"],
           "w15": ["--also", "N14,W15", "--faults", str(ZOO / "w15.faults")], "n70": ["--hang", "60s"]}
RUNS = int(os.environ.get("WEFT_TEST_RUNS", "3"))

# Name: rule, a part of its text, and the notes with the mark of their lines.
ANIMALS = {
    "n01": ("N01", "remote access error: an RDMA Read, wr_id 0x0, 64 octets at 0x",
            [("this process has a memory region with that key", "MADE"),
             ("and deregistered", "DESTROYED")]),
    "n01_peer": ("N01", "a request of the peer was refused: 64 octets at N by rkey N: 8 octets "
                 "from N on lie outside the memory region",
                 [("this process has a memory region with that key", "WRONG")]),
    "n01_sge": ("N01", "local protection error: a Send, wr_id N, an SGE of it: 64 octets at N by "
                "lkey N: that key is dead: it was deregistered",
                [("this process has a memory region with that key", "MADE"),
                 ("and deregistered", "DESTROYED")]),
    "n01_receive": ("N01", "local protection error: a receive, wr_id N, an SGE of it: 64 octets at "
                    "N by lkey N: the memory region was made without IBV_ACCESS_LOCAL_WRITE",
                    [("this process has a memory region with that key", "MADE")]),
    "n01_window": ("N01", "a request of the peer was refused: 64 octets at N by rkey N: that key is "
                   "dead: it was invalidated",
                   [("this process has a memory window with that key", "MADE"),
                    ("and invalidated", "WRONG")]),
    "e02": ("E02", "this completion queue was destroyed before",
            [("completion queue, made", "MADE"), ("destroyed", "DESTROYED")]),
    "e02_poll": ("E02", "this completion queue was destroyed before",
                 [("completion queue, made", "MADE"), ("destroyed", "DESTROYED")]),
    "e02_builder": ("E02", "this queue pair was destroyed before",
                    [("queue pair number", "MADE"), ("destroyed", "DESTROYED")]),
    "e02_channel": ("E02", "this event channel was destroyed before",
                    [("event channel, made", "MADE"), ("destroyed", "DESTROYED")]),
    "e02_event": ("E02", "this event channel was destroyed before",
                  [("event channel, made", "MADE"), ("destroyed", "DESTROYED")]),
    "e02_twice": ("E02", "this event channel was destroyed before",
                  [("event channel, made", "MADE"), ("destroyed", "DESTROYED")]),
    "e10": ("E10", "the memory of a Send, wr_id N, 64 octets at N, was changed before its "
            "completion was polled", [("queue pair number", "MADE")]),
    "w11": ("W11", "the memory of a Send, wr_id N, 64 octets at N, was changed before its "
            "completion was polled; a message of the peer was polled meanwhile",
            [("queue pair number", "MADE")]),
    "e12": ("E12", "the memory of an RDMA Write, wr_id N, 4096 octets at N, was unmapped before its "
            "completion was polled", [("queue pair number", "MADE")]),
    "e12_free": ("E12", "are given back while they are the memory of an RDMA Write, wr_id N",
                 [("posted", "POSTED"), ("queue pair number", "MADE")]),
    "e12_receive": ("E12", "8192 octets at N are given back while they are the memory of a request "
                    "that writes to it, wr_id N", [("queue pair number", "MADE")]),
    "e12_flushed": ("E12", "octets at N are given back while they are the memory of a request "
                    "that writes to it, wr_id N", [("queue pair number", "MADE")]),
    "e13": ("E13", "64 octets at N are touched by an RDMA Write of the peer, while the program has "
            "them for itself", [("queue pair number", "MADE")]),
    "n14": ("N14", "64 octets at N are to be written by this request, and some of them by the "
            "outstanding one with wr_id N", [("queue pair number", "MADE")]),
    "w15": ("W15", "while one of another connection goes to some of them",
            [("queue pair number", "WRONG"), ("queue pair number", "MADE")]),
    "e20": ("E20", "6 requests, and 5 were asked for (max_send_wr); none of them was signaled",
            [("queue pair number", "MADE")]),
    "e20_bind": ("E20", "6 requests, and 5 were asked for (max_send_wr); none of them was signaled",
                 [("queue pair number", "MADE")]),
    "e20_polled": ("E20", "4 requests, and 3 were asked for (max_send_wr); the program has polled",
                   [("queue pair number", "MADE")]),
    "e20_builder": ("E20", "4 requests, and 3 were asked for (max_send_wr); the program has polled",
                    [("queue pair number", "MADE")]),
    "e20_threads": ("E20", "4 requests, and 3 were asked for (max_send_wr); the program has polled",
                    [("queue pair number", "MADE")]),
    "w21": ("W21", "an RDMA Write with 16 octets inline, and 0 were asked for (max_inline_data)",
            [("queue pair number", "MADE")]),
    "w21_receive": ("W21", "the receive queue would be full: 4 receives, and 3 were asked for",
                    [("queue pair number", "MADE")]),
    "w22": ("W22", "an SGE has the rkey N in place of an lkey",
            [("this process has a memory region with that key", "MADE")]),
    "w22_rkey": ("W22", "an RDMA Read has the lkey N in place of an rkey",
                 [("this process has a memory region with that key", "MADE")]),
    "w22_read": ("W22", "an RDMA Read to memory without IBV_ACCESS_REMOTE_WRITE",
                 [("this process has a memory region with that key", "MADE")]),
    "e23": ("E23", "the completion queue has overflowed: 4 completions, and room for 3 was asked for",
            [("completion queue, made", "MADE")]),
    "n24": ("N24", "a completion queue could overflow: it has room for 4, and its queue pairs may "
            "have 8 completions", [("completion queue, made", "MADE")]),
    "e61": ("E61", "a child of fork() uses this memory region of its parent",
            [("memory region, made", "MADE")]),
    "e61_poll": ("E61", "a child of fork() uses this completion queue of its parent",
                 [("completion queue, made", "MADE")]),
    "e62": ("E62", "another thread is in this completion queue, which was promised to one thread",
            [("completion queue, made", "MADE")]),
    "e62_post": ("E62", "another thread is in this queue pair, which was promised to one thread",
                 [("thread domain, made", "MADE")]),
    "e62_poll": ("E62", "another thread is in this completion queue, which was promised to one",
                 [("completion queue, made", "MADE")]),
    "e30": ("E30", "reads what is undefined for a completion with Work Request Flushed Error",
            [("completion queue, made", "MADE")]),
    "w40": ("W40", "waits for an event, and 1 completion came before the queue was armed",
            [("completion queue, made", "MADE"), ("armed", "ARMED")]),
    "e41": ("E41", "waits until the program acknowledges 1 event (rdma_ack_cm_event)",
            [("rdma_cm id, made", "MADE")]),
    "n40": ("N40", "takes an event, and until it came 1 completion waited that had come before the "
            "queue was armed", [("completion queue, made", "MADE"), ("armed", "ARMED")]),
    "n40_solicited": ("N40", "takes an event, and until it came 1 completion waited that had come "
                      "before the queue was armed",
                      [("completion queue, made", "MADE"), ("armed", "ARMED")]),
    "n42": ("N42", "the process ends, and 1 completion of this completion queue nobody has polled",
            []),
    "n42_event": ("N42", "the process ends, and 1 asynchronous event nobody has read",
                  [("SRQ limit reached: shared receive queue, made", "MADE")]),
    "n60": ("N60", "1 message came before a receive was posted; the longest waited",
            [("queue pair number", "MADE")]),
    "e60": ("E60", "no receive was posted for a message to this queue pair: it waited",
            [("queue pair number", "WRONG")]),
    "n70": ("N70", "nothing has completed for 300 ms on 1 queue pair with work outstanding",
            [("queue pair number", "MADE")]),
    "w50": ("W50", "the queue pair is destroyed, and 1 signaled request of it gets no completion",
            [("the oldest is an RDMA Write", "POSTED"), ("queue pair number", "MADE")]),
    "w50_reset": ("W50", "the queue pair is moved to RESET, and 1 receive of it gets no completion",
                  [("queue pair number", "MADE")]),
    "n52": ("N52", "this memory region was never destroyed", []),
    "w51": ("W51", "this protection domain was not destroyed, nor later; 1 other object",
            [("protection domain, made", "MADE"), ("it was needed by a memory region, made", "CHILD")]),
}


def run(program, *options):
    path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], program)
    name = program.split("_")[1]
    environment = {**os.environ, **SETTINGS.get(name, {})}
    options = (*OPTIONS.get(name, []), *options)
    done = subprocess.run([WEFT, "run", "--check", *options, "--", path], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False, env=environment)
    done.stderr = re.sub(r"^weft faults: the link .*\n", "", done.stderr, flags=re.M)
    return done


def line_of(name, mark):
    lines = (ZOO / f"{name}.c").read_text().splitlines()
    found = [at for at, line in enumerate(lines, 1) if line.rstrip().endswith(f"// {mark}")]
    check(len(found) == 1, f"{name}.c has {len(found)} lines with {mark}")
    return f"{name}.c:{found[0]})"


def split(report):
    """Findings as lists of lines."""
    return [part.splitlines() for part in re.split(r"^weft check: ", report, flags=re.M)[1:]]


def judge(name, report):
    rule, text, notes = ANIMALS[name]
    mine = [lines for lines in split(report) if lines[0].startswith(rule + " ") and
            (text in lines[0] or text in without_numbers(lines[0]))]
    check(len(mine) == 1, f"{len(mine)} findings of {rule} with '{text}', not 1:\n{report}")
    whole = "\n".join(mine[0])
    check(line_of(name, "WRONG") in whole, f"not {line_of(name, 'WRONG')}:\n{report}")
    for note, mark in notes:
        lines = [line for line in mine[0] if line.strip().startswith(note)]
        check(any(line_of(name, mark) in line for line in lines),
              f"'{note}' with {line_of(name, mark)} is missing:\n{report}")


def without_numbers(report):
    """Addresses, keys, numbers of queue pairs and times differ between runs."""
    return re.sub(r"0x[0-9a-f]+|number \d+|waited [\d.]+ ms", "N", report)


def animal(name):
    def test(_network):
        reports = [run(f"zoo_{name}_wrong").stderr for _ in range(RUNS)]
        judge(name, reports[0])
        # Those of both ends come by threads of their own.
        check(len({tuple(sorted(map(tuple, split(without_numbers(report)))))
                   for report in reports}) == 1,
              "the reports differ:\n" + "\n".join(reports))
        for _ in range(RUNS):
            mended = run(f"zoo_{name}_mended")
            check(mended.stdout == mended.stderr == "", f"the twin is not silent:\n{mended.stderr}")
            check(mended.returncode == 0, f"the twin ended with {mended.returncode}")
        if name == "e02":
            options()
        if name == "e20":
            in_readme(reports[0])
        if name == "e41":
            killed()
    return test


def in_readme(report):
    """README.md shows this report as it is, but for its lines' ends."""
    page = (ZOO.parents[2] / "README.md").read_text()
    example = page.partition("$ weft run --check -- ./e20\n")[2].partition("```")[0]
    check(example.split() == report.split(), f"README.md has\n{example}\nand the report is\n{report}")


def hang(_network):
    """What is outstanding at both ends, while the program goes on."""
    path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "zoo_n70_wrong")
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([WEFT, "run", "--check", "--hang", "300ms", "--report", folder, "--",
                               path], env={**os.environ, **SETTINGS["n70"]}) as program:
            while program.poll() is None and not any(
                    file.stat().st_size for file in pathlib.Path(folder).iterdir()):
                time.sleep(0.01)
            check(program.poll() is None, "the program has ended")
            program.kill()
        report = subprocess.run([WEFT, "check", "report", folder], capture_output=True, text=True,
                                timeout=LIMIT_S, check=False).stdout
        judge("n70", "weft check: " + report)
        for part in ("RTS, peer 127.0.0.1:", "0 requests and 1 receive outstanding; 3 completions "
                     "polled, the last with wr_id 0x0, success", "0 requests and 0 receives "
                     "outstanding; a message of the peer waits for a receive; 2 completions"):
            check(part in report, f"'{part}' is missing:\n{report}")
        shown = subprocess.run([WEFT, "check", "report", folder, "--json"], capture_output=True,
                               text=True, timeout=LIMIT_S, check=False)
        found = json.loads(shown.stdout)
        check([one["rule"] for one in found] == ["N70"], shown.stdout)
        check(len(found[0]["notes"]) == 2, shown.stdout)
        check(shown.returncode == 0, "a note is no mistake")
    mended = run("zoo_n70_mended")
    check((mended.returncode, mended.stdout, mended.stderr) == (0, "", ""), f"{mended}")


def killed():
    """The report folder has what was found before SIGKILL."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "zoo_e41_wrong")
        with subprocess.Popen([WEFT, "run", "--check", "--report", folder, "--", path]) as program:
            # It waits for an acknowledgment once it has reported, until an alarm ends it.
            while program.poll() is None and not any(
                    file.stat().st_size for file in pathlib.Path(folder).iterdir()):
                time.sleep(0.01)
            program.kill()
        shown = subprocess.run([WEFT, "check", "report", folder, "--json"], capture_output=True,
                               text=True, timeout=LIMIT_S, check=False)
        check([one["rule"] for one in json.loads(shown.stdout)] == ["E41"], f"{shown}")


def options():
    """The report folder, the exit status and suppressions."""
    with tempfile.TemporaryDirectory() as folder:
        ended = run("zoo_e02_wrong", "--report", folder, "--check-exit", "9")
        check(ended.returncode == 9 and ended.stderr == "", f"{ended}")
        shown = subprocess.run([WEFT, "check", "report", folder, "--json"], capture_output=True,
                               text=True, timeout=LIMIT_S, check=False)
        found = json.loads(shown.stdout)
        check(shown.returncode == 1 and [one["rule"] for one in found] == ["E02"], f"{shown}")
        shown = subprocess.run([WEFT, "check", "report", folder], capture_output=True, text=True,
                               timeout=LIMIT_S, check=False)
        check(line_of("e02", "WRONG") in shown.stdout, shown.stdout)
        (pathlib.Path(folder) / "other.jsonl").write_text(
            '[1]\n{"rule": 5}\n{"at": [7]}\n{"at": [{"line": "x"}]}\n{"notes": [3]}\n{"rule"')
        again = subprocess.run([WEFT, "check", "report", folder], capture_output=True, text=True,
                               timeout=LIMIT_S, check=False)
        check((again.returncode, again.stdout) == (shown.returncode, shown.stdout), f"{again}")
        rules = pathlib.Path(folder) / "suppress"
        rules.write_text("# known\nE02 main\n")
        ended = run("zoo_e02_wrong", "--suppress", str(rules), "--check-exit", "9")
        check(ended.returncode == 0 and ended.stderr == "", f"{ended}")


def usage(_network):
    """Options that are mistaken."""
    for words, part in ((("--check", "--hang", "soon"), "--hang: 'soon'"),
                        (("--check", "--hang", "0"), "--hang: '0' is not between"),
                        (("--check", "--also", "N14,E10"), "--also: 'E10' is not a rule that is"),
                        (("--hang", "3s"), "go with --check"), (("--also", "N14"), "go with --che")):
        ended = subprocess.run([WEFT, "run", *words, "--", "true"], capture_output=True, text=True,
                               timeout=LIMIT_S, check=False)
        check(ended.returncode == 2 and part in ended.stderr, f"{words}: {ended}")


def asan(_network):
    """Beside AddressSanitizer, both report what they find."""
    path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "zoo_asan_mended")
    if b"__asan_init" not in pathlib.Path(path).read_bytes():
        raise Skip("the compiler has no AddressSanitizer")
    wrong = run("zoo_asan_wrong")
    check(wrong.returncode == 0 and [one[0][:3] for one in split(wrong.stderr)] == ["N01", "W51"],
          f"{wrong}")
    check(line_of("asan", "WRONG") in wrong.stderr, wrong.stderr)
    mended = run("zoo_asan_mended")
    check((mended.returncode, mended.stdout, mended.stderr) == (0, "", ""), f"{mended}")
    for preload in ("", "libc.so.6"):
        ended = subprocess.run([WEFT, "run", "--check", "--", path, "64"], text=True,
                               capture_output=True, timeout=LIMIT_S, check=False,
                               env={**os.environ, "LD_PRELOAD": preload})
        check("heap-buffer-overflow" in ended.stderr, f"{ended}")


def texts(_network):
    """docs/check.md says what `weft check explain` says."""
    page = " ".join((ZOO.parents[2] / "docs" / "check.md").read_text().split())
    explain = [WEFT, "check", "explain"]
    shown = subprocess.run(explain, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    rules = [line.split()[0] for line in shown.stdout.splitlines()]
    check({rule for rule, _, _ in ANIMALS.values()} == set(rules), f"without an animal: {rules}")
    for rule in rules:
        shown = subprocess.run([*explain, rule], capture_output=True, text=True, timeout=LIMIT_S,
                               check=True)
        for paragraph in re.split(r"\n\n|Why it matters\n|What to do\n", shown.stdout):
            words = " ".join(paragraph.split())
            check(words in page, f"docs/check.md does not say: {words}")


if __name__ == "__main__":
    main({"texts": texts, **{name: animal(name) for name in ANIMALS}, "n70": hang, "asan": asan,
          "usage": usage})
