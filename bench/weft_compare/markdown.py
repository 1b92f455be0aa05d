"""report/report.md: the tables without plots, to paste elsewhere."""

from .page import view


def row(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def table(head, rows):
    return [row(head), row(["---"] * len(head)), *(row(r) for r in rows), ""]


def figure_lines(figure):
    lines = [f"### {figure['title']} ({figure['unit']}, {figure['better']})", ""]
    head = [figure["x_title"] or " ", *figure["xs"]]
    rows = []
    for group in figure["groups"]:
        if group["heading"]:
            rows.append([f"*{group['heading']}*", *[""] * len(figure["xs"])])
        for one in group["rows"]:
            rows.append([one["label"], *(c["text"] for c in one["cells"])])
    lines += table(head, rows)
    lines += [f"- {error}" for error in figure["errors"]]
    if figure["command"]:
        lines.append(f"`{figure['command']}`")
    return [*lines, ""]


def render(report):
    shown = view(report)
    lines = ["# Weft beside its rivals", "", shown["lead"], ""]
    for warning in shown["warnings"]:
        lines += [f"> **{warning['head']}** {warning['text']}", ""]
    lines += ["## Targets", ""]
    lines += table(["workload", "beside", "target", "ratio", "range", ""],
                   [[t["workload"], t["name"], t["wanted"], t["ratio"], t["range"],
                     t["verdict"] + (f": {t['why']}" if t["why"] else "")]
                    for t in shown["targets"]])
    for section in shown["sections"]:
        lines += [f"## {section['number']} {section['title']}", "", section["about"], ""]
        for note in section["notes"]:
            lines += [note, ""]
        for figure in section["figures"]:
            lines += figure_lines(figure)
    lines += ["## Conditions", ""]
    lines += table(["", ""], [*shown["machine"], *shown["versions"]])
    lines.append(f"Made by `{shown['command']}` in {shown['duration']}.")
    return "\n".join(lines) + "\n"
