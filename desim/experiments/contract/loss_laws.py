"""The laws of a loss of one row: three functions that fit together, convex, and learnt from."""

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, raised, refusal
from desim.experiments.audit.neighbours import SIZES
from desim.experiments.contract.stage import (
    DATA,
    LINK,
    BrokenError,
    Finding,
    SkippedError,
    demand_same,
    findings,
)
from desim.losses.plugged import PluggedLoss, ScalarLoss, plugged
from desim.problem.kernels.gradients import gradient
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import bends_into, slopes_into, values_into
from desim.problem.problem import Problem
from desim.runs.recording import run as play
from desim.scenario import registry

STEP = 1e-5  # of central differences, whose error is STEP^2 / 6 of a third derivative
NEAR = 1e-6  # relative, of differences to what they approximate
FAR = (1e2, 1e4, 1e6)
CUTS = (0.1, 1.0)
GRID = np.linspace(-8.0, 8.0, 1601) + 1e-3 * np.pi  # away from round numbers, where kinks are


@dataclass(frozen=True)
class LossStage:
    """A loss and the places at which it is looked at."""

    of: type[ScalarLoss]

    @cached_property
    def loss(self) -> PluggedLoss:
        """What desim computes with."""
        return plugged(self.of)

    @property
    def labels(self) -> tuple[float, ...]:
        """Labels that its rows may have."""
        return (-1.0, 1.0) if self.of.labels == "signs" else (-1.7, 0.0, 0.6)

    def each(self, kernel: object, u: Array, b: float, cut: float = np.inf) -> Array:
        """Values, slopes or bends (n,) at u (n,), slopes cut to `cut`."""
        out, alike = np.empty(len(u)), np.ones(len(u))
        kernel(self.loss.code, u, b * alike, self.loss.knee, cut * alike, out)  # type: ignore[operator]
        self.loss.verify()
        return out

    def rising(self, kernel: object, b: float, cut: float = np.inf) -> Array:
        """Derivatives of what `each` gives, on GRID, by central differences."""
        ahead, behind = (self.each(kernel, GRID + step, b, cut) for step in (STEP, -STEP))
        return (ahead - behind) / (2.0 * STEP)


def loss(name: str) -> Iterator[Finding]:
    """Check each law of the plug-in's loss of that name, in turn."""
    known = registry.plugged().losses
    if name not in known:
        raise InputError(f"loss: {refusal(name, ', '.join(known) or 'none is plugged in', known)}")
    return findings(LAWS, LossStage(known[name]))


def finite(stage: LossStage) -> str:
    """Near and far, it is a number."""
    far = np.array([sign * size for size in FAR for sign in (-1.0, 1.0)])
    u = np.concatenate([GRID, far])
    for b in stage.labels:
        for kernel, what in ((values_into, "value"), (slopes_into, "slope"), (bends_into, "bend")):
            odd = u[~np.isfinite(stage.each(kernel, u, b))]
            if len(odd):
                raise BrokenError(f"{what}({odd[0]:g}, {b:g}) is not finite")
    return f"value, slope and bend are numbers to |u| = {FAR[-1]:g}"


def raises(stage: LossStage) -> str:
    """No function raises, whatever the label: a row for which one does ends a run."""
    u = np.concatenate([GRID, FAR, np.negative(FAR)])
    signs = stage.of.labels == "signs"
    for b in stage.labels if signs else (*stage.labels, 1.0, 2.5, -40.0, 40.0, *FAR):
        for kernel in (slopes_into, bends_into, values_into):
            try:
                stage.each(kernel, u, b)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                text = (
                    f"{stage.of.__name__}.{place.name} raised {raised(error)} ({place.filename}, "
                )
                lines = [f"{text}line {place.lineno})", *getattr(error, "__notes__", ())]
                raise BrokenError("; ".join(lines)) from error
    return "of labels " + ("-1 and 1" if signs else "of all sizes")


def derivatives(stage: LossStage) -> str:
    """`slope` is the derivative of `value` and `bend` that of `slope`, away from kinks."""
    pairs = ((values_into, slopes_into, "slope"), (slopes_into, bends_into, "bend"))
    for b in stage.labels:
        smooth = np.abs(stage.rising(slopes_into, b)) < 1e3
        for of, claimed, what in pairs:
            found, said = stage.rising(of, b), stage.each(claimed, GRID, b)
            odd = smooth & (np.abs(found - said) > NEAR * (1.0 + np.abs(said)))
            if odd.any():
                at = int(np.argmax(odd))
                values = f"{said[at]:.6g}, differences give {found[at]:.6g}"
                raise BrokenError(f"{what}({GRID[at]:.4g}, {b:g}) is {values}")
    return "slope and bend are the derivatives, by central differences"


def convex(stage: LossStage) -> str:
    """The slope never falls: the bisection of clipping and every claim rest on that."""
    for b in stage.labels:
        slopes = stage.each(slopes_into, GRID, b)
        falls = np.diff(slopes) < -1e-12 * (1.0 + np.abs(slopes[1:]))
        if falls.any():
            at = int(np.argmax(falls))
            raise BrokenError(f"the slope falls between u = {GRID[at]:.4g} and {GRID[at + 1]:.4g}")
    return "its slope never falls"


def curvature(stage: LossStage) -> str:
    """No bend is above what `curvature` says: steps come from it."""
    most = max(float(stage.each(bends_into, GRID, b).max()) for b in stage.labels)
    jump = max(float(np.abs(stage.rising(slopes_into, b)).max()) for b in stage.labels)
    said = stage.of.curvature
    if not said > 0.0:
        raise BrokenError(f"curvature is {said:g}; allowed: > 0, or inf where the slope jumps")
    if max(most, jump) > said * (1.0 + NEAR):
        raise BrokenError(f"curvature is {said:g}, but the slope rises by {max(most, jump):.4g}")
    return "the slope may jump" if np.isinf(said) else f"bends up to {most:.4g}, declared {said:g}"


def clips(stage: LossStage) -> str:
    """With a clip it is the convex function whose slopes are the clipped ones."""
    for b in stage.labels:
        for cut in CUTS:
            slopes = stage.each(slopes_into, GRID, b, cut)
            apart = np.abs(stage.rising(values_into, b, cut) - slopes) > NEAR * (1.0 + cut)
            odd = apart & (np.abs(stage.rising(slopes_into, b)) < 1e3)  # where it is smooth
            if (np.abs(slopes) > cut).any() or odd.any():
                at = GRID[int(np.argmax(odd))]
                raise BrokenError(f"clipped to {cut:g} its value and slope part at u = {at:.4g}")
    return f"clipped slopes are those of the clipped value{_bounded(stage)}"


def _bounded(stage: LossStage) -> str:
    """How many rows without measure were tried; BrokenError where one adds more than the clip."""
    rng = np.random.default_rng(8)
    A, labels, none, tried = rng.normal(size=(5, 3)), rng.choice(stage.labels, 5), Regularizer(), 0
    for size in (0.0, *FAR, *SIZES):
        for a, b in ((size * np.ones(3), labels[0]), (A[0], size)):
            if b not in stage.labels and stage.of.labels == "signs":
                continue
            rows, start = np.vstack([A, a]), np.array([0, 5, 6])
            all_ = np.append(labels, b)
            problem = Problem(rows, all_, start, stage.loss, "mean", none, none, CUTS[0])
            with np.errstate(all="ignore"):
                found = gradient(np.array([1]), rng.normal(size=(1, 3)), problem.data)
            if not np.linalg.norm(found) <= CUTS[0] * (1.0 + NEAR):
                text = f"a row {a[0]:g} ... with label {b:g}, cut to {CUTS[0]:g}, has a gradient of"
                raise BrokenError(f"{text} norm {np.linalg.norm(found):.4g}")
            tried += 1
    return f"; no cut gradient of {tried} rows without measure is longer"


def gradients(stage: LossStage) -> str:
    """The kernels' gradient of a whole problem is that of its objective."""
    rng = np.random.default_rng(7)
    A, labels = rng.normal(size=(12, 4)), rng.choice(stage.labels, 12)
    none = Regularizer()
    problem = Problem(A, labels, np.array([0, 5, 12]), stage.loss, "mean", none, none, np.inf)
    x, step = rng.normal(size=4), np.eye(4) * STEP
    found = [(problem.objective(x + e) - problem.objective(x - e)) / (2.0 * STEP) for e in step]
    apart = float(np.abs(np.array(found) - problem.total_gradient(x)).max())
    if apart > 10.0 * NEAR:
        raise BrokenError(f"the kernels' gradient is {apart:.3g} off that of the objective")
    return "the kernels' gradient is that of the objective"


def learns(stage: LossStage) -> str:
    """Fed-PLT, or zCDP-NFL where there are kinks, learns with it; engines give the same bits."""
    kind = "classification" if stage.of.labels == "signs" else "regression"
    data = {**DATA, "kind": kind}
    scenario: dict[str, Any] = {
        "seed": 3,
        "problem": {"agents": 6, "data": data, "loss": stage.of.name, "regularizer": {"l2": 1.0}},
        "algorithm": {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 5}},
        "network": {"link": LINK},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 40},
    }
    if not stage.loss.smooth:
        scenario["algorithm"] = {"name": "zcdp-nfl", "rho": 0.3, "eta": 0.2}
        scenario["network"] = {"topology": "ring", "link": LINK}
    one, other = (play({**scenario, "engine": engine}) for engine in ("cohort", "agents"))
    demand_same(one, other, "engines cohort and agents")
    losses = one.metrics[one.metrics["agent"] == -1]["value"].to_numpy()
    if not losses[-1] < losses[0]:
        raise BrokenError(f"the loss does not fall: {losses[0]:.4g} to {losses[-1]:.4g}")
    return f"{scenario['algorithm']['name']}: loss {losses[0]:.4g} to {losses[-1]:.4g}"


def optimum(stage: LossStage) -> str:
    """The metric error has an optimum to be measured from."""
    if not stage.loss.smooth:
        raise SkippedError("it has kinks: use other metrics than error")
    from desim.problem.optimum import centralised_optimum

    rng = np.random.default_rng(9)
    A, labels = rng.normal(size=(20, 3)), rng.choice(stage.labels, 20)
    ridge, none = Regularizer(0.0, 0.5), Regularizer()
    start = np.array([0, 10, 20])
    found = centralised_optimum(Problem(A, labels, start, stage.loss, "mean", ridge, none, np.inf))
    return f"its minimum is found, to {found.certificate:.1e}"


LAWS = tuple(
    (law.__name__, law)
    for law in (raises, finite, derivatives, convex, curvature, clips, gradients, optimum, learns)
)
