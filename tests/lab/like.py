#!/usr/bin/env python3
"""`weft run --like` and `weft probe`: what a profile says is what programs meet."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, check, main, need  # noqa: E402

PROBE = str(pathlib.Path(WEFT).with_name("weft-probe"))
PROGRAM = os.environ["WEFT_TEST_BIN_DIR"] + "/like_program"
LIMIT_S = 60
# Which device it is, and when it was asked.
ORIGIN = {"kernel", "device", "firmware", "vendor", "driver", "source", "date"}


def run(*words, status=0):
    done = subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == status,
          f"{words} ended with {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def profile(text):
    lines = (line.split("#")[0].partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines if key.strip()}


def asked(*options):
    """What weft-probe finds under `weft run` with these options."""
    return profile(run("run", *options, "--", PROBE))


def check_likeness(name, *options):
    """Each line of the profile holds, but where Weft itself has less."""
    own, there, found = asked(*options), profile(run("probe", "--known", name)), \
        asked(*options, "--like", name)
    for key in sorted(there.keys() - ORIGIN):
        if found.get(key) == there[key]:
            continue
        both = own[key], there[key]
        if key == "max_res_rd_atom" and int(found[key]) < int(there[key]):
            continue  # of all queue pairs, of which Weft has fewer
        if key == "device_cap_flags":
            want = hex(int(both[0], 16) & int(both[1], 16))
        elif all(value.isdigit() for value in both):
            want = str(min(map(int, both)))
        else:
            check(there[key] == "ok", f"{key} is {found.get(key)}, and {name} has {there[key]}")
            want = both[0]  # Weft refuses it
        check(found.get(key) == want, f"{key} is {found.get(key)}, not {want}")


def siw(_):
    check_likeness("siw")


def rxe(_):
    check_likeness("rxe", "--personality", "roce")


def reported(_):
    for name in ("connectx-5", "connectx-3", "e810", "qedr"):
        check_likeness(name, "--personality", "roce")


def requests(_):
    out = run("run", "--like", "siw,post.read_sge_beyond=EINVAL", "--", PROGRAM, "requests")
    want = ["list: EINVAL bad 1 next 1", "completed: 1 success", "others: 0", "read: EINVAL",
            "granted: 8 8, inline 0"]
    check(out.splitlines() == want, f"got {out}")
    out = run("run", "--like", "siw,qp.send_wr_granted=power_of_two_less_one,qp.inline_of_none=16,"
              "post.ATOMIC_FETCH_AND_ADD=ENOSYS", "--", PROGRAM, "requests")
    check(out.splitlines()[0] == "list: ENOSYS bad 1 next 1", f"got {out}")
    check(out.splitlines()[-1] == "granted: 8 8, inline 16", f"got {out}")


def shared(_):
    same = run("run", "--like", "post.ATOMIC_FETCH_AND_ADD=EINVAL", "--", PROGRAM, "shared")
    check(same == "wrong: 0\n", f"got {same}")


def builder(_):
    out = run("run", "--like", "post.SEND=EINVAL,post.RDMA_WRITE=EPERM", "--", PROGRAM, "builder")
    check(out.splitlines() == ["EOPNOTSUPP", "EOPNOTSUPP", "made"], f"got {out}")


def objects(_):
    out = run("run", "--like", "max_pd=3,max_cq=5,max_qp=7,max_mr=9", "--", PROGRAM, "objects")
    want = ["pd: 3 ENOMEM", "pd again: 1", "cq: 5 ENOMEM", "qp: 7 ENOMEM", "mr: 9 ENOMEM"]
    check(out.splitlines() == want, f"got {out}")


def wishes(_):
    """A file of one's own, settings, and what is said of mistakes."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "mine.profile")
        file.write_text(run("probe", "--known", "siw") + "max_sge = 2\n")
        found = asked("--like", str(file))
        check(found["max_sge"] == "2" and found["cq.resize"] == "EOPNOTSUPP", f"got {found}")
        file.write_text("max_sge = 2\nmax_sgs = 3\n")
        said = run("run", "--like", str(file), "--", PROBE, status=2)
        check(f"--like: {file}: line 2: max_sgs = 3: there is no such key" in said, said)
    said = run("run", "--like", "/", "--", PROBE, status=2)
    check("/: Is a directory" in said, said)
    found = asked("--like", "port.max_mtu=1024")
    check((found["port.max_mtu"], found["port.active_mtu"]) == ("1024", "1024"), f"got {found}")
    found = asked("--like", "max_qp_rd_atom=4,max_qp_init_rd_atom=2")
    check((found["max_qp_rd_atom"], found["max_qp_init_rd_atom"]) == ("4", "2"), f"got {found}")
    said = run("run", "--like", "swi", "--", PROBE, status=2)
    check("no device that is known (siw, rxe, " in said, said)
    said = run("probe", "--known", "swi", status=2)
    check("siw " in said and "rxe " in said, said)


def reasons(_):
    """Each refusal is explained once."""
    done = subprocess.run([WEFT, "run", "--like", "siw", "--", PROGRAM, "requests"],
                          capture_output=True, text=True, timeout=LIMIT_S)
    check(done.stderr.count("as siw0, post.ATOMIC_FETCH_AND_ADD is refused: EINVAL") == 1,
          done.stderr)


def as_json(_):
    text = subprocess.run([WEFT, "run", "--", WEFT, "probe", "--json"], capture_output=True,
                          text=True, timeout=LIMIT_S, check=True).stdout
    found = json.loads(text)
    check(found["qp.RC"] == "ok" and found["device"] == "weft0", text)
    check(json.loads(run("probe", "--known", "siw", "--json"))["max_sge"] == "6", "no max_sge")
    for address, words in (("foo", "'foo' is no address"), ("9.9.9.9", "9.9.9.9 is no address of")):
        said = run("run", "--", PROBE, "--address", address, status=1)
        check(words in said, said)
    said = run("probe", "no-such-device", status=1)
    check("weft-probe: " in said, said)


def programs(_):
    """Programs that siw refuses are refused here, and those that it takes are taken."""
    for program in ("ib_write_bw", "ib_atomic_bw"):
        need(program)
    for program, taken in (("ib_write_bw", True), ("ib_atomic_bw", False)):
        script = (f"{program} -R -n 100 -p 18620 & sleep 0.5; "
                  f"{program} -R -n 100 -p 18620 127.0.0.1; code=$?; kill %1; exit $code")
        done = subprocess.run([WEFT, "run", "--like", "siw", "--", "bash", "-c", script],
                              capture_output=True, text=True, timeout=LIMIT_S)
        check((done.returncode == 0) == taken,
              f"{program}: {done.returncode} {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main({case.__name__: case for case in (
        siw, rxe, reported, requests, shared, builder, objects, wishes, reasons, as_json, programs)})
