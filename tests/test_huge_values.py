"""Data near the ends of what numbers hold: said in words, without a warning of a library's own."""

from contextlib import suppress

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant

import desim
from desim.errors import DesimError
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import Loss
from desim.problem.optimum import centralised_optimum, proximal_newton
from desim.problem.optimum.proximal_newton import taken_apart
from desim.problem.problem import Problem
from desim.scenario.build import build

METRICS = ["loss", "consensus", "gradient"]
PLT = {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 2}}
MADE = {
    "auto": star(algorithm=PLT),
    "accelerated": star(algorithm={**PLT, "local": {"solver": "accelerated", "epochs": 2}}),
    "a number": star(algorithm={**PLT, "local": {"epochs": 2, "step": 0.1}}),
    "graph": graph(network={"topology": "ring"}),
}
HUGE = {
    "A": lambda A, b: A.__setitem__((1, 2, 0), 1e200),
    "all of A": lambda A, b: A.__setitem__(..., 9e99 * np.sign(A)),
    "a column": lambda A, b: A.__setitem__((..., 1), 9e99),
    "b": lambda A, b: b.__setitem__((0, 1), 9e99),
    "tiny": lambda A, b: A.__setitem__(..., 5e-324),
}


def data(folder, huge, loss):
    """An npz file of three agents with some values out of all proportion."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 4))
    b = np.sign(b) if loss == "logistic" else b
    HUGE[huge](A, b)
    np.savez(folder / "huge.npz", A=A, b=b)
    return {"source": "npz", "file": str(folder / "huge.npz")}


KINDS = [(loss, huge) for huge in HUGE for loss in ("squared", "huber", "logistic")]
KINDS.remove(("logistic", "b"))  # its labels are signs


@pytest.mark.thin(3)
@pytest.mark.parametrize(("loss", "huge"), KINDS)
@pytest.mark.parametrize("made", MADE)
def test_nothing_but_words_is_said(made, loss, huge, tmp_path, capfd):
    """Warnings are errors here; what LAPACK prints by itself goes past Python."""
    scenario = {**MADE[made], "problem": {"data": data(tmp_path, huge, loss), "loss": loss}}
    scenario.pop("privacy", None)
    for metrics in (METRICS, [*METRICS, "error"]):
        scenario["observe"], scenario["stop"] = {"metrics": metrics}, {"rounds": 2}
        with suppress(DesimError):
            desim.run(scenario)
    assert capfd.readouterr() == ("", "")


def problem(value, loss="squared"):
    A = np.random.default_rng(1).normal(size=(12, 3))
    A[3] = value
    b = np.sign(A[:, 1]) if loss == "logistic" else A[:, 0] + 1.0
    return Problem(A, b, np.array([0, 4, 8, 12]), Loss(loss), "mean", Regularizer(l2=1.0))


@pytest.mark.parametrize("value", [1e155, 1e160, 1e200, 1e300, 1.7e308])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_no_optimum_is_certified_relative_to_an_infinite_size(value, loss, capfd):
    with pytest.raises(DesimError, match=r"optimum of the problem was not found .* scale the feat"):
        centralised_optimum(problem(value, loss))
    assert capfd.readouterr() == ("", "")


def test_a_certificate_over_an_infinite_size_would_be_believed(capfd):
    """Zero is no optimum of labels that are not zero."""
    twin = mutant(proximal_newton, "subgradient + gap + size + height", "subgradient + gap")
    found = twin.minimise(*taken_apart(problem(1e154, "logistic")))
    assert found.relative <= proximal_newton.EXACT
    assert capfd.readouterr() == ("", "")


def test_no_step_is_solved_for_out_of_infinite_numbers(capfd):
    H = np.full((3, 3), np.inf)
    assert np.isnan(proximal_newton._newton_direction(np.ones(3), H)).all()
    step, change = proximal_newton._newton_step(H, np.zeros((0, 3)), np.ones(3), np.zeros(0))
    assert not step.any()
    assert not len(change)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("rows", [10**18, 2**62])
def test_sizes_beyond_any_address_are_refused_as_those_beyond_the_memory(rows):
    data = {"source": "synthetic", "kind": "regression", "rows": rows, "dim": 3}
    problem = {"agents": 4, "data": data, "loss": "squared"}
    with pytest.raises(
        DesimError, match=r"problem\.data .*: too large for the memory of this mach"
    ):
        build(desim.load(star(problem=problem)))
