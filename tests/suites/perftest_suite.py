"""perftest's options, one after another, for each of its programs, kind of queue pair and way to
connect."""

import collections
import subprocess
import time

import harness
import outcome

LIMIT_S = 100
COUNT = 200

WRITE, READ = ("ib_write_bw", "ib_write_lat"), ("ib_read_bw", "ib_read_lat")
SEND, ATOMIC = ("ib_send_bw", "ib_send_lat"), ("ib_atomic_bw", "ib_atomic_lat")
ALL = (*WRITE, *READ, *SEND, *ATOMIC)
BANDWIDTH = tuple(program for program in ALL if program.endswith("_bw"))
NO_ATOMIC = (*WRITE, *READ, *SEND)  # whose size can be chosen

# A kind of connection: its name, options, and programs that can use it.
Kind = collections.namedtuple("Kind", "name options programs")
RC = Kind("rc", (), ALL)
RC_CM = Kind("rc_cm", ("-R",), ALL)
DATA_CM = Kind("rc_data_cm", ("-z",), ALL)  # rdma_cm carries the addresses only
# perftest takes UC without rdma_cm only.
UC = Kind("uc", ("-c", "UC"), (*WRITE, *SEND))
UD = Kind("ud", ("-c", "UD"), SEND)
UD_CM = Kind("ud_cm", ("-c", "UD", "-R"), SEND)
KINDS = {"roce": (RC, RC_CM, DATA_CM, UC, UD, UD_CM), "iwarp": (RC_CM,)}

# An option: its name, words, and programs that take it, as their usage says. `kinds`: names of
# kinds of connection it is for; all if empty.
Option = collections.namedtuple("Option", "name words programs kinds", defaults=((),))
HAND = ("rc", "uc", "ud")
BY_CM = ("rc_cm", "ud_cm")
LOSSLESS = ("rc", "rc_cm", "rc_data_cm")
OPTIONS = (
    Option("plain", (), ALL),
    Option("one_octet", ("-s", 1), NO_ATOMIC),
    Option("large", ("-s", 1 << 20), NO_ATOMIC, (*LOSSLESS, "uc")),
    Option("all_sizes", ("-a", "-n", 20), NO_ATOMIC, LOSSLESS),
    Option("bidirectional", ("-b",), BANDWIDTH, LOSSLESS),
    Option("report_both", ("-b", "--report-both"), BANDWIDTH, LOSSLESS),
    Option("events", ("-e",), (*READ, *SEND, *ATOMIC)),
    Option("four_qps", ("-q", 4), BANDWIDTH),
    Option("four_qps_both_ways", ("-q", 4, "-b"), BANDWIDTH, LOSSLESS),
    Option("region_per_qp", ("-q", 4, "--mr_per_qp"), BANDWIDTH),
    Option("duration", ("-D", 1), ALL, LOSSLESS),
    Option("cpu_use", ("-D", 1, "--cpu_util"), BANDWIDTH, LOSSLESS),
    Option("inline", ("-I", 64, "-s", 64), (*WRITE, *SEND)),
    Option("each_completion", ("-Q", 1), BANDWIDTH),
    Option("few_completions", ("-Q", 50), BANDWIDTH),
    Option("post_list", ("-l", 10), BANDWIDTH),
    Option("receive_list", ("--recv_post_list", 10), ("ib_send_bw",)),
    Option("both_lists", ("-l", 10, "--recv_post_list", 10), ("ib_send_bw",)),
    Option("shallow", ("-t", 4), BANDWIDTH),
    Option("few_receives", ("-r", 8), SEND, LOSSLESS),
    Option("srq", ("--use-srq",), SEND),
    Option("srq_four_qps", ("--use-srq", "-q", 4, "-r", 2048), ("ib_send_bw",)),
    Option("old_post_send", ("--use_old_post_send",), ALL),
    # Without -Q 1 it posts requests without completions, and waits for them, over any device.
    Option("warm_up", ("--perform_warm_up", "-Q", 1), ("ib_write_bw", "ib_read_bw", "ib_atomic_bw")),
    Option("no_peak", ("-N",), BANDWIDTH),
    Option("gbits", ("--report_gbits",), BANDWIDTH),
    Option("histogram", ("-H",), tuple(p for p in ALL if p.endswith("_lat"))),
    Option("unsorted", ("-U",), tuple(p for p in ALL if p.endswith("_lat"))),
    Option("reversed", ("--reversed",), BANDWIDTH, LOSSLESS),
    Option("rate_limit", ("--rate_limit", 10, "--rate_limit_type", "SW"),
           ("ib_write_bw", "ib_read_bw", "ib_send_bw")),
    Option("fetch_and_add", ("-A", "FETCH_AND_ADD"), ATOMIC),
    Option("compare_and_swap", ("-A", "CMP_AND_SWAP"), ATOMIC),
    Option("outstanding", ("-o", 8), (*READ, *ATOMIC)),
    Option("mtu_256", ("-m", 256, "-s", 256), NO_ATOMIC, HAND),
    Option("mtu_4096", ("-m", 4096, "-s", 4096), NO_ATOMIC, ("rc", "uc")),
    Option("gid_index", ("-x", 0), ALL, HAND),
    Option("traffic_class", ("--tclass", 96), ALL, HAND),
    Option("type_of_service", ("-T", 96), ALL, BY_CM),
    Option("service_level", ("-S", 3), ALL, HAND),
    Option("ack_timeout", ("-u", 18), ALL, LOSSLESS),
    Option("device", ("-d", "weft0", "-i", 1), ALL),
    Option("no_versions", ("--dont_xchg_versions",), ALL),
    Option("source_address", ("--source_ip", "SERVER"), ALL),
    Option("two_ports", ("-O",), BANDWIDTH, HAND),
    Option("odp", ("--odp",), ALL),
    Option("wait_destroy", ("--wait_destroy", 1), ALL),
)
BY_NAME = {option.name: option for option in OPTIONS}
QUICK = {"plain", "four_qps", "inline"}

Matrix = collections.namedtuple("Matrix", "device kind program option")


def version():
    harness.need("ib_write_bw")
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "perftest"], capture_output=True,
                          text=True, check=False)
    return f"perftest {done.stdout or '(not of a package)'}"


def matrix():
    for device, kinds in KINDS.items():
        for kind in kinds:
            for program in kind.programs:
                for option in OPTIONS:
                    if program in option.programs and (
                            not option.kinds or kind.name in option.kinds):
                        name = f"{device}/{kind.name}/{program}/{option.name}"
                        yield name, Matrix(device, kind, program, option)


def cases():
    return [name for name, _ in matrix()]


def quick(name):
    _, kind, program, option = name.split("/")
    return option in QUICK and kind in ("rc", "rc_cm", "ud") and program not in ATOMIC[:1]


def words(case, network):
    """The command of both ends, without the port and the server's address."""
    size = () if "-s" in case.option.words or case.program in ATOMIC else ("-s", 1000)
    given = [network.server.v4 if word == "SERVER" else word for word in case.option.words]
    # A duration is for all that is sent; -n is refused beside it.
    count = () if {"-D", "-n"} & set(map(str, given)) else ("-n", COUNT)
    # UC and UD lose what meets no receive, so there are receives for all.
    receives = ("-r", 512) if case.program in SEND and "-r" not in given else ()
    return [case.program, "-F", *case.kind.options, *size, *count, *receives, *given]


def attempt(case, network):
    port = harness.free_port()
    argv = [*words(case, network), "-p", port]
    weft = ("--personality", case.device, "--log", "off")
    server = network.start(argv, options=weft).listening(port)
    client = network.connect([*argv, network.server.v4], options=weft)
    try:
        client.expect(0, LIMIT_S)
        server.expect(0, LIMIT_S)
    except harness.Failure as why:
        raise harness.Failure(f"{why}\n  server:\n{server.tail(12)}") from None
    finally:
        for process in (client, server):
            process.end()


def run(names, seconds, report):
    by_name, done, stop = dict(matrix()), [], time.monotonic() + seconds
    with harness.loopback() as network:
        for name in names:
            case = outcome.Case(name, outcome.PASSED, "")
            if time.monotonic() > stop:
                case = case._replace(verdict=outcome.SKIPPED, detail="no time left")
            else:
                try:
                    harness.again_if_unsure(lambda n=name: attempt(by_name[n], network))
                except harness.Failure as why:
                    case = case._replace(verdict=outcome.FAILED, detail=str(why))
            report(case)
            done.append(case)
    return done
