#!/usr/bin/env python3
"""The recipes of examples/ci are sound: what they name is in this tree or in Debian, and the tools
that would read them accept them. Nothing is built here: scripts/check-debs.sh tries the
packages."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))

from harness import Skip, check, main  # noqa: E402

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
RECIPES = os.path.join(ROOT, "examples", "ci")
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "CMD", "ENV", "ARG", "EXPOSE", "ENTRYPOINT"}


def read(name):
    with open(os.path.join(RECIPES, name), encoding="utf-8") as file:
        return file.read()


def run(*argv, **options):
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, **options)


def shell_is_sound(script, where):
    """`script` parses, the scripts of this tree that it names exist and know their options."""
    parsed = run("bash", "-n", input=script)
    check(parsed.returncode == 0, f"{where}: {parsed.stderr}")
    for path, rest in re.findall(r"(?<![\w/])(scripts/[\w-]+\.sh)([^&|;\n]*)", script):
        full = os.path.join(ROOT, path)
        check(os.access(full, os.X_OK), f"{where}: {path} is not there")
        with open(full, encoding="utf-8") as file:
            text = file.read()
        for word in rest.split():
            if not word.startswith("/"):
                check(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None,
                      f"{where}: {path} does not know {word}")


@functools.cache
def known_packages():
    """The packages in the lists of this machine; none if it has no lists."""
    if shutil.which("apt-cache") is None:
        return frozenset()
    return frozenset(run("apt-cache", "pkgnames").stdout.split())


def packages_exist(script, where):
    """Each package that apt-get is to install is in the lists of this machine, if it has any."""
    known = known_packages()
    if "rdmacm-utils" not in known:
        return
    for words in re.findall(r"apt-get install ([^&|;\n]*)", script):
        for word in words.split():
            if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", word):
                check(word in known, f"{where}: no package {word}")


def dockerfile(network):
    """Each instruction is one that Docker knows; stages, scripts and packages exist."""
    del network
    text = re.sub(r"\\\n", " ", "\n".join(line for line in read("Dockerfile").splitlines()
                                           if not line.startswith("#")))
    stages = set()
    count = 0
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        check(word in INSTRUCTIONS, f"Dockerfile: unknown instruction {word}")
        check(count > 0 or word == "FROM", "Dockerfile: it does not begin with FROM")
        count += 1
        if word == "FROM":
            match = re.fullmatch(r"debian:bookworm-slim(?: AS (\w+))?", rest)
            check(match is not None, f"Dockerfile: FROM {rest}")
            stages.add(match.group(1))
        source = re.match(r"--from=(\w+)", rest)
        check(source is None or source.group(1) in stages, f"Dockerfile: no stage for {line}")
        if word == "RUN":
            shell_is_sound(rest, "Dockerfile")
            packages_exist(rest, "Dockerfile")
        if word == "CMD":
            check(re.fullmatch(r'\["weft"(, "[\w-]+")*\]', rest) is not None, f"Dockerfile: {line}")
    check(count >= 8, f"Dockerfile: {count} instructions")


def workflow(network):
    """The workflow is YAML, and its steps are shell that uses packages of Debian."""
    del network
    try:
        import yaml
    except ImportError:
        raise Skip("no python3-yaml") from None
    job = yaml.safe_load(read("github-actions.yml"))["jobs"]["rdma-over-tcp"]
    check(job["container"].startswith("debian:bookworm"), "the packages are made for Debian 12")
    steps = [step["run"] for step in job["steps"] if "run" in step]
    for part in ("weft run -- make check", "run --check ", "run --shake ", "faults sweep "):
        check(any(part in step for step in steps), f"no step: {part}")
    for step in steps:
        shell_is_sound(step, "github-actions.yml")
    packages_exist("\n".join(steps).replace("\\\n", " "), "github-actions.yml")


def gitlab(network):
    """The same of the recipe for GitLab."""
    del network
    try:
        import yaml
    except ImportError:
        raise Skip("no python3-yaml") from None
    jobs = yaml.safe_load(read("gitlab-ci.yml"))
    base = jobs.pop(".rdma-over-tcp")
    check(base["image"].startswith("debian:bookworm"), "the packages are made for Debian 12")
    check(set(jobs.pop("variables")) == {"WEFT_DEBS"}, "variables")
    check(len(jobs) == 4, f"jobs: {list(jobs)}")
    for part in ("weft run -- ", "run --check ", "run --shake ", "faults sweep "):
        check(any(part in step for job in jobs.values() for step in job["script"]), part)
    steps = list(base["before_script"])
    for name, job in jobs.items():
        check(job["extends"] == ".rdma-over-tcp", f"{name}: extends")
        steps += job["script"]
        for path in job.get("artifacts", {}).get("paths", []):
            check(any(f"--report {path} " in step for step in job["script"]), f"{name}: {path}")
    check("weft run -- make check" in steps, "no step runs the tests")
    for step in steps:
        shell_is_sound(step, "gitlab-ci.yml")
    packages_exist("\n".join(steps), "gitlab-ci.yml")


def units(network):
    """systemd accepts the units and knows each of their settings."""
    del network
    if shutil.which("systemd-analyze") is None:
        raise Skip("no systemd-analyze")
    names = [name for name in os.listdir(RECIPES) if name.endswith(".service")]
    check(len(names) == 2, f"units: {names}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            text = read(name)
            check(re.search(r"^ExecStart=/usr/bin/weft ", text, re.M) is not None, f"{name}: ExecStart")
            # The command need not be installed here.
            text = re.sub(r"^(Exec\w+=\+?)/usr/bin/weft ", r"\1/bin/true ", text, flags=re.M)
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            done = run("systemd-analyze", "verify", "--man=no", path)
            said = [line for line in done.stderr.splitlines() if name in line]
            check(done.returncode == 0 and not said, f"{name}: {done.stderr}")


if __name__ == "__main__":
    main({"dockerfile": dockerfile, "workflow": workflow, "gitlab": gitlab, "units": units})
