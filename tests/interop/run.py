#!/usr/bin/env python3
"""Runs rows of matrix.py in a guest.

    run.py --boot                        everything, in a guest of its own that goes at the end
    run.py --state DIR [--group G] [--roles siw>siw] [--row REGEX] [--keep-going]
                                         in the guest that vm/vm.py has booted
    run.py --list
    run.py --report RESULTS.json...      the table of docs/interop.md

Exit status: 0 all well, 1 not, 77 no guest or no Weft, with the reason.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "vm"), str(HERE.parent / "support")]

import matrix  # noqa: E402
import matrix_row  # noqa: E402
import wire  # noqa: E402
from vm import GUEST_PORTS, Skip, Vm, free_port  # noqa: E402
from vm_job import HostJob, VmError  # noqa: E402


class Failure(Exception):
    """The row did not go as it should; the message says how."""


def exs_programs(probe):
    """name -> path; none where libexs is not built."""
    build = probe.parent.parent
    programs = {"exs_perf": probe.with_name("exs-perf"), "echo": build / "examples" / "exs_echo"}
    return programs if all(path.exists() for path in programs.values()) else {}


def needed_libraries(programs):
    """Paths of those that the guest's image lacks."""
    there = ("libc.so.", "libm.so.", "libgcc_s.so.", "libibverbs.so.", "librdmacm.so.", "libnl-")
    paths = set()
    for program in programs:
        listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True)
        for line in listed.stdout.splitlines():
            words = line.split()
            if words[1:2] == ["=>"] and not words[0].startswith(there):
                paths.add(pathlib.Path(words[2]))
    return sorted(paths)


class SiwSide:
    """Programs in the guest, on Linux siw."""

    def __init__(self, vm, probe):
        self.vm = vm
        self.own = vm.guest_addr
        self.programs = {"probe": vm.put(probe)}
        verbs = probe.with_name("weft-selftest-verbs")
        if verbs.exists():
            self.programs["verbs"] = vm.put(verbs)
        self.programs.update(self.put_exs(probe))
        self.programs["initiator"] = f"sh {vm.put(HERE / 'iser/initiator.sh')}"
        self.ports = iter(())

    def put_exs(self, probe):
        """Programs of libexs with the libraries that the guest does not have; none if not built."""
        programs = exs_programs(probe)
        for name in needed_libraries(programs.values()):
            self.vm.put(name)
        return {key: f"env LD_LIBRARY_PATH=/host {self.vm.put(path)}" for key, path in programs.items()}

    def next_port(self):
        port = next(self.ports, None)
        if port is None:
            self.ports = iter(GUEST_PORTS)
            port = next(self.ports)
        return port

    def start(self, command, row):
        return self.vm.spawn(command)

    def wait_listen(self, port, job):
        return self.vm.wait_listen(port, 30, job)


class WeftSide:
    """Unmodified programs on this host, through `weft run`."""

    def __init__(self, vm, probe, weft, scratch):
        self.vm, self.weft, self.scratch = vm, weft, scratch
        self.own = vm.host_bind_addr
        self.programs = {"probe": str(probe)}
        self.programs.update({key: str(path) for key, path in exs_programs(probe).items()})
        tgt = pathlib.Path(vm.state["image"]) / "tgt"
        self.programs["target"] = f"env TGT={tgt} bash {HERE / 'iser/target.sh'}"
        self.programs["rddp"] = str(probe.parent.parent / "tests-bin" / "rddp_rping")

    def next_port(self):
        return free_port()

    def start(self, command, row):
        words = shlex.split(command)
        if words[0] == "weft":
            argv = [str(self.weft), *words[1:]]
        else:
            argv = [str(self.weft), "run", f"--crc={row.crc}", "--", *words]
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch)) / "job"
        return HostJob(self.vm.host_argv(argv), folder, env=row.weft)

    def wait_listen(self, port, job):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and job.rc() is None:
            if self.vm.host_listens(port):
                return True
            time.sleep(0.02)
        return False


class Capture:
    """What passes the guest's interface while a row runs."""

    def __init__(self, vm, interface):
        self.file = vm.share / "capture.pcap"
        self.file.unlink(missing_ok=True)
        self.job = vm.spawn(f"tcpdump -Z root -i {interface} -n -s 0 -U --immediate-mode -w /host/{self.file.name} tcp")
        if not self.job.wait_for("listening on", 10):
            raise VmError(f"tcpdump does not start: {self.job.output()}")

    def lines(self):
        time.sleep(0.1)
        self.job.kill(signal.SIGINT)
        self.job.wait(5)
        return wire.render(self.file)


def shortened(lines, ends=40):
    left_out = len(lines) - 2 * ends
    return lines if left_out <= 0 else [*lines[:ends], f"... {left_out} more", *lines[-ends:]]


class Runner:
    def __init__(self, vm, state, weft, probe, show_wire=False):
        self.state, self.weft, self.probe, self.show_wire = state, weft, probe, show_wire
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-interop-run-"))
        self.jobs = []
        self.use(vm)

    def use(self, vm):
        self.vm = vm
        self.sides = {"siw": SiwSide(vm, self.probe)}
        if self.weft:
            self.sides["weft"] = WeftSide(vm, self.probe, self.weft, self.scratch)

    def reboot(self):
        """Another guest in place of one whose kernel cannot be trusted any more."""
        self.use(self.vm.reboot(self.state))

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def address(self, client, server, port):
        if server == "weft":
            return (self.vm.host_addr if client == "siw" else self.vm.host_bind_addr), port
        return (self.vm.guest_addr, port) if client == "siw" else self.vm.guest_endpoint(port)

    def start(self, side, command, row, where):
        this = self.sides[side]
        job = this.start(command.format(**this.programs, own=this.own, **where), row)
        self.jobs.append(job)
        return job

    def run(self, row, role):
        """Runs one row in one role. Raises Failure; returns how often its program was at fault."""
        client, server = role.split(">")
        self.vm.siw(**row.siw)
        self.jobs = []
        capture = None
        if row.netem:
            self.vm.path(row.netem)
        try:
            if (row.wire or self.show_wire) and self.vm.net == "tap":
                capture = Capture(self.vm, "lo" if client == server == "siw" else "eth0")
            outputs = self.meet(row, client, server)
            own_faults = 0
            while own_faults < 2 and self.is_own_fault(row, client, outputs[0]):
                own_faults += 1
                outputs = self.meet(row, client, server)
            try:
                self.check_outputs(row, client, server, *outputs)
            except Failure as failure:
                if not (capture and self.show_wire):
                    raise
                raise Failure("\n".join([str(failure), *shortened(capture.lines())])) from failure
            if row.wire and capture:
                self.check_wire(row, client, server, capture)
        finally:
            for job in self.jobs + ([capture.job] if capture else []):
                if job.rc() is None:
                    job.kill(signal.SIGKILL)
            trouble = self.vm.trouble()
            if row.netem and not trouble:
                self.vm.path()
            if trouble:
                raise VmError(f"the guest's kernel is in trouble:\n{trouble}")
        return own_faults

    @staticmethod
    def is_own_fault(row, client, result):
        return client in row.again_if and re.search(row.again_if[client], repr(result))

    def meet(self, row, client, server):
        """Starts the server and then each client. Returns the Results of both."""
        port = self.sides[server].next_port()
        server_job = self.start(server, row.server, row, {"port": port})
        listens = not row.server.startswith("sleep")
        if listens and not self.sides[server].wait_listen(port, server_job):
            raise Failure(f"the server does not listen:\n{server_job.output()}")
        addr, port = self.address(client, server, port)
        clients = [row.client] if isinstance(row.client, str) else list(row.client)
        for number, command in enumerate(clients):
            job = self.start(client, command, row, {"addr": addr, "port": port})
            if row.kill and number == 0:
                victim = job if row.kill[0] == "client" else server_job
                if not self.wait_for_either(victim, row.kill[1], job, row.timeout):
                    raise Failure(f"no {row.kill[1]!r} from the {row.kill[0]}:\n{victim.output()}")
                time.sleep(0.2)
                victim.kill(signal.SIGKILL)
            result = job.wait(row.timeout)
            if number < len(clients) - 1 and result.rc is None:
                raise Failure(f"client {number + 1} hangs:\n{result}")
        if row.server_rc is None:
            server_job.kill(signal.SIGTERM)
        # A server whose client has failed may wait forever.
        return result, server_job.wait(row.timeout if result.rc in row.client_rc else 3)

    @staticmethod
    def wait_for_either(victim, text, job, timeout):
        """True when the victim has said the text; False when the client has ended before."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and job.rc() is None:
            if victim.wait_for(text, 0.2):
                return True
        return text in victim.output()

    def check_outputs(self, row, client, server, client_result, server_result):
        faults = []
        for name, side, result, status, wanted in (
            ("client", client, client_result, row.client_rc, row.client_has),
            ("server", server, server_result, row.server_rc, row.server_has),
        ):
            text = result.out + result.err
            is_weft = side == "weft"
            if result.rc is None and status is not None:
                faults.append(f"the {name} hangs")
            elif status is not None and result.rc not in status:
                faults.append(f"the {name} ends with {result.rc}, not {status}")
            for pattern in wanted + (row.weft_has if is_weft else row.siw_has):
                if not re.search(pattern, text):
                    faults.append(f"the {name} does not say {pattern!r}")
            # Over Weft no work request may stay without its completion.
            for pattern in row.weft_lacks + (r"lost=[1-9-]",) if is_weft else ():
                if re.search(pattern, text):
                    faults.append(f"the {name} says {pattern!r}")
        if faults:
            raise Failure(
                "; ".join(faults)
                + f"\n--- client ({client}): {client_result}\n--- server ({server}): {server_result}"
            )

    def check_wire(self, row, client, server, capture):
        names = {client: "client", server: "server"} if client != server else {}
        lines = capture.lines()
        missing = []
        for pattern in row.wire:
            full = re.sub(r"\{(weft|siw)\}", lambda m: names.get(m[1], "(client|server)"), pattern)
            if not any(re.match(full, line) for line in lines):
                missing.append(full)
        bad = [line for line in lines if "crc=BAD" in line]
        if missing or bad:
            shown = "\n".join(lines[:60])
            raise Failure(f"not on the wire: {missing}; wrong: {bad[:3]}\n{shown}")


def selected(args):
    if args.boot:  # first a proof that the guest is well
        for row in matrix.rows(args.group):
            if row.also_siw_siw and re.search(args.row or "", row.name):
                yield row, "siw>siw"
    without_exs = args.probe and not exs_programs(args.probe)
    for row in matrix.rows(args.group):
        if args.row and not re.search(args.row, row.name) or row.group == "exs" and without_exs:
            continue
        roles = row.roles
        if args.roles == "siw>siw":
            roles = matrix_row.SIW_SIW if row.also_siw_siw or args.row else ()
        for role in roles:
            if args.roles in ("all", role):
                yield row, role


def run_row(runner, row, role):
    """Runs a row. Returns its outcome, what went wrong if something did, and a remark."""
    tries, guests = row.tries, 2
    while True:
        try:
            own_faults = runner.run(row, role)
            break
        except VmError as error:
            detail = str(error)
            runner.reboot()
            guests -= 1
        except Failure as error:
            detail = str(error)
            tries -= 1
        if not (tries and guests):
            return "FAILED", detail, ""
    if guests < 2:
        return "ok in another guest", "", "; " + detail.splitlines()[0]
    if tries < row.tries:
        return "ok at the second try", "", "; " + detail.splitlines()[0]
    return "ok", "", f"; {own_faults} x again, its client's own fault" if own_faults else ""


def run_rows(args, runner):
    results, failed, left_out = [], 0, 0
    deadline = args.began + args.limit
    for row, role in selected(args):
        began = time.monotonic()
        if began > deadline:
            left_out += 1
            continue
        outcome, detail, remark = run_row(runner, row, role)
        took = time.monotonic() - began
        print(f"{outcome:6} {role:9} {row.group}: {row.name} ({took:.1f} s{remark})", flush=True)
        results.append({"group": row.group, "row": row.name, "role": role, "outcome": outcome})
        if detail:
            failed += 1
            print("       " + detail.replace("\n", "\n       "), flush=True)
            if not args.keep_going:
                break
    print(f"{len(results)} rows in {time.monotonic() - args.began:.0f} s, {failed} failed")
    if left_out:
        print(f"{left_out} rows were left out: the limit is {args.limit:.0f} s")
    return results, failed


def report(files):
    """Prints the outcomes as a table in Markdown, one line per row, one column per role."""
    merged, roles = {}, {}
    for file in files:
        for entry in json.loads(pathlib.Path(file).read_text())["results"]:
            merged.setdefault((entry["group"], entry["row"]), {})[entry["role"]] = entry["outcome"]
            roles[entry["role"]] = True
    titles = {"weft>siw": "Weft connects", "siw>weft": "Weft accepts", "siw>siw": "siw alone"}
    roles = [role for role in titles if role in roles]
    print("| group | what | " + " | ".join(titles[role] for role in roles) + " |")
    print("|---|---|" + "---|" * len(roles))
    order = {(row.group, row.name): number for number, row in enumerate(matrix.rows())}
    for (group, row), outcomes in sorted(merged.items(), key=lambda e: order.get(e[0], len(order))):
        cells = [outcomes.get(role, "") for role in roles]
        print(f"| {group} | {row} | " + " | ".join(cells) + " |")


def weft_program():
    folder = os.environ.get("WEFT_BIN_DIR")
    found = pathlib.Path(folder) / "weft" if folder else None
    return found if found and found.exists() else None


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--state", type=pathlib.Path, help="folder that vm.py boot was given")
    parser.add_argument("--probe", type=pathlib.Path, help="the compiled program of probe/")
    parser.add_argument("--weft", type=pathlib.Path, default=weft_program())
    parser.add_argument("--group", choices=sorted(matrix.GROUPS))
    parser.add_argument("--roles", default="all", choices=["all", *matrix_row.BOTH, "siw>siw"])
    parser.add_argument("--row", help="only rows whose name matches; with siw>siw: any row")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first failure")
    parser.add_argument("--wire", action="store_true", help="show what a failed row sent")
    parser.add_argument("--results", type=pathlib.Path, help="where to write the outcomes")
    parser.add_argument("--boot", action="store_true", help="boot a guest, and end it")
    parser.add_argument("--limit", type=float, default=7200, help="seconds, then rows are left out")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--report", nargs="+", metavar="RESULTS")
    args = parser.parse_args()
    if not (args.list or args.report) and not ((args.state or args.boot) and args.probe):
        parser.error("--probe, and --state or --boot are needed")
    args.began = time.monotonic()
    return args


def main():
    args = parse()
    if args.report:
        report(args.report)
        return 0
    if args.list:
        for row, role in selected(args):
            print(f"{role:9} {row.group}: {row.name}")
        return 0
    with contextlib.ExitStack() as stack:
        try:
            if args.roles != "siw>siw" and not (args.weft and args.weft.exists()):
                raise Skip("the program weft is not built (WEFT_BIN_DIR or --weft says where it is)")
            if args.boot:
                args.state = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
                vm = Vm.boot(args.state, lifetime_s=int(min(args.limit, 7200)) + 120)
                print(f"guest: {vm.state['accel']}, {vm.net} network, after "
                      f"{time.monotonic() - args.began:.0f} s\n{vm.state['versions']}", flush=True)
            else:
                vm = Vm.attach(args.state)
            runner = Runner(vm, args.state, args.weft, args.probe, args.wire)
        except Skip as reason:
            print(f"skipped: {reason}")
            return 77
        except VmError as error:
            print(f"failed: {error}")
            return 1
        stack.callback(runner.close)
        if args.boot:
            stack.callback(lambda: runner.vm.stop())
        results, failed = run_rows(args, runner)
    if args.results:
        peer = runner.vm.state
        args.results.write_text(
            json.dumps({"peer": peer["versions"], "net": peer["net"], "results": results}, indent=1)
        )
    if not results:
        print("no row is selected")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
