#!/usr/bin/env python3
"""The documents agree with the programs: each option is in its manual page, each subcommand has
one, each configuration key is in weft.conf(5), each link and file that a document names exists."""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))

from harness import WEFT, Skip, check, main  # noqa: E402

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
OPTIONS_OF_ALL = {"--help", "-h", "--config", "--log"}  # in weft(1)


def weft(*argv):
    done = subprocess.run([WEFT, *argv], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "WEFT_CONFIG": ""})
    check(done.returncode == 0, f"weft {' '.join(argv)}: {done.stderr}")
    return done.stdout


def page(name):
    path = os.path.join(ROOT, "man", name)
    check(os.path.exists(path), f"man/{name} is missing")
    with open(path, encoding="utf-8") as file:
        return file.read().replace("\\-", "-").replace("\\fR", "").replace("\\fI", "")


def commands():
    text = weft("--help")
    listed = text[text.index("\nCommands:\n"):].split("\n\n")[0]
    return re.findall(r"^  ([a-z-]+)  ", listed, re.M)


def options_of(help_text):
    """The options of a help text: what begins its lines."""
    lines = [line[:28] for line in help_text.splitlines() if line.startswith("  -")]
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z0-9][\w-]*", "\n".join(lines)))


def check_options(help_text, name):
    text = page(name)
    missing = {o for o in options_of(help_text) - OPTIONS_OF_ALL
               if not re.search(re.escape(o) + r"(?![\w-])", text)}
    check(not missing, f"man/{name} does not name {', '.join(sorted(missing))}")


def aliases():
    """Page -> the other names under which it is installed."""
    with open(os.path.join(ROOT, "man", "CMakeLists.txt"), encoding="utf-8") as file:
        lists = re.findall(r"^weft_man_(?:family|aliases)\((?:[13] )?([^)]*)\)", file.read(), re.M)
    return {words[0]: words[1:] for words in (text.split() for text in lists)}


def manual_pages(network):
    """A page for each command, with each of its options."""
    del network
    found = commands()
    check("run" in found and "doctor" in found, f"commands: {found}")
    overview = page("weft.1")
    for command in found:
        name = f"weft-{command}"
        check(re.search(rf'\b{name} "?\(1\)', overview), f"weft(1) does not name {name}")
        # The commands of the data server share one page.
        home = "weft-data" if name in aliases()["weft-data"] else name
        check_options(weft(command, "--help"), f"{home}.1")
    exs_perf = os.path.join(os.path.dirname(WEFT), "exs-perf")
    if os.path.exists(exs_perf):
        done = subprocess.run([exs_perf, "--help"], capture_output=True, text=True, timeout=60,
                              check=True)
        check_options(done.stdout, "exs-perf.1")


def exs_pages(network):
    """Each call, flag and event of <sys/exs.h> is in a manual page, and each call finds its
    page."""
    del network
    with open(os.path.join(ROOT, "include", "sys", "exs.h"), encoding="utf-8") as file:
        header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    families = aliases()
    pages = {name[:-2]: page(name) for name in os.listdir(os.path.join(ROOT, "man"))
             if re.fullmatch(r"exs_\w+\.3", name)}
    calls = set(re.findall(r"^[\w \*]+?\b(exs_\w+)\(", header, re.M))
    check(len(calls) == 38, f"{len(calls)} calls in the header")
    for call in sorted(calls):
        homes = [name for name, text in pages.items()
                 if call in re.findall(r"exs_\w+", text.split(".SH SYNOPSIS")[0])]
        check(len(homes) == 1, f"{call} is named by the pages {homes}")
        check(call == homes[0] or call in families[homes[0]], f"no alias for {call}")
    everything = page("exs.7") + "".join(pages.values())
    names = set(re.findall(r"\b((?:EXS|SO_ASYNC)_\w+)", header))
    missing = {name for name in names if name not in everything}
    check(not missing, f"in no manual page: {', '.join(sorted(missing))}")


def configuration(network):
    """weft.conf(5) and the file of `weft info --file` have each key."""
    del network
    entries = json.loads(weft("info", "--json"))["config"]
    file = weft("info", "--file")
    maker = os.path.join(ROOT, "man", "make-conf-page.py")
    made = subprocess.run([sys.executable, maker, WEFT, os.path.join(ROOT, "man", "weft.conf.5.in")],
                          capture_output=True, text=True, timeout=60, check=True).stdout
    check("@KEYS@" not in made, "weft.conf(5) has no keys")
    for entry in entries:
        check(f"\n#{entry['key']} = {entry['value']}\n" in file, f"{entry['key']} is not in --file")
        check(f"\n.B {entry['key']}\n" in made, f"{entry['key']} is not in weft.conf(5)")
    # A file with every line uncommented is legal, and means the defaults.
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"weft-conf-{os.getpid()}")
    try:
        with open(path, "w", encoding="utf-8") as out:
            out.write(re.sub(r"^#(\w+ = )", r"\1", file, flags=re.M))
        done = subprocess.run([WEFT, "info", "--json"], capture_output=True, text=True, timeout=60,
                              check=False, env={**os.environ, "WEFT_CONFIG": path})
        check(done.returncode == 0, done.stderr)
        for before, after in zip(entries, json.loads(done.stdout)["config"]):
            check(before["value"] == after["value"], f"{before} became {after}")
    finally:
        if os.path.exists(path):
            os.unlink(path)


def links(network):
    """Links and paths in the documents lead to files of this tree."""
    del network
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True,
                            timeout=60, check=False)
    if listed.returncode != 0:
        raise Skip("this is not a git tree")
    bad = []
    for name in listed.stdout.split():
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not os.path.exists(os.path.join(ROOT, os.path.dirname(name), target)):
                bad.append(f"{name}: {target}")
        for target in re.findall(r"`((?:docs|examples|scripts|bench|man)/[\w./-]*\w)`", text):
            if not os.path.exists(os.path.join(ROOT, target)):
                bad.append(f"{name}: {target}")
    check(not bad, "not there: " + ", ".join(bad))


if __name__ == "__main__":
    main({"manual_pages": manual_pages, "exs_pages": exs_pages, "configuration": configuration,
          "links": links})
