"""Scenarios of socket calls, each reported call by call: returned value, errno, data, readiness.
Run plain they tell what the kernel does; run under `weft run --sockets` they must tell the same.

    socket_scenarios.py [NAME...]    prints one block of lines for each
"""

import os
import signal
import sys

import socket_scenarios_busy  # noqa: F401
import socket_scenarios_calls  # noqa: F401
import socket_scenarios_data  # noqa: F401
import socket_scenarios_ends  # noqa: F401
import socket_scenarios_holders  # noqa: F401
import socket_scenarios_readiness  # noqa: F401
import socket_scenarios_setup  # noqa: F401
import socket_scenarios_waiting  # noqa: F401
from socket_scenario import LOG, SCENARIOS, note

AT_ONCE = 4  # they wait most of the time


def begin(name):
    """A process of its own: what one leaves behind is not the next one's. (pid, its report)."""
    report = os.memfd_create(name)
    pid = os.fork()
    if pid != 0:
        return pid, report
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(30)
    try:
        SCENARIOS[name]()
    except Exception as error:  # a scenario reports, whatever happens
        note("raised", f"{type(error).__name__} {error}")
    os.pwrite(report, "".join(f"{name}: {line}\n" for line in LOG).encode(), 0)
    os._exit(0)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    waiting = list(sys.argv[1:] or SCENARIOS)
    running = {}
    reports = {}
    names = list(waiting)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            pid, report = begin(name)
            running[pid] = (name, report)
        pid, status = os.wait()
        name, report = running.pop(pid)
        reports[name] = os.pread(report, 1 << 20, 0).decode()
        os.close(report)
        if status != 0:
            reports[name] += f"{name}: ended with status {status}\n"
    for name in names:
        print(reports[name], end="")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
