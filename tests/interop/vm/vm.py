"""The other host of the interop tests: a QEMU guest with Linux siw, made by build.sh.

    vm = Vm.boot(pathlib.Path("state"))      # or Vm.attach(...) to one that runs already
    vm.run("rdma link").out                  # a shell command in the guest, waits for its end
    job = vm.spawn("rping -s -p 7000")       # one that stays
    vm.wait_listen(7000)
    addr, port = vm.guest_endpoint(7000)     # where the host reaches the guest's port
    job.kill(); vm.stop()

Two kinds of network. "tap": a tap device in a network namespace of its own, real TCP from end to
end, root only; host programs must be started through host_argv(). "user": QEMU's user-mode network,
no privilege, but QEMU ends each TCP connection, so neither segments nor resets are exact.

Nothing outlives its bound: QEMU runs under timeout(1), and the namespace goes with QEMU. As a
program: vm.py boot|stop|run STATE_DIR [COMMAND].
"""

import argparse
import contextlib
import json
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from vm_job import GuestJob, VmError, die_with_parent

HERE = pathlib.Path(__file__).resolve().parent
GUEST_PORTS = range(18500, 18532)  # what "user" forwards to the guest; free for use in both kinds

# siw sends its Reply before it is ready for what comes next: an FPDU that arrives in between is not
# looked at until another one follows. A few milliseconds on the way give it the time that a real
# network does. Without them Weft's engine mends it 50 ms later; weft selftest, whose octets are its
# own, waits forever.
USUAL_PATH = "delay 3ms limit 20000"
PARAMETERS = pathlib.Path("/sys/module/siw/parameters")

SIW_DEFAULTS = {
    "mpa_crc_required": 0,
    "mpa_crc_strict": 0,
    "mpa_version": 2,
    "peer_to_peer": 0,
    "rtr_read": 1,
    "rtr_write": 1,
    "try_gso": 0,
    "relaxed_ird_negotiation": 1,
    "siw_tcp_nagle": 0,
    "zcopy_tx": 1,
}

NETS = {
    "tap": {"guest": "10.91.0.2", "bits": 24, "host": "10.91.0.1"},
    "user": {"guest": "10.0.2.15", "bits": 24, "host": "10.0.2.2"},
}


class Skip(Exception):
    """The machine lacks something; the message says what."""


def free_port():
    """Below those that the kernel gives to clients; and tgtd knows none above 32767."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def image():
    """Directory of the guest's kernel and initrd, built if need be."""
    done = subprocess.run([HERE / "build.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 77:
        raise Skip("the guest cannot be had, see above")
    if done.returncode:
        raise VmError("build.sh failed")
    return pathlib.Path(done.stdout.strip())


def no_kvm_mark(folder):
    """Exists when KVM was tried since this machine booted, and opened but did not run."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return folder.parent / f"no-kvm-{boot}"


class Vm:
    """A guest that runs. One process uses it at a time. Made by boot() or attach()."""

    def __init__(self, state_file, state):
        self._file = state_file
        self.state = state
        self.net = state["net"]
        self.dir = pathlib.Path(state["dir"])
        self.share = self.dir / "share"  # is /host in the guest
        self._port = None
        self._siw = None

    # Start and end.

    @classmethod
    def boot(cls, state_dir, net="auto", accel="auto", lifetime_s=900, detach=False, cable=None):
        """Boots a guest and returns when its agent answers.

        Raises Skip where a guest cannot be had and VmError where it should have come up.
        detach: the guest stays when this process ends, for attach(); else it dies with it.
        cable: descriptor of a datagram socket. The guest gets a second adapter, eth1, whose frames
        go there and come from there.
        """
        state_dir.mkdir(parents=True, exist_ok=True)
        files = image()
        nets = [net] if net != "auto" else (["tap"] if tap_possible() else []) + ["user"]
        accels = [accel] if accel != "auto" else ["kvm", "tcg"]
        if accel == "auto" and (not kvm_possible() or no_kvm_mark(files).exists()):
            accels = ["tcg"]
        trouble = []
        for one_net in nets:
            for one_accel in accels:
                try:
                    vm = cls._start(state_dir, files, one_net, one_accel, lifetime_s, detach, cable)
                except VmError as error:
                    trouble.append(f"{one_net}, {one_accel}: {error}")
                    if accel == "auto" and one_accel == "kvm":
                        no_kvm_mark(files).touch()
                        accels = ["tcg"]
                    continue
                return vm
            if "tcg" in accels and one_accel == "kvm":
                nets.append(one_net)
        raise VmError("; ".join(trouble))

    @classmethod
    def _start(cls, state_dir, files, net, accel, lifetime_s, detach, cable):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-interop-"))
        (folder / "share/jobs").mkdir(parents=True)
        ports = {p: free_port() for p in GUEST_PORTS} if net == "user" else {}
        process = subprocess.Popen(
            qemu_argv(files, folder, net, accel, lifetime_s, ports, cable),
            pass_fds=[] if cable is None else [cable],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(folder / "qemu.log", "wb"),
            start_new_session=True,
            preexec_fn=None if detach else die_with_parent,
        )
        state = {
            "dir": str(folder),
            "image": str(files),
            "pid": process.pid,
            "net": net,
            "accel": accel,
            "lifetime_s": lifetime_s,
            "detached": detach,
            "ports": ports,
            "versions": (files / "versions.txt").read_text(),
        }
        vm = cls(state_dir / "vm.json", state)
        limit_s = 15 if accel == "kvm" else 90
        deadline = time.monotonic() + limit_s
        while not (vm.share / "ready").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                what = "ended" if process.poll() is not None else f"not up in {limit_s} s"
                log = (folder / "qemu.log").read_text(errors="replace") + vm.console()
                vm.stop()
                raise VmError(f"QEMU {what}: {log[-600:].strip()}")
            time.sleep(0.05)
        vm._file.write_text(json.dumps(state))
        vm.path(USUAL_PATH)
        return vm

    @classmethod
    def attach(cls, state_dir):
        """Takes over a guest that boot(detach=True) left. What ran in it is killed."""
        try:
            state = json.loads((state_dir / "vm.json").read_text())
            os.kill(state["pid"], 0)
        except (OSError, ValueError) as error:
            raise Skip(f"no guest runs for {state_dir}") from error
        vm = cls(state_dir / "vm.json", state)
        for folder in (vm.share / "jobs").iterdir():
            if not (folder / "rc").exists():
                vm.tell(f"kill {folder.name} 9")
        return vm

    def reboot(self, state_dir):
        """Ends this guest and returns another like it that takes its place for attach()."""
        self.stop()
        s = self.state
        return Vm.boot(state_dir, self.net, s["accel"], s["lifetime_s"], s["detached"])

    def stop(self):
        """Ends the guest. Harmless if it has ended."""
        try:
            os.killpg(self.state["pid"], signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._file.unlink(missing_ok=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # Commands in the guest.

    def tell(self, line):
        """Hands a line to the guest's agent."""
        if self._port is None:
            self._port = socket.socket(socket.AF_UNIX)
            self._port.settimeout(10)
            self._port.connect(str(self.dir / "agent"))
        self._port.sendall(line.encode() + b"\n")

    def spawn(self, command):
        """Starts a command (an argument list or a line for the shell) and returns at once."""
        if not isinstance(command, str):
            command = shlex.join(command)
        ident = secrets.token_hex(6)
        folder = self.share / "jobs" / ident
        folder.mkdir()
        (folder / "cmd").write_text(command + "\n")
        self.tell(f"run {ident}")
        return GuestJob(self, ident, folder)

    def run(self, command, timeout=20):
        """Runs a command to its end; Result.rc is None if it had to be killed after `timeout` s."""
        return self.spawn(command).wait(timeout)

    def check(self, command, timeout=20):
        """As run(), but anything except success is a VmError."""
        result = self.run(command, timeout)
        if result.rc != 0:
            raise VmError(f"in the guest, {command!r}: {result} {self.trouble()}")
        return result.out

    def siw(self, **parameters):
        """Sets siw's policy for connections to come; what is not named gets siw's default."""
        wanted = {**SIW_DEFAULTS, **parameters}
        if set(wanted) != set(SIW_DEFAULTS):
            raise ValueError(f"siw has no {set(wanted) - set(SIW_DEFAULTS)}")
        if wanted != self._siw:
            lines = [f"echo {int(v)} >{PARAMETERS / k}" for k, v in wanted.items()]
            self.check(" && ".join(lines))
            self._siw = wanted

    def path(self, netem=USUAL_PATH):
        """How packets leave the guest from now on, as tc-netem(8) says."""
        # By its path: busybox has a lesser tc and takes that for the bare name.
        self.check(f"/bin/tc qdisc replace dev eth0 root netem {netem}")

    def wait_listen(self, port, timeout=10, job=None):
        """True when something in the guest listens on the TCP port; False if `job` ends instead."""
        seen = f"grep -q ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6"
        watch = self.spawn(f"until {seen}; do usleep 20000; done")
        deadline = time.monotonic() + timeout
        while watch.rc() is None and time.monotonic() < deadline:
            if job is not None and job.rc() is not None:
                break
            time.sleep(0.01)
        if watch.rc() is None:
            watch.kill()
        return watch.rc() == 0

    def put(self, path):
        """Makes a file of the host available; returns its path in the guest."""
        name = pathlib.Path(path).name
        shutil.copy2(path, self.share / name)
        return f"/host/{name}"

    def console(self):
        try:
            return (self.dir / "console").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def trouble(self):
        """What the guest's kernel complains about on its console; empty when it is well."""
        bad = ("Kernel panic", "BUG:", "Oops", "general protection", "Call Trace")
        lines = self.console().splitlines()
        first = next((i for i, line in enumerate(lines) if any(b in line for b in bad)), None)
        return "" if first is None else "\n".join(lines[max(0, first - 2) : first + 30])

    # The network between host and guest.

    @property
    def guest_addr(self):
        """The guest's own address."""
        return NETS[self.net]["guest"]

    @property
    def host_addr(self):
        """Where the guest reaches the host."""
        return NETS[self.net]["host"]

    @property
    def host_bind_addr(self):
        """Where a server on the host listens to be reached at host_addr."""
        return self.host_addr if self.net == "tap" else "127.0.0.1"

    def guest_endpoint(self, port):
        """Where the host reaches a port of the guest: (address, port). One of GUEST_PORTS."""
        if self.net == "tap":
            return self.guest_addr, port
        ports = self.state["ports"]
        return "127.0.0.1", ports.get(port) or ports[str(port)]

    def host_argv(self, argv):
        """The command line that runs `argv` on the host, where it can reach the guest."""
        if self.net == "user":
            return list(argv)
        return ["nsenter", f"--net=/proc/{self.state['pid']}/ns/net", "--", *argv]

    def host_listens(self, port):
        """Whether something on the host listens on the TCP port."""
        wanted = f":{port:04X}"
        for name in ("tcp", "tcp6"):
            for line in open(f"/proc/{self.state['pid']}/net/{name}").readlines()[1:]:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
        return False


def tap_possible():
    return (
        os.geteuid() == 0
        and os.access("/dev/net/tun", os.R_OK | os.W_OK)
        and all(shutil.which(p) for p in ("ip", "unshare", "nsenter"))
        and subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode == 0
    )


def kvm_possible():
    return os.access("/dev/kvm", os.R_OK | os.W_OK)


def qemu_argv(files, folder, net, accel, lifetime_s, ports, cable):
    addresses = NETS[net]
    kernel_args = (
        "console=ttyS0 panic=-1 quiet random.trust_cpu=on "
        f"weft.addr={addresses['guest']}/{addresses['bits']} weft.gw={addresses['host']}"
    )
    if net == "tap":
        netdev = "tap,id=net0,ifname=tap0,script=no,downscript=no"
        make_tap = (
            "set -e; ip link set lo up; ip tuntap add dev tap0 mode tap; "
            f"ip addr add {addresses['host']}/{addresses['bits']} dev tap0; "
            'ip link set tap0 up; exec "$@"'
        )
        prefix = ["unshare", "-n", "--", "sh", "-c", make_tap, "sh"]
    else:
        forwards = [f"hostfwd=tcp:127.0.0.1:{h}-:{g}" for g, h in ports.items()]
        netdev = ",".join(["user", "id=net0", *forwards])
        prefix = []
    second = []
    if cable is not None:
        second = ["-netdev", f"socket,id=net1,fd={cable}", "-device", "virtio-net-pci,netdev=net1"]
    # One processor: on two, siw's reader of a start-up frame can race with itself and panic.
    return [
        *prefix,
        *("timeout", "-k", "2", str(lifetime_s)),
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-accel", "tcg,thread=multi" if accel == "tcg" else "kvm"),
        *("-cpu", "max" if accel == "tcg" else "host", "-smp", "1", "-m", "1024"),
        *("-kernel", str(files / "kernel"), "-initrd", str(files / "initrd")),
        *("-append", kernel_args, "-serial", f"file:{folder / 'console'}"),
        *("-netdev", netdev, "-device", "virtio-net-pci,netdev=net0"),
        *second,
        *("-virtfs", f"local,path={folder / 'share'},mount_tag=host,security_model=none"),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=agent,path={folder / 'agent'},server=on,wait=off"),
        *("-device", "virtserialport,chardev=agent,name=weft"),
    ]


def main():
    parser = argparse.ArgumentParser(description="Boots, uses and ends the guest of the tests")
    parser.add_argument("verb", choices=["boot", "stop", "run"])
    parser.add_argument("state", type=pathlib.Path, help="folder that remembers the guest")
    parser.add_argument("command", nargs="*")
    parser.add_argument("--net", choices=["auto", *NETS], default=os.environ.get("WEFT_INTEROP_NET", "auto"))
    parser.add_argument("--accel", choices=["auto", "kvm", "tcg"], default=os.environ.get("WEFT_INTEROP_ACCEL", "auto"))
    parser.add_argument("--lifetime", type=int, default=900, help="seconds until it is killed")
    args = parser.parse_args()
    try:
        if args.verb == "boot":
            try:
                Vm.attach(args.state).stop()
            except Skip:
                pass
            start = time.monotonic()
            vm = Vm.boot(args.state, args.net, args.accel, args.lifetime, detach=True)
            took = time.monotonic() - start
            print(f"guest is up after {took:.1f} s: {vm.state['accel']}, {vm.net} network")
            print(vm.state["versions"], end="")
        elif args.verb == "stop":
            Vm.attach(args.state).stop()
        else:
            result = Vm.attach(args.state).run(" ".join(args.command), 60)
            print(result.out, end="")
            print(result.err, end="", file=sys.stderr)
            return result.rc if result.rc is not None else 124
    except Skip as reason:
        print(f"skipped: {reason}")
        return 0 if args.verb == "stop" else 77
    except VmError as error:
        print(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
