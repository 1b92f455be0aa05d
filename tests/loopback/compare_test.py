#!/usr/bin/env python3
"""bench/compare --quick: it runs to its end, every figure of Weft and TCP is there, and counts and
bytes are right. Never a time.

    compare_test.py PATH/TO/weft

Exit code 77 when Weft's and TCP's part passed and a rival is not installed, or when Python has no
jinja2 and matplotlib.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPARE = ROOT / "bench" / "compare"
RIVALS = {"iperf3": ["iperf3"], "sockperf": ["sockperf"], "qperf": ["qperf"],
          "ucx_perftest": ["ucx-tag", "ucx-put", "ucx-get", "ucx-shm", "ucx-own"],
          "fi_pingpong": ["libfabric", "libfabric-shm"],
          "ib_write_bw": ["dropin-write", "dropin-read", "dropin-send"]}
OURS = ("weft", "ring", "tcp", "memcpy", "register", "mlock", "post", "null")
# What a machine may lack; the report says so.
EXCUSES = ("netem", "namespaces", "gso_max_segs", "mlock was refused", "free memory")
SKIPPED = 77
DEADLINE_S = 540


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def check(condition, text):
    if not condition:
        fail(text)


def has_modules():
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run(
                [python, "-c", "import jinja2, matplotlib"], capture_output=True, check=False).returncode == 0:
            return True
    return False


def run_compare(weft, out, *options):
    done = subprocess.run([str(COMPARE), "--weft", weft, "--quick", "--no-install", "--out", out,
                           *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)
    check(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
        return json.load(file)


def check_ours(cells):
    """Weft and TCP are always there."""
    for cell in cells:
        if not cell["contender"].startswith(OURS):
            continue
        what = f"{cell['workload']} {cell['contender']} {cell['column']} {cell['point']}"
        error = cell.get("error")
        if error and any(excuse in error for excuse in EXCUSES):
            continue
        check(not error, f"{what}: {error}")
        check(cell["figures"], f"{what}: no figure")
        for name, figure in cell["figures"].items():
            check(figure["low"] <= figure["median"] <= figure["high"], f"{what}: {name} {figure}")
    names = {cell["workload"] for cell in cells}
    check(names == {"bandwidth", "latency", "rate", "thesis", "exs", "expether", "segments",
                    "host", "extended", "files", "video"},
          f"workloads {names}")


def check_counts(cells):
    verified = {}
    for cell in cells:
        rounds = [r for r in cell["rounds"] if "error" not in r]
        if cell["point"].startswith("verified="):
            size = int(cell["point"].split("=")[1])
            for sample in rounds:
                check(sample["verified_bytes"] == size * sample["verified_messages"],
                      f"{cell['contender']} {cell['point']}: {sample}")
                verified[cell["contender"]] = True
        elif cell["workload"] == "thesis":
            # The point's N comes from the number of messages that arrived.
            check(re.fullmatch(r"size=\d+,n=(250|1000)", cell["point"]), cell["point"])
        elif cell["workload"] == "bandwidth" and cell["contender"].startswith(("weft", "tcp")):
            check(all(s["messages"] > 0 and s["bytes_per_s"] > 0 for s in rounds), str(cell))
    check(set(verified) == {"weft-write-crc", "weft-read-crc", "weft-send-crc", "tcp"},
          f"verified: {sorted(verified)}")


def check_wire(cells):
    """What the adapter counted is what the framing says, with room for what TCP sends again."""
    for cell in cells:
        for sample in cell["rounds"]:
            if "wire_share" in sample:
                check(0.5 < sample["wire_share"] < sample["framing_leaves"] + 0.005,
                      f"{cell['contender']} {cell['point']}: {sample}")


def check_rivals(cells, installed):
    for program, contenders in RIVALS.items():
        mine = [c for c in cells if c["contender"] in contenders]
        check(mine, f"{program} has no cell")
        if program not in installed:
            for cell in mine:
                check("missing" in cell.get("error", ""), f"{program}: {cell}")
        else:
            check(any(c["figures"] for c in mine),
                  f"{program}: {mine[0].get('error')}")


def check_page(out):
    with open(os.path.join(out, "index.html"), encoding="utf-8") as file:
        page = file.read()
    check("<svg" in page and "</html>" in page, "the page has no plot, or no end")
    check(not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", page),
          "the page needs other files")
    for name in ("targets", "bandwidth", "latency", "rate", "thesis", "exs", "osu", "expether",
                 "segments", "conditions"):
        check(f'<section id="{name}">' in page, f"the page has no section {name}")
    with open(os.path.join(out, "report.md"), encoding="utf-8") as file:
        check("## Targets" in file.read(), "report.md has no targets")


def check_resume(weft, out, cells):
    """Nothing is left to do: the samples stay as they are."""
    again = run_compare(weft, out, "--resume")
    check(again["cells"] == cells, "--resume measured again")


def main():
    weft = os.path.abspath(sys.argv[1])
    if not has_modules():
        print("skipped: python3-jinja2 and python3-matplotlib are not installed")
        return SKIPPED
    installed = [program for program in RIVALS if shutil.which(program)]
    with tempfile.TemporaryDirectory() as out:
        report = run_compare(weft, out)
        cells = report["cells"]
        check_ours(cells)
        check_counts(cells)
        check_wire(cells)
        check_rivals(cells, installed)
        check_page(out)
        check_resume(weft, out, cells)
    absent = sorted(set(RIVALS) - set(installed))
    if absent:
        print(f"Weft and TCP passed; skipped, since these rivals are not installed: {absent}")
        return SKIPPED
    print(f"{len(cells)} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main())
