#!/usr/bin/env python3
"""`weft run --record` and `--replay`; rules for one queue pair, and for receives; and whether the
table of docs/faults.md has each status and event that there is."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60
FLUSHED = "Work Request Flushed Error"


class Result:
    def __init__(self, done, log):
        self.status, self.said = done.returncode, done.stderr
        self.lines = done.stdout.splitlines()
        # Names have the number of their process.
        self.log = sorted(re.sub(r"-\d+", "", line) for line in log.splitlines())


def play(option, text, program, *words, options=(), env=None, status=0):
    """By a file of rules (--faults) or a log (--replay), with a log of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = pathlib.Path(folder, "rules"), pathlib.Path(folder, "log")
        file.write_text(text)
        path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], program)
        done = subprocess.run([WEFT, "run", option, str(file), "--record", str(log), *options, "--",
                               path, *words], capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, **(env or {})}, check=False)
        check(done.returncode == status, f"{text!r} ended with {done.returncode}: {done}")
        play.log = log.read_text()
        return Result(done, play.log)


def same(found, want):
    check(found == want, f"got {found}, not {want}")


def repeats(rules, program, *words, rounds=3, **more):
    """What happened by these rules happens again, each time, and nothing else."""
    first = play("--faults", rules, program, *words, **more)
    log = play.log
    for _ in range(rounds):
        again = play("--replay", log, program, *words, **more)
        same(again.lines, first.lines)
        same(again.log, first.log)
        check("had no effect" not in again.said, again.said)
    return first


def threads(_):
    """By chance, among threads whose calls fall together as it happens."""
    first = repeats("seed 5\nfail post_send with 2% with EAGAIN\n"
                    "complete send with 0.3% with RETRY_EXC_ERR", "replay_program", "threads")
    told = [line for line in first.log if re.search(r" fail ibv_post_send on qp \d+ on \d+ with "
                                                    "EAGAIN$", line)]
    check(len(told) > 4, f"{first.log}")
    check(any(" EAGAIN " in line for line in first.lines), f"{first.lines}")


def times(_):
    """What came at a time comes behind the same completion."""
    def ended(played):
        went_well = int(played.lines[0].split()[0])
        at = [int(found) for line in played.log
              for found in re.findall(r"at send completion (\d+) of qp 0", line)]
        return went_well, at
    first = play("--faults", "disconnect on qp 0 after 100ms", "replay_program", "steps")
    log = play.log
    went_well, at = ended(first)
    # More may go well before its effect: the thread that does it may have to wait for a core.
    check(len(at) == 1 and at[0] <= went_well, f"{went_well}: {first.log}")
    for _ in range(3):
        same(ended(play("--replay", log, "replay_program", "steps")), (at[0], at))
    # One that waits for another; and neither outlives the process.
    first = play("--faults", "event QP_FATAL after 50ms as first\nkill SIGTERM after first",
                 "replay_program", "steps", status=-signal.SIGTERM)
    check(any(re.search("event QP_FATAL on qp 0 at send completion .* as first", line)
              for line in first.log), f"{first.log}")
    again = play("--replay", play.log, "replay_program", "steps", status=-signal.SIGTERM)
    same(again.log, first.log)


def octets(_):
    """Links: by time, and at each of many octets."""
    rule = "link stall 2ms every 10ms on qp 0\nlink delay 1ms jitter 200us on qp 0"
    first = play("--faults", rule, "faults_program", "messages")
    stalls = [line for line in first.log if re.search(r"link stall 2ms on qp 0 at \d+B", line)]
    check(stalls, f"{first.log}")
    again = play("--replay", play.log, "faults_program", "messages")
    same(again.log, first.log)
    same(again.lines, first.lines)
    repeats("link cut on qp 0 at 100kB", "faults_program", "messages", rounds=1)


def calls(_):
    """Those of one queue pair; and of none."""
    played = play("--faults", "fail post_send on qp 0 on 5th with EIO\n"
                  "fail post_send on qp 1 on 1st", "replay_program", "threads")
    same(played.lines, ["0: EIO 5", "1:", "2:", "3:"])
    check("line 2 had no effect" in played.said, played.said)
    lines = repeats("in rank 1 complete send at completion 3 with RETRY_EXC_ERR, lost as gone\n"
                    "kill SIGTERM after gone", "replay_program", "steps", rounds=1,
                    env={"PMIX_RANK": "1"}, status=-signal.SIGTERM)
    check(any(line.startswith("in rank 1 in program ") for line in lines.log), f"{lines.log}")


def late(_):
    """Messages wait for receives that were posted long before."""
    whole = [*(f"{i}: success" for i in (1, 2, 3, 4)), "state another"]
    for options in ((), ("--path", "tcp"), ("--progress", "thread")):
        played = play("--faults", "receive late 5ms", "faults_program", "receives", options=options)
        same(played.lines, whole)
        for i in (1, 2, 3, 4):
            check(f"message {i} waits 5 ms for its receive" in played.said, played.said)
    played = repeats("receive late 20ms on qp 1 on 2nd", "faults_program", "receives", rounds=1,
                     options=("--check",))
    same(played.lines, whole)
    check("N60" in played.said and "1 message came before a receive was posted" in played.said,
          played.said)
    # Where the peer is told to come again.
    played = play("--faults", "receive late 20ms on qp 1", "wired_program", "rc", "2",
                  options=("--personality", "roce"))
    same(played.lines.count("success"), 2)
    check("message 1 waits 20 ms" in played.said, played.said)
    # What waits for such a rule comes while the engine is at that message.
    for what in ("disconnect on qp 1", "event QP_FATAL on qp 1"):
        played = play("--faults", f"receive late 20s on 2nd as slow\n{what} after slow",
                      "faults_program", "receives", env={"WEFT_RECV_WAIT": "30s"})
        same(played.lines, ["1: success", *(f"{i}: {FLUSHED}" for i in (2, 3, 4)), "state ERR"])
    # Longer than Weft lets a message wait.
    played = play("--faults", "receive late 10s on 3rd", "faults_program", "receives",
                  env={"WEFT_RECV_WAIT": "20ms"})
    same(played.lines, ["1: success", "2: success", f"3: {FLUSHED}", f"4: {FLUSHED}", "state ERR"])


STATUSES = {"LOC_LEN_ERR": "local length error", "LOC_QP_OP_ERR": "local QP operation error",
            "LOC_PROT_ERR": "local protection error",
            "MW_BIND_ERR": "memory management operation error",
            "BAD_RESP_ERR": "bad response error", "LOC_ACCESS_ERR": "local access error",
            "REM_INV_REQ_ERR": "remote invalid request error",
            "REM_ACCESS_ERR": "remote access error", "REM_OP_ERR": "remote operation error",
            "RETRY_EXC_ERR": "transport retry counter exceeded",
            "RNR_RETRY_EXC_ERR": "RNR retry counter exceeded", "REM_ABORT_ERR": "aborted error",
            "FATAL_ERR": "fatal error", "RESP_TIMEOUT_ERR": "response timeout error",
            "GENERAL_ERR": "general error"}


def wired(_):
    """Each status, of Sends and of receives, on each type of queue pair."""
    pairs = 2 * len(STATUSES)
    rules = [f"complete {what} on qp {qp} on 1st with {name}"
             for what, first in (("send", 0), ("receive", pairs + 1))
             for qp, name in zip(range(first, 2 * pairs, 2), STATUSES)]
    want = [text.lower() for text in [*STATUSES.values(), *STATUSES.values()]]
    for kind in ("rc", "uc", "ud"):
        played = play("--faults", "\n".join(rules), "wired_program", kind, str(pairs),
                      options=("--personality", "roce"))
        same([line.lower() for line in played.lines], want)


def datagrams(_):
    """Links of datagrams; rules of connections have no effect there, and it is said why."""
    roce = ("--personality", "roce")
    played = play("--faults", "octet flip at 1kB\nreceive late 1ms\nlink cut on qp 7 at 1kB\n"
                  "link cut on qp 0 at 1kB", "replay_program", "datagrams", options=roce)
    for line, why in ((1, "one that changes is dropped by its checksum"),
                      (2, "one without a receive is lost"),
                      (4, "there is no connection that could be cut")):
        check(re.search(rf"line {line}: no effect on queue pair number \d+, which is of datagrams "
                        rf"\(UD\): {why}", played.said), played.said)
    check("line 3: no effect" not in played.said, played.said)
    for rule, said in (("link delay 2ms jitter 1ms", "has delay 2 ms, jitter 1 ms"),
                       ("link rate 1Mbit", "rate 1000 kbit/s"),
                       ("link stall 5ms at every 5kB", "stalls for 5 ms at octet 10000"),
                       ("link stall 3ms every 10ms on qp 0\nlink delay 99ms", "stalls for 3 ms")):
        for options in (roce, (*roce, "--progress", "thread")):
            played = play("--faults", f"{rule} on qp 0", "wired_program", "datagrams", "200",
                          options=options)
            same(played.lines, [])
            check(said in played.said, played.said)
    # What is under way when the queue pair is gone is its own all the same.
    played = repeats("link stall 50ms at 1kB on qp 0", "wired_program", "gone", "20", rounds=1,
                     options=roce)
    check(any(re.search(r" link stall 50ms on qp 0 at \d+B$", line) for line in played.log) and
          "pair number 0 " not in played.said, f"{played.log} {played.said}")
    played = repeats("seed 8\nlink loss 10% on qp 0\nlink delay 1ms on qp 0", "wired_program",
                     "datagrams", "500", options=roce)
    check(20 < len(played.lines) < 90 and "loss 10 %" in played.said, f"{played.lines}")
    # A connection repeats what is lost.
    played = play("--faults", "link loss 10% delay 1ms\nlink loss 5%", "faults_program", "writes")
    same(played.lines[:2], ["1: success", "2: success"])
    for line in (1, 2):
        check(f"line {line}: no effect on queue pair number" in played.said and
              "TCP repeats what is lost" in played.said, played.said)
    check("line 2 had no effect in this process" in played.said and
          "line 1 had no" not in played.said, played.said)


def shaken(_):
    """The seed, and what it did to which request; --replay has the same seed."""
    def decisions(log):
        return [re.sub(r"process \d+: ", "", line) for line in log if line.startswith("# shake, ")]
    with tempfile.TemporaryDirectory() as folder:
        log, again = pathlib.Path(folder, "log"), pathlib.Path(folder, "again")
        program = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "zoo_shake2_mended")

        def run(*options, status=0):
            done = subprocess.run([WEFT, "run", *options, "--", program], capture_output=True,
                                  text=True, timeout=LIMIT_S, check=False)
            check(done.returncode == status, f"{options}: {done}")
            return done.stderr
        run("--shake", "7:2", "--record", str(log))
        first = log.read_text().splitlines()
        check("shake 7:2" in first and "seed 0" in first, f"{first[:5]}")
        told = decisions(first)
        requests = [line for line in told
                    if re.search(r" qp 0: request \d+ is taken \d+ us late$", line)]
        check(len(requests) > 3, f"{told}")
        check(any(re.search(r" cq \d+: completion \d+, a request of qp \d+, is shown \d+ us late$",
                            line) for line in told), f"{told}")
        run("--replay", str(log), "--record", str(again))
        repeated = again.read_text().splitlines()
        check("shake 7:2" in repeated, f"{repeated[:5]}")
        same([line for line in decisions(repeated) if " qp 0: request" in line], requests)
        run("--shake", "8:2", "--record", str(again))
        other = decisions(again.read_text().splitlines())
        check([line for line in other if " qp 0: request" in line] != requests, "another seed")
        said = run("--shake", "8:2", "--replay", str(log), status=2)
        check(f"{log}:2 has shake 7:2; leave one of them out" in said, said)
        # Rules beside it; what is only a comment has no limit.
        log.write_text("shake 7\nfail reg_mr on 1st with EPERM\n" + "# a comment\n" * 20_000)
        said = run("--faults", str(log), status=3)
        check("line 2: ibv_reg_mr, call 1 of it, fails with EPERM" in said, said)
        # No room is left for the log, which would end the program by SIGXFSZ.
        said = run("--shake", "7:2", "--path", "tcp", "--record", str(log), "--", "sh", "-c",
                   f'head -c 1000000 /dev/zero >{log}; ulimit -f 1000; exec "$1"')
        check("File too large; the log is not whole" in said, said)


def usage(_):
    for words, why in ((["--record", "x"], "--record goes with --faults, --replay or --shake"),
                       (["--faults", "/dev/null", "--replay", "/dev/null"], "choose one"),
                       (["--replay", "/no/such"], "--replay: /no/such: No such file")):
        done = subprocess.run([WEFT, "run", *words, "--", "true"], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        check(done.returncode == 2 and why in done.stderr, f"{done}")
    done = subprocess.run([WEFT, "run", "--faults", "/dev/null", "--record", "/no/such/file", "--",
                           "true"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    check(done.returncode == 1 and "--record: /no/such/file: No such file" in done.stderr, f"{done}")
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules")
        rules.write_text("disconnect after 9s\n")
        for option in ("--faults", "--replay"):
            done = subprocess.run([WEFT, "run", option, str(rules), "--record", str(rules), "--",
                                   "true"], capture_output=True, text=True, timeout=LIMIT_S,
                                  check=False)
            check(done.returncode == 2 and f"is the file of {option}" in done.stderr, f"{done}")
        same(rules.read_text(), "disconnect after 9s\n")


def limited(_):
    """A log for which there is no room is said, and the program goes on."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with tempfile.TemporaryDirectory() as folder:
        rules, log = pathlib.Path(folder, "rules"), pathlib.Path(folder, "log")
        rules.write_text("fail reg_mr from 1st")
        path = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "faults_program")
        done = subprocess.run([WEFT, "run", "--faults", str(rules), "--record", str(log), "--",
                               path, "registers"], capture_output=True, text=True, timeout=LIMIT_S,
                              preexec_fn=limit, check=False)
        same((done.returncode, len(done.stdout.splitlines())), (0, 100))
        check("File too large; the log is not whole" in done.stderr, f"{done}")
        check(log.read_text().endswith("\n"), "a line is cut")


def names_of(header, begin, prefix):
    text = pathlib.Path("/usr/include", header).read_text()
    body = text[text.index(begin):]
    return re.findall(rf"\b{prefix}(\w+)", re.sub(r"/\*.*?\*/", "", body[:body.index("}")]))


def table(_):
    """docs/faults.md has a row for each name of the headers."""
    page = (ROOT / "docs" / "faults.md").read_text()
    rows = page[page.index("| what a program can be told |"):]
    told = re.findall(r"[A-Z][A-Z_]+[A-Z]", rows[:rows.index("\n\n")])
    names = [*names_of("infiniband/verbs.h", "enum ibv_wc_status {", "IBV_WC_"),
             *names_of("infiniband/verbs.h", "enum ibv_event_type {", "IBV_EVENT_"),
             *names_of("rdma/rdma_cma.h", "enum rdma_cm_event_type {", "RDMA_CM_EVENT_")]
    check(len(names) > 55, f"{names}")
    missing = [name for name in names if name not in told]
    check(not missing, f"without a row: {missing}")


if __name__ == "__main__":
    main({case.__name__: case for case in (
        threads, times, octets, calls, late, wired, datagrams, shaken, usage, limited, table)})
