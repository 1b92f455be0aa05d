"""report/index.html: one file with everything in it."""

import os

import jinja2

from . import plot, targets
from .contenders import contender, order
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


def row_view(figure, one, notes):
    return {"label": contender(one.contender).label, "ours": is_ours(one.contender),
            "cells": [cell_view(figure, one, key, notes) for key, _ in figure.xs]}


def group_views(figure, names, notes):
    """One group of rows for each column; before them those that are the same in both."""
    columns = list(figure.columns.items())
    if len(columns) < 2:
        return [{"heading": names[column],
                 "rows": [row_view(figure, one, notes) for one in series]}
                for column, series in columns]
    common = [one for one in columns[0][1] if one in columns[1][1]]
    groups = [{"heading": "In both columns",
               "rows": [row_view(figure, one, notes) for one in common]}]
    for column, series in columns:
        groups.append({"heading": names[column],
                       "rows": [row_view(figure, one, notes) for one in series
                                if one not in common]})
    return [group for group in groups if group["rows"]]


def plot_views(figure, names):
    """(plots, contenders drawn)"""
    if not figure.plot or len(figure.xs) < 2:
        return [], []
    parts = {c: plot.drawn(figure, series) for c, series in figure.columns.items()}
    everybody = [one for series in parts.values() for one in series]
    plots = [{"heading": names[column] if len(parts) > 1 else "",
              "svg": plot.svg(figure, series, everybody, f"{figure.title}. {names[column]}")}
             for column, series in parts.items() if series]
    return plots, list(dict.fromkeys(one.contender for one in everybody))


def figure_view(figure, names):
    notes = Footnotes()
    groups = group_views(figure, names, notes)
    plots, shown = plot_views(figure, names)
    legend = [{"key": plot.key(n), "label": contender(n).label}
              for n in sorted(shown, key=order)]
    return {"title": figure.title, "unit": figure.unit, "better": better(figure), "plots": plots,
            "legend": legend, "xs": [label for _, label in figure.xs], "groups": groups,
            "x_title": figure.x_title, "note": figure.note, "command": figure.command,
            "conditions": figure.conditions,
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
