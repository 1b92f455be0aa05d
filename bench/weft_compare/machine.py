"""What this machine is, and what else it does meanwhile."""

import os
import platform
import re
import statistics
import time

from .process import children_cpu_s

NOISY_SHARE = 0.10       # of one CPU, used by others: beyond it ratios vary more
BUSY_STATES = (0, 1, 2)  # user, nice, system in /proc/stat; interrupts are ours as often as not
TICKS = os.sysconf("SC_CLK_TCK")


def read(path, fallback=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return fallback


def busy_cpu_s():
    fields = read("/proc/stat").splitlines()[0].split()[1:]
    return sum(int(fields[i]) for i in BUSY_STATES) / TICKS


def stolen_cpu_s():
    fields = read("/proc/stat").splitlines()[0].split()[1:]
    return int(fields[7]) / TICKS if len(fields) > 7 else 0.0


class Watch:
    """CPU time that nobody here has used, between two moments: as a share of one CPU."""

    def __init__(self):
        self._start = time.monotonic()
        self._busy = busy_cpu_s() + stolen_cpu_s()
        self._own = children_cpu_s()

    def others(self):
        seconds = time.monotonic() - self._start
        if seconds <= 0:
            return 0.0
        own = children_cpu_s() - self._own
        # /proc/stat counts in ticks: what is below two of them is not known.
        foreign = busy_cpu_s() + stolen_cpu_s() - self._busy - own - 2 / TICKS
        return max(0.0, foreign / seconds)


def others_ready():
    """How many threads besides this one run or are ready to, at this moment."""
    fields = read("/proc/loadavg", "0 0 0 1/1 1").split()
    return int(fields[3].split("/")[0]) - 1


class Patience:
    """Waits for idle moments, for so many seconds in all."""

    def __init__(self, seconds):
        self.left = seconds
        self.repeated = 0

    def wait(self):
        """Until nobody else is ready to run, several looks in a row."""
        start = time.monotonic()
        calm = 0
        while calm < 3 and time.monotonic() - start < self.left:
            calm = 0 if others_ready() > 0 else calm + 1
            time.sleep(0.01)
        self.left -= time.monotonic() - start

    def repeat(self, others, took):
        """Whether a measurement that was disturbed so much is made again."""
        if others <= NOISY_SHARE or self.left < took:
            return False
        self.left -= took
        self.repeated += 1
        return True


def look_around(seconds=1.0):
    watch = Watch()
    time.sleep(seconds)
    return watch.others()


def verdict(shares):
    """(is it idle, one sentence) from what others used during each measurement."""
    if not shares:
        return True, "Nothing was measured."
    middle = statistics.median(shares)
    disturbed = sum(share > NOISY_SHARE for share in shares)
    text = (f"Other programs used {middle * 100:.0f} % of one CPU (median over "
            f"{len(shares)} measurements; more than {NOISY_SHARE * 100:.0f} % in "
            f"{disturbed} of them).")
    return middle <= NOISY_SHARE and disturbed * 4 <= len(shares), text


def cpu_name():
    match = re.search(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo"), re.M)
    return match.group(1) if match else platform.machine()


def available_memory_bytes():
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read("/proc/meminfo"), re.M)
    return int(match.group(1)) * 1024 if match else 0


def system_congestion():
    return read("/proc/sys/net/ipv4/tcp_congestion_control", "unknown")


def conditions():
    sysctl = "/proc/sys/net/"
    return {
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "system": system_name(),
        "virtual": read("/sys/class/dmi/id/product_name") or ("yes" if "hypervisor" in
                                                              read("/proc/cpuinfo") else "no"),
        "congestion": system_congestion(),
        "congestion_available": read(sysctl + "ipv4/tcp_available_congestion_control"),
        "tcp_rmem": " ".join(read(sysctl + "ipv4/tcp_rmem").split()),
        "tcp_wmem": " ".join(read(sysctl + "ipv4/tcp_wmem").split()),
        "rmem_max": read(sysctl + "core/rmem_max"),
        "mmap_rnd_bits": read("/proc/sys/vm/mmap_rnd_bits"),
    }


def system_name():
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', read("/etc/os-release"), re.M)
    return match.group(1) if match else "unknown"


def choose_cpus():
    """(client's, server's), or (None, None) where there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    return (cpus[0], cpus[1]) if len(cpus) > 1 else (None, None)
