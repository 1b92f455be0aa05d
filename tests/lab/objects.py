#!/usr/bin/env python3
"""`weft run --faults`: rules about one queue pair. What they count, how they name it, and that they
do the same in 20 runs of 20."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, Skip, check, main, need  # noqa: E402

PROGRAM = os.path.join(os.environ["WEFT_TEST_BIN_DIR"], "objects_program")
LIMIT_S = 60
RUNS = 20


class Played:
    def __init__(self, done, log):
        self.status, self.said, self.lines = done.returncode, done.stderr, done.stdout.splitlines()
        self.text = log
        # In the order of the rules: threads write as it happens.
        self.log = sorted(line.split(" ", 3)[3] for line in log.splitlines()
                          if line.startswith("in program "))


def play(rules, lanes, *addresses, option="--faults", options=()):
    with tempfile.TemporaryDirectory() as folder:
        file, log = pathlib.Path(folder, "rules"), pathlib.Path(folder, "log")
        file.write_text(rules)
        done = subprocess.run([WEFT, "run", option, str(file), "--record", str(log), *options, "--",
                               PROGRAM, str(lanes), *(addresses or ("127.0.0.1",))],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        check(done.returncode == 0, f"{rules!r} ended with {done.returncode}: {done}")
        return Played(done, log.read_text())


def same(found, want):
    check(found == want, f"got {found}, not {want}")


# Lane i has the queue pairs 2i and 2i + 1; its client is connected to 127.0.0.2 or 127.0.0.3.
RULES = """seed 3
fail post_send on qp 0 on 37th with EAGAIN
fail post_send on qp 2 at every 20kB with EAGAIN
fail post_recv on qp 5 at every 100kB with ENOMEM
complete send on qp 6 at 50kB with RETRY_EXC_ERR
complete send on qp 8 at 60kB with FATAL_ERR, lost
complete receive on qp 11 at 70kB with LOC_LEN_ERR
fail post_send on qp 127.0.0.2:3 every 50 with EIO
link cut on qp 127.0.0.3:3 at 80kB
complete send on qp 127.0.0.2:4 with 10% with GENERAL_ERR
receive late 1ms on qp 127.0.0.1:9 every 60
link stall 1ms on qp 127.0.0.2:5 at every 50kB
octet flip on qp 127.0.0.3:5 at 90kB
fail post_send on qp 24 with 3% with EBUSY
fail post_send on qp 127.0.0.3:6 from 199th with EPERM
"""


def always(_):
    """Each kind of rule about one queue pair, all at once, in threads."""
    def once():
        return play(RULES, 14, "127.0.0.2", "127.0.0.3", options=("--crc", "on"))
    first = once()
    for line in range(2, 16):
        check(f"line {line}: " in first.said and f"line {line} had no" not in first.said,
              f"line {line}: {first.said}")
    same(len(first.lines), 14)
    same(first.lines[0], "0: EAGAIN 37")
    same(first.lines[13], "13: EPERM 199 ended 199")
    for lane in (3, 4, 5, 7, 8, 11):
        check(re.fullmatch(rf"{lane}: ended \d+", first.lines[lane]), f"{first.lines}")
    same(first.lines[9:11], ["9:", "10:"])
    for _round in range(RUNS - 1):
        again = once()
        same(again.lines, first.lines)
        same(again.log, first.log)
    again = play(first.text, 14, "127.0.0.2", "127.0.0.3", option="--replay",
                 options=("--crc", "on"))
    same(again.lines, first.lines)
    same(again.log, first.log)


def octets(_):
    """The message by which a queue pair reaches them: 500 to 1200 octets each, 850 in the mean."""
    played = play("fail post_send at 50kB with EAGAIN", 1)
    same(played.lines, ["0: EAGAIN 60"])
    same(played.log, ["fail ibv_post_send on qp 0 at 50000B with EAGAIN"])
    played = play("fail post_send at every 50kB with EAGAIN", 1)
    same(played.lines, ["0: EAGAIN 60 EAGAIN 118 EAGAIN 177"])
    # The fourth receive has room for the octets behind 16384, and so on.
    played = play("fail post_recv on qp 1 at every 400kB with ENOMEM", 1)
    same(played.lines, ["0: ENOMEM 98 ENOMEM 196"])
    # Every fourth request has a completion.
    played = play("complete send at 100kB with RETRY_EXC_ERR", 1)
    same(played.lines, ["0: ended 120"])
    same(played.log, ["complete send on qp 0 on 30 with RETRY_EXC_ERR"])
    same(play("complete send at 50kB with RETRY_EXC_ERR, lost", 1).lines, ["0: ended 60"])
    same(play("complete receive at 50kB with LOC_LEN_ERR", 1).lines, ["0: ended 60"])
    # The first that gets there; and each.
    played = play("fail post_send at 100kB with EAGAIN", 4)
    same(sum("EAGAIN" in line for line in played.lines), 1)
    played = play("fail post_send at every 100kB with EAGAIN", 4)
    same(played.lines, [f"{lane}: EAGAIN 118" for lane in range(4)])


def peers(_):
    """The n-th queue pair to a host, by its name and by its address."""
    played = play("fail post_send on qp 127.0.0.3:1 on 5th with EIO", 4, "127.0.0.2", "127.0.0.3")
    same(played.lines, ["0:", "1:", "2:", "3: EIO 5"])
    same(played.log, ["fail ibv_post_send on qp 6 on 5 with EIO"])
    # Those of the other ends, of which localhost is the peer.
    played = play("fail post_recv on qp localhost:2 on 7th with EIO", 4, "127.0.0.2", "127.0.0.3")
    same(played.lines, ["0:", "1:", "2: EIO 7", "3:"])
    played = play("disconnect on qp 127.0.0.3:1 at send completion 3 of qp 127.0.0.3:1", 4,
                  "127.0.0.2", "127.0.0.3")
    check(re.fullmatch(r"3: .*ended \d+", played.lines[3]), f"{played.lines} {played.said}")
    same(played.lines[:3], ["0:", "1:", "2:"])
    same(played.log, ["disconnect on qp 6 at send completion 3 of qp 6"])
    nobody = "x" * 70  # a name can't have it, so nobody is asked
    played = play(f"fail post_send on qp {nobody}:0 on 1st", 1)
    same(played.lines, ["0:"])
    check(f"line 1: {nobody}: " in played.said, played.said)
    check("line 1 had no effect in this process" in played.said, played.said)


def lab_rping(rules, *words):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "rules")
        file.write_text(rules)
        done = subprocess.run([WEFT, "run", "--faults", str(file), "--", WEFT, "lab", "run", *words,
                               "--until", "h2", "--", "rping", "-s", "-a", "{address}", "-C", "4",
                               "---", "rping", "-c", "-a", "h1" if not words else "127.0.0.1", "-C",
                               "4"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    for refusal in ("a host cannot be made", "lets no ordinary user", "/dev/net/tun", "/proc of a"):
        if done.returncode != 0 and refusal in done.stderr:
            raise Skip(done.stderr.strip())
    check(done.returncode == 0, f"{done}")
    return done.stdout + done.stderr


def hosts(_):
    """Names of the lab's hosts, with hosts and without."""
    need("rping")
    said = lab_rping("in rank 1 link delay 1ms on qp h1:0\n"
                     "in host h1 receive late 1ms on qp h2:0 on 2nd")
    check(re.search(r"\[h2\] weft faults: the link of queue pair number \d+ has delay 1 ms", said),
          said)
    check(re.search(r"\[h1\] weft faults: line 2: .* message 2 waits", said), said)
    said = lab_rping("in rank 1 link delay 1ms on qp h1:0\n"
                     "in rank 0 receive late 1ms on qp h1:0 on 2nd\n"
                     "in rank 1 link delay 9ms on qp h2:0", "--loopback")
    check(re.search(r"\[h2\] weft faults: the link of queue pair number \d+ has delay 1 ms", said),
          said)
    check(re.search(r"\[h1\] weft faults: line 2: .* message 2 waits", said), said)
    check("[h2] weft faults: line 3 had no effect" in said, said)


if __name__ == "__main__":
    main({case.__name__: case for case in (always, octets, peers, hosts)})
