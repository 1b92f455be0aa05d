#!/usr/bin/env python3
"""Several builds of the drop-in libraries, in turns: weft_progress_bench over each of them.

    bench/progress/compare.py old=/srv/old/lib new=build/release/lib
    bench/progress/compare.py A B --rounds 9 --only write_lat,readers --path tcp --one-core

A FOLDER holds libibverbs.so.1 and librdmacm.so.1, or has a folder `weft` that does; NAME= before it
is what the table calls it. Each round runs each row over each folder, one after the other, in an
order that changes from round to round. The table has the median, the smallest and the largest of
the rounds, and the ratio to the first folder: the median of the ratios within each round. A ratio
in brackets is noise: its quartiles are on both sides of 1. `--path auto` uses the ring wherever
there can be one (docs/path.md). Other settings come by the environment, such as WEFT_SPIN=0. The
exit status is 1 if a run failed. docs/performance.md and progress_bench.cc say what the rows
measure. Needs: ninja -C build/release weft_progress_bench
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "build/release/bin/weft_progress_bench")
RUN_LIMIT_S = 300
LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")


def folder(text):
    """NAME=FOLDER or FOLDER: the name and the folder that has the libraries."""
    name, found, path = text.partition("=")
    if not found:
        name, path = text, text
    for place in (os.path.join(path, "weft"), path):
        if all(os.path.exists(os.path.join(place, library)) for library in LIBRARIES):
            return name, os.path.abspath(place)
    raise argparse.ArgumentTypeError(f"{path} has no {' and '.join(LIBRARIES)}")


def rows(args):
    """The names of the rows to run; the list itself opens no device."""
    argv = [args.bench, "--list", *(["--only", args.only] if args.only else []),
            "--links", str(args.links)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return [line.split()[0] for line in done.stdout.splitlines()]


def run(row, path, place, args):
    """The metrics of a row, or None after a message."""
    argv = [args.bench, "--json", "--only", row, "--seconds", str(args.seconds),
            "--limit", str(args.limit)]
    argv += ["--one-core"] if args.one_core else []
    argv += ["--no-pin"] if args.no_pin else []
    env = {**os.environ, "LD_LIBRARY_PATH": place, "WEFT_PATH": path}
    try:
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"{row} over {place}, path {path}: not done in {RUN_LIMIT_S} s", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"{row} over {place}, path {path}: FAILED, see above", file=sys.stderr)
        return None
    return json.loads(done.stdout)[row]


def measure(names, paths, args):
    """results[path][row][name]: the metrics of each round, None where it failed."""
    results = {path: {row: {name: [] for name, _ in args.folders} for row in names}
               for path in paths}
    for number in range(args.rounds):
        order = args.folders if number % 2 == 0 else args.folders[::-1]
        for path in paths:
            for row in names:
                for name, place in order:
                    results[path][row][name].append(run(row, path, place, args))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    return results


def summary(runs, metric):
    """Median, smallest and largest over the rounds that have the metric; None without any."""
    values = [metrics[metric] for metrics in runs if metrics is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(base, runs, metric):
    """The median within the rounds of runs / base, and whether it is more than noise."""
    pairs = [(a[metric], b[metric]) for a, b in zip(base, runs) if a is not None and b is not None]
    ratios = [b / a for a, b in pairs if a > 0]
    if not ratios:
        return None
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (0, 0, 2)
    return {"median": statistics.median(ratios), "low": low, "high": high,
            "clear": low > 1 or high < 1}


def analyse(results, args):
    """One record for each path, row and metric."""
    first = args.folders[0][0]
    for path, by_row in results.items():
        for row, by_name in by_row.items():
            known = [metrics for runs in by_name.values() for metrics in runs if metrics]
            failed = {name: runs.count(None) for name, runs in by_name.items()}
            for metric in known[0] if known else [None]:
                record = {"path": path, "row": row, "metric": metric, "failed": failed}
                if metric is not None:
                    record["figures"] = {name: summary(runs, metric)
                                         for name, runs in by_name.items()}
                    record["ratios"] = {name: ratio(by_name[first], runs, metric)
                                        for name, runs in by_name.items() if name != first}
                yield record


def figure(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(record, args):
    """One line of the table."""
    line = [record["row"], record["metric"] or "-"]
    for name, _ in args.folders:
        found = record.get("figures", {}).get(name)
        failed = record["failed"][name]
        text = "none" if found is None else (
            f"{figure(found['median'])} ({figure(found['min'])} .. {figure(found['max'])})")
        line.append(text + (f", {failed} FAILED" if failed else ""))
    for name, _ in args.folders[1:]:
        found = record.get("ratios", {}).get(name)
        line.append("-" if found is None else f"{found['median']:.2f}" if found["clear"] else
                    f"({found['median']:.2f})")
    return line


def show(records, args):
    first = args.folders[0][0]
    head = ["row", "metric", *(name for name, _ in args.folders),
            *(f"{name}/{first}" for name, _ in args.folders[1:])]
    for path in dict.fromkeys(record["path"] for record in records):
        table = [head, *(cells(record, args) for record in records if record["path"] == path)]
        widths = [max(map(len, column)) for column in zip(*table)]
        print(f"\npath {path}; _us, sleeps: less is better; _per_s, scaling: more is better")
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=folder, metavar="[NAME=]FOLDER")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each timed phase (0.5)")
    parser.add_argument("--only", help="rows, with commas between (all)")
    parser.add_argument("--path", default="tcp,auto", help="tcp, auto or both (tcp,auto)")
    parser.add_argument("--links", type=int, default=1000, help="no row with more connections")
    parser.add_argument("--limit", type=int, default=10, help="seconds without a message (10)")
    parser.add_argument("--one-core", action="store_true", help="both processes on one CPU")
    parser.add_argument("--no-pin", action="store_true", help="processes on any CPU")
    parser.add_argument("--bench", default=BENCH, help="the program")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    args = parser.parse_args()
    if len(dict(args.folders)) != len(args.folders):
        sys.exit("two folders of one name; give them others by NAME=FOLDER")
    if args.rounds < 1:
        sys.exit("--rounds is 1 or more")
    if not os.path.exists(args.bench):
        sys.exit(f"{args.bench} is not built: ninja -C build/release weft_progress_bench")
    results = measure(rows(args), args.path.split(","), args)
    records = list(analyse(results, args))
    if args.json:
        json.dump({"folders": dict(args.folders), "rounds": args.rounds, "seconds": args.seconds,
                   "one_core": args.one_core, "rows": records}, sys.stdout, indent=1)
        print()
    else:
        show(records, args)
    return 1 if any(any(record["failed"].values()) for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
