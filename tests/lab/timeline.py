#!/usr/bin/env python3
"""`weft run --timeline`: what each request was doing, both ends of a message, and the longest wait
named rightly."""

import json
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from harness import WEFT, Place, Process, Skip, check, free_port, main, need  # noqa: E402
from perfetto import Trace  # noqa: E402

PROGRAM = os.environ["WEFT_TEST_BIN_DIR"] + "/timeline_program"
LIMIT_S = 60
ROUNDS = 5
HERE = Place([], "127.0.0.1", "::1")


def weft(*words, status=0):
    done = subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == status,
          f"{words} ended with {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def report(folder):
    return json.loads(weft("timeline", "report", str(folder), "--json"))


def both(folder, mode, *options, client_status=0):
    """Server and client on this machine, each with a timeline."""
    port = free_port()
    env = {"TIMELINE_PORT": str(port)}
    options = ("--timeline", str(folder), *options)
    server = Process(HERE, [PROGRAM, "server", mode], options=options, env=env).listening(port)
    client = Process(HERE, [PROGRAM, "client", mode, HERE.v4], options=options, env=env)
    client.expect(client_status, LIMIT_S)
    server.expect(0, LIMIT_S)
    return report(folder)


def on_hosts(folder, mode, link, *options):
    """The same on two hosts of a lab."""
    words = ["lab", "run", "--hosts", "2", "--link", link, "--", WEFT, "run", "--timeline",
             str(folder), *options, "--", PROGRAM, "server", mode, "---", WEFT, "run", "--timeline",
             str(folder), *options, "--", PROGRAM, "client", mode, "10.76.0.1"]
    done = subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=LIMIT_S)
    for refusal in ("a host cannot be made", "lets no ordinary user", "/dev/net/tun", "/proc of a"):
        if done.returncode != 0 and refusal in done.stderr:
            raise Skip(done.stderr.strip())
    check(done.returncode == 0, f"{words}: {done.stdout}{done.stderr}")
    return report(folder)


def process(found, role):
    """The number of the server or the client."""
    at = [i for i, one in enumerate(found["processes"]) if f" {role} " in one["program"]]
    check(len(at) == 1, f"{role}: {found['processes']}")
    return at[0]


def is_largest(found, role, cause, share):
    largest = found["largest"]
    check((largest["process"], largest["cause"], largest["share"]) ==
          (process(found, role), cause, share),
          f"the largest wait is {largest}: {json.dumps(found['processes'], indent=1)}")


def with_folder(test):
    def run(_network):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder) / "times")
    return run


PERSONALITIES = ((), ("--personality", "roce"), ("--path", "tcp"))


@with_folder
def late_receive(folder):
    for i, options in enumerate(PERSONALITIES):
        found = both(folder / str(i), "late", *options)
        is_largest(found, "server", "receive late", "the program's")
        check(found["slowest"]["process"] == process(found, "server"), f"{found['slowest']}")


@with_folder
def unpolled(folder):
    for i, options in enumerate(PERSONALITIES):
        is_largest(both(folder / str(i), "unpolled", *options), "client",
                   "completion queue not polled", "the program's")


@with_folder
def peer_busy(folder):
    for i, options in enumerate(PERSONALITIES):
        found = both(folder / str(i), "busy", *options)
        is_largest(found, "client", "peer busy", "the peer's program's")
        check(found["slowest"]["process"] == process(found, "server"), f"{found['slowest']}")


@with_folder
def depth1(folder):
    found = on_hosts(folder, "depth1", "delay=5ms")
    is_largest(found, "client", "one request at a time", "the program's")


@with_folder
def clocks(folder):
    found = on_hosts(folder, "busy", "delay=1ms")
    check(len(found["clocks"]) == 2 and found["clocks"][1]["known"], f"{found['clocks']}")
    other = found["clocks"][1]
    # All hosts of a lab have one clock, and do not know it. The link has 1 ms one way, so messages
    # say no more than that.
    check(abs(other["offset_ns"]) <= other["bound_ns"] <= 20e6, f"{other}")
    check(other["bound_ns"] >= 0.9e6, f"{other}")
    text = weft("timeline", "report", str(folder))
    check("clock of h" in text and "at most" in text, text)


@with_folder
def slow_link(folder):
    found = on_hosts(folder, "link", "rate=100Mbit")
    largest = found["largest"]  # of either end
    check((largest["cause"], largest["share"]) == ("TCP and the link", "Weft's"), f"{largest}")


@with_folder
def both_ends(folder):
    """Each message is found at the other end, and the picture of both loads."""
    found = both(folder, "busy")
    for one in found["connections"]:
        check(one["requests"] == ROUNDS and one["messages"] >= ROUNDS, f"{one}")
        check(one["matched"] == 2 * ROUNDS, f"{one}")
    names = {one["operation"] for one in found["phases"]}
    check(names == {"Send"}, f"{names}")
    picture = folder / "picture.pftrace"
    weft("timeline", "convert", str(folder), str(picture))
    trace = Trace(picture.read_bytes())
    check(len(trace.processes) == 2, f"{trace.processes}")
    sends = [one for one in trace.slices if one.name == "Send"]
    comes = [one for one in trace.slices if one.name == "Send comes"]
    check(len(sends) == len(comes) == 2 * ROUNDS, f"{len(sends)} and {len(comes)}")
    ends = {one.flow_end: one for one in comes}
    for send in sends:
        to = ends[send.flow]
        check(trace.process_of(send) != trace.process_of(to), "an arrow within a process")
        check(to.end >= send.begin, "a message came before it was sent")
    for call in ("ibv_post_recv", "ibv_req_notify_cq"):
        check(all(one.name != call for one in trace.slices), f"a record of {call}")
    for part in ("doorbell", "sending", "completed", "placing", "rdma_get_cm_event", "ibv_reg_mr"):
        check(any(one.name == part for one in trace.slices), f"no slice {part}")
    short = folder / "picture.json"
    weft("timeline", "convert", str(folder), str(short))
    events = json.loads(short.read_text())["traceEvents"]
    check(sum(one["ph"] == "X" and one["name"] == "Send" for one in events) == 2 * ROUNDS, "JSON")
    check(sum(one["ph"] == "s" for one in events) == 2 * ROUNDS, "JSON")


@with_folder
def matched(folder):
    """Streams of any form: large messages, rings, checksums, markers."""
    forms = (*PERSONALITIES, ("--crc", "on"), ("--path", "tcp", "--crc", "off"),
             ("--path", "tcp", "--markers=on"), ("--progress", "thread"),
             ("--personality", "roce", "--path", "tcp"), ("--check",), ("--shake", "3"))
    depths = []
    for i, options in enumerate(forms):
        found = both(folder / str(i), "link", *options)
        client = process(found, "client")
        for one in found["connections"]:
            if one["process"] == client:
                check(one["requests"] == one["matched"] == 40, f"{options}: {one}")
                check(1 <= one["depth"] <= 8, f"{options}: {one}")
                depths.append(one["depth"])
    # Each request of one form may be done before the next one is posted, on a busy machine.
    check(max(depths) > 1, f"{depths}")


@with_folder
def killed(folder):
    found = both(folder, "killed", client_status=-signal.SIGKILL)
    client = process(found, "client")
    requests = [one["requests"] for one in found["connections"] if one["process"] == client]
    check(requests == [ROUNDS], f"{requests}")


@with_folder
def threads(folder):
    found = both(folder, "threads")
    client = process(found, "client")
    ends = [one for one in found["connections"] if one["process"] == client]
    check([one["requests"] for one in ends] == [ROUNDS] * 3, f"{ends}")
    check(all(one["matched"] == ROUNDS for one in ends), f"{ends}")


@with_folder
def ranks(folder):
    for rank in ("0", "1"):
        env = {**os.environ, "PMIX_RANK": rank}
        subprocess.run([WEFT, "run", "--timeline", str(folder), "--",
                        os.path.join(os.path.dirname(PROGRAM), "zoo_e02_mended")], env=env,
                       check=True, timeout=LIMIT_S, capture_output=True)
    names = [one["name"] for one in report(folder)["processes"]]
    check(sorted(names) == ["rank 0", "rank 1"], f"{names}")


@with_folder
def datagrams(folder):
    need("ibv_ud_pingpong")
    options = ("--timeline", str(folder), "--personality", "roce")
    port = free_port()
    argv = ["ibv_ud_pingpong", "-g", "1", "-p", str(port), "-n", "50"]
    server = Process(HERE, argv, options=options).listening(port, kind="tcp")
    client = Process(HERE, [*argv, "127.0.0.1"], options=options)
    client.expect(0, LIMIT_S)
    server.expect(0, LIMIT_S)
    found = report(folder)
    counts = [one["count"] for one in found["phases"] if one["requests"]]
    check(counts == [50, 50], f"{found['phases']}")


@with_folder
def limits(folder):
    """No room for records: it is said, and the program goes on."""
    program = os.path.join(os.path.dirname(PROGRAM), "zoo_e02_mended")
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec {WEFT} run --timeline {folder} -- {program}"],
        capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 0, f"{done}")
    check("--timeline: " in done.stderr and "File too large" in done.stderr, done.stderr)


@with_folder
def full(folder):
    """A file system without room for records: the same, and the report goes without them."""
    folder.mkdir()
    program = os.path.join(os.path.dirname(PROGRAM), "zoo_e02_mended")
    script = (f"mount -t tmpfs -o size=64k none {folder} && "
              f"{WEFT} run --timeline {folder} -- {program} && "
              f"{WEFT} timeline report {folder} --json")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
                          capture_output=True, text=True, timeout=LIMIT_S)
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        raise Skip(done.stderr.strip())
    check(done.returncode == 0, f"{done}")
    check(done.stderr.count("No space left on device: records are lost") == 1, done.stderr)
    check(json.loads(done.stdout)["processes"][0]["dropped"] > 0, done.stdout)


@with_folder
def unfiled(folder):
    """Room for the header of one file: what the other threads had to write is counted in it."""
    folder.mkdir()
    port = free_port()
    env = {"TIMELINE_PORT": str(port)}
    server = Process(HERE, [PROGRAM, "server", "threads"], env=env).listening(port)
    script = (f"mount -t tmpfs -o size=4k none {folder} && "
              f"{WEFT} run --timeline {folder} -- {PROGRAM} client threads {HERE.v4} && "
              f"{WEFT} timeline report {folder} && {WEFT} timeline report {folder} --json")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
                          capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, **env})
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        raise Skip(done.stderr.strip())
    check(done.returncode == 0, f"{done}")
    server.expect(0, LIMIT_S)
    text, found = done.stdout.split("\n{\n")
    one = json.loads("{" + found)["processes"][0]
    # Five requests of each thread, and the connections.
    check(one["without_file"] >= 2 * ROUNDS + 3, f"{one}")
    check(f"  {one['without_file']} records are lost: there was no file for them\n" in text, text)


@with_folder
def objects(folder):
    done = subprocess.run([WEFT, "run", "--timeline", str(folder), "--", PROGRAM, "objects"],
                          capture_output=True, text=True, timeout=LIMIT_S)
    check(done.returncode == 0, f"{done}")


@with_folder
def last(folder):
    """Threads that end leave their file to others, though they call verbs to their very end."""
    found = both(folder, "last")
    client = found["processes"][process(found, "client")]["pid"]
    files = [one.name for one in folder.iterdir() if f".{client}." in one.name]
    check(len(files) <= 4, f"{files}")
    picture = folder / "picture.pftrace"
    weft("timeline", "convert", str(folder), str(picture))
    trace = Trace(picture.read_bytes())
    rows = {one.track for one in trace.slices
            if one.name == "ibv_reg_mr" and " client " in trace.processes[trace.process_of(one)]}
    check(len(rows) == 1 + ROUNDS, f"{rows}: each thread has a row of its own")


@with_folder
def cancelled(folder):
    for i, options in enumerate(PERSONALITIES):
        both(folder / str(i), "cancelled", *options)


@with_folder
def sizes(folder):
    both(folder, "busy")
    sizes = {one.name: one.stat().st_size for one in folder.iterdir()}
    check(sizes and all(size <= (1 << 20) + 4096 for size in sizes.values()), f"{sizes}")


@with_folder
def unfinished(folder):
    both(folder, "busy")
    for name, octets in (("a.weft", b""), ("b.weft", bytes(4096)), ("c.weft", bytes(1 << 20))):
        (folder / name).write_bytes(octets)
    text = weft("timeline", "report", str(folder))
    check(text.count(": left out: ") == 3 and "largest wait: " in text, text)


@with_folder
def cut(folder):
    """Of a file that is cut short the last records are missing, and the report says so."""
    found = both(folder, "busy")
    server = found["processes"][process(found, "server")]["pid"]
    file = max((one for one in folder.iterdir() if f".{server}." in one.name), key=lambda f: f.name)
    whole = file.read_bytes()
    there = struct.unpack_from("=Q", whole, 24)[0]
    for octets, missing in ((4096 + 2 * 64, there - 2), (4096, there), (1000, there)):
        file.write_bytes(whole[:octets])
        text = weft("timeline", "report", str(folder))
        check(f"  {missing} records are missing: a file is cut short\n" in text, text)
        check("earlier" not in text and "left out" not in text, text)
        found = report(folder)["processes"]
        check([one["cut"] for one in found if one["pid"] == server] == [missing], f"{found}")
    file.write_bytes(whole[:100])
    text = weft("timeline", "report", str(folder), status=1)
    check("it is cut short" in text, text)


@with_folder
def names(folder):
    """Of a program, in a report: they don't reach the terminal."""
    program = os.path.join(os.path.dirname(PROGRAM), "zoo_e02_mended")
    subprocess.run([WEFT, "run", "--timeline", str(folder), "--", program, "\x1b[31m\nred"],
                   check=True, timeout=LIMIT_S, capture_output=True)
    text = weft("timeline", "report", str(folder))
    check(f"{program} ?[31m?red\n" in text and "\x1b" not in text, repr(text))


@with_folder
def unwritten(folder):
    """A report that cannot be written is no success."""
    both(folder, "busy")
    for words in ([], ["--json"]):
        with open("/dev/full", "w", encoding="utf-8") as to:
            done = subprocess.run([WEFT, "timeline", "report", str(folder), *words], stdout=to,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
        check(done.returncode == 1 and "the standard output: " in done.stderr, f"{done}")


@with_folder
def replaced(folder):
    """A picture that cannot be written leaves the one that was there."""
    both(folder, "busy")
    pictures = folder.parent / "pictures"
    pictures.mkdir()
    picture = pictures / "picture.json"
    picture.write_text("old")
    picture.chmod(0o640)

    def convert(to, status, limit=resource.RLIM_INFINITY):
        def take_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = subprocess.run([WEFT, "timeline", "convert", str(folder), str(to)], capture_output=True,
                              text=True, timeout=LIMIT_S, preexec_fn=take_limit)
        check(done.returncode == status, f"{done}")
        return done.stderr

    check("picture.json: File too large" in convert(picture, 1, 1000), "a limit")
    check(picture.read_text() == "old" and len(list(pictures.iterdir())) == 1, "what was there")
    check("No space left" in convert("/dev/full", 1), "/dev/full")
    check("No such file" in convert(pictures / "no" / "picture", 1), "no folder")
    check("Is a directory" in convert(pictures, 1), "a folder")
    convert("/dev/null", 0)
    link = pictures / "link.json"
    link.symlink_to("picture.json")
    convert(link, 0)
    check(link.is_symlink() and json.loads(picture.read_text())["traceEvents"], "a link")
    check(picture.stat().st_mode & 0o7777 == 0o640, "permissions")
    fresh = pictures / "fresh.json"
    convert(fresh, 0)
    (pictures / "usual").touch()
    check(fresh.stat().st_mode == (pictures / "usual").stat().st_mode, "a new one")
    check(len(list(pictures.iterdir())) == 4, "no other file is left")
    # What has another name, or may not be written, is no other file afterwards.
    second = pictures / "second.json"
    second.hardlink_to(picture)
    picture.write_text("old")
    convert(second, 0)
    check(picture.read_text() != "old" and picture.samefile(second), "two names")
    later = pictures / "dangling.json"
    later.symlink_to("later.json")
    convert(later, 0)
    check(later.is_symlink() and (pictures / "later.json").is_file(), "a link to nothing")
    with open(pictures / "out", "w+", encoding="utf-8") as out:
        (pictures / "out").unlink()
        own = pictures / "own.json"
        own.symlink_to(f"/proc/{os.getpid()}/fd/{out.fileno()}")
        convert(own, 0)
        check(own.is_symlink() and json.load(out)["traceEvents"], "an open file without a name")


@with_folder
def usage(folder):
    folder.mkdir()
    os.mkfifo(folder / "fifo.weft")
    check("fifo.weft: Invalid" in weft("timeline", "report", str(folder), status=1), "a FIFO")
    (folder / "fifo.weft").unlink()
    check("there is no record" in weft("timeline", "report", str(folder), status=1), "empty")
    (folder / "some.weft").write_bytes(b"x" * 5000)
    check("is not a file of" in weft("timeline", "report", str(folder), status=1), "other file")
    check("No such file" in weft("timeline", "report", str(folder / "no"), status=1), "no folder")
    refused = weft("run", "--timeline", "/proc/nothing", "--", "true", status=1)
    check("--timeline: /proc/nothing" in refused, refused)
    text = weft("timeline", "convert", str(folder), "x", "--format", "bmp", status=2)
    check(re.search("bmp|perfetto", text) is not None, text)


if __name__ == "__main__":
    main({"late_receive": late_receive, "unpolled": unpolled, "peer_busy": peer_busy,
          "depth1": depth1, "slow_link": slow_link, "clocks": clocks, "both_ends": both_ends,
          "matched": matched,
          "killed": killed, "threads": threads, "ranks": ranks, "datagrams": datagrams,
          "limits": limits, "full": full, "unfiled": unfiled, "objects": objects, "last": last,
          "cancelled": cancelled, "sizes": sizes, "unfinished": unfinished, "cut": cut, "names": names,
          "unwritten": unwritten, "replaced": replaced, "usage": usage})
