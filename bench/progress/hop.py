"""What one thread executes for a message of 64 bytes that it sends itself: callgrind over weft_hop.

Two runs with different numbers of messages; the difference is what counts. The numbers don't depend
on how busy the machine is.
"""

import collections
import os
import re
import tempfile

from weft_compare.bench import free_port
from weft_compare.process import Failed, run

FEW, MANY = 1000, 3000
LIMIT_S = 120
COST = re.compile(r"(0x[0-9a-f]+) \S+ (\d+)$")
# A locked read-modify-write of memory; xchg with memory is one without saying so.
LOCKED = re.compile(r"\tlock |\txchg\s.*\(")
INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t")


def executed(hop, libraries, messages, folder):
    """{(object, address): how often} of a run."""
    out = os.path.join(folder, "out")
    env = {**os.environ, "LD_LIBRARY_PATH": libraries, "WEFT_PATH": "tcp"}
    run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-instr=yes",
         "--compress-pos=no", "--compress-strings=no", hop, str(messages), str(free_port())],
        LIMIT_S, env).require("valgrind")
    counts = collections.Counter()
    where = ""
    inclusive = False
    with open(out, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("ob="):
                where = line[3:].rstrip("\n")
            elif line.startswith("calls="):
                inclusive = True  # the next line has what the called function took
            elif inclusive:
                inclusive = False
            elif found := COST.match(line):
                counts[where, int(found.group(1), 16)] += int(found.group(2))
    if not counts:
        raise Failed("callgrind counted nothing")
    return counts


def locked_of(path):
    """The addresses of locked instructions in an object."""
    if not os.path.isfile(path):
        return set()
    listed = run(["objdump", "-d", "--no-show-raw-insn", path], LIMIT_S).require("objdump").out
    return {int(found.group(1), 16) for line in listed.splitlines()
            if LOCKED.search(line) and (found := INSTRUCTION.match(line))}


def count_hop(hop, libraries):
    """(instructions, locked operations) for each message, both ends together."""
    with tempfile.TemporaryDirectory() as folder:
        few = executed(hop, libraries, FEW, folder)
        many = executed(hop, libraries, MANY, folder)
    many.subtract(few)
    each = MANY - FEW
    locked = {where: locked_of(where) for where in {where for where, _ in many}}
    return (sum(many.values()) / each,
            sum(n for (where, at), n in many.items() if at in locked[where]) / each)
