"""Line plots as SVG. Text and lines take their colors from the page's style sheet, so that they
follow its dark mode and print well."""

import html
import math

from .contenders import contender

WIDTH, HEIGHT = 430, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 24, 40
MOST_X_LABELS = 7


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


class Axes:
    """`series`: of all plots of a figure, so that they have the same scale."""

    def __init__(self, figure, series):
        values = [(s.median / figure.scale) for one in series for s in one.points.values()]
        self.log = figure.log and all(v > 0 for v in values)
        low, high = min(values), max(values)
        self.ticks = log_ticks(low, high) if self.log else linear_ticks(high, low)
        if figure.linear_x:
            numbers = [float(key) for key, _ in figure.xs]
            self.shares = [n / max(numbers) * 0.96 for n in numbers]
        else:
            self.shares = [(i + 0.5) / len(figure.xs) for i in range(len(figure.xs))]

    def x(self, index):
        return LEFT + (WIDTH - LEFT - RIGHT) * self.shares[index]

    def y(self, value):
        low, high = self.ticks[0], self.ticks[-1]
        if self.log:
            share = (math.log10(max(value, low)) - math.log10(low)) / \
                (math.log10(high) - math.log10(low) or 1)
        else:
            share = (value - low) / ((high - low) or 1)
        share = min(max(share, 0), 1)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _mark(shape, x, y, color, title):
    about = f"<title>{html.escape(title)}</title>"
    if shape == "square":
        return (f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" '
                f'class="f-{color}">{about}</rect>')
    if shape == "diamond":
        return (f'<path d="M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z" '
                f'class="f-{color}">{about}</path>')
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.3" class="f-{color}">{about}</circle>'


def _grid(axes, figure):
    out = []
    for tick in axes.ticks:
        y = axes.y(tick)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                   f'class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{tick_text(tick)}</text>')
    every = math.ceil(len(figure.xs) / MOST_X_LABELS)
    for index, (_, label) in enumerate(figure.xs):
        if index % every == 0:
            out.append(f'<text x="{axes.x(index):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                       f'text-anchor="middle">{html.escape(label)}</text>')
    if figure.x_title:
        out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" '
                   f'class="soft">{html.escape(figure.x_title)}</text>')
    out.append(f'<text x="4" y="13" class="soft">{html.escape(figure.unit)}</text>')
    return out


def _line(axes, figure, one):
    look = contender(one.contender)
    places = []
    for index, (key, label) in enumerate(figure.xs):
        if key in one.points:
            value = one.points[key].median / figure.scale
            title = f"{look.label}, {label}: {number(value)} {figure.unit}"
            places.append((axes.x(index), axes.y(value), title))
    out = []
    if len(places) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
        dash = " dash" if look.dash else ""
        out.append(f'<path d="M{path}" class="l-{look.color}{dash}"/>')
    out += [_mark(look.mark, x, y, look.color, title) for x, y, title in places]
    return out


def drawn(figure, series):
    """Those that have something to draw."""
    return [one for one in series if one.points
            and (figure.drawn is None or one.contender in figure.drawn)]


def svg(figure, series, everybody, title):
    """A plot of `series`, on the scale of `everybody`."""
    axes = Axes(figure, everybody)
    parts = _grid(axes, figure)
    # Weft is drawn last, on top of the others.
    for one in sorted(series, key=lambda s: s.contender.startswith("weft")):
        parts += _line(axes, figure, one)
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
            + "".join(parts) + "</svg>")


def key(name):
    """The sample of a line that a legend shows."""
    look = contender(name)
    dash = " dash" if look.dash else ""
    return ('<svg viewBox="0 0 30 10" class="key">'
            f'<path d="M1 5L29 5" class="l-{look.color}{dash}"/>'
            + _mark(look.mark, 15, 5, look.color, look.label) + "</svg>")
