"""Gradients and losses of layered models: plain loops, finite differences, reference values."""

import numpy as np
import pytest
from mutant import mutant
from naive import layers

from desim.errors import InputError
from desim.numerics import jit, keys
from desim.numerics.keys import Stream
from desim.problem.kernels.gradients import batch_gradient, gradient
from desim.problem.kernels.local import train
from desim.problem.kernels.plan import plan_for
from desim.problem.losses.layers import LayeredLoss
from desim.problem.losses.regularizers import Regularizer
from desim.problem.problem import Problem

MODELS = {
    "softmax": LayeredLoss("softmax", classes=4),
    "sigmoid": LayeredLoss("mlp", classes=4, hidden=5),
    "relu": LayeredLoss("mlp", classes=4, hidden=5, activation="relu"),
}
SIZES = (7, 1, 4, 6)
AGENTS, FEATURES = len(SIZES), 6
EVERYBODY = np.arange(AGENTS)


def problem(model, **rest):
    """Random rows of agents with SIZES rows, and a random model for each agent (agents, dim)."""
    random = np.random.default_rng(7)
    A = random.normal(size=(sum(SIZES), FEATURES))
    b = random.integers(0, 4, len(A)).astype(float)
    start = np.cumsum([0, *SIZES])
    made = Problem(A, b, start, MODELS[model], **rest)
    return made, random.normal(size=(AGENTS, made.dim))


def shape(model):
    loss = MODELS[model]
    return {"classes": loss.classes, "hidden": loss.hidden, "activation": loss.activation}


def expected(made, model, i, x, rows=None, twin=layers, count=None):
    """The plain loop's gradient of f_i, or of its estimate from `rows`."""
    A, b = (one[made.start[i] : made.start[i + 1]] for one in (made.A, made.b))
    rows = np.arange(len(A)) if rows is None else rows
    g = twin.data_gradient(x, A[rows], b[rows], clip=made.clip, **shape(model))
    return made.scale[i] * len(A) / len(rows) * g + made.ridge[i] * x + made.lasso[i] * np.sign(x)


PENALTY = {"agent_regularizer": Regularizer(l1=0.2, l2=0.7)}


@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("clip", [np.inf, 0.8])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_the_naive_ones(model, clip, average):
    made, x = problem(model, clip=clip, average=average, **PENALTY)
    found = gradient(EVERYBODY, x, made.data)
    for i in EVERYBODY:
        np.testing.assert_allclose(found[i], expected(made, model, i, x[i]), atol=1e-12)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("out[int(label)] -= 1", "out[int(label)] -= 0.9"),
        ("back = (W2 @ out) * slope", "back = W2 @ out"),
        ("np.outer(inner, out).ravel(), out]", "np.outer(inner, out).ravel(), 0 * out]"),
        ("norm = np.linalg.norm(g)", "norm = np.abs(g).sum()"),
        ("norm = np.linalg.norm(g)", "norm = np.linalg.norm(g[:-4])"),
    ],
)
def test_wrong_gradients_are_noticed(right, wrong):
    made, x = problem("sigmoid", clip=0.8)
    twin = mutant(layers, right, wrong)
    found = gradient(EVERYBODY, x, made.data)[0]
    assert np.max(np.abs(found - expected(made, "sigmoid", 0, x[0], twin=twin))) > 1e-6


@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_the_slopes_of_the_objective(model):
    made, x = problem(model, clip=0.5, coordinator_regularizer=Regularizer(l2=0.9))
    x, h = x[0], 1e-5
    steps = [made.objective(x + h * e) - made.objective(x - h * e) for e in np.eye(made.dim)]
    found = np.max(np.abs(made.total_gradient(x) - np.array(steps) / (2 * h)))
    assert found < 1e-8
    assert np.max(np.abs(1.001 * made.total_gradient(x) - np.array(steps) / (2 * h))) > 1e-8


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_no_clipped_gradient_is_longer_than_the_clip(model, precision):
    clip = 0.3
    made, x = problem(model)
    one = Problem(
        made.A, made.b, np.arange(len(made.A) + 1), made.loss, clip=clip, precision=precision
    )
    found = gradient(np.arange(len(made.A)), np.tile(3.0 * x[0], (len(made.A), 1)), one.data)
    lengths = np.linalg.norm(found, axis=1)
    assert lengths.max() <= clip
    assert np.sum(lengths > 0.9999 * clip) > 5
    free = [
        layers.example_gradient(3.0 * x[0], a, b, **shape(model))
        for a, b in zip(made.A, made.b, strict=True)
    ]
    cut = [g * min(1.0, clip / np.linalg.norm(g)) for g in free]
    assert np.max(np.abs(found - cut)) < (1e-12 if precision == "float64" else 1e-5)


def test_float32_is_close_and_different():
    made, x = problem("sigmoid", clip=0.8)
    low, _ = problem("sigmoid", clip=0.8, precision="float32")
    gap = np.max(np.abs(gradient(EVERYBODY, x, made.data) - gradient(EVERYBODY, x, low.data)))
    assert 0.0 < gap < 1e-6
    assert low.objective(x[0]) == pytest.approx(made.objective(x[0]), rel=1e-6)


@pytest.mark.parametrize("model", ["softmax", "relu"])
def test_batches_are_the_addressed_ones(model):
    made, x = problem(model, clip=0.8, **PENALTY)
    count = np.array([3, 5, 0, 2])
    found = batch_gradient(EVERYBODY, x, count, 9, 5, made.data, step=2)
    for i in EVERYBODY:
        rows = None
        if 0 < count[i] < SIZES[i]:
            rows = keys.subset(5, Stream.BATCH, SIZES[i], count[i], agent=i, round=9, step=2)
        wanted = expected(made, model, i, x[i], rows) if count[i] else np.zeros(made.dim)
        np.testing.assert_allclose(found[i], wanted, atol=1e-12)
    for round, step in ((10, 2), (9, 0)):
        other = batch_gradient(EVERYBODY, x, count, round, 5, made.data, step=step)
        assert np.max(np.abs(found - other)) > 1e-3


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_an_agents_bits_are_its_own(precision, monkeypatch):
    made, x = problem("sigmoid", clip=0.8, precision=precision)
    plan = plan_for(AGENTS, ["noisy", "sgd", "gradient", "sgd"], 0.1, q=0.5, tau=0.1, batch=2)

    def both():
        g = batch_gradient(EVERYBODY, x, 3, 2, 5, made.data)
        return g, train(EVERYBODY, x, 0 * x, 2, 3, 5, plan, made.data)

    (g, w), alone = both(), EVERYBODY[2:3]
    assert g[2].tobytes() == batch_gradient(alone, x[2:3], 3, 2, 5, made.data)[0].tobytes()
    assert w[2].tobytes() == train(alone, x[2:3], 0 * x[:1], 2, 3, 5, plan, made.data)[0].tobytes()
    monkeypatch.setattr(jit, "PARALLEL_WORK", 0)
    shared = both()
    assert g.tobytes() == shared[0].tobytes()
    assert w.tobytes() == shared[1].tobytes()


def test_training_is_the_naive_loop():
    made, x = problem("sigmoid", clip=0.8, **PENALTY)
    solvers = ["gradient", "accelerated", "sgd", "noisy"]
    plan = plan_for(AGENTS, solvers, 0.2, beta=0.5, q=0.4, tau=0.3, batch=2)
    v, shift = np.roll(x, 1, axis=0), 0.1 * np.roll(x, 2, axis=0)
    found = train(EVERYBODY, x, v, 4, 3, 5, plan, made.data, shift)
    for i, solver in enumerate(solvers):
        w = last = x[i]
        for step in range(3):
            rows = None
            if solver == "sgd":
                rows = keys.subset(5, Stream.BATCH, SIZES[i], 2, agent=i, round=4, step=step)
            g = expected(made, "sigmoid", i, w, rows) + 0.4 * (w - v[i]) + shift[i]
            ahead = w - 0.2 * g
            w = ahead + 0.5 * (ahead - last) if solver == "accelerated" else ahead
            last = ahead
            if solver == "noisy":
                draw = keys.normals(5, Stream.NOISE, agent=i, round=4, step=step, size=made.dim)
                w = w + np.sqrt(0.4) * 0.3 * draw
        np.testing.assert_allclose(found[i], w, atol=1e-12)


def test_reference_loss_and_gradient(golden):
    g = golden("dissertation")["dpsgd"]
    A, b = np.array(g["X"]), np.array(g["Y"], float)
    start = np.arange(len(A) + 1) * A.shape[1]
    loss = LayeredLoss("mlp", hidden=3).with_classes(b.ravel())
    made = Problem(A.reshape(-1, A.shape[2]), b.ravel(), start, loss)
    x0 = np.array(g["x0"])
    assert loss.classes == 3
    assert np.max(np.abs(made.agent_values(x0) - g["loss0"])) < 1e-10
    taken = np.arange(3)  # the first agent's first batch, clipped
    batch = Problem(made.A[taken], made.b[taken], [0, 3], loss, clip=g["K"])
    first = gradient(np.array([0]), x0[:1], batch.data)[0]
    assert np.max(np.abs(first - g["grad0_agent0"])) < 1e-10
    relu = Problem(made.A, made.b, start, LayeredLoss("mlp", 1.0, 3, 3, "relu"))
    assert np.max(np.abs(relu.agent_values(x0) - g["loss0"])) > 1e-3


@pytest.mark.parametrize("model", MODELS)
def test_losses_and_predictions_are_the_naive_ones(model):
    made, x = problem(model)
    for i in EVERYBODY:
        A, b = (one[made.start[i] : made.start[i + 1]] for one in (made.A, made.b))
        each = [layers.value(x[i], a, c, **shape(model)) for a, c in zip(A, b, strict=True)]
        assert made.agent_values(x[i], np.array([i]))[0] == pytest.approx(np.mean(each), rel=1e-13)
        best = [np.argmax(layers.scores(x[i], a, **shape(model))[0]) for a in A]
        assert made.loss.predictions(A, x[i]).tolist() == best


def test_scores_of_any_size_have_finite_losses():
    made, x = problem("relu")
    assert np.isfinite(made.agent_values(1e6 * x)).all()
    assert np.isfinite(gradient(EVERYBODY, 1e6 * x, made.data)).all()


def test_smoothness_of_softmax_bounds_every_hessian():
    made, x = problem("softmax", **PENALTY)
    free = Problem(made.A, made.b, made.start, made.loss, "mean", Regularizer(l2=0.7))
    lo, hi = free.moduli
    h, top = 1e-5, 0.0
    for scale in (0.0, 0.3, 3.0):
        g = [
            gradient(EVERYBODY, scale * x + h * e, free.data)
            - gradient(EVERYBODY, scale * x - h * e, free.data)
            for e in np.eye(free.dim)
        ]
        for i in EVERYBODY:
            ends = np.linalg.eigvalsh(np.array(g)[:, i] / (2 * h))[[0, -1]]
            assert lo[i] - 1e-8 <= ends[0]
            assert ends[1] <= hi[i] + 1e-8
            top = max(top, ends[1] / hi[i])
    assert top > 0.4  # the bound 1/2 is reached with two classes, not with four
    assert np.isinf(problem("sigmoid")[0].moduli[1]).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"b": [0.0, 4.0]}, "class numbers 0 to 3; found label 4"),
        ({"b": [0.0, -1.0]}, "class numbers 0 to 3; found label -1"),
        ({"b": [0.0, 1.5]}, "found label 1.5"),
        ({"loss": LayeredLoss("softmax", classes=101)}, "101 classes; allowed: at most 100"),
    ],
)
def test_labels_that_are_no_classes(changes, said):
    given = {"A": np.eye(2), "b": [0.0, 1.0], "start": [0, 2], "loss": MODELS["softmax"]}
    with pytest.raises(InputError, match=said):
        Problem(**{**given, **changes})
