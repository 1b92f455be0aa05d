#!/usr/bin/env python3
"""Writes the manual page weft.conf(5) from `weft info --json`, so that it names every key.

    make-conf-page.py WEFT INTRODUCTION >weft.conf.5
    make-conf-page.py WEFT --file >weft.conf           the example file, by `weft info --file`

INTRODUCTION is the page without its list of keys: weft.conf.5.in, with @KEYS@ where they go.
"""

import json
import os
import subprocess
import sys


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def main():
    weft, introduction = sys.argv[1:3]
    # Neither this machine's file nor its environment: the page has the defaults.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    environment["WEFT_CONFIG"] = ""
    if introduction == "--file":
        subprocess.run([weft, "info", "--file"], check=True, env=environment, timeout=60)
        return
    done = subprocess.run([weft, "info", "--json"], check=True, stdout=subprocess.PIPE,
                          env=environment, timeout=60)
    lines = []
    for entry in json.loads(done.stdout)["config"]:
        default = entry["value"] or "empty"
        lines += [".TP", f".B {entry['key']}",
                  f"{escaped(entry['help'][:1].upper() + entry['help'][1:])}.",
                  f"Values: {escaped(entry['legal'])}.", f"Default: {escaped(default)}."]
    with open(introduction, encoding="utf-8") as file:
        sys.stdout.write(file.read().replace("@KEYS@\n", "\n".join(lines) + "\n"))


if __name__ == "__main__":
    main()
