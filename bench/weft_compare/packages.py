"""Rivals come as Debian packages. A rival that is not there is a line in the report."""

import os
import shutil
import subprocess

# program -> package
RIVALS = {
    "iperf3": "iperf3",
    "sockperf": "sockperf",
    "ucx_perftest": "ucx-utils",
    "fi_pingpong": "libfabric-bin",
    "qperf": "qperf",
    "ib_write_bw": "perftest",
}


def missing():
    return [program for program in RIVALS if shutil.which(program) is None]


def install(programs, say):
    """Tries to install what gives `programs`. Returns why that failed, or None."""
    packages = sorted({RIVALS[p] for p in programs})
    apt = shutil.which("apt-get")
    if apt is None:
        return "this system has no apt-get"
    prefix = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            return "neither root nor sudo"
        prefix = ["sudo", "-n"]
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        argv = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-q",
                "-o", "DPkg::Lock::Timeout=60", *command]
        try:
            done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"apt-get {command[0]}: {error}"
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return f"apt-get {command[0]}: {lines[-1] if lines else 'failed'}"
    return None


def version(program):
    """The version of the package that a rival came with, or an empty text."""
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", RIVALS[program]],
                              capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
