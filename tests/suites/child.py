"""Runs the cases of a suite's own runner in child processes. A case that ends the runner, or does
not end itself, fails, and the runner is started again with those behind it."""

import os
import selectors
import signal
import subprocess
import time

from outcome import FAILED, SKIPPED, Case

KEPT_LINES = 12


class Told:
    """What a line of the runner says: `name` starts, or ends with `verdict`."""

    def __init__(self, name, verdict=None, detail=""):
        self.name, self.verdict, self.detail = name, verdict, detail


def lines_of(argv, limit_s, env=None, cwd=None):
    """Yields the lines that a program prints, and at last its exit status; None instead when it said
    nothing for `limit_s`. It is killed then."""
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env=env, cwd=cwd, start_new_session=True)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            rest, end = b"", time.monotonic() + limit_s
            while True:
                if not selector.select(max(0, end - time.monotonic())):
                    yield None
                    return
                more = os.read(child.stdout.fileno(), 1 << 16)
                if not more:
                    break
                end = time.monotonic() + limit_s
                *whole, rest = (rest + more).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")
            yield child.wait()
    finally:
        kill(child)
        child.stdout.close()


def kill(child):
    """The runner and whatever it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def run_cases(names, start, read, case_limit_s, seconds=float("inf"), report=lambda case: None):
    """`start(names)` is the command that runs these cases, with its environment; `read(line)` gives
    a Told or None. `case_limit_s`: how long the runner may be silent. Cases for which `seconds`
    leave no time are skipped. Returns the cases."""
    done, left, stop = {}, list(names), time.monotonic() + seconds

    def keep(name, verdict, detail=""):
        done[name] = Case(name, verdict, detail)
        report(done[name])

    while left:
        if time.monotonic() > stop:
            for name in left:
                keep(name, SKIPPED, "no time left")
            break
        argv, env = start(left)
        running, said, status = None, [], None
        for item in lines_of(argv, case_limit_s, env):
            if item is None or isinstance(item, int):
                status = item
                continue
            told = read(item)
            if told is None:
                said = [*said, item][-KEPT_LINES:]
            elif told.verdict is None:
                running, said = told.name, []
            else:
                keep(told.name, told.verdict, "\n".join(filter(None, [told.detail, *said])))
                running = None
            if running is None and time.monotonic() > stop:
                break
        if running is not None:
            why = f"no end within {case_limit_s} s" if status is None else f"ended with {status}"
            keep(running, FAILED, "\n".join([why, *said]))
        before = len(left)
        left = [name for name in left if name not in done]
        if len(left) == before and time.monotonic() <= stop:
            text = "\n".join(said)
            for name in left:
                keep(name, FAILED, f"the runner ended with {status} before this case\n{text}")
            break
    return [done[name] for name in names]
