#!/usr/bin/env python3
"""Checks that includes follow the layers: arrows go down only.

    tools, examples --> include/weft <-- verbs --> proto --> wire --> base
                                           +-----> io ------------>--+

The lower layers (base, wire, proto) may use the vocabulary headers of include/weft, which define
Error, Result, limits and plain value types, and no header of an operating system. Prints each
line that breaks a rule; exit status 1 if there is one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Which folders of src/ each folder of src/ may include from.
ALLOWED = {
    "base": {"base"},
    "wire": {"wire", "base"},
    "proto": {"proto", "wire", "base"},
    # Queue pairs wired by hand: who finds whom.
    "roce": {"roce", "base"},
    # Endpoints without an operating system, and a transport below them.
    "rddp": {"rddp", "proto", "wire", "base"},
    "lwip": {"lwip", "rddp", "proto", "wire", "base"},
    # Ranges of files on their way to peers, whatever the verbs below are called.
    "readsend": {"readsend", "os", "base"},
    # What every room that knows an operating system may use; headers alone.
    "os": {"os"},
    "io": {"io", "os", "base"},
    # Captures: where FPDUs end, and a file.
    "trace": {"trace", "io", "os", "wire", "base"},
    # Who makes progress on which connection, below the objects that programs see.
    "progress": {"progress", "trace", "io", "os", "proto", "wire", "base"},
    "verbs": {"verbs", "progress", "readsend", "trace", "io", "os", "roce", "proto", "wire", "base"},
    # The drop-in libraries are adapters over the public API, with what they share.
    "ibverbs": {"ibverbs", "os", "base"},
    "rdmacm": {"rdmacm", "ibverbs", "sockets", "os", "base"},
    # Over verbs as rdma-core defines them, not over anything of Weft above base.
    "exs": {"exs", "os", "base"},
    # Programs above the verbs: what they use of RDMA is the C interface of verbs and rdma_cm.
    "store": {"store", "readsend", "os", "base"},
    "video": {"video", "store", "os", "base"},
    "mount": {"mount", "store", "os", "base"},
    # Sockets over the public API: the rsocket stream, the preload library and its relay.
    "sockets": {"sockets", "os", "base"},
}
# Headers without a library of their own: how a system call is made that must not end a thread.
# The drop-in libraries make system calls besides those of the engine, and end exceptions as it.
ALSO = {layer: {"os/calls.h", "os/cancel.h", "io/guarded.h"} for layer in ("ibverbs", "rdmacm")}
CORE = {"base", "wire", "proto", "roce"}
VOCABULARY = {"weft/config.h", "weft/limits.h", "weft/result.h", "weft/system_error.h", "weft/types.h"}
# io deals with addresses and counts besides.
PUBLIC_FOR_IO = VOCABULARY | {"weft/address.h", "weft/counters.h"}

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


def sources(folder):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".h", ".hpp", ".c", ".cc") and path.is_file():
            yield path


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == "<", match.group(2)


def refusal_in_layer(layer, angled, name):
    """Why `layer` may not include `name`, or None."""
    if name.startswith("weft/"):
        if not angled:
            return "public headers are included as <weft/...>"
        if layer in CORE and name not in VOCABULARY:
            return f"{layer} may use only {', '.join(sorted(VOCABULARY))} of include/weft"
        if layer == "io" and name not in PUBLIC_FOR_IO:
            return f"io may use only {', '.join(sorted(PUBLIC_FOR_IO))} of include/weft"
        return None
    if angled:
        if layer in CORE and name not in CORE_SYSTEM:
            return f"{layer} knows no operating system: <{name}> is not on its list"
        return None
    if name.startswith("."):
        return "includes are relative to src/"
    if name.endswith(".inc"):
        return None  # generated into the build tree
    folder = name.split("/", 1)[0]
    if "/" not in name or folder not in ALLOWED:
        if (ROOT / "src" / name).exists():
            return None
        return f'"{name}" is not below src/'
    if folder not in ALLOWED[layer] and name not in ALSO.get(layer, ()):
        return f"{layer} may not include from {folder}"
    if not (ROOT / "src" / name).exists():
        return f"src/{name} does not exist"
    return None


def refusal_in_public(angled, name):
    if name.startswith("weft/"):
        return None if angled else "public headers are included as <weft/...>"
    if not angled:
        return "public headers include no file of this tree but <weft/...>"
    return None


def refusal_in_program(angled, name):
    if not angled and name.split("/", 1)[0] in ALLOWED.keys() - {"store", "video", "mount"}:
        return "programs are written against include/weft only"
    return None


def check():
    problems = []

    def judge(path, refusal):
        for number, angled, name in includes(path):
            why = refusal(angled, name)
            if why:
                problems.append(f"{path.relative_to(ROOT)}:{number}: {why}")

    for path in sources("include"):
        judge(path, refusal_in_public)
    for layer in ALLOWED:
        for path in sources(f"src/{layer}"):
            judge(path, lambda angled, name, layer=layer: refusal_in_layer(layer, angled, name))
    for folder in ("tools", "examples"):
        for path in sources(folder):
            # A board's program is compiled with Weft's source, as nothing is installed there.
            if not path.name.endswith("_board.cc"):
                judge(path, refusal_in_program)
    for entry in (ROOT / "src").iterdir():
        if entry.is_dir() and entry.name not in ALLOWED:
            problems.append(f"src/{entry.name}: not a known layer; add it to {__file__}")
    return problems


def main():
    problems = check()
    for problem in problems:
        print(problem)
    print(f"include direction: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
