"""The figure of an audit: which errors a claim leaves an adversary, and which one has made.

Both axes are normal deviates, as in detection error trade-off curves (Martin et al. 1997): what
mu-Gaussian privacy leaves is a straight line there, and rare errors can be seen too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from scipy.special import ndtr, ndtri

from desim.arrays import Array
from desim.experiments.audit.verdict import Finding
from desim.interface.plots.style import COLOURS, STYLE, new_axes, save

LOW, HIGH = 5e-4, 0.97  # ends of both axes
TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95)


def plot_audit(
    findings: Sequence[Finding],
    old: Array,
    new: Array,
    out: str | Path | None = None,
    of: str = "runs",
) -> Axes:
    """Draw the trade-off of the errors in the runs, old and new (n,), against each claim.

    A curve is the least that its claim leaves; errors that are certified to lie below it refute it.
    out: a file, its suffix says which format; in a notebook the figure shows itself without it; of:
    runs on D and D', or canaries of one run, which hold their second or their first record.
    """
    with matplotlib.rc_context({**STYLE, "figure.figsize": (4.6, 4.0)}):
        axes = new_axes(interactive=out is None)
        _draw_runs(axes, old, new, of)
        for number, finding in enumerate(findings):
            _draw_claim(axes, finding, COLOURS[number % len(COLOURS)], number)
        _draw_event(axes, findings)
        _dress(axes, of)
        if out is not None:
            save(axes, Path(out))
    return axes


def _draw_runs(axes: Axes, old: Array, new: Array, of: str) -> None:
    """The errors at every threshold, seen in the runs or canaries themselves."""
    thresholds = np.unique(np.concatenate([old, new]))
    alarms = 1.0 - np.searchsorted(np.sort(old), thresholds, side="right") / len(old)
    misses = np.searchsorted(np.sort(new), thresholds, side="right") / len(new)
    inside = (alarms > 0.0) & (misses > 0.0) & (alarms < 1.0) & (misses < 1.0)
    axes.plot(
        ndtri(alarms[inside]), ndtri(misses[inside]), color="#444444", linewidth=1.1, zorder=5,
        label=f"the adversary, {len(old)} + {len(new)} {of}",
    )  # fmt: skip


def _draw_claim(axes: Axes, finding: Finding, colour: str, number: int) -> None:
    """The claim's curve, and the errors below it, which it rules out."""
    claim = finding.claim
    text = f"{claim.name} ε = {claim.epsilon:.4g}: {finding.verdict}"
    if np.isinf(claim.epsilon):
        axes.plot([], [], color=colour, label=text.replace("= inf", "infinite"))
        return
    deviates = np.linspace(ndtri(LOW), ndtri(HIGH), 400)
    bottom = np.full_like(deviates, ndtri(LOW))
    least = np.clip(claim.misses(ndtr(deviates)), 1e-12, 1.0 - 1e-12)
    curve = np.maximum(ndtri(least), bottom - 1.0)
    axes.plot(deviates, curve, color=colour, zorder=4 + number / 10, label=text)
    axes.fill_between(deviates, bottom, curve, color=colour, alpha=0.08, linewidth=0)


def _draw_event(axes: Axes, findings: Sequence[Finding]) -> None:
    """The errors that are certified, those of the event that comes nearest to refuting a claim."""
    tests = [(test, finding) for finding in findings for test in finding.tests if test.certified]
    if not tests:
        return
    test, finding = max(tests, key=lambda pair: pair[0].low / max(pair[0].claimed, 1e-12))
    shown: Any = test.certified
    corner = np.clip([float(shown.old), 1.0 - float(shown.new)], LOW, HIGH)
    axes.plot(
        *ndtri(corner), marker="o", markersize=5.5, color="black", markeredgecolor="white",
        linestyle="", zorder=6, clip_on=False,
        label=f"certified at {100 * (1 - finding.level):g} %: errors at most these",
    )  # fmt: skip


def _dress(axes: Axes, of: str) -> None:
    places = ndtri(np.array(TICKS))
    words = [f"{100 * tick:g} %" for tick in TICKS]
    axes.set_xticks(places, words)
    axes.set_yticks(places, words)
    axes.set_xlim(ndtri(LOW), ndtri(HIGH))
    axes.set_ylim(ndtri(LOW), ndtri(HIGH))
    one, other = ("on D", "D'") if of == "runs" else ("of one record", "the other")
    axes.set_xlabel(f"false alarms: {of} {one} taken for {other}")
    one, other = ("on D'", "D") if of == "runs" else ("of the other", "the one")
    axes.set_ylabel(f"misses: {of} {one} taken for {other}")
    axes.text(
        0.03, 0.03, "ruled out by the claims", transform=axes.transAxes, fontsize=8, color="#444444"
    )  # fmt: skip
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=1)
