#!/usr/bin/env python3
"""Under `weft run --check` a program does what it does without: it neither ends nor waits nor
leaves descriptors, whatever it does to its threads, signals, children and descriptors."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main  # noqa: E402

LIMIT_S = 60
FOLDER = os.environ["WEFT_TEST_BIN_DIR"]
# Name: how it ends, and how with --check-exit.
PROGRAMS = {"forked": (0, 0), "handler": (7, 7), "reader": (0, 9), "cancelled": (0, 9),
            "reused": (0, 9), "broken_pipe": (0, 0), "connection": (0, 0), "descriptors": (0, 0),
            "loading": (0, 0), "offline": (0, 0), "full": (0, 0), "limited": (0, 0),
            "refused": (0, 0), "goes_on": (0, 0), "protected_memory": (0, 0),
            "source": (0, 9), "armed": (0, 0), "armed_twice": (0, 0)}
# With a report folder; the findings of some go to stderr all the same.
REPORTS = {"reused": False, "full": True, "limited": True}


def run(name, *options, before=""):
    environment = {**os.environ, "LOADED": f"{FOLDER}/unchanged/libloaded.so",
                   "LD_LIBRARY_PATH": f"{FOLDER}/unchanged",
                   "DEBUGINFOD_URLS": "http://127.0.0.1:9"}
    command = [f"{FOLDER}/unchanged_by_check", name]
    if before:
        command = ["sh", "-c", f'{before} && exec "$0" "$1"', *command]
    command = [WEFT, "run", *options, "--", *command]
    # With a stdin that stays open.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment) as program:
        try:
            program.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            return "it waits", program.stdout.read(), program.stderr.read()
        return program.returncode, program.stdout.read(), program.stderr.read()


def case(name):
    def test(_network):
        plainly, with_exit = PROGRAMS[name]
        with tempfile.TemporaryDirectory() as folder:
            report = ("--check", "--report", folder) if name in REPORTS else ("--check",)
            for options, status in (((), plainly), (report, plainly),
                                    ((*report, "--check-exit", "9"), with_exit)):
                ended = run(name, *options)
                check(ended[:2] == (status, ""), f"with {options}: {ended}, not {status}")
                told = bool(options) and REPORTS.get(name, False)
                check(not told or "N01" in ended[2], f"with {options}: {ended[2]}")
                silent = name in ("goes_on", "protected_memory", "armed", "armed_twice")
                check(not silent or "weft check" not in ended[2], f"with {options}: {ended[2]}")
            if name == "connection":
                rules = pathlib.Path(folder) / "rules"
                rules.write_text("fail reg_mr on 1st with ENOMEM\n")
                ended = run(name, "--faults", str(rules))
                check(ended[0] == 0, f"with --faults its connection gets text: {ended}")
                # Nor when a log is gone, or as another device.
                log = str(pathlib.Path(folder) / "log")
                for options in (("--faults", str(rules)), ("--shake", "1:2")):
                    ended = run(name, *options, "--record", log, before=f"rm {log}")
                    check(ended[0] == 0, f"with {options} its connection gets text: {ended}")
                ended = run(name, "--like", "siw,max_mr=1")
                check(ended[0] == 0, f"with --like its connection gets text: {ended}")
            if name == "refused":
                rules = pathlib.Path(folder) / "rules"
                rules.write_text("fail post_send at 1GB with ENOMEM\n")
                ended = run(name, "--faults", str(rules))
                check(ended[0] == 0, f"with octets that are counted: {ended}")
    return test


if __name__ == "__main__":
    main({name: case(name) for name in PROGRAMS})
