"""Torch modules that are easy to compute wrongly: right to a plain loop, or refused in words."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from desim.errors import InputError
from desim.problem.models.checked import first_look
from desim.problem.models.user_model import Facts, Rows

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).parent / "plugins"))
import odd_modules as odd  # noqa: E402
from torch import nn  # noqa: E402

from desim.torch import TorchModel  # noqa: E402

ROWS, AGENTS = 12, 5
RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(ROWS, odd.WIDTH)), RNG.integers(0, odd.CLASSES, ROWS)
TOKENS = RNG.integers(0, 10, (ROWS, 5))


def model_of(make, inputs=INPUTS, clip=np.inf, criterion=nn.CrossEntropyLoss):
    """The model of the module that `make` gives, and where it starts."""

    class Mine(TorchModel):
        name = "mine"
        summary = "a module"

        def module(self):
            return make()

        def losses(self, outputs, labels):
            return criterion(reduction="none")(outputs, labels)

    facts = Facts(inputs.shape[1:], odd.CLASSES, "float64", "cpu", 3)
    return first_look(Mine, None, facts, Rows(inputs, LABELS, np.uint64(3)), clip)


def looped(make, x, inputs, labels, clip):
    """The sum of the gradients, each cut, by torch alone, a row at a time."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = make()
    kinds = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    net._apply(lambda one: one.to(kinds.get(one.dtype, one.dtype)))
    own = [one for one in net.parameters() if one.requires_grad]
    nn.utils.vector_to_parameters(torch.from_numpy(x), own)
    total = 0.0
    for row, label in zip(inputs, labels, strict=True):
        outputs = net(torch.from_numpy(row.copy())[None])
        loss = nn.functional.cross_entropy(outputs, torch.tensor([label]))
        found = torch.autograd.grad(loss, own, allow_unused=True, materialize_grads=True)
        g = torch.cat([one.to_dense().reshape(-1) for one in found]).numpy()
        total = total + g * min(1.0, clip / np.linalg.norm(g))
    return total


SOUND = {
    "writes_inputs": (odd.WritesInputs, INPUTS),
    "inplace": (lambda: nn.Sequential(nn.ReLU(inplace=True), odd.Inner()), INPUTS),
    "complex": (odd.Turned, INPUTS),
    "hooked": (partial(odd.Hooked, True), INPUTS),
    "sparse": (partial(odd.Words, sparse=True), TOKENS),
    "padded": (partial(odd.Words, padding_idx=0), TOKENS),
    "beside": (odd.Beside, INPUTS),
    "asserts": (odd.Asserts, INPUTS),
}


@pytest.mark.parametrize("clip", [np.inf, 0.3])
@pytest.mark.parametrize("case", SOUND)
def test_gradients_are_those_of_a_loop_over_rows(case, clip):
    make, given = SOUND[case]
    inputs = given.copy()
    model, start = model_of(make, inputs, clip)
    x = start + 0.1 * np.random.default_rng(1).normal(size=(AGENTS, len(start)))
    rows = Rows(np.stack([inputs] * AGENTS), np.stack([LABELS] * AGENTS), None)
    with model.computing():
        found = model.gradients(x, rows, clip)
        alone = np.stack([model.alone(one, Rows(inputs, LABELS), clip) for one in x])
    right = np.stack([looped(make, one, given, LABELS, clip) for one in x])
    assert np.abs(found - right).max() < 1e-10 * np.abs(right).max()
    assert np.abs(alone - right).max() < 1e-10 * np.abs(right).max()
    wrong = looped(make, x[1], given, LABELS, clip)
    assert np.abs(found[0] - wrong).max() > 1e-4 * np.abs(right).max()  # the wrong twin


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss, odd.WritesLabels])
@pytest.mark.parametrize("make", [odd.Inner, odd.WritesInputs])
def test_what_a_module_writes_to_its_rows_stays_with_it(make, criterion):
    inputs, labels = INPUTS.copy(), LABELS.copy()
    model, start = model_of(make, inputs, 0.3, criterion)
    rows = Rows(inputs, labels)
    for ask in (model.loss, model.predict, model.gradient, model.example_gradients):
        first = ask(start, rows)
        assert np.array_equal(first, ask(start, rows))
    model.alone(start, rows, 0.3)
    assert np.array_equal(inputs, INPUTS)
    assert np.array_equal(labels, LABELS)


REFUSED = {
    "lambda": (odd.Named, INPUTS, "a copy of the module computes with numbers of the first one"),
    "hook": (partial(odd.Hooked, False), INPUTS, "as where a lambda or a hook names the module"),
    "keeps": (odd.Keeps, INPUTS, "its loss depends on the parameters that it was asked for before"),
    "meets": (odd.Meets, INPUTS, "the gradients of two rows alone do not add up to that of both"),
    "frequency": (partial(odd.Words, scale_grad_by_freq=True), TOKENS, "two rows alone do not add"),
    "writes": (odd.Writes, INPUTS, "the module writes to its own parameter first.weight"),
    "max_norm": (partial(odd.Words, max_norm=0.5), TOKENS, "found max_norm at table, by which"),
    "undeclared": (odd.Undeclared, INPUTS, r"module\(\) gives another shift when it is called aga"),
    "complex": (odd.ComplexWeight, INPUTS, "turn holds torch.complex128; allowed: real numbers"),
}


@pytest.mark.parametrize("clip", [np.inf, 0.3])
@pytest.mark.parametrize("case", REFUSED)
def test_a_module_that_is_no_function_is_refused(case, clip):
    make, inputs, says = REFUSED[case]
    with pytest.raises(InputError, match=says):
        model_of(make, inputs, clip)


def test_a_refusal_recommends_what_helps():
    spectral = nn.utils.parametrizations.spectral_norm
    for make, helps in (
        (lambda: nn.Sequential(spectral(nn.Linear(odd.WIDTH, 3))), False),
        (lambda: nn.Sequential(nn.BatchNorm1d(odd.WIDTH), nn.Linear(odd.WIDTH, 3)), True),
    ):
        with pytest.raises(InputError, match="training changes") as error:
            model_of(make)
        assert ("frozen = True" in str(error.value)) == helps
