#!/usr/bin/env python3
"""TCP with copy beside placing by RDMA over lwIP, in instructions: what does not depend on the host.

    bench/embedded/evaluate.py [--out DIR] [--build BUILD] [--board BOARD]... [--no-host] [--no-boards]

Moves N messages of 50, 500 and 1400 KB from one lwIP host to another in the same program
(bench/embedded/moves.h): on boards under QEMU, whose clock counts instructions (-icount), and on
this machine, where callgrind counts them. Both ends and the link between them are counted. The
link's part is the same for every way. Writes table.md and samples.json to DIR (build/embedded
unless given); `bench/compare --only embedded` draws the plots.

tcp-copy-plain is TCP over lwIP as it comes; the other ways have Weft's port of it, with a faster
checksum.

The time is that of a straight line through the runs: so many instructions to begin with, so many
for each octet. Exit status 77: nothing of what is needed could be had, and a line says what.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
QEMU = {
    "mps2-an385": ["qemu-system-arm", "-M", "mps2-an385"],
    "mipssim": ["qemu-system-mips", "-M", "mipssim", "-m", "32M"],
}
WAYS = ("tcp-copy-plain", "tcp-copy", "rdma", "rdma-crc", "rdma-crc-markers")
SIZES = (50_000, 500_000, 1_400_000)
OCTETS = (1_400_000, 2_800_000, 5_600_000)
REORDERED = 10
BOARD_LIMIT_S = 1800

Sample = collections.namedtuple("Sample", "way size count reordered ahead placed instructions")


def board_samples(board, image):
    """The lines that the image prints under QEMU. One instruction is one nanosecond of its clock."""
    command = [*QEMU[board], "-kernel", str(image), "-display", "none", "-monitor", "none",
               "-serial", "stdio", "-net", "none", "-icount", "shift=0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    samples = []
    try:
        for line in process.stdout:
            match = re.match(r"run (\S+) (\d+) (\d+) (\d+) (\S+) (\d+) (\d+) (\d+)", line)
            if match:
                if match[5] != "right":
                    sys.exit(f"evaluate.py: octets went wrong on {board}: {line}")
                samples.append(Sample(match[1], *(int(match[i]) for i in (2, 3, 4, 6, 7, 8))))
                print(f"{board}: {line.rstrip()}", flush=True)
            elif "done" in line:
                return samples
            elif "weft-board:" in line:
                sys.exit(f"evaluate.py: {board}: {line}")
    finally:
        process.kill()
        process.wait()
    sys.exit(f"evaluate.py: {board} stopped early")


def host_sample(program, way, size, count, reordered=0):
    """One run under callgrind, of which only run_messages() is counted."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
             "--toggle-collect=*run_messages*", program, way, str(size), str(count),
             str(reordered)], capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    placed = re.search(r"right=1 ahead=(\d+) placed=(\d+)", done.stdout)
    if done.returncode != 0 or collected is None or placed is None or int(collected[1]) == 0:
        sys.exit(f"evaluate.py: {program} {way} {size} {count}:\n{done.stdout}{done.stderr}")
    print(f"host: {done.stdout.rstrip()} {collected[1]}", flush=True)
    return Sample(way, size, count, reordered, int(placed[1]), int(placed[2]), int(collected[1]))


def host_samples(plain, program):
    programs = {way: plain if way == WAYS[0] else program for way in WAYS}
    samples = [host_sample(programs[way], way, size, octets // size)
               for octets in OCTETS for size in SIZES for way in WAYS]
    return samples + [host_sample(programs[way], way, SIZES[-1], 2, REORDERED) for way in WAYS]


def line_through(points):
    """Slope and start of the straight line with the least squares, and its largest error in %."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    slope = (sum((x - mean_x) * (y - mean_y) for x, y in points) /
             sum((x - mean_x) ** 2 for x, _ in points))
    start = mean_y - slope * mean_x
    worst = max(abs(start + slope * x - y) / y for x, y in points)
    return slope, start, 100 * worst


def series(samples, way, size):
    return sorted((s.count, s.instructions) for s in samples
                  if s.way == way and s.size == size and s.reordered == 0)


def lines_of(samples):
    """way -> size -> what line_through() gives."""
    return {way: {size: line_through(series(samples, way, size)) for size in SIZES}
            for way in WAYS}


def table(where, samples):
    out = [f"### {where}", "",
           "Instructions per octet of N messages, both ends and the link; in brackets beside TCP "
           f"with copy: {WAYS[0]}, {WAYS[1]}.", "",
           "| message | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    lines = lines_of(samples)
    for size in SIZES:
        costs = [lines[way][size][0] / size for way in WAYS]
        cells = [f"{cost:.2f} ({cost / costs[0]:.2f}, {cost / costs[1]:.2f})" for cost in costs]
        out.append(f"| {size // 1000} KB | " + " | ".join(cells) + " |")
    worst = max(line[2] for sizes in lines.values() for line in sizes.values())
    out += ["", f"A straight line through the runs (N to {OCTETS[-1] // SIZES[0]}) is off by "
            f"{worst:.1f} % at most, so N = 5000 costs 5000 messages' share.", "",
            f"With {REORDERED} % of the frames behind the next one, 2 messages of 1400 KB:", "",
            "| | instructions per octet | segments ahead | of them placed |", "|---|---|---|---|"]
    for s in samples:
        if s.reordered:
            per_octet = s.instructions / (s.size * s.count)
            ahead = "not counted" if s.way.startswith("tcp") else s.ahead
            out.append(f"| {s.way} | {per_octet:.2f} | {ahead} | {s.placed} |")
    return "\n".join(out) + "\n"


def build_board(board, build):
    """The images of the evaluation; none, and a line that says what is missing."""
    if shutil.which(QEMU[board][0]) is None:
        print(f"evaluate.py: {QEMU[board][0]} is not installed (scripts/install-deps.sh all)")
        return []
    for target in ("weft_board_bench_plain", "weft_board_bench"):
        if subprocess.run([ROOT / "scripts/build-board.sh", board, build, target]).returncode != 0:
            print(f"evaluate.py: no image for {board}")
            return []
    return [build / f"bin/weft-board-bench{kind}.elf" for kind in ("-plain", "")]


def find_programs(build):
    """Those of this machine; none, and a line that says what is missing."""
    found = [next(build.glob(f"**/weft_embedded_bench{kind}"), None) for kind in ("_plain", "")]
    if shutil.which("valgrind") is None:
        print("evaluate.py: valgrind is not installed")
    elif None in found:
        print("evaluate.py: build weft_embedded_bench and weft_embedded_bench_plain first")
    else:
        return found
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/embedded")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="tree with weft_embedded_bench (default build/release)")
    parser.add_argument("--board", action="append", choices=sorted(QEMU),
                        help="only this board; again for several (default: all)")
    parser.add_argument("--no-host", action="store_true", help="boards only")
    parser.add_argument("--no-boards", action="store_true", help="this machine only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for board in [] if args.no_boards else args.board or sorted(QEMU):
        images = build_board(board, ROOT / f"build/board-{board}")
        if images:
            results[board] = [s for image in images for s in board_samples(board, image)]
    programs = [] if args.no_host else find_programs(args.build)
    if programs:
        results["host"] = host_samples(*programs)
    if not results:
        return 77
    text = "\n".join(table(where, samples) for where, samples in results.items())
    (args.out / "table.md").write_text(text)
    (args.out / "samples.json").write_text(json.dumps(
        {where: {"samples": [s._asdict() for s in samples], "lines": lines_of(samples)}
         for where, samples in results.items()}, indent=1))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
