"""Samples, on disk as they come and in memory; medians, and ratios round by round."""

import collections
import dataclasses
import json
import statistics

from .plan import BOTH, Cell


@dataclasses.dataclass(frozen=True)
class Summary:
    median: float
    low: float
    high: float
    count: int


class Store:
    """`path`: one JSON object per line. The first describes the run, the others are jobs."""

    def __init__(self, path, header, resume):
        self.path = path
        self.header = header
        self.samples = collections.defaultdict(dict)  # Cell -> {round: sample}
        self.commands = {}                            # Cell -> how it was measured
        self.done = set()                             # (round, job name)
        self.others = []                              # CPU share of others, for each job
        self.resumed = 0
        if resume and self._load():
            self._file = open(path, "a", encoding="utf-8")
        else:
            self._file = open(path, "w", encoding="utf-8")
            self._write({"run": header})

    def close(self):
        self._file.close()

    def _write(self, item):
        self._file.write(json.dumps(item) + "\n")
        self._file.flush()

    def _load(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            if json.loads(lines[0]).get("run", {}).get("plan") != self.header["plan"]:
                return False
        except (OSError, ValueError, IndexError):
            return False
        for line in lines[1:]:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError):
                continue  # a line that an interrupt has cut off
        self.resumed = len(self.done)
        return True

    def _take(self, item):
        for text, sample in item["cells"].items():
            cell = Cell.parse(text)
            self.samples[cell][item["round"]] = sample
            if item.get("command"):
                self.commands[cell] = item["command"]
        self.done.add((item["round"], item["job"]))
        self.others.append(item["others"])

    def add(self, number, job, samples, command, others):
        item = {"round": number, "job": job.name, "command": command, "others": round(others, 3),
                "cells": {cell.text(): sample for cell, sample in samples.items()}}
        self._write(item)
        self._take(item)

    # What was found out.

    def rounds(self, cell, metric):
        """{round: value}. A figure of column BOTH stands in each."""
        samples = self.samples.get(cell)
        if samples is None:
            samples = self.samples.get(dataclasses.replace(cell, column=BOTH), {})
        return {number: sample[metric] for number, sample in samples.items()
                if sample.get(metric) is not None}

    def summary(self, cell, metric):
        values = list(self.rounds(cell, metric).values())
        if not values:
            return None
        return Summary(statistics.median(values), min(values), max(values), len(values))

    def error(self, cell):
        """Why a cell has no figure, or None."""
        for column in (cell.column, BOTH):
            for sample in self.samples.get(dataclasses.replace(cell, column=column), {}).values():
                if "error" in sample:
                    return sample["error"]
        return None

    def ratio(self, mine, other, metric):
        """Round by round, then the median: (ratio, lowest, highest), or None."""
        ours, theirs = self.rounds(mine, metric), self.rounds(other, metric)
        ratios = [ours[n] / theirs[n] for n in ours.keys() & theirs.keys() if theirs[n] > 0]
        if not ratios:
            return None
        return statistics.median(ratios), min(ratios), max(ratios)

    def contenders(self, workload):
        return {cell.contender for cell in self.samples if cell.workload == workload}

    def as_json(self):
        out = []
        for cell in sorted(self.samples):
            rounds = self.samples[cell]
            metrics = sorted({m for s in rounds.values() for m in s if m != "error"})
            figures = {}
            for metric in metrics:
                summary = self.summary(cell, metric)
                if summary:
                    figures[metric] = dataclasses.asdict(summary)
            entry = {**dataclasses.asdict(cell), "figures": figures,
                     "rounds": [rounds[n] for n in sorted(rounds)],
                     "command": self.commands.get(cell, "")}
            error = self.error(cell)
            if error:
                entry["error"] = error
            out.append(entry)
        return out
