#!/usr/bin/env python3
"""`weft run --faults FILE`: what the file says fails, the same each time."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main  # noqa: E402

BIN_DIR = os.environ["WEFT_TEST_BIN_DIR"]
PROGRAM = BIN_DIR + "/faults_program"
LIMIT_S = 60
FLUSHED = "Work Request Flushed Error"
REMOTE_OPERATION = "remote operation error"


def run(rules, what, *options, status=0, env=None, program=None):
    """What the program prints, a line each, and what is on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "rules")
        file.write_text(rules)
        done = subprocess.run([WEFT, "run", "--faults", str(file), *options, "--",
                               PROGRAM if program is None else f"{BIN_DIR}/{program}", what],
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
    same(run("fail reg_mr from lib faults_prog* on 2nd", "registers")[0], ["2 ENOMEM"])
    lines, said = run("fail reg_mr from lib libother* on 2nd", "registers")
    check(lines == [] and "line 1 had no effect" in said, f"{lines} {said}")
    _lines, said = run("fail reg_mr on 2nd\nfail alloc_pd on 99th", "registers")
    check("line 2 had no effect in this process" in said and "line 1 had no" not in said, said)
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


def events(_):
    """Each asynchronous event, by its number."""
    of_qp = {"QP_FATAL": 1, "QP_REQ_ERR": 2, "QP_ACCESS_ERR": 3, "COMM_EST": 4, "SQ_DRAINED": 5,
             "PATH_MIG": 6, "PATH_MIG_ERR": 7, "QP_LAST_WQE_REACHED": 16}
    of_port = {"DEVICE_FATAL": 8, "PORT_ACTIVE": 9, "PORT_ERR": 10, "LID_CHANGE": 11,
               "PKEY_CHANGE": 12, "SM_CHANGE": 13, "CLIENT_REREGISTER": 17, "GID_CHANGE": 18}
    fatal = ("QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "CQ_ERR", "DEVICE_FATAL")
    for names, kind in ((of_qp, "qp"), (of_port, "port"), ({"CQ_ERR": 0}, "cq"),
                        ({"SRQ_ERR": 14, "SRQ_LIMIT_REACHED": 15}, "srq")):
        for name, number in names.items():
            lines, said = run(f"event {name} after 300ms", "events")
            port = "down" if name == "PORT_ERR" else "up"
            state = "ERR" if name in fatal else "another"
            same(lines, [f"{number} of {kind}, port {port}", f"state {state}"])
            check(f"line 1: the event {name}" in said, said)
    lines, _said = run("fail create_srq on 9th\nevent QP_FATAL on qp 0 after 200ms as first\n"
                       "event PORT_ERR after first", "events")
    check(lines[0].startswith("1 of qp"), f"got {lines}")
    _lines, said = run("event SRQ_ERR on srq 7 after 100ms\nkill SIGTERM after 500ms", "sleeps",
                       status=-signal.SIGTERM)
    check("line 1: there is no such object now" in said, said)
    _lines, said = run("event PORT_ERR after 50ms for 50ms as down\nkill SIGTERM after 500ms",
                       "sleeps", status=-signal.SIGTERM)
    check("the event PORT_ERR" in said and "the event PORT_ACTIVE" in said, said)


def cm(_):
    """Each failure of a connection, as rdma_cm tells it."""
    begin = ["client RDMA_CM_EVENT_ADDR_RESOLVED 0", "client RDMA_CM_EVENT_ROUTE_RESOLVED 0"]
    request = "server RDMA_CM_EVENT_CONNECT_REQUEST 0"
    end = ["client RDMA_CM_EVENT_ESTABLISHED 0", "server RDMA_CM_EVENT_ESTABLISHED 0",
           "state another"]
    whole = sorted([*begin, request, *end])
    lines, said = run("cm ADDR_ERROR on 1st", "connects")
    same(lines[0], "client RDMA_CM_EVENT_ADDR_ERROR -110")
    same(sorted(lines[1:]), whole)
    check("line 1: event 1 of rdma_cm becomes ADDR_ERROR with ETIMEDOUT" in said, said)
    lines, _said = run("cm ROUTE_ERROR on 1st with EHOSTUNREACH", "connects")
    same(lines[1], "client RDMA_CM_EVENT_ROUTE_ERROR -113")
    same(sorted([lines[0], *lines[2:]]), whole)
    # Each end gets its own event; the rule means the first that is fetched.
    for options in ((), ("--personality", "roce")):
        for name, number in (("REJECTED", 111), ("UNREACHABLE", 110), ("CONNECT_ERROR", 104)):
            lines, _said = run(f"cm {name} every 1", "connects", *options)
            check(f"client RDMA_CM_EVENT_{name} -{number}" in lines, f"got {lines}")
            check("client RDMA_CM_EVENT_ESTABLISHED 0" not in lines, f"got {lines}")
            same(lines[-1], "state ERR")
    lines, _said = run('cm REJECTED every 1 private "busy"', "connects")
    check("it says busy" in lines, f"got {lines}")


def cm_of_all(_):
    """Events that come to each id."""
    lines, said = run("cm DEVICE_REMOVAL after 300ms", "ids")
    # The connection ends, too.
    same(sorted(line for line in lines if "DISCONNECTED" not in line),
         [*(f"{who} RDMA_CM_EVENT_DEVICE_REMOVAL 0" for who in ("client", "server")), "state ERR"])
    check("line 1: the event DEVICE_REMOVAL of rdma_cm" in said, said)
    lines, _said = run("cm ADDR_CHANGE after 300ms", "ids")
    same(sorted(lines), [*(f"{who} RDMA_CM_EVENT_ADDR_CHANGE 0" for who in ("client", "server")),
                         "state another"])


def timewait(_):
    """Behind the end of a connection."""
    for options in ((), ("--personality", "roce")):
        lines, said = run("cm TIMEWAIT_EXIT every 1", "ends", *options)
        for who in ("client", "server"):
            mine = [line for line in lines if line.startswith(who)]
            same(mine, [f"{who} RDMA_CM_EVENT_DISCONNECTED 0",
                        f"{who} RDMA_CM_EVENT_TIMEWAIT_EXIT 0"])
        check("TIMEWAIT_EXIT comes behind DISCONNECTED 1" in said, said)
    lines, _said = run("cm TIMEWAIT_EXIT on 3rd", "ends")
    check(not [line for line in lines if "TIMEWAIT" in line], f"got {lines}")


def second(_):
    """The first request of a list is posted, the second refused."""
    lines, said = run("fail post_send every 1 with ENOMEM, bad_wr second\n"
                      "fail post_recv on 1st bad_wr second", "lists", status=3)
    same(lines, [f"receives {errno.ENOMEM} 2", f"sends {errno.ENOMEM} 2", "1: success"])
    lines, said = run("fail post_send on 1st with EAGAIN, bad_wr second", "lists")
    same(lines, ["receives 0 0", f"sends {errno.EAGAIN} 2", "1: success", "2: success",
                 "3: success"])
    check("line 1: ibv_post_send, call 1 of it, fails with EAGAIN" in said, said)


def lost(_):
    """A request that fails, and whose data does not arrive; and one whose data does."""
    ends = ["1: success", "2: success", "3: transport retry counter exceeded",
            *(f"{i}: {FLUSHED}" for i in (4, 5, 6)), "state ERR"]
    came = [f"{i} arrived" for i in (1, 2)]
    for options in ((), ("--path", "tcp"), ("--personality", "roce"), ("--check",)):
        lines, said = run("complete send on 3rd with RETRY_EXC_ERR, lost", "losses", *options)
        same(lines, [*ends, *came, *(f"{i} lost" for i in (3, 4, 5, 6))])
        check("request 3 is lost, and ends with RETRY_EXC_ERR" in said, said)
        if "--check" in options:
            check("transport retry counter exceeded: an RDMA Write" in said and
                  "lkey" not in said, said)
    for options in ((), ("--path", "tcp"), ("--personality", "roce")):
        lines, _said = run("complete send on 3rd with RETRY_EXC_ERR, delivered", "replies",
                           *options)
        same(lines[:10], [*ends, *came, "3 arrived"])
    _lines, said = run("complete send on 3rd with RETRY_EXC_ERR, lost as gone\n"
                       "kill SIGTERM after gone", "losses", status=-signal.SIGTERM)
    check("line 2: this process gets SIGTERM" in said, said)


WHOLE = ["300 came", "state another", "state another"]


def slow_link(_):
    for rule in ("link delay 2ms jitter 1ms", "link rate 100Mbit", "link delay 1ms rate 1Gbit",
                 "link stall 20ms at every 100kB", "link stall 5ms every 50ms"):
        for options in ((), ("--personality", "roce"), ("--progress", "thread")):
            lines, said = run(rule, "messages", *options)
            same(lines, WHOLE)
            check("weft faults: " in said, said)
    check(said.count("line 1: the link of queue pair number") <= 2, said)  # by time, each once
    lines, said = run("link stall 1ms at every 100kB on qp 0", "messages")
    same(lines, WHOLE)
    check(said.count("stalls for 1 ms at octet") == 6, said)
    check("stalls for 1 ms at octet 200000" in said, said)
    for options, env in ((("--path", "ring"), {}), (("--config", "path=ring"), {}),
                         ((), {"WEFT_PATH": "ring"})):
        lines, said = run("link cut at 100kB", "messages", *options, env=env)
        same(lines, WHOLE)
        check("its connection is no TCP" in said, said)


def large(_):
    """More than the link has room for, with a thread that sleeps."""
    lines, _said = run("link stall 1ms at 900MB", "large")
    same(lines, ["success"])
    lines, _said = run("link stall 1ms at every 1MB", "large")
    same(lines, ["success"])


def cut(_):
    first, said = run("link cut on qp 0 at 100kB", "messages")
    check("line 1: the link of queue pair number" in said and "is cut at octet 100000" in said,
          said)
    check(first[0] == f"receive: {FLUSHED}" and 40 < int(first[1].split()[0]) < 50, f"{first}")
    check(first[2] != "send: success", f"{first}")
    for _round in range(4):
        same(run("link cut on qp 0 at 100kB", "messages")[0], first)


def flips(_):
    """Found by the CRC: the receiver ends the connection, and says why."""
    rule = "octet flip on qp 0 at 100kB"

    def flipped():
        """A request that is not complete when the Terminate comes is blamed, if there is one."""
        lines, said = run(rule, "messages", "--crc", "on")
        check("a bit of octet 100000 changes" in said, said)
        check(lines[-3] in (f"send: {FLUSHED}", f"send: {REMOTE_OPERATION}"), f"{lines}")
        return lines[:-3] + lines[-2:]
    first = flipped()
    check(40 < int(first[-3].split()[0]) < 50, f"{first}")
    same(first[-2:], ["state ERR", "state ERR"])
    for _round in range(4):
        same(flipped(), first)
    lines, said = run(rule, "messages", "--crc", "off")
    same(lines, WHOLE)
    check("line 1: no effect on queue pair number" in said and "has no CRC" in said, said)


def disconnects(_):
    lines, _said = run("disconnect on qp 0 after 300ms", "broken")
    same(lines, ["disconnected", "state ERR"])


def locks(_):
    """What comes at a time, while other threads are in the engine, in rdma_cm and in the rules."""
    rules = "".join(f"disconnect on qp {qp} after {20 + 20 * qp}ms\n" for qp in range(20))
    rules += "event DEVICE_FATAL after 700ms\n"
    for options in ((), ("--path", "tcp"), ("--progress", "thread", "--path", "tcp"), ("--check",)):
        lines, said = run(rules, "crowd", *options, program="crowd_program")
        same(lines, ["done"])
        check("the event DEVICE_FATAL" in said, said)


def caps(_):
    plain = subprocess.run([WEFT, "run", "--", PROGRAM, "caps"], capture_output=True, text=True,
                           timeout=LIMIT_S, check=True).stdout.splitlines()
    same(run("fail reg_mr on 1st", "caps")[0], plain)
    same(run("fail reg_mr on 1st", "caps", "--check")[0], ["5 1 0"])


def signals(_):
    run("kill SIGTERM after 300ms", "sleeps", status=-signal.SIGTERM)
    lines, said = run("fail reg_mr on 5th as broken\nkill SIGKILL after broken", "registers",
                      status=-signal.SIGKILL)
    same(lines, [])
    check("line 2: this process gets SIGKILL" in said, said)


def places(_):
    """Rules are for some processes only."""
    rule = "fail reg_mr on 1st"
    same(run(f"in rank 1 {rule}", "registers", env={"PMIX_RANK": "1"})[0], ["1 ENOMEM"])
    same(run(f"in rank 1 {rule}", "registers", env={"PMIX_RANK": "0"})[0], [])
    same(run(f"in rank 1 {rule}", "registers", env={"WEFT_LAB_RANK": "1"})[0], ["1 ENOMEM"])
    same(run(f"in program *registers {rule}", "registers")[0], ["1 ENOMEM"])
    same(run(f"in program *other* {rule}", "registers")[0], [])
    same(run(f"in host {os.uname().nodename} {rule}", "registers")[0], ["1 ENOMEM"])
    same(run(f"in host elsewhere {rule}", "registers")[0], [])


def mistakes(_):
    for rules, words in (
            ("\nfail post_sned on 3rd", ":2:6: 'post_sned': no such call can fail"),
            ("fail post_send on 0th", ":1:19: '0th': write a number from 1"),
            ("complete send on 5th with OOPS", "'OOPS': write a status: LOC_LEN_ERR"),
            ("complete send on 5th", "the line ends too early: write with"),
            ("fail post_send on 3rd with EFOO", "'EFOO': write an errno, as ENOMEM"),
            ("event QP_FATAL on cq 0 after 1s", "'cq': it is an event of a qp"),
            ("event NOTHING after 1s", "'NOTHING': write an event: CQ_ERR"),
            ("cm ESTABLISHED on 1st", "'ESTABLISHED': write an event: ADDR_ERROR"),
            ("kill SIGKILL on 3rd", "'on': write when: after 2s"),
            ("kill SIGKILL after 1s for 2s", "only `event PORT_ERR after 2s` is for a time"),
            ("cm ADDR_ERROR on 1st private \"x\"", "only REJECTED brings private data"),
            ("cm REJECTED on 1st private x", "'x': write the data in quotes"),
            ("fail post_send after never", "1: after never: no rule has this name"),
            ("link cut", "write where: at 64MB"),
            ("link stall 1ms every 1ms", "longer than the time in between"),
            ("link faster", "'faster': write stall, cut, delay, jitter, rate or loss"),
            ("link loss 0%", "'0%': write a share as 5%"),
            ("fail reg_mr at 64MB", "'at': no octets are counted of ibv_reg_mr"),
            ("fail post_send on qp h1 on 1st", "'h1': write the number of a queue pair"),
            ("shake", "the line ends too early: write a seed"),
            ("shake 7 8", "'8': the line is complete"),
            ("\nshake 7:9", ":2: shake: '9' is not an effect"),
            ("link rate fast", "'fast': write a rate as 10Gbit"),
            ("octet flip at 0B", "'0B': write a number of octets"),
            ("fail reg_mr on 1st with ENOMEM, bad_wr second", "'bad_wr': of post_send, post_recv"),
            ("complete receive on 1st with FATAL_ERR, lost", "'lost': only a send request is lost"),
            ("cm DEVICE_REMOVAL on 1st", "'on': write when: after 2s"),
            ("link delay 1ms as slow", "'as': a link has its delay, rate or loss from"),
            ("fail post_send on 1st now", "'now': the rule is complete")):
        _lines, said = run(rules, "registers", status=2)
        check(words in said and "--faults: " in said, f"{rules!r}: {said}")
    for rules, words in (("fail reg_mr on 1st\n" * 8000, "longer than 120 KiB"), ("a\0b\n", "octet of 0")):
        _lines, said = run(rules, "registers", status=2)
        check(words in said, said)
    done = subprocess.run([WEFT, "run", "--faults", "/", "--", PROGRAM], capture_output=True,
                          text=True, timeout=LIMIT_S)
    check(done.returncode == 2 and "/: Is a directory" in done.stderr, done.stderr)
    done = subprocess.run([WEFT, "run", "--faults", "/no/such/file", "--", PROGRAM],
                          capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 2 and "/no/such/file: No such file" in done.stderr, done.stderr)


if __name__ == "__main__":
    main({case.__name__: case for case in (
        calls, chance, sends, extended, receives, statuses, events, cm, cm_of_all, timewait, second,
        lost, slow_link, large, cut, flips, disconnects, locks, caps, signals, places, mistakes)})
