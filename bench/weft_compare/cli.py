"""bench/compare: options, and the order of a run."""

import argparse
import os
import shlex
import shutil
import signal
import sys
import time

from . import machine, packages, plan, report, workloads
from .bench import Bench, Settings
from .places import Places, can_make_namespaces, remove_stale
from .process import Failed, find_weft
from .store import Store

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
ROUNDS, QUICK_ROUNDS = 5, 1
NAME = os.environ.get("WEFT_COMPARE_NAME", "bench/compare")  # `weft report` starts it too
SPEAKER = NAME.split()[0]  # as other commands of weft begin their messages


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line, as for every command of weft."""

    def error(self, message):
        message = message.removeprefix("argument ")
        self.exit(EXIT_USAGE, f"{SPEAKER}: {message}; see `{NAME} --help`\n")


def number(kind, least, most, what):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
        return value
    return convert


def parse_arguments(arguments):
    parser = Parser(
        prog=NAME, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures Weft beside raw TCP, iperf3, sockperf, qperf, UCX, libfabric and "
                    "perftest,\nin interleaved rounds, and writes index.html, report.md and "
                    "report.json.",
        epilog="About 30 minutes; --quick a few. Network namespaces, and with them the column "
               "in which\nall have one congestion control, need root.")
    parser.add_argument("--quick", action="store_true", help="one short round of everything")
    parser.add_argument("--only", metavar="LIST", help="workloads, by name or number: 1,latency")
    parser.add_argument("--rounds", metavar="N", help=f"rounds. Default: {ROUNDS}",
                        type=number(int, 1, 1000, "a whole number from 1 to 1000"))
    parser.add_argument("--resume", action="store_true",
                        help="continue the interrupted run whose samples are in DIR")
    parser.add_argument("--out", metavar="DIR", default="report",
                        help="folder to write to. Default: report")
    parser.add_argument("--list", action="store_true", help="list workloads and rivals, and end")
    parser.add_argument("--no-install", action="store_true",
                        help="do not install rivals that are missing")
    parser.add_argument("--congestion", metavar="NAME", default="reno",
                        help="congestion control of the column in which all programs use the same. "
                             "Default: reno")
    parser.add_argument("--patience", metavar="SECONDS", default=0,
                        type=number(float, 0, 1e9, "a number of seconds, 0 or more"),
                        help="wait until the machine is idle, and repeat disturbed measurements, for so long "
                             "in all. Default: 0")
    parser.add_argument("--weft", metavar="PATH",
                        help="weft program to measure. Default: the one built, or this one")
    options = parser.parse_args(arguments)
    options.workloads = choose_workloads(parser, options.only)
    available = machine.read("/proc/sys/net/ipv4/tcp_available_congestion_control").split()
    if available and options.congestion not in available:
        parser.error(f"--congestion: '{options.congestion}' is no congestion control of this "
                     f"kernel; it has {', '.join(available)}")
    return options


def choose_workloads(parser, only):
    if not only:
        return list(workloads.ALL)
    chosen = []
    for text in filter(None, (part.strip() for part in only.split(","))):
        found = workloads.by_name(text)
        if found is None:
            names = ", ".join(f"{w.NUMBER} {w.NAME}" for w in workloads.ALL)
            parser.error(f"--only: '{text}' is not a workload; there are {names}")
        chosen.append(found)
    if not chosen:
        parser.error("--only: names no workload")
    return [w for w in workloads.ALL if w in chosen]


def list_workloads():
    for workload in workloads.ALL:
        print(f"{workload.NUMBER}  {workload.NAME:10} {workload.TITLE}")
    print("\nRivals (program, package, installed version)")
    for program, package in packages.RIVALS.items():
        version = packages.version(program) if shutil.which(program) else ""
        print(f"   {program:13} {package:14} {version or 'not installed'}")


class Screen:
    """Progress: one line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.live = stream.isatty()
        self.last = 0.0

    def say(self, text):
        print(("\r\033[K" if self.live else "") + text, file=self.stream, flush=True)

    def progress(self, done, total, left_s, name):
        text = f"{done * 100 // max(total, 1):3d} %  {time_text(left_s)} left  {name}"
        if self.live:
            print("\r\033[K" + text[:100], end="", file=self.stream, flush=True)
        elif time.monotonic() - self.last > 15:
            self.last = time.monotonic()
            print(text, file=self.stream, flush=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", file=self.stream, flush=True)


def time_text(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def unavailable(no_install, screen):
    """program -> why it cannot be measured"""
    absent = packages.missing()
    if not absent:
        return {}
    refusal = "not installed, and --no-install was given" if no_install else None
    if not no_install:
        refusal = packages.install(absent, screen.say)
    return {program: f"{program} is missing (package {packages.RIVALS[program]}): "
                     f"{refusal or 'the package does not bring it'}"
            for program in packages.missing()}


def make_settings(options):
    if options.quick:
        return Settings(True, 0.04, 0.03, options.congestion)
    return Settings(False, 0.1, 0.08, options.congestion)


def jobs_of(chosen, bench):
    wanted = list(chosen)
    for workload in chosen:
        for name in workload.NEEDS:
            needed = workloads.by_name(name)
            if needed not in wanted:
                wanted.append(needed)
    return [job for w in workloads.ALL if w in wanted for job in w.jobs(bench)]


def run_job(bench, job, refusals):
    """Samples of a job, or its failure in each of its cells."""
    if job.program in refusals:
        return {cell: {"error": refusals[job.program]} for cell in job.cells}
    try:
        samples = job.work(bench)
    except Failed as why:
        return {cell: {"error": str(why)} for cell in job.cells}
    for cell in job.cells:
        samples.setdefault(cell, {"error": "the program gave no figure for this"})
    return samples


def run_when_idle(bench, job, refusals, patience):
    """(samples, CPU share of others meanwhile)"""
    while True:
        patience.wait()
        bench.take_calls()
        watch = machine.Watch()
        start = time.monotonic()
        samples = run_job(bench, job, refusals)
        others = watch.others()
        if not patience.repeat(others, time.monotonic() - start):
            return samples, others


def measure(bench, store, steps, refusals, patience, screen):
    todo = [(number, job) for number, job in steps if (number, job.name) not in store.done]
    left = sum(job.seconds for _, job in todo)
    pace = 1.0
    for index, (number, job) in enumerate(todo):
        screen.progress(len(steps) - len(todo) + index, len(steps), left * pace,
                        f"round {number + 1}: {job.name}")
        start = time.monotonic()
        samples, others = run_when_idle(bench, job, refusals, patience)
        took = time.monotonic() - start
        store.add(number, job, samples, bench.take_calls(), others)
        left -= job.seconds
        pace = 0.95 * pace + 0.05 * min(max(took / job.seconds, 0.1), 5)
    screen.clear()


def versions_of(weft, bench):
    own = bench.client(bench.places.loopback(), [weft, "--version"], pin=False)
    rows = [("weft", own.out.strip())]
    for program, package in packages.RIVALS.items():
        rows.append((program, f"{package} {packages.version(program)}"
                     if shutil.which(program) else "not installed"))
    return rows


def note_refusals(places_refusal, refusals, chosen):
    skipped = list(dict.fromkeys(refusals.values()))
    if places_refusal:
        names = [w.TITLE.lower() for w in chosen if w.NAME in ("segments", "exs")]
        what = "; ".join(["the column under one congestion control, for programs that cannot "
                          "choose it", *(f"what needs a link of: {n}" for n in names)])
        skipped.append(f"{places_refusal}. Left out: {what}.")
    return skipped


def run_all(options, screen):
    started = time.monotonic()
    weft = find_weft(options.weft)
    os.makedirs(options.out, exist_ok=True)
    remove_stale()
    refusals = unavailable(options.no_install, screen)
    places_refusal = can_make_namespaces()
    settings = make_settings(options)
    places = Places(machine.system_congestion(), places_refusal)
    bench = Bench(weft, settings, places, machine.choose_cpus())
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    jobs = jobs_of(options.workloads, bench)
    header = {"plan": {"jobs": [job.name for job in jobs], "quick": options.quick, "weft": weft,
                       "congestion": options.congestion}}
    store = Store(os.path.join(options.out, "samples.jsonl"), header, options.resume)
    try:
        versions = versions_of(weft, bench)
        before = machine.look_around()
        if before > machine.NOISY_SHARE:
            screen.say(f"this machine is not idle: others use {before * 100:.0f} % of one CPU")
        if store.resumed:
            screen.say(f"resumed: {store.resumed} measurements are there")
        steps = plan.schedule(jobs, rounds)
        measure(bench, store, steps, refusals, machine.Patience(options.patience), screen)
    finally:
        places.close()
        store.close()
    shown = [workload.section(store) for workload in options.workloads]
    finished = report.Report(
        settings={"quick": options.quick, "rounds": rounds, "congestion": options.congestion,
                  "seconds": settings.seconds, "workloads": [w.NAME for w in options.workloads]},
        conditions=machine.conditions(), versions=versions, sections=shown,
        outcomes=report.outcomes_of(store), others=store.others,
        skipped=note_refusals(places_refusal, refusals, options.workloads),
        command=shlex.join(["bench/compare", *sys.argv[1:]]), seconds=time.monotonic() - started,
        others_before=before, when=time.strftime("%Y-%m-%d %H:%M"))
    report.write(options.out, finished, store)
    summarize(options, finished)


def summarize(options, finished):
    for warning in finished.warnings():
        print(f"{warning['head']} {warning['text']}")
    for outcome in finished.outcomes:
        if outcome.met is not None:
            print(f"{outcome.verdict():8} {outcome.ratio[0]:8.3f}  {outcome.wanted():7} "
                  f"{outcome.target.workload} / {outcome.target.name}")
    print(f"report: {os.path.join(options.out, 'index.html')}")


def interrupt(*_):
    raise KeyboardInterrupt


def main(arguments):
    options = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, interrupt)
    screen = Screen()
    try:
        if options.list:
            list_workloads()
        else:
            run_all(options, screen)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has gone
        return EXIT_FAILED
    except Failed as why:
        screen.say(f"{SPEAKER}: {why}")
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        screen.say(f"{SPEAKER}: {where}{error.strerror or error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        screen.say("interrupted; --resume goes on from here")
        return EXIT_FAILED
    return EXIT_OK
