"""report/index.html: one file with everything in it."""

import os

import jinja2

from . import plot, targets
from .contenders import contender
from .plan import BOTH, SAME, SHIPPED

HERE = os.path.dirname(os.path.abspath(__file__))


def headings(settings):
    return {SHIPPED: "Each as shipped", SAME: f"All under {settings['congestion']}", BOTH: ""}


def better(figure):
    return "lower is better" if figure.lower_is_better else "higher is better"


def is_ours(name):
    return name.startswith(("weft", "dropin", "register", "post"))


class Footnotes:
    """Errors are said once for each table, and cells refer to them."""

    def __init__(self):
        self.texts = []

    def number(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def cell_view(figure, one, key, notes):
    summary = one.points.get(key)
    if summary is None:
        error = one.errors.get(key)
        if error is None:
            return {"text": "", "range": "", "title": ""}
        return {"text": f"failed [{notes.number(error)}]", "range": "", "title": error}
    low, high = (plot.number(v / figure.scale) for v in (summary.low, summary.high))
    middle = plot.number(summary.median / figure.scale)
    return {"text": middle, "range": f"{low}–{high}" if summary.count > 1 and low != high else "",
            "title": f"median of {summary.count}"}


def figure_view(figure, names):
    notes = Footnotes()
    groups = []
    for column, series in figure.columns.items():
        rows = [{"label": contender(one.contender).label, "ours": is_ours(one.contender),
                 "cells": [cell_view(figure, one, key, notes) for key, _ in figure.xs]}
                for one in series]
        groups.append({"heading": names[column], "rows": rows})
    plots, legend = [], []
    if figure.plot and len(figure.xs) > 1:
        for column, series in figure.columns.items():
            if figure.drawn is not None:
                series = [one for one in series if one.contender in figure.drawn]
            drawn = plot.svg(figure, series, f"{figure.title}. {names[column]}")
            if drawn:
                plots.append({"heading": names[column], "svg": drawn})
            legend += [one.contender for one in series if one.points]
    legend = [{"key": plot.key(n), "label": contender(n).label} for n in dict.fromkeys(legend)]
    return {"title": figure.title, "unit": figure.unit, "better": better(figure), "plots": plots,
            "legend": legend, "xs": [label for _, label in figure.xs], "groups": groups,
            "x_title": figure.x_title, "note": figure.note, "command": figure.command,
            "errors": [f"[{i}] {text}" for i, text in enumerate(notes.texts, 1)]}


def target_view(outcome):
    ratio = outcome.ratio
    return {"workload": outcome.target.workload, "name": outcome.target.name,
            "wanted": outcome.wanted(), "ratio": plot.number(ratio[0]) if ratio else "–",
            "range": f"{plot.number(ratio[1])}–{plot.number(ratio[2])}"
            if ratio and ratio[1] != ratio[2] else "",
            "verdict": outcome.verdict(), "why": outcome.why,
            "css": {True: "met", False: "missed", None: "open"}[outcome.met]}


def view(report):
    """Everything the templates show, as plain values."""
    names = headings(report.settings)
    sections = []
    for section in report.sections:
        figures = [figure_view(f, names) for f in section.figures if not f.empty()]
        sections.append({"name": section.name, "number": section.number, "title": section.title,
                         "about": " ".join(section.about.split()), "notes": section.notes,
                         "figures": figures})
    judged = [o for o in report.outcomes if o.met is not None]
    return {"lead": report.lead(), "warnings": report.warnings(),
            "targets": [target_view(o) for o in report.outcomes
                        if o.met is not None or o.why != targets.NOT_IN_RUN],
            "met": sum(bool(o.met) for o in judged), "judged": len(judged),
            "unmeasured": sum(o.why == targets.NOT_IN_RUN for o in report.outcomes),
            "sections": sections,
            "conditions": report.conditions_line(), "machine": report.machine_rows(),
            "versions": report.versions, "command": report.command,
            "duration": report.duration_text()}


def render(report):
    loader = jinja2.FileSystemLoader(HERE)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    with open(os.path.join(HERE, "page.css"), encoding="utf-8") as file:
        style = file.read()
    template = environment.get_template("page.html.j2")
    return template.render(style=jinja2.utils.markupsafe.Markup(style), **view(report))
