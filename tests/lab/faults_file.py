#!/usr/bin/env python3
"""`weft run --faults FILE`: what the file says fails, the same each time."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main  # noqa: E402

PROGRAM = os.environ["WEFT_TEST_BIN_DIR"] + "/faults_program"
LIMIT_S = 60
FLUSHED = "Work Request Flushed Error"


def run(rules, what, *options, status=0, env=None):
    """What the program prints, a line each, and what is on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "rules")
        file.write_text(rules)
        done = subprocess.run([WEFT, "run", "--faults", str(file), *options, "--", PROGRAM, what],
                              capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, **(env or {})})
    check(done.returncode == status,
          f"{rules!r}, {what} ended with {done.returncode}, not {status}: "
          f"{done.stdout}{done.stderr}")
    return done.stdout.splitlines(), done.stderr


def same(found, want):
    check(found == want, f"got {found}, not {want}")


def calls(_):
    lines, said = run("fail reg_mr on 2nd\nfail ibv_reg_mr from 99th with EINVAL", "registers")
    same(lines, ["2 ENOMEM", "99 EINVAL", "100 EINVAL"])
    check("line 1: ibv_reg_mr, call 2 of it, fails with ENOMEM" in said, said)
    check("called at registers (faults_program.c:" in said, said)
    check("weft check:" not in said, said)
    lines, said = run("fail reg_mr every 40 with EPERM", "registers", "--check")
    same(lines, ["40 EPERM", "80 EPERM"])
    check("weft check: N01 ibv_reg_mr" in said, said)


def chance(_):
    first, _said = run("seed 3\nfail reg_mr with 10%", "registers")
    check(2 < len(first) < 25, f"{len(first)} of 100 failed")
    for _round in range(4):
        same(run("seed 3\nfail reg_mr with 10%", "registers")[0], first)
    check(run("seed 4\nfail reg_mr with 10%", "registers")[0] != first, "another seed, the same")


def sends(_):
    want = ["1: success", "2: success", "3: transport retry counter exceeded",
            *(f"{i}: {FLUSHED}" for i in (4, 5, 6)), "state ERR", f"7: {FLUSHED}"]
    for options in ((), ("--path", "tcp"), ("--personality", "roce"), ("--progress", "thread")):
        lines, said = run("complete send on qp 0 on 3rd with RETRY_EXC_ERR", "writes", *options)
        same(lines, want)
        check("completion 3 of a send request ends with RETRY_EXC_ERR" in said, said)
    # Of another queue pair.
    lines, _said = run("complete send on qp 1 on 3rd with RETRY_EXC_ERR", "writes")
    check("state another" in lines and f"4: {FLUSHED}" not in lines, f"got {lines}")


def extended(_):
    lines, _said = run("complete send on qp 2 on 2nd with REM_OP_ERR", "extended")
    same(lines, ["1: success", "2: remote operation error", f"3: {FLUSHED}", "state ERR"])


def receives(_):
    lines, _said = run("complete receive on 2nd with LOC_LEN_ERR", "receives")
    same(lines, ["1: success", "2: local length error", f"3: {FLUSHED}", f"4: {FLUSHED}",
                 "state ERR"])


def statuses(_):
    """Each status that a request of a queue pair can end with."""
    names = {"LOC_LEN_ERR": "local length error", "LOC_QP_OP_ERR": "local QP operation error",
             "LOC_PROT_ERR": "local protection error", "MW_BIND_ERR": "memory management operation error",
             "BAD_RESP_ERR": "bad response error", "LOC_ACCESS_ERR": "local access error",
             "REM_INV_REQ_ERR": "remote invalid request error",
             "REM_ACCESS_ERR": "remote access error", "REM_OP_ERR": "remote operation error",
             "RETRY_EXC_ERR": "transport retry counter exceeded",
             "RNR_RETRY_EXC_ERR": "RNR retry counter exceeded",
             "REM_ABORT_ERR": "aborted error", "FATAL_ERR": "fatal error",
             "RESP_TIMEOUT_ERR": "response timeout error", "GENERAL_ERR": "general error"}
    for name, text in names.items():
        lines, _said = run(f"complete send on qp 0 on 1st with {name}", "writes")
        same(lines[0].lower(), f"1: {text}".lower())


def signals(_):
    run("kill SIGTERM after 300ms", "sleeps", status=-signal.SIGTERM)
    lines, said = run("fail reg_mr on 5th as broken\nkill SIGKILL after broken", "registers",
                      status=-signal.SIGKILL)
    same(lines, [])
    check("line 2: this process gets KILL" in said, said)


def places(_):
    """Rules are for some processes only."""
    rule = "fail reg_mr on 1st"
    same(run(f"in rank 1 {rule}", "registers", env={"PMIX_RANK": "1"})[0], ["1 ENOMEM"])
    same(run(f"in rank 1 {rule}", "registers", env={"PMIX_RANK": "0"})[0], [])
    same(run(f"in program *registers {rule}", "registers")[0], ["1 ENOMEM"])
    same(run(f"in program *other* {rule}", "registers")[0], [])


def mistakes(_):
    for rules, words in (
            ("\nfail post_sned on 3rd", ":2:6: 'post_sned': no such call can fail"),
            ("fail post_send on 0th", ":1:19: '0th': write a number from 1"),
            ("complete send on 5th with OOPS", "'OOPS': write a status: LOC_LEN_ERR"),
            ("complete send on 5th", "the line ends too early: write with"),
            ("fail post_send on 3rd with EFOO", "'EFOO': write an errno: ENOMEM"),
            ("kill SIGKILL on 3rd", "'on': write when: after 2s"),
            ("fail post_send after never", "1: after never: no rule has this name"),
            ("fail post_send on 1st now", "'now': the rule is complete")):
        _lines, said = run(rules, "registers", status=2)
        check(words in said and "--faults: " in said, f"{rules!r}: {said}")
    done = subprocess.run([WEFT, "run", "--faults", "/no/such/file", "--", PROGRAM],
                          capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 2 and "/no/such/file: No such file" in done.stderr, done.stderr)


if __name__ == "__main__":
    main({case.__name__: case for case in (
        calls, chance, sends, extended, receives, statuses, signals, places, mistakes)})
