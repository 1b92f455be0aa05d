#!/usr/bin/env python3
"""`weft lab run`: hosts of its own, links as asked, nothing left behind."""

import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, Skip, check, main, need  # noqa: E402

LIMIT_S = 60
NOBODY = 65534


def lab(*words, user=None, status=0, limit=LIMIT_S):
    """The lines that the commands printed, by host; those of a single command at None."""
    as_user = {"user": user, "group": user, "extra_groups": []} if user else {}
    done = subprocess.run([WEFT, "lab", "run", *words], capture_output=True, text=True,
                          timeout=limit, cwd="/", **as_user)
    check(done.returncode == status,
          f"{words} ended with {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    out = {}
    for line in (done.stdout + done.stderr).splitlines():
        host = re.match(r"\[(h\d+)\] (.*)", line)
        out.setdefault(host[1] if host else None, []).append(host[2] if host else line)
    return out


def needs(*programs):
    """Skips where hosts cannot be made, or a program is missing."""
    for program in programs:
        need(program)
    done = subprocess.run([WEFT, "lab", "run", "--hosts", "1", "--plain", "--", "true"],
                          capture_output=True, text=True, timeout=LIMIT_S)
    for refusal in ("a host cannot be made", "lets no ordinary user", "/dev/net/tun", "/proc of a"):
        if done.returncode != 0 and refusal in done.stderr:
            raise Skip(done.stderr.strip())


def refused(*words):
    """What is said about wrong usage."""
    done = subprocess.run([WEFT, "lab", "run", *words], capture_output=True, text=True,
                          timeout=LIMIT_S)
    check(done.returncode == 2, f"{words} ended with {done.returncode}, not 2")
    return done.stderr


def processes(mark):
    """Those of labs whose command has this word; others may run beside them."""
    out = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if mark.encode() in words and b"lab" in words:
                out.append(folder.name)
        except OSError:
            continue
    return out


def wait_for(what, why):
    end = time.monotonic() + LIMIT_S
    while not what():
        check(time.monotonic() < end, why)
        time.sleep(0.02)


def own_hosts(_network):
    needs()
    out = lab("--hosts", "3", "--plain", "--", "sh", "-c",
              "hostname; cat /proc/sys/kernel/random/boot_id; ls /dev/shm | wc -l; "
              "getent hosts h3 | cut -d' ' -f1; ls /sys/class/net | tr '\\n' ' '; echo; echo $$")
    check(sorted(out) == ["h1", "h2", "h3"], f"hosts: {out}")
    for host, lines in out.items():
        name, boot, shared, address, interfaces, pid = lines
        check(name == host and shared == "0" and address == "10.76.0.3", f"{host}: {lines}")
        check("eth0" in interfaces.split(), f"{host} has {interfaces}")
        check(int(pid) < 50, f"{host} has a process {pid}")
        check(boot != pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
              "a host has the boot id of this machine")
    check(len({lines[1] for lines in out.values()}) == 3, "hosts have the same boot id")


def ordinary_user(_network):
    needs("rping", "unshare")
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    if subprocess.run(["unshare", "-Un", "true"], user=NOBODY, group=NOBODY, extra_groups=[],
                      stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("this system lets no ordinary user make user namespaces")
    out = lab("--hosts", "2", "--plain", "--", "id", "-u", user=NOBODY)
    check(out == {"h1": [str(NOBODY)], "h2": [str(NOBODY)]}, f"users: {out}")
    out = lab("--hosts", "2", "--until", "h2", "--", "rping", "-s", "-C", "3", "---",
              "rping", "-c", "-a", "10.76.0.1", "-C", "3", "-v", user=NOBODY)
    check(sum("ping data" in line for line in out["h2"]) == 3, f"rping: {out}")


def rdma_and_tcp(_network):
    needs("ib_write_bw", "iperf3")
    out = lab("--hosts", "2", "--", "ib_write_bw", "-R", "-n", "200", "{server}")
    check(any(line.split()[:2] == ["65536", "200"] for line in out["h2"]), f"{out}")
    out = lab("--hosts", "2", "--until", "h2", "--plain", "--", "iperf3", "-s", "-1", "---", "sh",
              "-c", "sleep 0.5; exec iperf3 -c h1 -n 10M")
    check(any("receiver" in line for line in out["h2"]), f"{out}")


# Each way has the delay. A busy machine may be later, never earlier.
def delay(_network):
    needs("ib_write_lat")
    out = lab("--hosts", "2", "--link", "delay=20ms", "--", "ib_write_lat", "-R", "-n", "20",
              "{server}")
    row = next(line.split() for line in out["h2"] if re.match(r" *\d+ +20 ", line))
    check(float(row[2]) >= 20_000, f"the least latency is {row[2]} us, not 20 ms: {out}")


# A rate is not exceeded. 10 MB need 0.8 s at 100 Mbit/s.
def rate(_network):
    needs("iperf3")
    out = lab("--hosts", "2", "--link", "rate=100Mbit", "--until", "h2", "--plain", "--", "iperf3",
              "-s", "-1", "---", "sh", "-c", "sleep 0.5; exec iperf3 -c h1 -n 10M")
    speed = next(line for line in out["h2"] if "receiver" in line)
    got = float(re.search(r"([\d.]+) Mbits/sec", speed)[1])
    check(got <= 101, f"{got} Mbit/s: {speed}")


def exit_status(_network):
    needs()
    check(not lab("--hosts", "2", "--plain", "--", "true"), "true printed something")
    lab("--hosts", "2", "--plain", "--", "sh", "-c", "exit 7", status=7)
    # The others are ended then.
    start = time.monotonic()
    lab("--hosts", "2", "--plain", "--", "sleep", "600", "---", "sh", "-c", "exit 9", status=9)
    check(time.monotonic() - start < LIMIT_S, "the lab went on behind a failure")
    lab("--hosts", "2", "--plain", "--until", "h2", "--", "sleep", "600", "---", "true")
    lab("--hosts", "1", "--plain", "--", "sh", "-c", "kill -SEGV $$", status=128 + 11)
    lab("--hosts", "1", "--plain", "--", "/no/such/program", status=127)
    lab("--hosts", "1", "--", "/no/such/program", status=127)


def other_host(_network):
    needs()
    done = subprocess.run(
        [WEFT, "lab", "run", "--hosts", "3", "--plain", "--until", "h1", "--", "sh", "-c",
         f"echo here | {WEFT} lab exec h3 'hostname; cat; pwd; echo $A; exit 5'; echo $?; "
         f"{WEFT} lab exec 10.76.0.2 hostname; {WEFT} lab exec h9 true; echo $?"],
        capture_output=True, text=True, timeout=LIMIT_S, cwd="/usr", env={**os.environ, "A": "b"})
    lines = [line[5:] for line in done.stdout.splitlines() if line.startswith("[h1]")]
    check(lines == ["h3", "here", "/usr", "b", "5", "h2", "2"], f"{done.stdout}{done.stderr}")
    check("'h9' is no host of this lab; they are h1 to h3" in done.stderr, done.stderr)
    # As long an environment as a program may have, but for the stack's limit.
    large = {f"LARGE{i}": "x" * 100_000 for i in range(8)}
    done = subprocess.run(
        [WEFT, "lab", "run", "--hosts", "1", "--plain", "--", "sh", "-c",
         f"{WEFT} lab exec h1 'echo ${{#LARGE7}}'"], capture_output=True, text=True,
        timeout=LIMIT_S, env={**os.environ, **large})
    check(done.stdout == "100000\n", f"{done.stdout}{done.stderr}")


def mpi(_network):
    needs("mpirun")
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [WEFT, "lab", "run", "--hosts", "4", "--", "mpirun", "-np", "4", "--map-by", "node",
         "--mca", "btl", "tcp,self", "hostname"], capture_output=True, text=True, timeout=LIMIT_S,
        env=env)
    check(done.returncode == 0, f"mpirun ended with {done.returncode}: {done.stderr}")
    check(sorted(done.stdout.split()) == ["h1", "h2", "h3", "h4"], f"{done.stdout}{done.stderr}")


# Who connects to the lab and says nothing, or something else, holds nobody up.
def strangers(_network):
    needs("python3")
    for says in "", "s.send(b'?')", "s.send(b'garbage ' * 100)", "s.send(struct.pack('IIiI',3,0,0,1))", \
            "s.send(struct.pack('IIiI',3,0,0,0) + b'h1\\0echo odd\\0/\\0')", \
            "socket.send_fds(s, [b'?'], [0] * 4)":
        program = ("import socket, struct, subprocess\n"
                   "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                   f"s.connect('/dev/shm/.weft-lab/socket')\n{says}\n"
                   f"subprocess.run(['{WEFT}', 'lab', 'exec', 'h2', 'hostname'])\n")
        out = lab("--hosts", "2", "--plain", "--until", "h1", "--", "python3", "-c", program, "---",
                  "sleep", "600")
        check(out == {"h1": ["h2"]}, f"{says}: {out}")


# Streams that are closed, a lab within a lab, IPv6.
def surroundings(_network):
    needs("python3")
    for closed in "<&-", ">&-", "2>&-", "<&- >&- 2>&-":
        done = subprocess.run(
            ["sh", "-c", f"{WEFT} lab run --hosts 2 --plain -- echo up {closed}"],
            capture_output=True, text=True, timeout=LIMIT_S)
        check(done.returncode == 0, f"{closed}: {done.returncode}, {done.stderr}")
    for user in (None, NOBODY) if os.geteuid() == 0 else (None,):
        out = lab("--hosts", "2", "--plain", "--", WEFT, "lab", "run", "--hosts", "2", "--plain",
                  "--", "hostname", user=user)
        check({host: sorted(lines) for host, lines in out.items()} ==
              {host: ["[h1] h1", "[h2] h2"] for host in ("h1", "h2")}, f"{user}: {out}")
    if pathlib.Path("/proc/net/if_inet6").exists():
        program = ("import socket; s = socket.create_server(('fd76::1', 7), "
                   "family=socket.AF_INET6); print(s.accept()[1][0])")
        client = ("import socket, time\nwhile True:\n  try:\n"
                  "    socket.create_connection(('fd76::1', 7)); break\n"
                  "  except ConnectionRefusedError: time.sleep(0.05)")
        out = lab("--hosts", "2", "--plain", "--", "python3", "-c", program, "---", "python3", "-c",
                  client)
        check(out == {"h1": ["fd76::2"]}, f"IPv6: {out}")


# SIGINT goes to the commands; SIGKILL of the lab leaves nothing, either.
def interrupted(_network):
    needs()
    mark = f"mark-{os.getpid()}"
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        running = subprocess.Popen(
            [WEFT, "lab", "run", "--hosts", "3", "--plain", "--", "sh", "-c",
             "trap 'echo told; exit 3' INT TERM; echo up; sleep 600 & wait", mark],
            stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            check(running.stdout.readline().endswith("up\n"), "a host did not come up")
        running.send_signal(number)
        rest = running.communicate(timeout=LIMIT_S)[0] if number != signal.SIGKILL else ""
        check(running.wait(LIMIT_S) == status, f"{number}: {running.returncode}")
        check(number == signal.SIGKILL or rest.count("told") == 3, f"{number}: {rest}")
        wait_for(lambda: not processes(mark), f"processes were left behind {number}")
        if running.stdout:
            running.stdout.close()
    # As under nohup.
    running = subprocess.Popen([WEFT, "lab", "run", "--plain", "--", "sleep", "600"],
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    time.sleep(0.5)
    running.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    check(running.poll() is None, "a lab has ended by a signal that was ignored")
    running.terminate()
    check(running.wait(LIMIT_S) == 143, f"nohup: {running.returncode}")


# A reader that goes ends the programs by SIGPIPE; one that does not read holds up no signal.
def readers(_network):
    needs()
    mark = f"mark-{os.getpid()}"
    for hosts in "1", "2":
        for goes in True, False:
            running = subprocess.Popen(
                [WEFT, "lab", "run", "--hosts", hosts, "--plain", "--", "yes", mark],
                stdout=subprocess.PIPE)
            running.stdout.readline()
            if goes:
                running.stdout.close()
            else:
                time.sleep(0.2)
                running.send_signal(signal.SIGTERM)
            status = running.wait(LIMIT_S)
            check(status == (128 + 13 if goes else 128 + 15), f"{hosts}, {goes}: {status}")
            running.stdout.close()
    # One that is slow gets all of it.
    slow = subprocess.Popen(
        [WEFT, "lab", "run", "--hosts", "2", "--plain", "--", "sh", "-c",
         "seq 1 50000; echo end", mark], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    lines = slow.communicate(timeout=LIMIT_S)[0].splitlines()
    check(slow.returncode == 0, f"a slow reader: {slow.returncode}")
    for host in "h1", "h2":
        own = [line[5:] for line in lines if line.startswith(f"[{host}] ")]
        check(own == [str(i) for i in range(1, 50001)] + ["end"], f"{host}: {len(own)} lines")
    # A writer that stays behind holds up no end.
    done = subprocess.run([WEFT, "lab", "run", "--hosts", "2", "--plain", "--", "sh", "-c",
                           "setsid yes & sleep 0.1", mark], stdout=subprocess.DEVNULL,
                          timeout=LIMIT_S)
    check(done.returncode == 0, f"a writer stays: {done.returncode}")
    wait_for(lambda: not processes(mark), "processes were left behind")


def terminal(_network):
    """/dev/tty is the caller's terminal; without one it is none."""
    needs()
    program = "echo $((6 * 7)) from {host} > /dev/tty; read line < /dev/tty; echo got $line"
    pid, master = pty.fork()
    if pid == 0:
        os.execv(WEFT, [WEFT, "lab", "run", "--hosts", "1", "--plain", "--", "sh", "-c", program])
    said = b""

    def read():
        """False: the terminal was closed at its other side, which is EIO, or nothing comes."""
        nonlocal said
        with contextlib.suppress(OSError):
            if select.select([master], [], [], LIMIT_S)[0]:
                said += os.read(master, 4096)
                return True
        return False
    while b"42 from h1" not in said:
        check(read(), f"nothing on the terminal: {said}")
    os.write(master, b"these words\n")
    while read():
        pass
    _pid, status = os.waitpid(pid, 0)
    os.close(master)
    check(status == 0 and b"got these words" in said, f"{status}: {said}")
    done = subprocess.run([WEFT, "lab", "run", "--plain", "--", "sh", "-c", ": < /dev/tty"],
                          capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)
    check(done.returncode != 0 and "No such device or address" in done.stderr, f"{done}")


def mpich(_network):
    """Beside Open MPI: as Debian has both."""
    needs("mpirun.mpich")
    done = subprocess.run(
        [WEFT, "lab", "run", "--hosts", "3", "--", "mpirun.mpich", "-np", "3", "-ppn", "1",
         "hostname"], capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 0, f"mpirun.mpich ended with {done.returncode}: {done.stderr}")
    check(sorted(done.stdout.split()) == ["h1", "h2", "h3"], f"{done.stdout}{done.stderr}")


def loopback(_network):
    """Without hosts: the same commands on this machine, which end with the lab."""
    words = lab("--loopback", "--plain", "--", "sh", "-c", "echo $WEFT_LAB_RANK {host} {hosts}")
    check(words == {"h1": ["0 127.0.0.1 127.0.0.1,127.0.0.2"],
                    "h2": ["1 127.0.0.2 127.0.0.1,127.0.0.2"]}, f"{words}")
    need("rping")
    lab("--loopback", "--", "rping", "-s", "-a", "127.0.0.1", "-C", "2", "---", "rping", "-c", "-a",
        "{server}", "-C", "2")
    lab("--loopback", "--plain", "--", "sh", "-c", "exit $((7 * {rank}))", status=7)
    # A command leaves something behind.
    mark = f"mark-{os.getpid()}-left"
    lab("--loopback", "--hosts", "1", "--plain", "--", "sh", "-c",
        f"sh -c 'sleep 600; :' lab {mark} > /dev/null 2>&1 &")
    wait_for(lambda: not processes(mark), "a process of a command is left behind")
    for signal_ in (signal.SIGINT, signal.SIGKILL):
        mark = f"mark-{os.getpid()}-{int(signal_)}"
        # The command is no lab itself: `processes` finds it by this word.
        with subprocess.Popen([WEFT, "lab", "run", "--loopback", "--plain", "--", "sh", "-c",
                               "sleep 60 & echo here; wait", "lab", mark], text=True,
                              stdout=subprocess.PIPE) as run:
            check(run.stdout.readline() and run.stdout.readline(), "it has not begun")
            check(len(processes(mark)) >= 3, f"{processes(mark)}")
            run.send_signal(signal_)
            wait_for(lambda: not processes(mark), f"processes are left behind by {signal_}")
    check("--loopback has no links" in refused("--loopback", "--link", "rate=1Gbit", "--", "true"),
          "--link")


def wrong_usage(_network):
    check("'rate=fast': a rate is like" in refused("--link", "rate=fast", "--", "true"), "rate")
    check("each side of ---" in refused("--", "true", "---"), "---")
    check("no command runs on 'h7'" in refused("--until", "h7", "--", "true"), "--until")
    check("--hosts" in refused("--hosts", "65", "--", "true"), "--hosts")
    done = subprocess.run([WEFT, "lab", "exec", "h1", "true"], capture_output=True, text=True)
    check(done.returncode == 1 and "no lab runs here" in done.stderr, done.stderr)


if __name__ == "__main__":
    main({case.__name__: case for case in (
        own_hosts, ordinary_user, rdma_and_tcp, delay, rate, exit_status, other_host, mpi, mpich,
        strangers, surroundings, interrupted, readers, terminal, loopback, wrong_usage)})
