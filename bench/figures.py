"""Figures and tables of documents: medians with their range, ratios of pairs, a mark where a goal is missed."""

import statistics


def median(values):
    return statistics.median(values)


def ratios(above, below):
    """Of the pairs of one round each."""
    return [one / other for one, other in zip(above, below)]


def spread(values, digits=2):
    """Median and range; a single value has none."""
    middle = f"{median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def judged(values, digits=2, most=None, least=None):
    """A spread; ✗ where its median misses the goal."""
    missed = (most is not None and median(values) > most) or (least is not None and median(values) < least)
    return spread(values, digits) + (" ✗" if missed else "")


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]
