"""One row moves a clipped sum by no more than the clip, whatever its numbers are.

Rows too long for a type, gradients that are nan or infinite: who sees whether a run ends must not
learn of a record. The oracle is a bound, which gradients, training and estimates are held to.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.errors import InputError, RunError
from desim.experiments.audit import of_method
from desim.experiments.audit.pairs import ENDS
from desim.methods.shared import minimisation
from desim.problem.kernels import layered, modelled, sums
from desim.problem.kernels.gradients import batch_gradient, gradient
from desim.problem.kernels.local import train
from desim.problem.kernels.plan import plan_for
from desim.problem.kernels.zeroth import estimates
from desim.problem.losses import scalar
from desim.problem.losses.layers import LayeredLoss
from desim.problem.losses.scalar import Loss
from desim.problem.models import user_model as models
from desim.problem.models.user_model import Facts, Model, Rows
from desim.problem.problem import Problem, mean_losses
from desim.scenario import registry

CLIP, ROWS, FEATURES = 0.5, 6, 4
PLUGINS = Path(__file__).parent / "plugins"
LINEAR = {name: Loss(name) for name in ("squared", "absolute", "huber", "hinge", "logistic")}
LAYERED = {
    "softmax": LayeredLoss("softmax", classes=3),
    "sigmoid": LayeredLoss("mlp", classes=3, hidden=5),
    "relu": LayeredLoss("mlp", classes=3, hidden=5, activation="relu"),
}
SPOILED = {
    "long": np.full(FEATURES, 1e30),
    "signs": 3e38 * np.array([1.0, -1.0, 1.0, -1.0]),
    "one": np.array([1e37, 0.0, 0.0, 0.0]),
    "far": np.array([1e100, -1e100, 1.0, 0.0]),
    "square": np.full(FEATURES, 1e160),
    "short": np.array([1e-170, 0.0, 0.0, 0.0]),
    "none": np.zeros(FEATURES),
}


def problem(loss, row=None, label=None, precision="float64", average="mean", rows=ROWS):
    """One agent's rows, of which one is replaced."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(rows, FEATURES))
    b = rng.integers(0, 3, rows).astype(float) if not loss.linear else np.sign(A @ np.ones(4))
    if row is not None:
        A[2] = row
    b[2] = b[2] if label is None else label
    start = np.array([0, rows])
    return Problem(A, b, start, loss, average, clip=CLIP, precision=precision)


def places(dim):
    return np.random.default_rng(5).normal(size=(1, dim))


def moved(one, other, ask=None):
    """How far the gradients of two problems are apart, in clips of one row."""
    ask = ask or (lambda of: gradient([0], places(of.dim), of.data))
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(ask(one) - ask(other)) / (CLIP * one.scale[0]))


LABELS = {"squared": (None, 1e100, 1.7e308), "absolute": (None, -1e300), "huber": (None, 1e300)}


@pytest.mark.parametrize("name", LINEAR)
def test_a_row_of_a_linear_model_moves_a_gradient_by_the_clip(name):
    kept, shorter = problem(LINEAR[name]), problem(LINEAR[name], SPOILED["none"], 1.0)
    for row in (one for key, one in SPOILED.items() if key != "square"):  # refused: see below
        for label in LABELS.get(name, (None,)):
            for average in ("mean", "sum"):
                one = problem(LINEAR[name], row, label, average=average)
                assert moved(one, replace(kept, average=average)) <= 2.0 + 1e-9
                assert moved(one, replace(shorter, average=average)) <= 1.0 + 1e-9


def test_a_row_without_a_norm_is_no_row_of_a_clipped_linear_model():
    with pytest.raises(InputError, match=r"problem\.clip: found 0\.5, which is 0 when divided"):
        problem(LINEAR["squared"], SPOILED["square"])


def rows_of(kind):
    """Rows that arithmetic of this type can hold."""
    return {key: one for key, one in SPOILED.items() if np.abs(one).max() < np.finfo(kind).max}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", LAYERED)
def test_a_row_of_a_layered_model_moves_a_gradient_by_the_clip(name, precision):
    """As far as float32 tells 1 from 1 + 1e-5."""
    kept = problem(LAYERED[name], precision=precision)
    for row in rows_of(precision).values():
        one = problem(LAYERED[name], row, precision=precision)
        assert moved(one, kept) <= 2.0 + 1e-5


def test_long_rows_have_cut_gradients_with_all_their_digits():
    """1,000 rows of float32: what is left of a delta after cutting is no subnormal number."""
    for size in 10.0 ** np.arange(20, 38):
        row = np.array([size, 0.0, 0.0, 0.0])
        one = problem(LAYERED["softmax"], row, precision="float32", rows=1000)
        none = problem(LAYERED["softmax"], SPOILED["none"], precision="float32", rows=1000)
        assert moved(one, none) <= 1.0 + 1e-4  # of the sums of others, 1000 times as large


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if not (norm < np.inf and longest <= reach * reach):", "if norm == np.inf:"),
        ("if not (norm < np.inf and longest <= reach * reach):", "if not norm < np.inf:"),
        ("inner[h, k] = back[h, k] = 0.0", "back[h, k] = 0.0"),
        ("        out[h, k] = 0.0\n    for", "        pass\n    for"),
    ],
)
def test_wrong_cuts_of_layered_models_are_noticed(right, wrong):
    def cut(module):
        """Examples with nan, with inf, too long for the type, and a sound one (4, 4)."""
        for name in ("_square", "_forget"):
            setattr(module, name, getattr(module, name).py_func)
        square = np.array([1.0, 1.0, 1e76, 1.0])
        inner = np.array([[1.0], [np.inf], [1.0], [1.0]], np.float32)
        back, out = np.ones((4, 1), np.float32), np.ones((4, 2), np.float32)
        out[0] = np.nan
        with np.errstate(all="ignore"):
            module._weigh.py_func(square, CLIP, 1e-3, inner, back, out)
        return np.hstack([inner, back, out])

    found = cut(mutant(layered, '"""The layered part of values', '"""Part of values'))
    assert not found[:3].any()
    assert found[3].all()
    assert cut(mutant(layered, right, wrong))[:3].any()


@pytest.mark.parametrize("kind", ["relu", "logistic"])
def test_batches_and_training_stay_within_their_clips(kind):
    """A step goes no farther than a clip for each row times its length."""
    loss = LAYERED.get(kind) or LINEAR[kind]
    precision = "float32" if kind == "relu" else "float64"
    for row in rows_of("float32").values():
        one = problem(loss, row, precision=precision)
        x = places(one.dim)
        for solver in ("sgd", "gradient"):
            how = plan_for(1, solver, 0.1, batch=3)
            with np.errstate(all="ignore"):
                w = train([0], x, x, 1, 4, 7, how, one.data)
                g = batch_gradient([0], x, 3, 1, 7, one.data)
            assert np.linalg.norm(g) <= CLIP * (1.0 + 1e-5)
            assert np.linalg.norm(w - x) <= 4 * 0.1 * CLIP * (1.0 + 1e-4)


def check_estimates(module=scalar):
    """A difference of values moves by the clip times its direction, whatever label cancels."""
    rng = np.random.default_rng(1)
    for name, loss in LINEAR.items():
        for _ in range(200):
            u, d = rng.normal(size=2) * 10.0 ** rng.integers(-9, 3, 2)
            b = float(rng.choice([1.0, -1.0, 1e8, 1e12, 1e100, 1.7e308]))
            c = float(10.0 ** rng.integers(-3, 3))
            with np.errstate(all="ignore"):
                change = module.clipped_change(loss.code, u, d, b, 1.0, c)
            assert abs(change) <= c * abs(d), name


def test_differences_of_values_are_cut():
    check_estimates()
    one = problem(LINEAR["squared"], label=1e12)
    with np.errstate(all="ignore"):
        ask = lambda of: estimates([0], places(4), 0, 7, of.data, samples=1, u2=1e-6)  # noqa: E731
        directions = np.linalg.norm(ask(one))
    assert moved(one, problem(LINEAR["squared"]), ask) <= 2.0 * 4.0**2 * 4.0
    assert directions < 1e3


def test_differences_that_are_not_cut_are_noticed():
    right = "return c * abs(d) if change > 0.0 else -c * abs(d)"
    with pytest.raises(AssertionError):
        check_estimates(mutant(scalar, right, "return change"))


def each(kind="float64"):
    """Gradients of rows: ordinary ones, infinite, no number, and one whose square is infinite."""
    rows = np.random.default_rng(2).normal(size=(7, 5)).astype(kind)
    rows[1, 2], rows[2, 0], rows[3] = np.inf, np.nan, 1e30 if kind == "float32" else 1e200
    return rows


def check_sum(module=models):
    """What is not finite counts as 0, what is counts as it did."""
    for kind in ("float64", "float32"):
        rows = each(kind)
        kept = rows[[0, 3, 4, 5, 6] if kind == "float32" else [0, 4, 5, 6]]
        with np.errstate(all="ignore"):
            found, expected = (module.clipped_sum(one, CLIP) for one in (rows, kept))
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_gradients_of_models_that_are_not_finite_count_as_nothing():
    check_sum()
    for wrong in ("(sound := norms == norms).all()", "(sound := norms < 1e400).any()"):
        with pytest.raises(AssertionError):
            check_sum(mutant(models, "(sound := np.isfinite(norms)).all()", wrong))


class Cubes(Model):
    """Values whose differences overflow, or are no number, for some rows."""

    name, summary, labels = "cubes", "values without measure", "numbers"
    example = ((FEATURES,), 0)

    def initial(self, seed):
        return np.zeros(FEATURES)

    def loss(self, x, rows):
        with np.errstate(all="ignore"):
            return (rows.inputs @ x - rows.labels) ** 3


def test_estimates_of_models_are_cut():
    def check(module):
        data = problem(LINEAR["squared"]).data
        A, b = np.ones((4, FEATURES)), np.array([1.0, 1e103, -1e103, 1e308])
        loss = Cubes(None, Facts((FEATURES,), 0, "float64"))

        class Values:
            losses = staticmethod(lambda A, b, x: loss.loss(x, Rows(A, b)))

        fields = {"ridge": data.ridge, "lasso": data.lasso, "scale": np.ones(1), "clip": CLIP}
        made = type("Made", (), {**fields, "A": A, "b": b, "start": [0, 4], "loss": Values})
        v = np.ones(FEATURES)
        with np.errstate(all="ignore"):
            slope = module._slope(0, np.zeros(FEATURES), 0.1, 1e-6, v, v, 0.0, 0.0 * v, made)
        assert abs(slope) <= 4 * CLIP * np.linalg.norm(v)

    check(modelled)
    with pytest.raises(AssertionError):
        check(mutant(modelled, "np.isnan(each)", "np.isinf(each)"))


def test_what_is_said_of_losses_is_a_number_within_its_range():
    one = problem(LAYERED["softmax"], SPOILED["far"])
    x = np.full((1, one.dim), 1e250)
    with np.errstate(all="ignore"):
        assert 0.0 <= mean_losses(one, np.array([0]), x, 1, 0.7)[0] <= 0.7
        assert np.isnan(mean_losses(one, np.array([0]), x)[0])
    data = problem(LINEAR["squared"], label=1e200).data
    capped = sums.capped_losses([0], places(4), 0.7, [True], data)
    assert 0.0 <= capped[0] <= 0.7


NETWORKS = {"torch": ("networks.py", "layers"), "jax": ("jax_models.py", "jax-hidden")}


def network(library, precision):
    """A model of a library's, with tanh, for rows of FEATURES numbers."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    file, name = NETWORKS[library]
    registry.load_plugin(PLUGINS / file)
    of = registry.plugged().models[name]
    given = of.Parameters() if of.Parameters else None
    made = of(given, Facts((FEATURES,), 3, precision))
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(8, ROWS, FEATURES)).astype(precision)
    labels, keys = rng.integers(0, 3, (8, ROWS)), np.arange(8, dtype=np.uint64)
    made.sample = Rows(inputs[0], labels[0], keys[0])
    return made, Rows(inputs, labels, keys)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("library", NETWORKS)
def test_a_row_of_a_network_moves_its_agents_gradient_alone(library, precision):
    """One row of the second of eight agents; tanh' is 0 where a row is long, and 0 inf is nan."""
    model, rows = network(library, precision)
    spread = 0.01 * np.random.default_rng(6).normal(size=(8, model.dim))
    x = (model.initial(0) + spread).astype(precision)
    for row in (*rows_of(precision).values(), np.full(FEATURES, np.inf), np.full(FEATURES, np.nan)):
        inputs = rows.inputs.copy()
        inputs[1, 2] = row
        spoiled = rows._replace(inputs=inputs)
        with model.computing(), np.errstate(all="ignore"):
            before, after = (model.gradients(x, one, CLIP) for one in (rows, spoiled))
            alone = model.gradients(x[1:2], Rows(*(one[1:2] for one in spoiled)), CLIP)
        assert np.linalg.norm(after[1] - before[1]) <= 2.0 * CLIP * (1.0 + 1e-5)
        assert np.array_equal(np.delete(after, 1, 0), np.delete(before, 1, 0))
        assert np.array_equal(alone[0], after[1])


def test_rows_that_a_type_cannot_hold_are_no_rows():
    far = SPOILED["far"]
    with pytest.raises(InputError, match="A is not finite in row 2, column 0 in float32; allowed"):
        problem(LAYERED["softmax"], far, precision="float32")
    with np.errstate(over="ignore"):  # that this test can fail: float64 can hold it, float32 not
        assert np.isinf(far.astype(np.float32)).any()
    assert problem(LAYERED["softmax"], far).A[2, 0] == 1e100


def exploding(tmp_path, right="", wrong=""):
    """An audit's scenario of a model with exp, whose gradients are infinite for some rows."""
    text = (PLUGINS / "numpy_models.py").read_text()
    assert right in text
    name = f"exploding{hashlib.sha256(wrong.encode()).hexdigest()[:6]}.py"
    (tmp_path / name).write_text(text.replace(right, wrong))
    return {
        "seed": 2, "plugins": [str(tmp_path / name)],
        "problem": {
            "agents": 2, "model": "numpy-scores", "clip": 1.0, "precision": "float64",
            "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 3},
        },
        "algorithm": {"name": "dsgd", "alpha": 0.2, "weights": "metropolis"},
        "network": {"topology": "path", "link": {"latency": "10 ms"}},
        "privacy": {"noise": {"sigma": 0.5}}, "observe": {"metrics": []}, "stop": {"rounds": 2},
    }  # fmt: skip


RAISES = "        return (a[:, :, None]"


@pytest.mark.parametrize("view", ["eavesdropper", "neighbour:1", "final-model"])
@pytest.mark.slow
def test_a_run_that_ends_on_one_side_alone_is_an_outcome(view, tmp_path):
    """Of a model that raises where a row is long; the right one is not refuted."""
    raises = f"        assert np.isfinite(odds).all()\n{RAISES}"
    for wrong, verdict in ((raises, "refuted"), (RAISES, "not refuted")):
        scenario = exploding(tmp_path, RAISES, wrong)
        found = of_method.audit(scenario, runs=40, claims=["rigorous"], view=view, agent=0)
        assert np.isfinite(found.findings[0].claim.epsilon)
        assert found.findings[0].verdict == verdict
        if view == "eavesdropper":
            assert any(ENDS in note for note in found.notes) == (verdict == "refuted")


def test_a_private_minimisation_refuses_rows_that_it_cannot_resolve(tmp_path, monkeypatch):
    """Such a row would end the run of whoever has it: as it does where nobody refuses it."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(3, 6, 3)), np.sign(rng.normal(size=(3, 6)))

    def play(size, **noise):
        rows = A.copy()
        rows[0, 0] *= size
        np.savez(tmp_path / "rows.npz", A=rows, b=b)
        return desim.run(
            {
                "seed": 1, "problem": {
                    "data": {"source": "npz", "file": str(tmp_path / "rows.npz")}, "clip": 1.0,
                    "loss": "squared", "regularizer": {"l2": 1.0},
                },
                "algorithm": {"name": "pp-admm", "eta": 1.0, "beta": 1e-4},
                "network": {"topology": "ring"}, "observe": {"metrics": []}, "stop": {"rounds": 4},
                **noise,
            }
        )  # fmt: skip

    private = {"privacy": {"noise": {"kind": "gaussian", "sigma": 1.0}}}
    play(1e4, **private)
    with pytest.raises(
        InputError, match=r"algorithm\.beta: .* row 0 of agent 0 has norm .*; allow"
    ):
        play(1e10, **private)
    monkeypatch.setattr(minimisation, "_unresolved", lambda *of: [])
    with pytest.raises(RunError):
        play(1e10, **private)
