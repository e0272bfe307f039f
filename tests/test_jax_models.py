"""JAX functions as models: gradients of NumPy, clipping row by row, and bits that nobody shares."""

import threading
from pathlib import Path

import numpy as np
import pytest

import desim
from desim.errors import InputError
from desim.problem.models.user_model import Facts, Rows
from desim.scenario import registry

jax = pytest.importorskip("jax", reason="jax is not installed: the extra desim[jax]")
from desim.problem.models import jax_function  # noqa: E402

FILE = Path(__file__).parent / "plugins" / "jax_models.py"
DIM, CLASSES = 6, 3
NEAR = {"float32": 1e-5, "float64": 1e-12}


def made(name="jax-hidden", precision="float32", **facts):
    """A model of that name for rows of DIM numbers."""
    registry.load_plugin(FILE)
    given = Facts(**{"shape": (DIM,), "classes": CLASSES, "precision": precision, **facts})
    return registry.plugged().models[name](None, given)


def rows(n, m, precision="float32", seed=5, key=True):
    """Rows of n agents."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 63, n).astype(np.uint64) if key else None
    inputs = rng.normal(size=(n, m, DIM)).astype(precision)
    return Rows(inputs, rng.integers(0, CLASSES, (n, m)), words)


def places(model, n, spread=0.1):
    """Parameters (n, dim) near where the model starts."""
    start = model.initial(model.facts.seed)
    drawn = np.random.default_rng(2).normal(size=(n, len(start)))
    return (start + spread * drawn).astype(model.facts.precision)


def oracle(x, inputs, labels, slope=lambda h: 1.0 - h**2):
    """Gradients (m, dim) of the cross-entropy of `jax-hidden`, in NumPy and float64."""
    x, each = x.astype(float), []
    bias, first, last = np.split(x, [7, 7 + 7 * DIM])
    first, last = first.reshape(DIM, 7), last.reshape(7, CLASSES)
    for a, b in zip(inputs.astype(float), labels, strict=True):
        hidden = np.tanh(a @ first + bias)
        odds = np.exp(hidden @ last)
        off = odds / odds.sum() - np.eye(CLASSES)[b]
        back = (last @ off) * slope(hidden)
        each.append(
            np.concatenate([back, np.outer(a, back).ravel(), np.outer(hidden, off).ravel()])
        )
    return np.array(each)


@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("m", [1, 8, 17, 300])
def test_gradients_are_those_of_numpy(precision, m):
    model = made(precision=precision)
    given = rows(1, m, precision).agent(0)
    x = places(model, 1)[0]
    each = oracle(x, given.inputs, given.labels)
    found = model.gradient(x, given)
    assert found.dtype == precision
    size = np.abs(each).sum(0)  # of what is added
    assert (np.abs(found - each.sum(0)) <= NEAR[precision] * (1.0 + size)).all()
    assert np.abs(model.example_gradients(x, given) - each).max() < NEAR[precision]
    wrong = oracle(x, given.inputs, given.labels, slope=lambda h: 1.0 - h)
    assert not (np.abs(found - wrong.sum(0)) <= NEAR[precision] * (1.0 + size)).all()


@pytest.mark.parametrize("name", ["jax-hidden", "jax-dropping", "jax-convolved"])
@pytest.mark.parametrize("m", [3, 19, 300])
def test_a_clipped_sum_is_that_of_rows_cut_one_by_one(name, m):
    model = made(name)
    given = rows(1, m).agent(0)
    x = places(model, 1)[0]
    each = model.example_gradients(x, given).astype(float)
    norms = np.linalg.norm(each, axis=1)
    clip = float(np.median(norms))

    def looped(cut):
        return sum(
            row * min(1.0, cut / max(norm, 1e-30)) for row, norm in zip(each, norms, strict=True)
        )

    found = model.clipped(x, given, clip)
    assert np.abs(found - looped(clip)).max() < 1e-5 * m * clip
    assert np.abs(found - looped(1.01 * clip)).max() > 1e-5 * m * clip
    assert np.abs(model.gradient(x, given) - each.sum(0)).max() < 1e-5 * norms.sum()


def test_no_gradient_is_longer_than_the_clip_however_long_it_was():
    model = made()
    given = rows(1, 60).agent(0)
    given = given._replace(inputs=given.inputs * 10.0 ** np.arange(-20, 40)[:, None] % 1e30)
    for h in range(60):
        one = given.part(h, h + 1)
        for clip in (1e-3, 0.5):
            cut = model.clipped(places(model, 1)[0], one, clip).astype(float)
            assert np.linalg.norm(cut) <= clip


@pytest.mark.parametrize("name", ["jax-hidden", "jax-dropping", "jax-convolved"])
@pytest.mark.parametrize("clip", [np.inf, 0.3])
def test_no_bit_depends_on_how_many_agents_go_together(name, clip, monkeypatch):
    monkeypatch.setattr(jax_function, "WORTH", 0)  # groups are tried at once
    model, given = made(name), rows(37, 9)
    x = places(model, 37)
    alone = [made(name).gradients(x[r : r + 1], one_of(given, r), clip)[0] for r in range(37)]
    together = model.gradients(x, given, clip)
    assert np.array_equal(together, alone)
    order = np.random.default_rng(1).permutation(37)
    mixed = Rows(*(one[order] for one in given))
    assert np.array_equal(model.gradients(x[order], mixed, clip), together[order])
    assert list(model._same.values()) != []


def one_of(given, r):
    return Rows(*(one[r : r + 1] for one in given))


def test_a_bit_that_depends_on_how_many_agents_go_together_is_noticed(monkeypatch):
    monkeypatch.setattr(jax_function, "WORTH", 0)
    model, given = made(), rows(20, 9)
    x = places(model, 20)
    together = model._together

    def wrong(one, address, own, shared):
        return together(one, address, own, shared) * np.float32(1.0 + 2e-7 * (len(own[0]) - 1))

    right = model.gradients(x, given, np.inf)
    model._together = wrong
    assert not np.array_equal(model.gradients(x, given, np.inf), right)
    model._same.clear()  # tried out, it is not used
    assert np.array_equal(model.gradients(x, given, np.inf), right)


def test_agents_that_go_together_are_one_call():
    model, given = made(), rows(20, 9)
    x = places(model, 20)
    model._calls = {key: jax_function.WORTH for key in [address(model, x, given)]}
    model.gradients(x, given, np.inf)
    assert model._same == {address(model, x, given): True}


def address(model, x, given):
    """Where the model looks whether gradients of such rows go together."""
    shapes = [x, padded_to(given.inputs, 10), padded_to(model._array(given.labels), 10)]
    empty = np.empty((len(x), 0), np.uint32)
    return ("_summed", *((a.shape[1:], a.dtype.str) for a in (*shapes, empty)))


def padded_to(array, size):
    return jax_function.padded(array, 1, size)


def test_a_function_is_compiled_for_some_numbers_of_rows():
    assert [jax_function.rung(m) for m in (1, 5, 8, 9, 10, 11, 20, 21, 100, 250, 256)] == [
        1, 5, 8, 10, 10, 12, 20, 24, 112, 256, 256,
    ]  # fmt: skip
    model, given = made(), rows(1, 300)
    x = places(model, 1)[0]
    for m in (17, 18, 19, 20, 257, 299, 300):
        model.gradient(x, given.agent(0).part(0, m))
        model.loss(x, given.agent(0).part(0, m))
    assert len(model._compiled) == 2 + 3  # gradients: 20, 256 rows; losses: 16, 64, 256


def test_random_layers_are_those_of_the_key():
    model = made("jax-dropping")
    given = rows(1, 9).agent(0)
    x = places(model, 1)[0]
    first = model.gradient(x, given)
    assert np.array_equal(first, made("jax-dropping", seed=7).gradient(x, given))
    other = given._replace(key=int(given.key) ^ 1 << 40)
    assert not np.array_equal(first, model.gradient(x, other))
    still = given._replace(key=None)
    assert np.array_equal(model.gradient(x, still), made().gradient(x, still))
    assert np.array_equal(model.loss(x, given), made().loss(x, given))


def test_numbers_are_learnt_by_squares():
    model = made("jax-line", "float64", classes=0)
    given = rows(1, 30, "float64").agent(0)
    labels = given.inputs @ np.arange(DIM)
    x = np.ones(DIM)
    given = given._replace(labels=labels)
    off = given.inputs @ x - labels
    assert np.allclose(model.loss(x, given), off**2, rtol=1e-12)
    assert np.allclose(model.gradient(x, given), 2.0 * off @ given.inputs, rtol=1e-12)
    assert not jax.config.jax_enable_x64
    assert jax.numpy.ones(1).dtype == "float32"


def test_threads_do_not_meet():
    model, given = made(), rows(8, 9)
    x = places(model, 8)
    right = made().gradients(x, given, np.inf)
    found = {}

    def work(r):
        found[r] = [model.gradient(x[r], given.agent(r)) for _ in range(5)]

    crew = [threading.Thread(target=work, args=(r,)) for r in range(8)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert all(np.array_equal(one, right[r]) for r in range(8) for one in found[r])


SCENARIO = {
    "seed": 4,
    "plugins": [str(FILE)],
    "problem": {
        "agents": 5,
        "data": {"source": "synthetic", "kind": "classification", "rows": 12, "dim": DIM},
        "model": "jax-hidden",
    },
    "network": {"link": {"latency": {"uniform": ["5 ms", "40 ms"]}}},
    "compute": {"speed": {"uniform": [100, 900]}},
    "observe": {"metrics": ["loss"], "iterates": True},
    "stop": {"rounds": 4},
}
FEDAVG = {"name": "fedavg", "local": {"solver": "sgd", "batch": 3, "epochs": 2, "step": 0.1}}
CASES = {
    "all": {"algorithm": FEDAVG},
    "each": {"algorithm": FEDAVG, "policy": "each"},
    "ring": {
        "algorithm": {"name": "dsgd", "alpha": 0.1, "batch": 3},
        "network": {"topology": "ring", "link": {"latency": "10 ms"}},
    },
}


@pytest.mark.parametrize("model", ["jax-hidden", "jax-dropping"])
@pytest.mark.parametrize("case", CASES)
def test_engines_give_the_same_bits_and_it_learns(case, model):
    scenario = {**SCENARIO, **CASES[case], "problem": {**SCENARIO["problem"], "model": model}}
    one, other = (desim.run({**scenario, "engine": name}) for name in ("cohort", "agents"))
    assert one.events.equals(other.events)
    assert one.metrics.equals(other.metrics)
    assert np.array_equal(one.iterates, other.iterates)
    told = one.metrics[one.metrics.agent == -1].value.to_numpy()
    assert told[-1] < told[0]


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('"bias": jnp.zeros(7),', '"bias": jnp.zeros(7, int),', "found int32 at .'bias'.; allowed"),
        (
            "return {\n", 'return {"params": jnp.zeros(3), "batch_stats": 1.0} or {\n',
            "found batch_stats beside params, which nobody sends, clips or noises; allowed: params",
        ),
        ("return {\n", "return [] and {\n", "weights: found no array; allowed: a tree of float"),
        ("        return hidden @", "        return 0 if hidden.sum() > 0 else hidden @",
         "Tracer"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused_in_words(right, wrong, says, tmp_path):
    text = FILE.read_text()
    (tmp_path / "wrong.py").write_text(text.replace(right, wrong, 1))
    scenario = {**SCENARIO, **CASES["all"], "plugins": [str(tmp_path / "wrong.py")]}
    with pytest.raises(InputError, match=says) as told:
        desim.run(scenario)
    assert str(told.value).startswith("problem.model: jax-hidden: ")


def test_losses_are_one_for_each_row(tmp_path):
    wrong = """
    def losses(self, outputs, labels):
        return super().losses(outputs, labels).mean()
"""
    text = FILE.read_text().replace("\n\nclass Dropping", f"{wrong}\n\nclass Dropping")
    (tmp_path / "wrong.py").write_text(text)
    scenario = {**SCENARIO, **CASES["all"], "plugins": [str(tmp_path / "wrong.py")]}
    with pytest.raises(InputError, match=r"losses: found shape \(\) for \d+ rows; allowed: \("):
        desim.run(scenario)


def test_a_device_that_is_not_there_is_named():
    if any(one.platform == "gpu" for one in jax.devices()):
        pytest.skip("there is one")
    with pytest.raises(InputError, match=r"problem.device: found cuda, .*; allowed: cpu"):
        made(device="cuda")
