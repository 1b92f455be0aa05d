#!/usr/bin/env python3
"""Other people's suites over Weft.

    tests/suites/run.py [SUITE...] [--quick] [--case PATTERN] [--try-never] [--seconds N] [--list]

Each suite is unmodified. What is not expected to pass is in SUITE.exceptions, with the reason. A
failure that is not there fails the run. An exception that passes is reported, and does not fail it.
README.md describes the suites. Exit status 77: no suite could be run here.

    WEFT_BIN_DIR     folder of the `weft` program; default build/release/bin
    WEFT_SUITES_DIR  where sources and what is built of them are kept; default ~/.cache/weft/suites
"""

import argparse
import fnmatch
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "programs")]
os.environ.setdefault("WEFT_BIN_DIR", str(HERE.parents[1] / "build/release/bin"))
sys.dont_write_bytecode = True

import harness  # noqa: E402
import outcome  # noqa: E402
import cpython_suite  # noqa: E402
import gloo_suite  # noqa: E402
import perftest_suite  # noqa: E402
import pyverbs_suite  # noqa: E402
import sockets_suite  # noqa: E402
import ucx_suite  # noqa: E402

SUITES = {"cpython": cpython_suite, "libuv": sockets_suite.LIBUV, "libevent": sockets_suite.LIBEVENT,
          "redis": sockets_suite.REDIS, "gloo": gloo_suite, "pyverbs": pyverbs_suite,
          "perftest": perftest_suite, "ucx": ucx_suite}


def rules_of(name):
    path = HERE / f"{name}.exceptions"
    return outcome.Rules(path.read_text(encoding="utf-8"), path.name)


def told(name, case, rules, results):
    """A line for a case that deserves one, and what was seen for who wants it all."""
    rule = rules.of(case.name)
    if results:
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps({"suite": name, **case._asdict()}) + "\n")
    if case.verdict == outcome.FAILED and rule is None:
        body = "".join(f"    | {line[:200]}\n" for line in case.detail.splitlines())
        print(f"  NEW FAILURE {case.name}\n{body}", end="", flush=True)
    elif case.verdict == outcome.PASSED and rule is not None and rule.kind != "sometimes":
        print(f"  passes, and is an exception: {case.name} ({rule.reason})", flush=True)


def run_suite(name, options):
    """Runs one suite and says what came of it: True if there was no new failure."""
    suite, rules, start = SUITES[name], rules_of(name), time.monotonic()

    def wanted(case):
        if not fnmatch.fnmatchcase(case, options.case):
            return False
        return not options.quick or suite.quick(case)

    print(f"== {name}: {suite.version()}", flush=True)
    if options.quick and hasattr(suite, "ready") and not suite.ready():
        raise harness.Skip("it is not built yet; a run without --quick builds it")
    every = [case for case in suite.cases() if wanted(case)]
    if options.list:
        print("\n".join(every))
        return True
    if not every:
        raise harness.Failure(f"{name}: no case matches")
    refused = [case for case in every if rules.never(case) and not options.try_never]
    run = [case for case in every if case not in refused]
    cases = suite.run(run, options.seconds,
                      lambda case: told(name, case, rules, options.results))
    cases += [outcome.Case(case, outcome.SKIPPED, "") for case in refused]
    summary = outcome.Summary(cases, rules)
    print(f"{name}: {summary.line()} ({time.monotonic() - start:.0f} s)", flush=True)
    if options.case == "*" and not options.quick:
        for row in summary.unused:
            print(f"  {name}.exceptions:{row.line} matches no case: {row.pattern}")
    return not summary.new


def main():
    parser = argparse.ArgumentParser(description="Runs other people's suites over Weft.")
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help=f"{', '.join(SUITES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="only the small part of each suite")
    parser.add_argument("--case", default="*", metavar="PATTERN", help="only these cases")
    parser.add_argument("--try-never", action="store_true",
                        help="start the cases of kind `never` too: has the reason gone?")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N",
                        help="skip what N seconds for each suite leave no time for; default: none")
    parser.add_argument("--results", metavar="FILE", help="append each case as a line of JSON")
    parser.add_argument("--list", action="store_true", help="list the cases, run none")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    good, ran = True, 0
    for name in options.suites or SUITES:
        try:
            good = run_suite(name, options) and good
            ran += 1
        except harness.Skip as why:
            print(f"{name}: skipped: {why}", flush=True)
        except harness.Failure as why:
            print(f"{name}: FAILED: {why}", flush=True)
            good = False
    if not good:
        sys.exit(1)
    sys.exit(0 if ran else harness.SKIPPED)


if __name__ == "__main__":
    main()
