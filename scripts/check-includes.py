#!/usr/bin/env python3
"""Checks that includes follow the rooms of src/: arrows go down only, files form no circles, and no
two have the same name.

  scripts/check-includes.py            each line that breaks a rule; exit status 1 if there is one
  scripts/check-includes.py --write    also writes the table of rooms into ARCHITECTURE.md

ROOMS says what each room is and which rooms it may include from. A room is a folder of src/, or a
folder in it; a folder without a row belongs to the room around it. The lower rooms may use the
vocabulary headers of include/weft, which define Error, Result, limits and plain value types, and
no header of an operating system.
"""

import pathlib
import re
import sys
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parent.parent

Room = namedtuple("Room", "name what uses")
# From the lowest to the highest: a room uses only rooms above it in this list, and itself.
ROOMS = [
    Room("base", "bytes, `Result`, CRC32C, mixed bits, time and sequence types", ""),
    Room("wire", "one codec per header: values and bytes", "base"),
    Room("proto", "start-up, framing, placement, operations, the STag table: no operating system",
         "base wire"),
    Room("roce", "how queue pairs that programs connect out of band find each other "
         "(`docs/personality.md`): numbers, handshake, rules, datagrams. No operating system",
         "base"),
    Room("rddp", "endpoints without an operating system, for microcontrollers. Not part of the "
         "libraries for Linux", "base wire proto"),
    Room("lwip", "the transport of `rddp` over lwIP", "base rddp"),
    Room("os", "the operating system, one of each: descriptors, clock, locks, log, cancellation, "
         "fork, sleeping. Every room that knows an operating system uses it; those outside libweft "
         "use its headers alone", "base"),
    Room("readsend", "ranges of files on their way to peers, piece by piece: io_uring or threads, "
         "memory, turns, order. Its users bring what it sends with (`<weft/read_send.h>`, the data "
         "server)", "base os"),
    Room("shm", "memory that two processes share and do not trust: a ring of bytes, how its sides "
         "sleep and wake each other, how both come to have it (`docs/path.md`)", "base os"),
    Room("io", "transports (kernel TCP; inside a machine TCP and a ring), the event loop, "
         "configuration, counters page", "base os shm"),
    Room("trace", "captures of connections as pcap files", "base wire os"),
    Room("progress", "which thread makes progress on which connection: lanes, shards, the threads "
         "that look after them", "base proto os shm io trace"),
    Room("verbs", "the objects that programs hold: device, protection domains, regions, windows, "
         "CQs, QPs, connections. `oob`, a part of the room: queue pairs that programs connect out "
         "of band, datagrams", "base wire proto roce os readsend io trace progress"),
    Room("faults", "the decisions of `weft run --faults` and `weft faults sweep`: what fails, how a run is judged. No "
         "operating system", "base os"),
    Room("lab", "the decisions of `weft lab`: what a link is like, when a frame arrives, which command "
         "runs where. No operating system", ""),
    Room("like", "what another device promises and refuses, for `weft run --like`. No operating "
         "system", "os"),
    Room("shake", "the decisions of `weft run --shake`: what a device may do, from a seed. No operating "
         "system", "base"),
    Room("timeline", "what becomes of the times that `weft run --timeline` takes: records of requests, both ends "
         "of a message, clocks, waits, pictures. No operating system", ""),
    Room("check", "the rules of `weft run --check`: events in, findings out, no operating system but "
         "for a lock; and what the drop-in libraries tell them (`observer.h`)", "os"),
    Room("check/module", "the library that the drop-in libraries load for `weft run --check`, "
         "`--faults` and `--timeline`: places in the program, reports, the part of a process in a "
         "sweep, times", "base os faults timeline check"),
    Room("ibverbs", "`libibverbs.so.1`: a thin adapter over the public API", "base os check like shake"),
    Room("rdmacm", "`librdmacm.so.1`: a thin adapter over the public API", "base os ibverbs"),
    Room("rsockets", "the r* functions of `librdmacm.so.1`, and their protocol",
         "base os ibverbs rdmacm"),
    Room("sockets/grant", "a ring beside a TCP connection, which the reader grants: the protocol, "
         "without any system call", "base"),
    Room("sockets", "what the preload libraries share: the C library's own calls, rules, looking before "
         "sleeping", "base os"),
    Room("sockets/granted", "the library that `weft run --sockets` preloads: a descriptor number is "
         "the kernel's TCP socket, always", "base os sockets sockets/grant"),
    Room("sockets/iwarp", "the library in front of it: sockets that a program wants to be rsockets "
         "(`include/weft/sockets.h`)", "base os rsockets sockets"),
    Room("exs/core", "extended sockets (`libexs`), over rdma-core's C interface of verbs: sockets, "
         "operations, events, messages, the engine that moves them", "base os"),
    Room("exs/tcp", "extended sockets over TCP", "base os exs/core"),
    Room("exs/rdma", "extended sockets over RDMA, and over TCP where a peer has only that",
         "base os exs/core exs/tcp"),
    Room("exs/api", "the functions of `<sys/exs.h>`", "base os exs/core exs/tcp exs/rdma"),
    Room("files/protocol", "what the data server and its clients share: messages, files and folders "
         "below a root, registered memory. All of `src/files` uses rdma-core's C interface of verbs",
         "base os"),
    Room("files/server", "the data server", "base os readsend files/protocol"),
    Room("files/client", "copies from and to a data server", "base os files/protocol"),
    Room("files/mount", "a served tree as a file system, one call at a time, with read-ahead",
         "base os files/client"),
    Room("files/video", "video over the data protocol: the format, the player, the screen",
         "base os files/protocol files/client"),
]
NAMES = {room.name for room in ROOMS}
CORE = {"base", "wire", "proto", "roce"}
# The rooms that programs in tools/ and examples/ may include from, beside include/weft.
FOR_PROGRAMS = {room.name for room in ROOMS if room.name.startswith("files/")} | {"faults", "lab", "like", "shake", "timeline"}

# Files that need each other, a header and its source counting as one. Only what is smaller now is
# to be changed here: a circle that is new or larger is refused.
CIRCLES = [
    # A pass calls lanes, and a lane tells its shard, some ten million times a second: no interface
    # between them.
    {"progress/shard_owner", "progress/lane", "progress/shard"},
    # One object in parts, which use each other.
    {"proto/small_messages", "proto/stream", "proto/stream_loss", "proto/stream_rx",
     "proto/stream_shutdown", "proto/stream_tx"},
]
VOCABULARY = {"weft/config.h", "weft/limits.h", "weft/result.h", "weft/system_error.h", "weft/types.h"}
# What rooms of the operating system may use of include/weft; io deals with addresses and counts.
PUBLIC_FOR = {"os": VOCABULARY, "shm": VOCABULARY, "io": VOCABULARY | {"weft/address.h", "weft/counters.h", "weft/link.h"}}

# What the core may take from <...>: the C++ library without clocks, threads, files and random
# numbers, tl::expected, and instruction intrinsics.
CORE_SYSTEM = {
    "algorithm", "array", "bit", "bitset", "cassert", "cctype", "cerrno", "charconv", "chrono",
    "cinttypes", "climits", "cmath", "compare", "concepts", "cstddef", "cstdint", "cstdlib",
    "cstring", "deque", "functional", "initializer_list", "iterator", "limits", "list", "map",
    "memory", "new", "numeric", "optional", "ranges", "set", "span", "string", "string_view",
    "tuple", "type_traits", "unordered_map", "unordered_set", "utility", "variant", "vector",
    "version", "source_location", "atomic", "ostream", "iosfwd",
    "tl/expected.hpp", "isa-l/crc.h", "isa-l.h",
    "immintrin.h", "nmmintrin.h", "smmintrin.h", "x86intrin.h", "cpuid.h", "arm_acle.h",
    "boost/intrusive/avl_set.hpp", "boost/intrusive/list.hpp", "boost/intrusive/slist.hpp",
}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
# Where the generated table stands.
PAGE = "ARCHITECTURE.md"
BEGIN = "<!-- Written by scripts/check-includes.py --write -->\n"
END = "<!-- End of what scripts/check-includes.py writes -->\n"


def may_include(name):
    """The rooms from which a room may include, itself among them."""
    return next(set(room.uses.split()) | {name} for room in ROOMS if room.name == name)


def room_of(name):
    """The room of a path below src/: the longest folder that has a row. None if there is none."""
    folders = name.split("/")[:-1]
    while folders:
        if "/".join(folders) in NAMES:
            return "/".join(folders)
        folders.pop()
    return None


def sources(folder):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".h", ".hpp", ".c", ".cc") and path.is_file():
            yield path


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == "<", match.group(2)


def is_own(name):
    return (ROOT / "src" / name).is_file()


def refusal_in_room(room, angled, name):
    """Why `room` may not include `name`, or None."""
    if name.startswith("weft/"):
        if not angled:
            return "public headers are included as <weft/...>"
        if room in CORE and name not in VOCABULARY:
            return f"{room} may use only {', '.join(sorted(VOCABULARY))} of include/weft"
        if name not in PUBLIC_FOR.get(room, {name}):
            return f"{room} may use only {', '.join(sorted(PUBLIC_FOR[room]))} of include/weft"
        return None
    if angled:
        if is_own(name):
            return f"<{name}> is a file of src/: include it with quotes"
        if room in CORE and name not in CORE_SYSTEM:
            return f"{room} knows no operating system: <{name}> is not on its list"
        return None
    if name.startswith("."):
        return "includes are relative to src/"
    if name.endswith(".inc"):
        return None  # generated into the build tree
    from_room = room_of(name)
    if from_room is None:
        return None if is_own(name) else f'"{name}" is not below src/'
    if from_room not in may_include(room):
        return f"{room} may not include from {from_room}"
    if not is_own(name):
        return f"src/{name} does not exist"
    return None


def refusal_in_public(angled, name):
    if name.startswith("weft/"):
        return None if angled else "public headers are included as <weft/...>"
    if not angled:
        return "public headers include no file of this tree but <weft/...>"
    return None


def refusal_in_program(angled, name):
    if (not angled or is_own(name)) and room_of(name) not in FOR_PROGRAMS | {None}:
        return "programs are written against include/weft only"
    return None


def circles(uses):
    """The sets of units that reach each other by `uses`, a dict from unit to units (Tarjan)."""
    order, low, path, found = {}, {}, [], []

    def visit(unit):
        order[unit] = low[unit] = len(order)
        path.append(unit)
        for used in sorted(uses.get(unit, ())):
            if used not in order:
                visit(used)
                low[unit] = min(low[unit], low[used])
            elif used in path:
                low[unit] = min(low[unit], order[used])
        if low[unit] == order[unit]:
            at = path.index(unit)
            if len(path) - at > 1:
                found.append(set(path[at:]))
            del path[at:]

    for unit in sorted(uses):
        if unit not in order:
            visit(unit)
    return found


def check_circles():
    """A line for each circle of files that CIRCLES does not have as it is."""
    uses = {}
    for path in sources("src"):
        unit = str(path.relative_to(ROOT / "src").with_suffix(""))
        named = {name[:-2] for _, angled, name in includes(path)
                 if not angled and name.endswith(".h") and (ROOT / "src" / name).exists()}
        uses.setdefault(unit, set()).update(named - {unit})
    found = circles(uses)
    for circle in found:
        if not any(circle <= known for known in CIRCLES):
            yield f"files that need each other: {', '.join(sorted(circle))}"
    for known in CIRCLES:
        if known not in found:
            yield (f"no longer a circle of files, or a smaller one; change CIRCLES in "
                   f"scripts/check-includes.py: {', '.join(sorted(known))}")


def check_names():
    """A line for each name that files of several rooms, or programs, have: it says whose it is."""
    for tree in ("src", "tools"):
        places = {}
        for path in sources(tree):
            unit = str(path.relative_to(ROOT / tree).with_suffix(""))
            if not unit.startswith("lwip/board/"):  # each board has a board.c, for one header
                places.setdefault(path.stem, set()).add(unit)
        for same in places.values():
            if len(same) > 1:
                yield f"files of one name in {tree}: {', '.join(sorted(same))}"


def check_used():
    """A line for each room that may include from another, base aside, and does not."""
    used = {room.name: {room.name} for room in ROOMS}
    for path in sources("src"):
        room = room_of(str(path.relative_to(ROOT / "src")))
        used.setdefault(room, set()).update(room_of(name) for _, _, name in includes(path))
    for room in ROOMS:
        for other in sorted(may_include(room.name) - used[room.name] - {"base"}):
            yield f"ROOMS: {room.name} includes nothing from {other}; take the word out"


def check_order():
    """A line for each room that uses one below it in ROOMS."""
    seen = set()
    for room in ROOMS:
        seen.add(room.name)
        for used in sorted(may_include(room.name) - seen):
            yield f"ROOMS: {room.name} uses {used}, which is no lower room"


def table():
    """The rooms as ARCHITECTURE.md shows them, highest first."""
    yield "| room | what it is | may include from |\n"
    yield "|---|---|---|\n"
    for room in reversed(ROOMS):
        uses = ", ".join(other.name for other in reversed(ROOMS) if other.name in room.uses.split())
        yield f"| `src/{room.name}` | {room.what} | {uses or 'nothing'} |\n"


def check_page(write):
    """A line if the table in ARCHITECTURE.md is not the one of ROOMS; `write`: then it is."""
    page = ROOT / PAGE
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        yield f"{PAGE}: the lines around the table of rooms are missing"
        return
    wanted = before + BEGIN + "\n" + "".join(table()) + "\n" + END + after
    if text == wanted:
        return
    if write:
        page.write_text(wanted, encoding="utf-8")
    else:
        yield f"{PAGE}: the table of rooms is out of date; run scripts/check-includes.py --write"


def check():
    problems = []

    def judge(path, refusal):
        for number, angled, name in includes(path):
            why = refusal(angled, name)
            if why:
                problems.append(f"{path.relative_to(ROOT)}:{number}: {why}")

    for path in sources("include"):
        judge(path, refusal_in_public)
    for path in sources("src"):
        room = room_of(str(path.relative_to(ROOT / "src")))
        if room is None:
            problems.append(f"{path.relative_to(ROOT)}: in no room; add a row to ROOMS")
        else:
            judge(path, lambda angled, name, room=room: refusal_in_room(room, angled, name))
    for folder in ("tools", "examples"):
        for path in sources(folder):
            # A board's program is compiled with Weft's source, as nothing is installed there.
            if not path.name.endswith("_board.cc"):
                judge(path, refusal_in_program)
    return [*problems, *check_order(), *check_used(), *check_names(), *check_circles()]


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit("usage: scripts/check-includes.py [--write]")
    problems = [*check(), *check_page(write=sys.argv[1:] == ["--write"])]
    for problem in problems:
        print(problem)
    print(f"include direction: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
