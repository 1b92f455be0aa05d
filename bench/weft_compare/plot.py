"""Line plots as SVG, drawn by matplotlib. Inside the page, text and lines take their colors from
its style sheet, so that they follow its dark mode and print well; a plot by itself brings its
colors along."""

import html
import io
import math
import re

import matplotlib
import matplotlib.figure
import matplotlib.lines

from .contenders import contender

WIDTH_IN, HEIGHT_IN = 4.3, 2.7     # at 100 units of the SVG to an inch
KEY_IN = (0.30, 0.10)
MOST_X_LABELS = 7
MARKS = {"dot": "o", "square": "s", "diamond": "D"}
MARK_SIZES = {"dot": 5.0, "square": 4.6, "diamond": 4.6}

# Light and dark colors of page.css, for plots outside the page.
COLORS = {
    "weft": ("#0b57d0", "#7aa7ff"), "read": ("#00838f", "#4dd0e1"), "send": ("#6a1b9a", "#ce93d8"),
    "batch": ("#1b9e4b", "#69d58c"), "dropin": ("#c2185b", "#f48fb1"), "tcp": ("#222b38", "#eceff4"),
    "other": ("#7b8794", "#8d99a8"), "ucx": ("#e37400", "#ffb04d"), "fabric": ("#8d6e63", "#c9aea3"),
    "ink": ("#1b2330", "#e4e8ee"), "soft": ("#5d6878", "#9aa5b4"), "line": ("#d9dee6", "#2d3542"),
}
# matplotlib draws with a color of its own for each name. It is then replaced by the style sheet's
# variable of that name.
STAND_INS = {name: f"#0100{index:02x}" for index, name in enumerate(COLORS, 1)}

STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "weft", "font.family": "sans-serif", "font.size": 8,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False,
    "axes.edgecolor": STAND_INS["line"], "axes.grid": True, "axes.grid.axis": "y",
    "axes.axisbelow": True, "grid.color": STAND_INS["line"], "grid.linewidth": 0.7,
    "xtick.color": STAND_INS["ink"], "ytick.color": STAND_INS["ink"], "xtick.major.size": 0,
    "ytick.major.size": 0, "lines.linewidth": 1.5, "lines.solid_joinstyle": "round",
    "legend.frameon": False, "legend.fontsize": 8, "text.color": STAND_INS["ink"],
}


def number(value):
    """Three significant digits, without noise."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}".replace(",", "\u202f")
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    digits = min(6, 2 - math.floor(math.log10(size)))
    return f"{value:.{digits}f}"


def tick_text(value):
    if value >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.8f}".rstrip("0").rstrip(".") or "0"


def log_ticks(low, high):
    """1, 10, 100..., with 2 and 5 between where there is room. The range is what they span."""
    low, high = max(low, 1e-9), max(high, 1e-9)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [s * 10.0**p for p in range(first, last + 1) for s in steps]
    lowest = max(t for t in ticks if t <= low * 1.0001)
    highest = min((t for t in ticks if t >= high * 0.9999), default=ticks[-1])
    return [t for t in ticks if lowest <= t <= highest]


def linear_ticks(high, low=0.0):
    span = max(high - min(low, 0), 1e-9)
    raw = span / 4
    power = 10.0**math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw)
    first = math.floor(min(low, 0) / step)
    count = math.ceil(high / step)
    return [i * step for i in range(first, max(count, 1) + 1)]


def _scale_y(axes, figure, series):
    """The same for all plots of a figure: `series` are those of all of them."""
    values = [(s.median / figure.scale) for one in series for s in one.points.values()]
    log = figure.log and all(v > 0 for v in values)
    low, high = min(values), max(values)
    ticks = log_ticks(low, high) if log else linear_ticks(high, low)
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, [tick_text(t) for t in ticks])
    axes.set_yticks([], minor=True)


def _places_x(figure):
    if figure.linear_x:
        return [float(key) for key, _ in figure.xs]
    return list(range(len(figure.xs)))


def _scale_x(axes, figure):
    places = _places_x(figure)
    every = math.ceil(len(places) / MOST_X_LABELS)
    labels = [_literal(label) for _, label in figure.xs]
    axes.set_xticks(places[::every], labels[::every])
    if figure.linear_x:
        axes.set_xlim(0, max(places) / 0.96)
    else:
        axes.set_xlim(-0.5, len(places) - 0.5)


def _literal(text):
    """matplotlib reads $...$ as a formula."""
    return text.replace("$", r"\$")


def _line(axes, figure, one, tips):
    """Draws one contender, and adds what is to be shown at each mark to `tips`."""
    look = contender(one.contender)
    color = STAND_INS[look.color]
    places = [(x, key, label) for x, (key, label) in zip(_places_x(figure), figure.xs)
              if key in one.points]
    values = [one.points[key].median / figure.scale for _, key, _ in places]
    xs = [x for x, _, _ in places]
    if len(xs) > 1:
        axes.plot(xs, values, color=color, linestyle=(0, (3.5, 2)) if look.dash else "-")
    for (x, _, label), value in zip(places, values):
        axes.plot([x], [value], color=color, marker=MARKS[look.mark], clip_on=False, zorder=3,
                  markersize=MARK_SIZES[look.mark], markeredgewidth=0, gid=f"tip-{len(tips)}")
        tips.append(f"{look.label}, {label}: {number(value)} {figure.unit}")


def _text(figure_drawn, tips, title, css):
    """The SVG of a figure of matplotlib: without a frame for a file, with titles at the marks."""
    out = io.StringIO()
    figure_drawn.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)
    for name, stand_in in STAND_INS.items():
        text = text.replace(stand_in, css(name))
    for index, tip in enumerate(tips):
        text = text.replace(f'<g id="tip-{index}">', f"<g><title>{html.escape(tip)}</title>", 1)
    return text


def _variable(name):
    return f"var(--{name})"


def drawn(figure, series):
    """Those that have something to draw."""
    return [one for one in series if one.points
            and (figure.drawn is None or one.contender in figure.drawn)]


def _ours_last(series):
    """Weft is drawn last, on top of the others."""
    return sorted(series, key=lambda s: s.contender.startswith("weft"))


def _axes(figure, series, everybody, tips, size):
    whole = matplotlib.figure.Figure(figsize=size, layout="constrained")
    axes = whole.add_subplot()
    _scale_y(axes, figure, everybody)
    _scale_x(axes, figure)
    for one in _ours_last(series):
        _line(axes, figure, one, tips)
    axes.set_title(_literal(figure.unit), loc="left", fontsize=8, color=STAND_INS["soft"])
    if figure.x_title:
        axes.set_xlabel(_literal(figure.x_title), color=STAND_INS["soft"])
    return whole, axes


def svg(figure, series, everybody, title):
    """A plot of `series`, on the scale of `everybody`, for the page."""
    with matplotlib.rc_context(STYLE):
        tips = []
        whole, _ = _axes(figure, series, everybody, tips, (WIDTH_IN, HEIGHT_IN))
        return _text(whole, tips, title, _variable)


def key(name):
    """The sample of a line that a legend of the page shows."""
    look = contender(name)
    with matplotlib.rc_context(STYLE):
        whole = matplotlib.figure.Figure(figsize=KEY_IN)
        whole.add_artist(matplotlib.lines.Line2D(
            [0.03, 0.5, 0.97], [0.5, 0.5, 0.5], color=STAND_INS[look.color], markevery=[1],
            linestyle=(0, (3.5, 2)) if look.dash else "-", marker=MARKS[look.mark],
            markersize=MARK_SIZES[look.mark], markeredgewidth=0))
        return _text(whole, [], look.label, _variable).replace("<svg", '<svg class="key"', 1)


def picture(figure, series, title):
    """A file of its own: title, legend, and colors for light and dark."""
    light = "".join(f"--{name}:{pair[0]};" for name, pair in COLORS.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in COLORS.items())
    style = (f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>")
    with matplotlib.rc_context({**STYLE, "font.size": 9}):
        whole, axes = _axes(figure, series, series, [], (7.2, 3.6))
        whole.suptitle(_literal(title), x=0.01, ha="left", fontsize=11)
        looks = [contender(one.contender) for one in _ours_last(series)]
        axes.legend(handles=[matplotlib.lines.Line2D(
            [], [], color=STAND_INS[look.color], marker=MARKS[look.mark], label=look.label,
            markersize=MARK_SIZES[look.mark], markeredgewidth=0,
            linestyle=(0, (3.5, 2)) if look.dash else "-") for look in looks],
            loc="upper left", bbox_to_anchor=(1.01, 1.02))
        text = _text(whole, [], title, _variable)
    at = text.index(">") + 1
    return text[:at] + style + text[at:]
