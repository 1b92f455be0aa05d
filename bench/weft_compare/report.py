"""A finished run, ready to be shown: what the page, the Markdown and the JSON have in common."""

import dataclasses
import json
import os

from . import machine, markdown, page, plot, targets
from .plan import SAME


@dataclasses.dataclass
class Report:
    settings: dict        # of the run: congestion, quick, rounds, seconds...
    conditions: dict      # of the machine
    versions: list        # (program, version)
    sections: list
    outcomes: list
    others: list          # CPU share of others, for each measurement
    skipped: list         # what was not measured, and why
    command: str
    seconds: float
    others_before: float   # CPU share of others before the run
    when: str

    def lead(self):
        c = self.conditions
        return (f"Measured {self.when} on {c['cpu']}, {c['cpus']} CPUs, {c['kernel']}, "
                f"{c['system']}: {rounds_text(self.settings['rounds'])}. "
                f"GB is 10^9 bytes.")

    def warnings(self):
        out = []
        idle, text = machine.verdict(self.others)
        if not idle:
            out.append({"head": "This machine was not idle.", "text": text +
                        " Trust the ratios, not the figures, and repeat what matters."})
        elif self.others_before > machine.NOISY_SHARE:
            out.append({"head": "Not idle at the start.",
                        "text": f"Other programs used {self.others_before * 100:.0f} % of one CPU. "
                                + text})
        if self.conditions["cpus"] < 2:
            out.append({"head": "One CPU only.", "text": "Client and server share it: figures of "
                        "polling programs say little."})
        out += [{"head": "Not measured:", "text": text} for text in self.skipped]
        if self.settings["quick"]:
            out.append({"head": "A quick run.", "text": "Short measurements of few sizes: enough to "
                        "see that all works, not to compare."})
        return out

    def conditions_line(self):
        s, c = self.settings, self.conditions
        pins = ("client and server pinned to a CPU each" if c["cpus"] > 1 else
                "client and server on one CPU")
        rounds = ("One round" if s["rounds"] == 1 else
                  f"Median of up to {s['rounds']} rounds (small: lowest to highest)")
        return (f"{rounds}, {s['seconds']:g} s each; {pins}; socket buffers left to the kernel; "
                f"congestion control of the system {c['congestion']}, Weft on loopback reno.")

    def machine_rows(self):
        names = {"cpu": "CPU", "cpus": "CPUs usable", "memory_gib": "memory, GiB",
                 "virtual": "machine", "congestion": "congestion control",
                 "congestion_available": "... available", "tcp_rmem": "net.ipv4.tcp_rmem",
                 "tcp_wmem": "net.ipv4.tcp_wmem", "rmem_max": "net.core.rmem_max"}
        rows = [(names.get(k, k), v) for k, v in self.conditions.items() if k != "mmap_rnd_bits"]
        return [*rows, ("others", machine.verdict(self.others)[1])]

    def duration_text(self):
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"

    def as_json(self, store):
        return {
            "settings": self.settings, "conditions": self.conditions,
            "versions": dict(self.versions), "when": self.when, "seconds": round(self.seconds, 1),
            "command": self.command, "idle": machine.verdict(self.others)[0],
            "others_cpu_share": self.others, "skipped": self.skipped,
            "targets": [{"workload": o.target.workload, "beside": o.target.name,
                         "wanted": o.wanted(), "met": o.met, "why": o.why,
                         "ratio": o.ratio[0] if o.ratio else None,
                         "lowest": o.ratio[1] if o.ratio else None,
                         "highest": o.ratio[2] if o.ratio else None} for o in self.outcomes],
            "cells": store.as_json(),
        }


# Plots that are also files of their own, for other documents: workload, figure, contenders.
PICTURES = {
    "latency.svg": ("latency", "Median latency, polled",
                    ("tcp", "weft-send-crc", "weft-write-crc", "ucx-tag", "libfabric")),
    "bandwidth.svg": ("bandwidth", "Bandwidth",
                      ("tcp", "weft-write", "weft-write-crc", "ucx-put", "libfabric")),
    **{f"embedded-{size}.svg": ("embedded", f"Cortex-M3 (mps2-an385): messages of {size} KB",
                                ("lwip-plain", "lwip-tcp", "weft-lwip", "weft-lwip-crc",
                                 "weft-lwip-markers"))
       for size in (50, 500, 1400)},
}


def pictures(report):
    """The texts of those that this run has the values for."""
    texts = {}
    for name, (workload, title, contenders) in PICTURES.items():
        for section in report.sections:
            for figure in section.figures:
                if section.name != workload or figure.title != title:
                    continue
                # All under one congestion control, where the run has that.
                series = figure.columns.get(SAME) or next(iter(figure.columns.values()))
                chosen = [one for one in series if one.contender in contenders and one.points]
                if chosen and len(figure.xs) > 1:
                    better = "lower" if figure.lower_is_better else "higher"
                    texts[name] = plot.picture(figure, chosen, f"{title} ({better} is better)")
    return texts


def write(folder, report, store):
    """index.html, report.md, report.json and pictures: each replaced at once, never half
    written."""
    texts = {**pictures(report), "index.html": page.render(report), "report.md": markdown.render(report),
             "report.json": json.dumps(report.as_json(store), indent=1) + "\n"}
    for name, text in texts.items():
        path = os.path.join(folder, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)


def rounds_text(count):
    return "one round" if count == 1 else f"{count} interleaved rounds, medians"


def outcomes_of(store):
    return targets.judge(store)
