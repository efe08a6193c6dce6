"""Text of the tables of docs/results/everyday.md."""

import statistics
import textwrap

# Characters of a line.
WIDTH = 150


def paragraph(text):
    """A paragraph, and the empty line behind it."""
    return [*textwrap.wrap(" ".join(text.split()), WIDTH), ""]


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def head(*names):
    return [row(*names), f"|{'---|' * len(names)}"]


def median(all, key):
    return statistics.median(one[key] for one in all)


def spread(values, digits=1):
    """The median, and the range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def spread_ms(all):
    """The same of times, ms."""
    return spread([one["s"] * 1e3 for one in all])


def marked(text, is_missed):
    """A figure, with a mark where the goal is missed."""
    return f"{text} ✗" if is_missed else text
