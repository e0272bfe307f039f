"""A problem's values, gradients and moduli against plain loops and the reference values."""

from types import SimpleNamespace

import numpy as np
import pytest
from mutant import mutant

from desim.errors import InputError
from desim.problem import problem as module
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import CODES, Loss
from desim.problem.problem import Problem

REGULARIZERS = {"agent_regularizer": Regularizer(l1=0.3, l2=2.0)}


@pytest.fixture
def fed_plt(golden):
    """The reference problem of fed-plt.json: logistic, 4 agents, 6 rows, 4 features."""
    found = golden("fed-plt")
    A, b = np.array(found["A"]), np.array(found["b"])
    start = np.arange(len(A) + 1) * A.shape[1]

    def make(average, made=Problem, **rest):
        l2 = found["variants"][average]["const"]["reg"] * len(A)
        A2 = A.reshape(-1, A.shape[2])
        return made(A2, b.ravel(), start, Loss("logistic"), average, Regularizer(l2=l2), **rest)

    return SimpleNamespace(make=make, variants=found["variants"])


def ragged(loss="squared", made=Problem, **rest):
    """Agents with 1, 5, 3 and 9 rows of 3 features."""
    random = np.random.default_rng(3)
    A = random.normal(size=(18, 3))
    b = np.where(random.random(18) < 0.5, -1.0, 1.0)
    return made(A, b, np.array([0, 1, 6, 9, 18]), Loss(loss, 0.7), **rest)


def naive_value(problem, i, x):
    """f_i(x) of an unclipped problem without a regulariser, by the formulas of the scenario."""
    total = 0.0
    for h in range(problem.start[i], problem.start[i + 1]):
        u, b = float(problem.A[h] @ x), problem.b[h]
        r = abs(u - b)
        total += {
            "squared": r**2,
            "absolute": r,
            "huber": r**2 if r <= 0.7 else 1.4 * r - 0.49,
            "hinge": max(0.0, 1.0 - b * u),
            "logistic": np.log(1.0 + np.exp(-b * u)),
        }[problem.loss.name]
    return total / (problem.start[i + 1] - problem.start[i]) ** (problem.average == "mean")


@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("loss", CODES)
def test_values_are_the_naive_ones(loss, average):
    problem, x = ragged(loss, average=average, **REGULARIZERS), np.array([0.4, -1.1, 0.2])
    mine = 0.3 * np.abs(x).sum() + 1.0 * (x @ x)
    expected = [naive_value(problem, i, x) + mine / 4 for i in range(4)]
    np.testing.assert_allclose(problem.agent_values(x), expected, rtol=1e-13)
    np.testing.assert_allclose(problem.agent_values(x, np.array([2])), expected[2:3], rtol=1e-13)
    assert problem.objective(x) == pytest.approx(sum(expected), rel=1e-13)
    assert problem.objective(x) != pytest.approx(sum(expected) + mine, rel=1e-3)


def test_every_agent_at_its_own_model():
    problem, x = ragged("logistic"), np.arange(12.0).reshape(4, 3) / 7
    each = [naive_value(problem, i, x[i]) for i in range(4)]
    np.testing.assert_allclose(problem.agent_values(x), each, rtol=1e-13)


@pytest.mark.parametrize("clip", [np.inf, 0.4])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
def test_gradient_is_the_derivative_of_the_smooth_part(loss, clip):
    problem = ragged(loss, clip=clip, coordinator_regularizer=Regularizer(l2=0.9), **REGULARIZERS)
    x, h = np.array([0.4, -1.1, 0.2]), 1e-6

    def smooth(x):
        return problem.objective(x) - 0.3 * np.abs(x).sum()

    steps = [(smooth(x + h * e) - smooth(x - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(problem.total_gradient(x), steps, atol=1e-8)


def test_clip_bounds_every_examples_gradient():
    problem = ragged("squared", clip=0.4)
    norms = np.linalg.norm(problem.A, axis=1)
    np.testing.assert_allclose(problem.limit * norms, 0.4, rtol=1e-15)
    alone = Problem(problem.A, problem.b, np.arange(19), problem.loss, clip=0.4)
    far = np.array([1e3, -1e3, 1e3])
    each = [
        np.linalg.norm(Problem(a[None], [b], [0, 1], alone.loss, clip=0.4).total_gradient(far))
        for a, b in zip(problem.A, problem.b, strict=True)
    ]
    np.testing.assert_allclose(each, 0.4, rtol=1e-12)


def test_a_row_of_zeros_has_no_limit():
    problem = Problem(np.array([[0.0], [2.0]]), [1.0, 1.0], [0, 2], Loss("squared"), clip=1.0)
    assert problem.limit.tolist() == [np.inf, 0.5]


def check_moduli(fed_plt, made=Problem):
    for average in ("mean", "sum"):
        const = fed_plt.variants[average]["const"]
        lo, hi = fed_plt.make(average, made).moduli
        np.testing.assert_allclose(hi, const["hi_per_agent"], rtol=1e-13)
        np.testing.assert_allclose(lo, const["lo"], rtol=1e-13)
        assert hi.max() == pytest.approx(const["hi"], rel=1e-13)


def test_moduli_and_optimal_value_are_the_reference(fed_plt):
    check_moduli(fed_plt)
    for average, variant in fed_plt.variants.items():
        problem, x = fed_plt.make(average), np.array(variant["const"]["xstar"])
        assert problem.objective(x) == pytest.approx(variant["const"]["f_star"], rel=1e-14)
        assert np.linalg.norm(problem.total_gradient(x)) < 1e-13


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("* ends[:, 1] + self.ridge", "* ends[:, 1]"),
        ("finite = self.loss.curvature * self.scale", "finite = self.loss.curvature * 1.0"),
        ("self.agent_regularizer.l2 / self.agents", "self.agent_regularizer.l2 / 1"),
    ],
)
def test_wrong_moduli_are_noticed(fed_plt, right, wrong):
    with pytest.raises(AssertionError):
        check_moduli(fed_plt, mutant(module, right, wrong).Problem)


def test_moduli_of_squared_loss_are_the_hessians_eigenvalues():
    problem = ragged("squared", agent_regularizer=Regularizer(l2=2.0))
    lo, hi = problem.moduli
    for i, (first, end) in enumerate(problem.spans()):
        block = problem.A[first:end]
        ends = np.linalg.eigvalsh(2.0 * block.T @ block / len(block) + 0.5 * np.eye(3))
        assert (lo[i], hi[i]) == pytest.approx((ends[0], ends[-1]), rel=1e-12)
    lo, clipped = ragged("squared", agent_regularizer=Regularizer(l2=2.0), clip=1.0).moduli
    assert lo.tolist() == [0.5] * 4
    assert clipped.tolist() == hi.tolist()


@pytest.mark.parametrize(
    "rest", [{"loss": "hinge"}, {"loss": "absolute"}, {"loss": "logistic", **REGULARIZERS}]
)
def test_a_nonsmooth_function_has_no_upper_modulus(rest):
    assert ragged(**rest).moduli[1].tolist() == [np.inf] * 4


def test_transposed_holds_each_block():
    problem = ragged()
    for first, end in problem.spans():
        block = problem.transposed[first * 3 : end * 3].reshape(3, end - first)
        assert np.array_equal(block, problem.A[first:end].T)


def test_accuracy():
    tests = {"test_A": np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0]]), "test_b": [1.0, 1.0, 1.0]}
    problem = ragged("logistic", **tests)
    assert problem.accuracy(np.array([1.0, 0.0, 0.0])) == pytest.approx(2 / 3)
    with pytest.raises(InputError, match=r"problem\.data\.test"):
        ragged("logistic").accuracy(np.zeros(3))
    with pytest.raises(InputError, match="no meaning for squared"):
        ragged("squared", **tests).accuracy(np.zeros(3))


def test_digest_tells_problems_apart():
    first = ragged()
    assert first.digest() == ragged().digest()
    others = [
        ragged("huber"),
        ragged(average="sum"),
        ragged(clip=3.0),
        ragged(**REGULARIZERS),
        ragged(coordinator_regularizer=Regularizer(l1=0.3, l2=2.0)),
        Problem(first.A + 1e-15, first.b, first.start, first.loss),
        Problem(first.A, first.b, [0, 2, 6, 9, 18], first.loss),
    ]
    assert len({first.digest(), *(other.digest() for other in others)}) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": np.zeros(17)}, "not \\(rows, features\\)"),
        ({"start": [0, 1, 6, 9, 17]}, "end at"),
        ({"start": [0, 1, 1, 9, 18]}, "agent 1 has no rows"),
        ({"A": np.full((18, 3), np.nan)}, "A is not finite in row 0, column 0"),
        ({"b": np.arange(18.0), "loss": Loss("hinge")}, "labels -1 and 1; found 0"),
        ({"average": "median"}, "allowed: mean, sum"),
        ({"agent_regularizer": Regularizer(upper=1.0)}, "box cannot be at the agents"),
        ({"clip": 0.0}, "clip: 0.0"),
        ({"clip": 5e-324}, r"clip: found .*e-324, which is 0 when divided by the norm \d"),
    ],
)
def test_refused(change, message):
    sound = ragged()
    arguments = {"A": sound.A, "b": sound.b, "start": sound.start, "loss": sound.loss, **change}
    with pytest.raises(InputError, match=message):
        Problem(**arguments)


def test_all_that_is_wrong_is_said_at_once():
    sound = ragged()
    with pytest.raises(InputError) as caught:
        Problem(sound.A, sound.b, sound.start, sound.loss, average="median", clip=-1.0)
    assert len(caught.value.problems) == 2
