"""Who gets a positive decision: rates on test rows, whole and by group, and how far apart they are.

Demographic parity asks for equal rates in both groups (Dwork et al. 2012); risk_difference is the
distance from it, |P(positive | protected) - P(positive | others)| (Zliobaite 2015). A model that
accepts nobody has no risk difference either: read it beside accuracy and positive_rate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError

if TYPE_CHECKING:
    from desim.problem.problem import Problem

Groups = NDArray[np.bool_]  # (rows,) whether a test row is in the group


def _rate(decided: Groups, right: Groups, group: Groups) -> float:
    return float(np.mean(decided[group]))


def _accuracy(decided: Groups, right: Groups, group: Groups) -> float:
    return float(np.mean(right[group]))


def _difference(decided: Groups, right: Groups, group: Groups) -> float:
    return abs(_rate(decided, right, group) - _rate(decided, right, ~group))


MEASURES: dict[str, Callable[[Groups, Groups, Groups], float]] = {
    "positive_rate": lambda decided, right, group: float(np.mean(decided)),
    "risk_difference": _difference,
    "positive_rate_protected": _rate,
    "positive_rate_others": lambda decided, right, group: _rate(decided, right, ~group),
    "accuracy_protected": _accuracy,
    "accuracy_others": lambda decided, right, group: _accuracy(decided, right, ~group),
}

OF_CLIENTS = (  # on each client's own test rows: desim.problem.own_tests
    "client_accuracy", "client_accuracy_weighted", "client_accuracy_worst_decile",
    "client_accuracy_min", "client_accuracy_spread", "client_loss",
)  # fmt: skip
OF_TESTS = frozenset({"accuracy", *MEASURES, *OF_CLIENTS})  # metrics of test rows
RISING = frozenset({"accuracy", "accuracy_protected", "accuracy_others", *OF_CLIENTS[:4]})  # better


def measure(name: str, problem: "Problem", x: Array) -> float:
    """Metric `name` of MEASURES for a linear model x (dim,) on the test rows (0 counts as 1)."""
    A, b, group = problem.test_A, problem.test_b, problem.test_protected
    found = lacking(name, problem)
    if found or A is None or b is None:
        raise InputError(f"observe.metrics: {found}")
    decided = A @ x >= 0.0
    members = np.ones(len(b), bool) if group is None else group > 0.0
    return MEASURES[name](decided, decided == (b > 0.0), members)


def lacking(name: str, problem: "Problem") -> str:
    """What a problem lacks for metric `name` of MEASURES, in words; nothing lacking: ''."""
    if not problem.loss.classification:
        return f"{name} has no meaning for {problem.loss.name} loss"
    if problem.test_A is None or problem.test_b is None:
        return f"{name} needs test rows; set problem.data.test"
    if problem.dim != problem.A.shape[1]:
        return f"{name} needs a linear model of two classes; found {problem.loss.name}"
    if problem.test_protected is None and name != "positive_rate":
        return f"{name} needs two groups; set problem.data.protected"
    return ""
