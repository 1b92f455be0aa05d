#!/usr/bin/env python3
"""`weft faults sweep` over small programs: what is wrong in an error path is found in every sweep, at
its line, and in the mended twin never."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BIN = os.environ["WEFT_TEST_BIN_DIR"]
LIMIT_S = 100
RUNS = int(os.environ.get("WEFT_TEST_RUNS", "3"))
NO_SWEEP = 3


def program(name):
    return os.path.join(BIN, f"zoo_{name}")


def sweep(command, *options, **more):
    """The process that has ended, with its JSON as `told`."""
    done = subprocess.run([WEFT, "faults", "sweep", "--json", *options, "--", *command],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False, **more)
    done.told = json.loads(done.stdout) if done.stdout else None
    return done


def line_of(name, mark):
    lines = (HERE / "zoo" / f"{name}.c").read_text().splitlines()
    found = [at for at, line in enumerate(lines, 1) if line.rstrip().endswith(f"// {mark}")]
    check(len(found) == 1, f"{name}.c has {len(found)} lines with {mark}")
    return f"({name}.c:{found[0]})"


def results(done):
    return [(run["nth"], run["call"], run["at"][:1], run["result"], len(run["left"]))
            for run in done.told["runs"]]


def only(done, what):
    """The one run for which `what` holds."""
    runs = [run for run in done.told["runs"] if what(run)]
    check(len(runs) == 1, f"{len(runs)} runs, not 1: {done.stdout}")
    return runs[0]


def animal(name, call, what, status, limit, runs):
    """`what`: the mistake is in this run. `status`: exit status of the sweep over the wrong twin."""
    def test(_network):
        first = None
        for _ in range(runs):
            wrong = sweep([program(f"{name}_wrong")], "--time-limit", str(limit))
            run = only(wrong, what)
            check(run["call"] == call and line_of(name, "WRONG") in run["at"][0], f"{run}")
            check(wrong.returncode == status, f"{wrong.returncode}: {wrong.stdout}")
            first = first or results(wrong)
            check(results(wrong) == first, f"the sweeps differ:\n{first}\n{results(wrong)}")
            mended = sweep([program(f"{name}_mended")])
            check(mended.returncode == 0, f"{mended.returncode}: {mended.stdout}")
            check(not any(what(run) for run in mended.told["runs"]), mended.stdout)
            check([run[:3] for run in results(mended)] == [run[:3] for run in first] or
                  name != "fault_crash", f"other calls: {mended.stdout}")
            check(not mended.told["remarks"], f"{mended.told['remarks']}")
        if name == "fault_leak":
            leaks(wrong)
    return test


def leaks(wrong):
    run = only(wrong, lambda one: one["left"])
    kinds = [left["kind"] for left in run["left"]]
    check(kinds == ["protection domain", "memory region"], f"{kinds}")
    check(line_of("fault_leak", "MADE") in run["left"][1]["at"][0], f"{run}")
    done = sweep([program("fault_leak_wrong")], "--fail-on", "crash,leak")
    check(done.returncode == 1, f"{done.returncode}")


def processes(_network):
    """Each process of a script is swept; a crash behind a shell and a peer that waits are seen."""
    script = f"{program('fault_leak_mended')} & {program('fault_crash_wrong')}; wait"
    done = sweep(["sh", "-c", script])
    calls = {entry["process"].split("_", 1)[1]: entry["calls"]
             for entry in done.told["plain"]["processes"]}
    check(calls == {"fault_leak_mended": 5, "fault_crash_wrong": 4}, f"{calls}")
    crash = only(done, lambda run: run["result"] == "crash")
    check(crash["process"].endswith("crash_wrong") and crash["call"] == "ibv_reg_mr", f"{crash}")
    check(len(done.told["runs"]) == 9 and done.returncode == 1, done.stdout)
    done = sweep(["sh", "-c", script], "--process", "*leak*")
    check(len(done.told["runs"]) == 5 and done.returncode == 0, done.stdout)
    script = f"{program('fault_leak_mended')} || exec sleep 1000"
    done = sweep(["sh", "-c", script], "--from", "5", "--time-limit", "5")
    run = only(done, lambda _: True)
    check(run["others_wait"] and run["result"] == "reported" and run["status"] == 1, f"{run}")
    left = subprocess.run(["pgrep", "-f", "^sleep 1000$"], capture_output=True, check=False)
    check(left.returncode != 0, f"a process was left: {left.stdout}")


def counting(_network):
    """Where a sweep begins and ends."""
    leak = [program("fault_leak_mended")]
    check([run["nth"] for run in sweep(leak, "--from", "4").told["runs"]] == [4, 5], "--from")
    done = sweep(leak, "--from", str(2**64 - 1))
    check(not done.told["runs"] and done.returncode == 0, done.stdout)
    done = sweep(leak, "--limit", "2")
    check([run["nth"] for run in done.told["runs"]] == [1, 2], done.stdout)
    check("--limit" in done.told["remarks"][0], f"{done.told['remarks']}")
    events = [run["call"] for run in sweep([program("fault_hang_mended")], "--per-place", "1")
              .told["runs"]].count("rdma_get_cm_event")
    check(events == 5, f"--per-place: {events} of them")


def forms(_network):
    """Threads, the child of a fork, and a program after another in one process."""
    def ends(form):
        done = sweep([program("fault_forms_wrong"), form])
        return [(run["process"].split()[-1], run["nth"], run["result"], run["status"])
                for run in done.told["runs"]]
    check(ends("threads") == [("threads", nth, "reported", 7) for nth in range(1, 13)], "threads")
    check(ends("fork") == [("fork", nth, "crash", None) for nth in (1, 2, 3)], "fork")
    check(ends("exec") == [(name, nth, "reported", 5) for name in ("exec", "plain")
                           for nth in (1, 2, 3)], "exec")


def refused(_network):
    """What cannot be swept, and wrong usage."""
    for command, why in ((["sh", "-c", "exit 7"], "its exit status is 7"),
                         (["true"], "makes a call that may fail"),
                         (["sh", "-c", "kill -SEGV $$"], "signal 11")):
        done = sweep(command)
        check(done.returncode == NO_SWEEP and why in done.stderr, f"{command}: {done}")
    # Faster than its output is read.
    done = sweep(["yes"], "--time-limit", "0.5")
    check(done.returncode == NO_SWEEP and "does not end within" in done.stderr, f"{done}")
    done = sweep(["sleep", "1000"], "--time-limit", "0.2")
    check(done.returncode == NO_SWEEP and "does not end within" in done.stderr, f"{done}")
    for options in (["--fail-on", "x"], ["--from", "0"], ["--limit", "0"], ["--time-limit", "-1"]):
        done = sweep([program("fault_leak_mended")], *options)
        check(done.returncode == 2, f"{options}: {done}")
    with tempfile.TemporaryDirectory() as folder:
        leak = [program("fault_leak_wrong")]
        done = sweep(leak, "--report", folder)
        check(sorted(os.listdir(folder)) == ["1", "2", "3", "4", "5", "6", "plain"], "--report")
        check(sweep(leak, "--report", folder).returncode == 2, "a folder that is not empty")


def descriptors(_network):
    """Programs and sweeps without descriptors 0 to 2."""
    leak = program("fault_leak_mended")
    done = sweep([leak], "--from", "5", preexec_fn=lambda: os.close(0))
    check(len(done.told["runs"]) == 1, done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        script = f"exec 0<&- 2>&-; '{WEFT}' faults sweep --from 5 -- '{leak}' > '{out}'"
        subprocess.run(["sh", "-c", script], timeout=LIMIT_S, check=True)
        check("1 run: 1 reported" in pathlib.Path(out).read_text(), pathlib.Path(out).read_text())
        script = f"exec 0<&- 1>&- 2>&-; exec '{leak}'"
        done = sweep(["sh", "-c", script])
        check([run["result"] for run in done.told["runs"]] == ["reported"] * 5, done.stdout)


def by_hand(_network):
    """The variable alone, for a debugger: the call is named on stderr."""
    done = subprocess.run([WEFT, "run", "--check", "--", program("fault_leak_wrong")],
                          env={**os.environ, "WEFT_FAULTS_NTH": "5"}, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    check(done.returncode == 1, f"{done}")
    check("call 5, ibv_create_cq, fails with ENOMEM" in done.stderr, done.stderr)
    check(line_of("fault_leak", "WRONG") in done.stderr, done.stderr)
    done = subprocess.run([WEFT, "run", "--check", "--", program("fault_leak_wrong")],
                          env={**os.environ, "WEFT_FAULTS_NTH": "x"}, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    check(done.returncode == 0 and "is not NTH" in done.stderr, f"{done}")


def texts(_network):
    """docs/faults.md lists the calls that fail, and the sources ask for no others."""
    root = HERE.parents[1]
    shown = subprocess.run([WEFT, "faults", "calls"], capture_output=True, text=True,
                           timeout=LIMIT_S, check=True).stdout
    calls = dict(line.split() for line in shown.splitlines())
    page = (root / "docs" / "faults.md").read_text()
    table = {}
    for row in re.findall(r"^\| (E[A-Z]+) \| (.*) \|$", page, flags=re.M):
        table |= {call: row[0] for call in re.findall(r"`(\w+)`", row[1])}
    check(table == calls, f"docs/faults.md differs: {set(table.items()) ^ set(calls.items())}")
    asked = set()
    for source in (*(root / "src" / "ibverbs").glob("*.cc"), *(root / "src" / "rdmacm").glob("*.cc")):
        asked |= set(re.findall(r'(?:WEFT_MAY_FAIL\(|may_fail\(")(\w+)', source.read_text()))
    check(asked == set(calls), f"sources differ: {asked ^ set(calls)}")


if __name__ == "__main__":
    main({
        "crash": animal("fault_crash", "ibv_reg_mr", lambda run: run["result"] == "crash", 1, 20, RUNS),
        "hang": animal("fault_hang", "ibv_post_send", lambda run: run["result"] == "hang", 1, 5, 1),
        "leak": animal("fault_leak", "ibv_create_cq", lambda run: run["left"], 0, 20, RUNS),
        "processes": processes,
        "counting": counting,
        "forms": forms,
        "refused": refused,
        "descriptors": descriptors,
        "by_hand": by_hand,
        "texts": texts,
    })
