"""The cold-start picture: for each program a row on a logarithmic time axis with the cold start, the rivals, `ahead` and the bound.

    program   label │  ·····◦·······bound|··ahead●────────△──◇──□────────●cold     cold → ahead
                    └──────────────────────── seconds, logarithmic ───────────

One SVG for light pages and one for dark ones. The colours are those of the reports (crates/report/src/html/style.css).
The picture is 420 units wide, so that its text can be read where a phone shows it at that width.
"""

import math
import pathlib
import re
from xml.sax.saxutils import escape

STYLE = pathlib.Path(__file__).resolve().parent.parent.parent / "crates/report/src/html/style.css"
WIDTH, ROW, TOP, BOTTOM = 420, 30, 88, 40
LEFT, RIGHT = 92, 318
FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'


def colours(theme):
    """The colours of the reports' style sheet for `light` or `dark` pages, by name."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.S)
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[0]))
    if theme == "dark":
        found.update(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[1]))
    return found


def short(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Axis:
    """Seconds on a logarithmic axis from `least` to `most`."""

    def __init__(self, seconds):
        self.low, self.high = math.log10(min(seconds) / 1.15), math.log10(max(seconds) * 1.15)

    def x(self, seconds):
        return LEFT + (math.log10(seconds) - self.low) / (self.high - self.low) * (RIGHT - LEFT)

    def ticks(self):
        steps = [factor * 10.0**power for power in range(-3, 4) for factor in (1, 3)]
        inside = [step for step in steps if self.low <= math.log10(step) <= self.high]
        # At least 40 units apart: a label that would touch the previous label is omitted.
        kept = []
        for step in inside:
            if not kept or self.x(step) - self.x(kept[-1]) >= 40:
                kept.append(step)
        return kept


def mark(kind, x, y, r):
    """A rival's shape."""
    if kind == 0:
        points = [(x, y - r), (x + r, y + r * 0.8), (x - r, y + r * 0.8)]
    elif kind == 1:
        points = [(x - r * 0.85, y - r * 0.85), (x + r * 0.85, y - r * 0.85), (x + r * 0.85, y + r * 0.85), (x - r * 0.85, y + r * 0.85)]
    else:
        points = [(x, y - r * 1.15), (x + r * 1.15, y), (x, y + r * 1.15), (x - r * 1.15, y)]
    path = " ".join(f"{short(a)},{short(b)}" for a, b in points)
    return f'<polygon class="rival" points="{path}"/>'


def seconds(value):
    """Three significant digits at most."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def legend(names):
    """Two lines: the measured times, then the other prefetchers."""
    lines, x = [], 14
    for shape, text in [
        ('<circle class="cold" cx="{x}" cy="46" r="5"/>', "cold"),
        ('<circle class="ahead" cx="{x}" cy="46" r="6"/>', "with ahead"),
        ('<rect class="bound" x="{left}" y="38" width="3" height="16"/>', "bound (disk and CPU)"),
    ]:
        lines.append(shape.format(x=x + 6, left=x + 4))
        lines.append(f'<text x="{x + 16}" y="50.5">{text}</text>')
        x += 34 + len(text) * 7
    x = 14
    for kind, name in enumerate(names):
        lines.append(mark(kind, x + 6, 68, 5))
        lines.append(f'<text x="{x + 16}" y="72.5">{escape(name)}</text>')
        x += 36 + len(name) * 7
    return lines


def draw(title, programs, theme):
    """The SVG of `programs`: dicts with `name`, `cold`, `ahead`, `bound` (seconds or None) and `rivals` (name to seconds)."""
    every = [value for one in programs for value in (one["cold"], one["ahead"], one["bound"], *one["rivals"].values()) if value]
    axis = Axis(every)
    names = list(dict.fromkeys(name for one in programs for name in one["rivals"]))
    colour = colours(theme)
    bottom = TOP + ROW * len(programs)
    height = bottom + BOTTOM
    label = f"{title}: time to the end of the program, cold, with other prefetchers, with ahead"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}">',
        "<style>",
        f"text {{ font: 13px {FONT}; fill: {colour['ink']}; }}",
        f".title {{ font-weight: 650; font-size: 15px; }} .soft {{ fill: {colour['soft']}; font-size: 12px; }}",
        f".grid {{ stroke: {colour['grid']}; }} .span {{ stroke: {colour['ahead']}; stroke-opacity: 0.45; stroke-width: 3; }}",
        f".cold {{ fill: {colour['cold']}; }} .ahead {{ fill: {colour['ahead']}; }} .bound {{ fill: {colour['mark']}; }}",
        f".rival {{ fill: {colour['card']}; fill-opacity: 0.5; stroke: {colour['data']}; stroke-width: 1.6; }}",
        "</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="{colour["card"]}" stroke="{colour["rule"]}"/>',
        f'<text class="title" x="14" y="24">{escape(title)}</text>',
        *legend(names),
    ]
    for tick in axis.ticks():
        x = short(axis.x(tick))
        lines.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
        lines.append(f'<text class="soft" x="{x}" y="{bottom + 17}" text-anchor="middle">{tick:g} s</text>')
    for number, one in enumerate(programs):
        y = TOP + ROW * number + ROW / 2
        cold, ahead = axis.x(one["cold"]), axis.x(one["ahead"])
        lines.append(f'<text x="14" y="{short(y + 4.5)}">{escape(one["name"])}</text>')
        lines.append(f'<line class="span" x1="{short(ahead)}" y1="{short(y)}" x2="{short(cold)}" y2="{short(y)}"/>')
        for name, value in one["rivals"].items():
            lines.append(mark(names.index(name), axis.x(value), y, 5))
        # Drawn over the rivals: on a fast disk some of them take as long as a cold start.
        lines.append(f'<circle class="cold" cx="{short(cold)}" cy="{short(y)}" r="5"/>')
        if one["bound"]:
            lines.append(f'<rect class="bound" x="{short(axis.x(one["bound"]) - 1.5)}" y="{short(y - 8)}" width="3" height="16"/>')
        lines.append(f'<circle class="ahead" cx="{short(ahead)}" cy="{short(y)}" r="6"/>')
        lines.append(f'<text class="soft" x="{RIGHT + 12}" y="{short(y + 4.5)}">{seconds(one["cold"])} → {seconds(one["ahead"])} s</text>')
    lines.append(f'<text class="soft" x="14" y="{bottom + 33}">median time to the end of the program, logarithmic axis</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
