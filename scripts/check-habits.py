#!/usr/bin/env python3
"""Checks habits that new code does not take up.

  scripts/check-habits.py              where there are more of them than LEFT says, or fewer
  scripts/check-habits.py --all RULE   each line that a rule finds

Rules, for C and C++:
  opening   a comment that begins with Who, What, Of, So many or Likewise: say who does what
  words     "in vain", "seldom", "none is" in a comment
and for src and include alone:
  mutex     std::mutex and its kin outside of os: os::Mutex has annotations that clang checks
  output    to stderr and stdout outside of os/log and os/say
  clock     a clock that is not os/clock's: one that is there can be found, and replaced in a test
  close     a descriptor that is closed by hand outside of os: os::Fd closes it, on each way out
  lock      a lock that no WEFT_GUARDED_BY of its file names, nor GUARDS below: clang checks nothing
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = (".h", ".c", ".cc")
RULES = {
    "opening": re.compile(r"(?<!//)(?<!// )//+ (?:Who|What|Of|So many|Likewise)\b"),
    "words": re.compile(r"//.*\b(?:in vain|seldom|none is)\b", re.I),
    "mutex": re.compile(r"\bstd::(?:recursive_|shared_|timed_)*(?:mutex|condition_variable(?:_any)?|"
                        r"lock_guard|unique_lock|scoped_lock|shared_lock)\b"),
    "output": re.compile(r"(?<!\w)(?:v?fprintf|v?printf|v?dprintf|perror|puts)\(|"
                         r"\bfputs\(.*\bstderr\b|std::(?:cerr|clog|cout)\b"),
    "clock": re.compile(r"\b(?:steady|system|high_resolution)_clock::now\(|\bclock_gettime\(|"
                        r"\bgettimeofday\(|\btime\((?:nullptr|NULL|0)\)"),
    "close": re.compile(r"(?:^\s*|[;{()=!&|?]\s*|\breturn )(?:::)?close\((?!\))"),
    "lock": re.compile(r"^\s*(?:(?:static|mutable|inline|constinit) )*(?:weft::)?(?:os::)?"
                       r"(?:RecursiveMutex|SharedMutex|Mutex|SpinLock|KickLock) (?P<name>\w+)(?:\{\})?;"),
}
# What a lock guards that is no member, or not known to clang.
GUARDS = {
    "src/exs/core/exs_cm_channel.h mutex_": "the life of another object",
    "src/exs/core/exs_device.h mutex_": "the order of changes of a list that is read without it",
    "src/exs/core/exs_engine.h take_in_mutex": "the taking in of a plain socket, one at a time",
    "src/exs/core/exs_socket.h mutex": "all of a socket, and of its provider in other rooms",
    "src/files/protocol/file_attributes.cc mutex": "the permissions of files on the disk",
    "src/ibverbs/objects.h changing": "what calls with the MR read without it: the one at a time",
    "src/ibverbs/objects.h observing": "calls: one poll at a time that is observed",
    "src/ibverbs/objects.h polling": "calls, from start_poll to end_poll",
    "src/ibverbs/objects.h open": "calls, from wr_start to wr_complete",
    "src/ibverbs/shaken_state.h posting_": "calls: one post at a time",
    "src/ibverbs/real_library.cc mutex": "a call: one dlopen at a time",
    "src/progress/scratch.cc g_shared_lock": "memory, from find() to give_back()",
    "src/progress/shard_owner.h lock_": "the order of changes of an atomic and of a registration",
    "src/rsockets/rs_lock.h mutex_": "is part of a lock",
    "src/sockets/granted/ring_lane.h lock": "a call: one join of a lane at a time",
    "src/sockets/iwarp/iwarp_table.cc the": "another file's table",
    "src/sockets/iwarp/iwarp_table.h mutex_": "is part of a lock",
    "src/trace/pcap.cc mutex": "a variable of the same function",
    "src/verbs/cq.h ack_mutex_": "counts of the ABI",
    "src/verbs/oob/datagram_qp.h rq_lock_": "one end of a queue of one producer and one consumer",
    "src/verbs/work_queues.h sq_lock_": "one end of a queue of one producer and one consumer",
    "src/verbs/work_queues.h rq_lock_": "one end of a queue of one producer and one consumer",
}
EVERYWHERE = ("opening", "words")
LIBRARIES = ("src/", "include/")
# The public header uses the standard library only, and its source locks what it declares.
ALLOWED = {"mutex": ("src/os/", "include/weft/placement.h", "src/verbs/placement_targets.cc"),
           # rddp may not know os. The others close numbers that are the program's.
          "close": ("src/os/", "src/rddp/", "src/sockets/", "src/rsockets/rsocket.cc",
                    "src/exs/core/exs_socket.cc"),
          # In the library that programs preload write() is its own: os::say() would call it.
          "clock": ("src/os/", "src/rddp/tcp_network.cc"),
          "output": ("src/os/log", "src/os/say.h", "src/sockets/")}

# What is left of them, by room of src or folder of the tree. The numbers only go down: where there
# are fewer now, write that here.
LEFT = {
    "opening tests": 118,
    "opening tools": 50,
}


def lines():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                         capture_output=True)
    for name in out.stdout.decode().split("\0"):
        if name.endswith(CODE) and (ROOT / name).is_file():
            for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").split("\n"), 1):
                yield name, number, line


def is_continuation(before, line):
    """A comment's later line may begin with any word."""
    return before.lstrip().startswith("//") and line.lstrip().startswith("//")


def guards_nothing(name, lock):
    """Whether clang knows nothing that this lock guards, and nobody says what it does."""
    guarded = re.compile(rf"GUARDED_BY\((?:\w+(?:\.|->|::))*{lock}\)")
    return (f"{name} {lock}" not in GUARDS
            and not guarded.search((ROOT / name).read_text(encoding="utf-8")))


def gone():
    """Locks of GUARDS that there are no more."""
    there = {f"{name} {match['name']}" for name, _, line in lines()
             if (match := RULES["lock"].match(line))}
    return sorted(set(GUARDS) - there)


def found():
    before = ""
    for name, number, line in lines():
        for rule, pattern in RULES.items():
            if rule not in EVERYWHERE and not name.startswith(LIBRARIES):
                continue
            if name.startswith(ALLOWED.get(rule, ())) or not pattern.search(line):
                continue
            if rule == "opening" and number > 1 and is_continuation(before, line):
                continue
            if rule == "lock" and not guards_nothing(name, pattern.match(line)["name"]):
                continue
            yield rule, name, number, line
        before = line


def main():
    if "--all" in sys.argv[1:]:
        for rule, name, number, line in found():
            if rule == sys.argv[-1]:
                print(f"{name}:{number}: {line.strip()}")
        return 0
    counts = Counter()
    for rule, name, _, _ in found():
        parts = name.split("/")
        room = "/".join(parts[:2] if parts[0] == "src" else parts[:1])
        counts[f"{rule} {room}"] += 1
    problems = []
    for key in sorted(counts.keys() | LEFT.keys()):
        now, left = counts[key], LEFT.get(key, 0)
        rule = key.split()[0]
        if now > left:
            problems.append(f"{key}: {now}, {left} are allowed; see scripts/check-habits.py --all {rule}")
        elif now < left:
            problems.append(f"{key}: {now}; write that into LEFT of check-habits.py, which has {left}")
    problems += [f"{lock}: there is no such lock; it leaves GUARDS of check-habits.py"
                 for lock in gone()]
    for problem in problems:
        print(problem)
    print(f"habits: {sum(counts.values())} left, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
