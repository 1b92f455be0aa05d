#!/usr/bin/env python3
"""The programs of examples/, each run as its first lines say.

    WEFT_TEST_EXAMPLES_DIR   folder of the compiled examples (set by ctest)
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))

from harness import WEFT, Failure, Skip, check, free_port, main  # noqa: E402

LIMIT_S = 60
SOURCES = os.path.join(HERE, "..", "..", "examples")
BUILT = os.environ.get("WEFT_TEST_EXAMPLES_DIR", "build/release/examples")
SYSTEM_PYTHON = "/usr/bin/python3"  # python3-pyverbs is made for this one


def built(name):
    path = os.path.join(BUILT, name)
    if not os.path.exists(path):
        raise Skip(f"{name} is not built: rdma-core's headers are missing")
    return path


def start_server(network, argv, **more):
    """A server of examples/ and the port that it prints."""
    server = network.start(argv, **more).wait_for("listening on port ")
    port = re.search(r"listening on port (\d+)", server.output()).group(1)
    return server, port


def ping_pong(network, program, raw):
    server, port = start_server(network, [*program, "server", "0"], raw=raw)
    client = network.connect([*program, "client", network.server.v4, port, 50], raw=raw)
    out = client.expect(0, LIMIT_S)
    check("50 round trips of 64 bytes" in out, out)
    check("answered 50 messages" in server.expect(0, LIMIT_S), server.output())


def pingpong(network):
    program = [built("pingpong")]
    ping_pong(network, program, raw=True)
    # Nobody listens on port 1.
    out = network.connect([*program, "client", network.server.v4, 1], raw=True).expect(1, LIMIT_S)
    check("pingpong: " in out, out)


def verbs_pingpong(network):
    ping_pong(network, [built("verbs_pingpong")], raw=False)


def python(network):
    need = [SYSTEM_PYTHON, "-c", "import pyverbs.cmid"]
    if not os.path.exists(SYSTEM_PYTHON) or network.start(need, raw=True).wait(LIMIT_S) != 0:
        raise Skip("python3-pyverbs is not installed")
    program = [SYSTEM_PYTHON, os.path.join(SOURCES, "pingpong.py")]
    # A port of the system's choice cannot be told by this one: pyverbs has no call for it.
    port = free_port()
    server = network.start([*program, "server", port]).listening(port)
    client = network.connect([*program, "client", network.server.v4, port, 20])
    try:
        check("20 round trips of 64 bytes" in client.expect(0, LIMIT_S), client.output())
        check("answered 20 messages" in server.expect(0, LIMIT_S), server.output())
    except Failure as why:
        raise Failure(f"{why}\n{server.tail()}") from None


def kvstore(network):
    program = built("kvstore")
    server, port = start_server(network, [program, "serve", "0"], raw=True)

    def client(command, *words):
        return network.connect([program, command, network.server.v4, port, *words], raw=True)

    check("not in the store" in client("get", "color").expect(1, LIMIT_S), "get before put")
    client("put", "color", "green").expect(0, LIMIT_S)
    check(client("get", "color").expect(0, LIMIT_S) == "green\n", "get after put")
    client("put", "color", "blue").expect(0, LIMIT_S)
    check(client("get", "color").expect(0, LIMIT_S) == "blue\n", "get after a second put")
    client("put", "color", "x" * 64).expect(1, LIMIT_S)
    # Writers of one key at the same time: nothing is lost, and no value is a mixture.
    writers = [client("put", "contended", letter * 60) for letter in "abcd"]
    adders = [client("add", "visits", 1) for _ in range(4)]
    for process in [*writers, *adders]:
        process.expect(0, LIMIT_S)
    value = client("get", "contended").expect(0, LIMIT_S).strip()
    check(value in [letter * 60 for letter in "abcd"], f"a mixture: {value}")
    sums = sorted(int(process.output()) for process in adders)
    check(sums == [1, 2, 3, 4], f"additions were lost: {sums}")
    check(server.popen.poll() is None, f"the server ended\n{server.tail()}")
    server.kill(15)
    server.expect(0, LIMIT_S)


def fetch(network):
    program = built("fetch")
    with tempfile.TemporaryDirectory() as folder:
        original, copy = os.path.join(folder, "original"), os.path.join(folder, "copy")
        content = os.urandom((5 << 20) + 3)
        with open(original, "wb") as file:
            file.write(content)
        server, port = start_server(network, [program, "serve", original, "0"], raw=True)
        for _ in range(2):  # one client after another
            network.connect([program, "get", network.server.v4, port, copy], raw=True).expect(
                0, LIMIT_S)
            with open(copy, "rb") as file:
                check(file.read() == content, "the copy differs")
            os.unlink(copy)
        server.kill()


def exs_echo(network):
    """Over RDMA, and over TCP where there is none."""
    program = built("exs_echo")
    for environment, over in ({}, "RDMA"), ({"EXS_PROVIDER": "tcp"}, "TCP"):
        server, port = start_server(network, [program, "serve", "0"], env=environment)
        clients = [network.connect([program, network.server.v4, port, f"words {n}"],
                                   env=environment) for n in range(3)]
        for n, client in enumerate(clients):
            check(client.expect(0, LIMIT_S) == f"words {n} (over {over})\n", client.output())
        check(server.popen.poll() is None, f"the server ended\n{server.tail()}")
        server.kill()


def iwarp_mode(network):
    """Both sides under Weft: RDMA, by the program's own calls. One side plain: TCP. Three clients
    each, so that the server goes on after one that asked for RDMA in vain."""
    program = built("iwarp_mode")
    sockets = {"options": ("--sockets",)}
    for at_server, at_client in (sockets, sockets), (sockets, {"raw": True}), ({"raw": True}, sockets), \
                                ({"raw": True}, {"raw": True}):
        direct = at_server is at_client is sockets
        server, port = start_server(network, [program, "serve", "0"], **at_server)
        for n in range(3):
            client = network.connect([program, network.server.v4, port, f"words {n}"], **at_client)
            out = client.expect(0, LIMIT_S)
            check(f"7 octets by {'RDMA' if direct else 'TCP'}" in out, out)
        server.wait_for(f"words 2 ({'written by RDMA' if direct else 'TCP'})")
        check(server.popen.poll() is None, f"the server ended\n{server.tail()}")
        server.kill()


def exs_sampler(network):
    program = built("exs_sampler")
    server, port = start_server(network, [program, "serve", "0"])
    for _ in range(2):  # one client after another
        out = network.connect([program, network.server.v4, port, 20]).expect(0, LIMIT_S)
        rounds = [int(n) for n in re.findall(r"sample \d+: (\d+) rounds", out)]
        check(len(rounds) == 20 and rounds == sorted(rounds) and rounds[0] > 0, out)
    check(server.popen.poll() is None, f"the server ended\n{server.tail()}")
    server.kill()


def exs_file(network):
    program = built("exs_file")
    with tempfile.TemporaryDirectory() as folder:
        original, copy = os.path.join(folder, "original"), os.path.join(folder, "copy")
        for size in ((9 << 20) + 7, 0):
            for environment in {}, {"EXS_PROVIDER": "tcp"}:
                content = os.urandom(size)
                with open(original, "wb") as file:
                    file.write(content)
                server, port = start_server(network, [program, "receive", "0", copy],
                                            env=environment)
                network.connect([program, "send", original, network.server.v4, port],
                                env=environment).expect(0, LIMIT_S)
                check(f"received {size} bytes" in server.expect(0, LIMIT_S), server.output())
                with open(copy, "rb") as file:
                    check(file.read() == content, "the copy differs")


def rddp_write(network):
    program = built("rddp_write")
    with tempfile.TemporaryDirectory() as folder:
        original, copy = os.path.join(folder, "original"), os.path.join(folder, "copy")
        content = os.urandom((3 << 20) + 5)
        with open(original, "wb") as file:
            file.write(content)
        sink, port = start_server(network, [program, "sink", copy], raw=True)
        out = network.connect([program, "source", network.server.v4, port, original],
                              raw=True).expect(0, LIMIT_S)
        check(f"sent {len(content)} octets" in out, out)
        check(f"received {len(content)} octets" in sink.expect(0, LIMIT_S), sink.output())
        with open(copy, "rb") as file:
            check(file.read() == content, "the copy differs")


def rddp_read(network):
    program = built("rddp_read")
    with tempfile.TemporaryDirectory() as folder:
        original = os.path.join(folder, "original")
        content = os.urandom((2 << 20) + 7)
        with open(original, "wb") as file:
            file.write(content)
        source, port = start_server(network, [program, "source", original], raw=True)
        out = network.connect([program, "sink", network.server.v4, port], raw=True).expect(
            0, LIMIT_S)
        check(f"{len(content)} octets, sum {sum(content)}" in out, out)
        source.expect(0, LIMIT_S)


def rddp_sensor(network):
    program = built("rddp_sensor")
    for blocks in (1, 8, 9, 1000):
        server, port = start_server(network, [program, "server"], raw=True)
        out = network.connect([program, "sensor", network.server.v4, port, blocks],
                              raw=True).expect(0, LIMIT_S)
        check(f"sent {blocks} blocks" in out, out)
        total = sum(i % 1000 for i in range(256 * blocks))
        check(f"{blocks} blocks, sum {total}\n" in server.expect(0, LIMIT_S), server.output())


def exs_first_program(network):
    """The programs that docs/exs.md and exs(7) begin with, as a reader would build them."""
    compiler = os.environ.get("CC", "cc")
    tree = os.path.normpath(os.path.join(HERE, "..", ".."))
    library = os.path.join(os.path.dirname(BUILT), "lib")
    with open(os.path.join(tree, "docs", "exs.md"), encoding="utf-8") as file:
        guide = re.search(r"```c\n(.*?)```", file.read(), re.S).group(1)
    with open(os.path.join(tree, "man", "exs.7"), encoding="utf-8") as file:
        page = re.search(r"^#include <arpa.*?^\}$", file.read(), re.S | re.M).group(0)
    with tempfile.TemporaryDirectory() as folder:
        server, port = start_server(network, [built("exs_echo"), "serve", "0"])
        programs = {"guide": (guide, [network.server.v4, port], "EXS_EVT_RECV: hello world\n"),
                    "page": (page.replace("7501", port).replace("127.0.0.1", network.server.v4), [],
                             "hello\n")}
        for name, (text, words, expected) in programs.items():
            program = os.path.join(folder, name)
            with open(program + ".c", "w", encoding="utf-8") as file:
                file.write(text)
            subprocess.run([compiler, "-Wall", "-Werror", f"-I{tree}/include", program + ".c", "-o",
                            program, f"-L{library}", "-lexs", f"-Wl,-rpath,{library}"],
                           check=True, timeout=LIMIT_S)
            out = network.connect([program, *words]).expect(0, LIMIT_S)
            check(out == expected, f"{name}: {out}")
        server.kill()


def two_hosts(network):
    del network  # it makes its own
    script = os.path.join(SOURCES, "two-hosts.sh")
    weft = shlex.quote(WEFT)
    done = subprocess.run(
        [script, f"{weft} ping --listen 7472 --once", f"{weft} ping 10.77.0.1 --count 2"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if re.search("Operation not permitted|no network namespace", done.stderr):
        raise Skip(f"no network namespaces here: {done.stderr.strip()}")
    check(done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}")
    check("2 rounds" in done.stdout, done.stdout + done.stderr)
    # The status is the client's.
    done = subprocess.run([script, f"exec {weft} ping --listen 7472 --once", "exit 7"],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
    check(done.returncode == 7, f"status {done.returncode}: {done.stdout}{done.stderr}")


def usage(network):
    for name in ("pingpong", "verbs_pingpong", "kvstore", "fetch", "exs_echo", "exs_sampler",
                 "exs_file", "rddp_write", "rddp_read", "rddp_sensor"):
        out = network.start([built(name)], raw=True).expect(2, LIMIT_S)
        check(out.startswith(f"usage: {name} "), out)


if __name__ == "__main__":
    main({
        "pingpong": pingpong,
        "verbs_pingpong": verbs_pingpong,
        "kvstore": kvstore,
        "fetch": fetch,
        "python": python,
        "exs_echo": exs_echo,
        "iwarp_mode": iwarp_mode,
        "exs_sampler": exs_sampler,
        "exs_file": exs_file,
        "rddp_write": rddp_write,
        "rddp_read": rddp_read,
        "rddp_sensor": rddp_sensor,
        "exs_first_program": exs_first_program,
        "two_hosts": two_hosts,
        "usage": usage,
    })
